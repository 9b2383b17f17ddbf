//! Expansion of a packed run to the original cells.

use bytes::Bytes;

use super::{
    FloatWidth, Mix, PackedRun, PackedRunError, RunShape,
    encoder::{integer_flags, is_single},
    int_stream,
    varint::Reader,
};
use crate::{
    cell::{Cell, Family},
    columns::PointColumns,
};

impl PackedRun {
    /// Appends the cells of the run, in time order. After an error `cells` is unchanged.
    pub fn expand_into(&self, cells: &mut Vec<Cell>) -> Result<(), PackedRunError> {
        let header = self.header;
        let mut columns = PointColumns::default();
        let mut reader = self.decode_points(0, &mut columns)?;
        let singles = self.single_marks()?;

        // One allocation for all qualifiers and values; each cell is a slice of it.
        let width = if header.millis { 4 } else { 2 };
        let mut qualifiers = Vec::with_capacity(header.count * width);
        let mut values = Vec::with_capacity(header.count * 8 + 1);
        let mut ends = Vec::with_capacity(header.count);
        let unit = i64::from(header.unit_ms());
        for (i, (&time, &bits)) in columns.times_ms.iter().zip(&columns.bits).enumerate() {
            let flags = if columns.is_integer(i) {
                put_integer(bits as i64, &mut values)
            } else {
                let single = match header.floats {
                    FloatWidth::Eight => false,
                    FloatWidth::Four => true,
                    FloatWidth::Shortest => is_single(f64::from_bits(bits)),
                    FloatWidth::Marked => singles.get(i).is_some_and(|&s| s != 0),
                };
                put_float(f64::from_bits(bits), single, &mut values)
            };
            let offset = (time / unit) as u32;
            if header.millis {
                let q = 0xF000_0000 | offset << 6 | u32::from(flags);
                qualifiers.extend_from_slice(&q.to_be_bytes());
            } else {
                let q = (offset << 4) as u16 | u16::from(flags);
                qualifiers.extend_from_slice(&q.to_be_bytes());
            }
            ends.push(values.len());
        }
        if header.shape == RunShape::Compacted {
            let timestamp_ms = reader.zigzag()?;
            ended(&reader)?;
            if header.count > 1 {
                values.push(0);
            }
            cells.push(cell(qualifiers.into(), values.into(), timestamp_ms));
            return Ok(());
        }
        let mut times = vec![0; header.count];
        int_stream::decode(&mut reader, &mut times)?;
        ended(&reader)?;
        let (qualifiers, values) = (Bytes::from(qualifiers), Bytes::from(values));
        let mut start = 0;
        cells.reserve(header.count);
        for (i, (end, (&relative, &offset_ms))) in
            ends.into_iter().zip(times.iter().zip(&columns.times_ms)).enumerate()
        {
            cells.push(cell(
                qualifiers.slice(i * width..(i + 1) * width),
                values.slice(start..end),
                (relative as i64).wrapping_add(offset_ms),
            ));
            start = end;
        }
        Ok(())
    }

    /// Individual marks of single-precision values.
    fn single_marks(&self) -> Result<Vec<u64>, PackedRunError> {
        if self.header.floats != FloatWidth::Marked {
            return Ok(Vec::new());
        }
        let mut reader = Reader::new(self.bytes.get(self.header.body..).unwrap_or_default());
        let mut marks = vec![0; self.header.count];
        if !self.header.regular {
            self.decode_offsets(&mut reader, &mut marks)?;
        }
        if self.header.mix == Mix::Both {
            int_stream::decode(&mut reader, &mut marks)?;
        }
        int_stream::decode(&mut reader, &mut marks)?;
        Ok(marks)
    }
}

const fn cell(qualifier: Bytes, value: Bytes, timestamp_ms: i64) -> Cell {
    Cell { family: Family::T, qualifier, value, timestamp_ms }
}

fn ended(reader: &Reader<'_>) -> Result<(), PackedRunError> {
    if reader.remaining() == 0 { Ok(()) } else { Err(PackedRunError::Damaged("bytes left over")) }
}

fn put_integer(v: i64, out: &mut Vec<u8>) -> u8 {
    let flags = integer_flags(v);
    let bytes = v.to_be_bytes();
    out.extend(bytes.iter().skip(7 - usize::from(flags)));
    flags
}

fn put_float(v: f64, single: bool, out: &mut Vec<u8>) -> u8 {
    if single {
        out.extend_from_slice(&(v as f32).to_be_bytes());
        0xB
    } else {
        out.extend_from_slice(&v.to_be_bytes());
        0xF
    }
}

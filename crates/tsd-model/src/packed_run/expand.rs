//! Expansion of a packed run to the original cells.

use bytes::Bytes;

use super::{
    PackedRun, encoder::PackablePoint, error::PackedRunError, header::RunShape, int_stream,
    number::Number,
};
use crate::{
    cell::{Cell, Family},
    columns::PointColumns,
};

impl PackedRun {
    /// Appends the cells of the run, in time order. After an error `cells` is unchanged.
    pub fn expand_into(&self, cells: &mut Vec<Cell>) -> Result<(), PackedRunError> {
        let header = self.header;
        let (mut columns, mut marks) = (PointColumns::default(), Vec::new());
        let mut reader = header.decode_points(&self.bytes, 0, &mut columns, Some(&mut marks))?;

        // One allocation for all qualifiers and values; each cell is a slice of it.
        let width = if header.millis { 4 } else { 2 };
        let mut qualifiers = Vec::with_capacity(header.count * width);
        let mut values = Vec::with_capacity(header.count * 8 + 1);
        let mut ends = Vec::with_capacity(header.count);
        let unit = header.unit_ms() as i64;
        for (i, (&time, &bits)) in columns.times_ms.iter().zip(&columns.bits).enumerate() {
            let value = if columns.is_integer(i) {
                Number::Integer(bits as i64)
            } else {
                header.float(i, f64::from_bits(bits), &marks)
            };
            let offset = (time / unit) as u32;
            let point = PackablePoint { offset, millis: header.millis, value };
            point.write_cell(&mut qualifiers, &mut values);
            ends.push(values.len());
        }
        if header.shape == RunShape::Compacted {
            let timestamp_ms = reader.zigzag()?;
            reader.ended()?;
            if header.count > 1 {
                values.push(0);
            }
            cells.push(cell(qualifiers.into(), values.into(), timestamp_ms));
            return Ok(());
        }
        let mut times = vec![0; header.count];
        int_stream::decode(&mut reader, &mut times)?;
        reader.ended()?;
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
}

const fn cell(qualifier: Bytes, value: Bytes, timestamp_ms: i64) -> Cell {
    Cell { family: Family::T, qualifier, value, timestamp_ms }
}

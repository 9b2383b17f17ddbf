//! Packed runs: the compressed form of a row's point cells in the embedded store.
//!
//! A run keeps the identity of its cells ([`RunShape`]): it expands to the exact bytes that were put.
//! Queries do not expand it; they decode timestamps and values directly into columns.
//!
//! ```text
//! run    = version and flags u8 | kinds u8 | count | first offset | span
//!          | [time steps] | [integer marks] | [width marks] | [exponent u8] | values | cell times
//! flags  : 10 version 1, 01 compacted column, 02 milliseconds, 04 steps differ
//! kinds  : 03 all integers 0, all floats 1, mixed 2; 0C floats are 8 bytes 0, 4 bytes 4, the
//!          shortest that is exact 8, marked individually C; 10 values are bits, not decimals
//! ```
//!
//! Offsets, span and steps are in the run's resolution; the sequences are integer streams
//! (`packed_run/int_stream.rs`), single numbers varints. Equal steps are not stored. `cell
//! times` are relative to the point's offset, that is, the delay of its write; a compacted column has
//! one, absolute. They come last, so that a query does not read them.

mod bit_packing;
mod chunk;
mod decimal;
mod encoder;
mod expand;
mod int_stream;
mod varint;

#[cfg(test)]
mod tests;

use bytes::Bytes;

use self::varint::Reader;
use crate::{
    base_time::BaseTime,
    columns::{PointColumns, ValueKinds},
};

pub use self::{
    chunk::{ChunkEncoder, ChunkPoint, PackedChunk},
    encoder::{PackablePoint, RunEncoder},
};

/// The cells that a run expands to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunShape {
    /// One cell per point, each with its own cell timestamp.
    Singles,
    /// One compacted column (storage format: qualifiers, values, trailing byte); for one point an
    /// ordinary cell. All points share one cell timestamp.
    Compacted,
}

/// Bytes that are not a packed run, or points that cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackedRunError {
    /// The bytes contradict their own header.
    #[error("damaged run: {0}")]
    Damaged(&'static str),
    /// The cells have a form that a run cannot reproduce.
    #[error("not packable: {0}")]
    NotPackable(&'static str),
}

/// Points of one row in packed form; immutable.
#[derive(Clone, Debug)]
pub struct PackedRun {
    bytes: Bytes,
    header: Header,
}

/// The decoded header. Validated: the last offset is within the hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    shape: RunShape,
    millis: bool,
    regular: bool,
    mix: Mix,
    floats: FloatWidth,
    /// Values are bit patterns, not decimals.
    raw: bool,
    count: usize,
    first: u32,
    span: u32,
    /// Offset of the streams.
    body: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    Integers,
    Floats,
    Both,
}

/// Width of floating point values in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FloatWidth {
    Eight,
    Four,
    /// Four bytes if exact, as telnet puts store them.
    Shortest,
    Marked,
}

const VERSION: u8 = 0x10;
const COMPACTED: u8 = 0x01;
const MILLIS: u8 = 0x02;
const IRREGULAR: u8 = 0x04;
const RAW: u8 = 0x10;

/// Upper bound of the offsets in a row, seconds.
const ROW_SECS: u32 = BaseTime::SPAN_SECONDS;

impl Header {
    const fn unit_ms(self) -> u32 {
        if self.millis { 1 } else { 1_000 }
    }

    fn parse(bytes: &[u8]) -> Result<Self, PackedRunError> {
        const WRONG: PackedRunError = PackedRunError::Damaged("header");
        let mut reader = Reader::new(bytes);
        let flags = reader.byte()?;
        if flags & !(COMPACTED | MILLIS | IRREGULAR) != VERSION {
            return Err(PackedRunError::Damaged("unknown version"));
        }
        let kinds = reader.byte()?;
        let mix = match kinds & 0x03 {
            0 => Mix::Integers,
            1 => Mix::Floats,
            2 => Mix::Both,
            _ => return Err(WRONG),
        };
        let floats = match kinds & 0x0C {
            0x00 => FloatWidth::Eight,
            0x04 => FloatWidth::Four,
            0x08 => FloatWidth::Shortest,
            _ => FloatWidth::Marked,
        };
        let raw = kinds & RAW != 0;
        let [count, first, span] = [reader.varint()?, reader.varint()?, reader.varint()?];
        let millis = flags & MILLIS != 0;
        let end = u64::from(ROW_SECS) * if millis { 1_000 } else { 1 };
        let regular = flags & IRREGULAR == 0;
        let gaps = count.wrapping_sub(1);
        let possible = (1..=PackedRun::MAX_POINTS as u64).contains(&count)
            && first < end
            && span < end - first
            && gaps <= span
            && (gaps > 0 || (span == 0 && regular))
            && (!regular || gaps == 0 || span % gaps == 0)
            && kinds & 0xE0 == 0
            && (mix != Mix::Integers || kinds == 0);
        if !possible {
            return Err(WRONG);
        }
        Ok(Self {
            shape: if flags & COMPACTED == 0 { RunShape::Singles } else { RunShape::Compacted },
            millis,
            regular,
            mix,
            floats,
            raw,
            count: count as usize,
            first: first as u32,
            span: span as u32,
            body: bytes.len() - reader.remaining(),
        })
    }
}

impl PackedRun {
    /// Maximum number of points of one run. Longer sequences need several.
    pub const MAX_POINTS: usize = 1 << 16;

    /// Opens bytes written by [`RunEncoder`] and validates the header.
    pub fn open(bytes: Bytes) -> Result<Self, PackedRunError> {
        let header = Header::parse(&bytes)?;
        Ok(Self { bytes, header })
    }

    /// The encoded bytes, the input of [`Self::open`].
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The cells that the run expands to.
    #[must_use]
    pub const fn shape(&self) -> RunShape {
        self.header.shape
    }

    /// Number of points, at least 1.
    #[must_use]
    pub const fn point_count(&self) -> usize {
        self.header.count
    }

    /// True if the qualifiers have millisecond form.
    #[must_use]
    pub const fn is_millis(&self) -> bool {
        self.header.millis
    }

    /// Offsets of the first and the last point from the base time, in milliseconds.
    #[must_use]
    pub const fn offset_range_ms(&self) -> (u32, u32) {
        let unit = self.header.unit_ms();
        (self.header.first * unit, (self.header.first + self.header.span) * unit)
    }

    /// True if the run may contain the column `qualifier` of family `t`. No false negatives; false
    /// positives where only decoding can decide.
    #[must_use]
    pub fn may_contain_column(&self, qualifier: &[u8]) -> bool {
        let Header { millis, count, first, span, .. } = self.header;
        let compacted = self.header.shape == RunShape::Compacted;
        let width = if millis { 4 } else { 2 };
        let points = if compacted { count } else { 1 };
        if qualifier.len() != width * points {
            return false;
        }
        let (Some(head), Some(tail)) = (
            qualifier.get(..width).and_then(encoder::parse_qualifier),
            qualifier.get(qualifier.len() - width..).and_then(encoder::parse_qualifier),
        ) else {
            return false;
        };
        let range = first..=first + span;
        let inside = if compacted {
            head.offset == *range.start() && tail.offset == *range.end()
        } else {
            range.contains(&head.offset)
        };
        inside && head.millis == millis && tail.millis == millis
    }

    /// Appends the points, in time order, to `columns`. `base_secs` is the base time of the row.
    /// After an error `columns` is as before.
    pub fn decode_into(
        &self,
        base_secs: u32,
        columns: &mut PointColumns,
    ) -> Result<(), PackedRunError> {
        self.decode_points(base_secs, columns).map(|_| ())
    }

    /// As [`Self::decode_into`]; returns a reader of what follows the values.
    fn decode_points(
        &self,
        base_secs: u32,
        columns: &mut PointColumns,
    ) -> Result<Reader<'_>, PackedRunError> {
        let (times, values) = (columns.times_ms.len(), columns.bits.len());
        let mut reader = Reader::new(self.bytes.get(self.header.body..).unwrap_or_default());
        match self.decode_times_and_values(base_secs, &mut reader, columns) {
            Ok(kinds) => append_kinds(&mut columns.kinds, times, kinds, self.header.count),
            Err(error) => {
                columns.times_ms.truncate(times);
                columns.bits.truncate(values);
                return Err(error);
            }
        }
        Ok(reader)
    }

    fn decode_times_and_values(
        &self,
        base_secs: u32,
        reader: &mut Reader<'_>,
        columns: &mut PointColumns,
    ) -> Result<ValueKinds, PackedRunError> {
        let header = self.header;
        let old = columns.bits.len();
        columns.bits.resize(old + header.count, 0);
        let bits = columns.bits.get_mut(old..).unwrap_or_default();

        let base_ms = i64::from(base_secs) * 1_000;
        let unit = i64::from(header.unit_ms());
        if header.regular {
            let step = i64::from(header.span) / (header.count as i64 - 1).max(1) * unit;
            let start = base_ms + i64::from(header.first) * unit;
            columns.times_ms.extend((0..header.count as i64).map(|i| start + i * step));
        } else {
            // The value column is free until the values are decoded; it serves as a buffer for the offsets.
            self.decode_offsets(reader, bits)?;
            columns.times_ms.extend(bits.iter().map(|&o| base_ms + o as i64 * unit));
        }
        let kinds = match header.mix {
            Mix::Integers => ValueKinds::AllIntegers,
            Mix::Floats => ValueKinds::AllFloats,
            Mix::Both => {
                int_stream::decode(reader, bits)?;
                ValueKinds::Mixed(bits.iter().map(|&b| b != 0).collect())
            }
        };
        if header.floats == FloatWidth::Marked {
            int_stream::decode(reader, bits)?;
        }
        header.decode_values(reader, &kinds, bits)?;
        Ok(kinds)
    }

    /// Offsets with different steps: increasing, from the first to the last of the header.
    fn decode_offsets(
        &self,
        reader: &mut Reader<'_>,
        offsets: &mut [u64],
    ) -> Result<(), PackedRunError> {
        let Some((first, rest)) = offsets.split_first_mut() else { return Ok(()) };
        int_stream::decode(reader, rest)?;
        let span = u64::from(self.header.span);
        let mut offset = u64::from(self.header.first);
        let end = offset + span;
        *first = offset;
        let mut rising = true;
        for v in rest {
            // Steps up to the span cannot overflow: there are at most `MAX_POINTS` of them.
            rising &= v.wrapping_sub(1) < span;
            offset = offset.wrapping_add(*v);
            *v = offset;
        }
        if rising && offset == end {
            Ok(())
        } else {
            Err(PackedRunError::Damaged("times do not rise"))
        }
    }
}

impl Header {
    /// Values as in columns: integers, or bits of doubles.
    fn decode_values(
        self,
        reader: &mut Reader<'_>,
        kinds: &ValueKinds,
        bits: &mut [u64],
    ) -> Result<(), PackedRunError> {
        let Self { raw, floats, .. } = self;
        if *kinds == ValueKinds::AllIntegers {
            return int_stream::decode(reader, bits);
        }
        if raw {
            int_stream::decode(reader, bits)?;
            if floats == FloatWidth::Four && *kinds == ValueKinds::AllFloats {
                for b in bits {
                    *b = f64::from(f32::from_bits(*b as u32)).to_bits();
                }
            }
            return Ok(());
        }
        let power =
            decimal::power(reader.byte()?).ok_or(PackedRunError::Damaged("exponent over 22"))?;
        int_stream::decode(reader, bits)?;
        let narrow = floats == FloatWidth::Four;
        match kinds {
            ValueKinds::Mixed(marks) => {
                for (b, &integer) in bits.iter_mut().zip(marks) {
                    let v = *b as i64 as f64 / power;
                    *b = if integer {
                        v as i64 as u64
                    } else if narrow {
                        f64::from(v as f32).to_bits()
                    } else {
                        v.to_bits()
                    };
                }
            }
            _ if narrow => {
                for b in bits {
                    *b = f64::from((*b as i64 as f64 / power) as f32).to_bits();
                }
            }
            _ => {
                for b in bits {
                    *b = (*b as i64 as f64 / power).to_bits();
                }
            }
        }
        Ok(())
    }
}

/// Appends the types of `count` points to those of `len` existing points.
fn append_kinds(kinds: &mut ValueKinds, len: usize, more: ValueKinds, count: usize) {
    if len == 0 {
        *kinds = more;
    } else if *kinds != more || matches!(more, ValueKinds::Mixed(_)) {
        let mut marks = match std::mem::take(kinds) {
            ValueKinds::AllIntegers => vec![true; len],
            ValueKinds::AllFloats => vec![false; len],
            ValueKinds::Mixed(marks) => marks,
        };
        match more {
            ValueKinds::AllIntegers => marks.resize(len + count, true),
            ValueKinds::AllFloats => marks.resize(len + count, false),
            ValueKinds::Mixed(more) => marks.extend(more),
        }
        *kinds = ValueKinds::Mixed(marks);
    }
}

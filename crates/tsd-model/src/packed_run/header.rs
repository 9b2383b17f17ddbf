//! The header of runs and chunks, and the streams that follow it: times, types, values.

use super::{
    decimal,
    error::PackedRunError,
    int_stream,
    number::{Number, is_single},
    varint::Reader,
};
use crate::columns::{PointColumns, ValueKinds};

pub(super) const COMPACTED: u8 = 0x01;
pub(super) const MILLIS: u8 = 0x02;
pub(super) const IRREGULAR: u8 = 0x04;
pub(super) const RAW: u8 = 0x10;

/// The cells that a run expands to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunShape {
    /// One cell per point, each with its own cell timestamp.
    Singles,
    /// One compacted column (storage format: qualifiers, values, trailing byte); for one point an
    /// ordinary cell. All points share one cell timestamp.
    Compacted,
}

/// The decoded header. Validated: the last offset is below the limit of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) shape: RunShape,
    pub(super) millis: bool,
    regular: bool,
    mix: Mix,
    floats: FloatWidth,
    /// Values are bit patterns, not decimals.
    raw: bool,
    pub(super) count: usize,
    /// Offset of the first point from the origin (base time of a run's row, span of a chunk), and
    /// length of the time range; in the header's resolution.
    pub(super) first: u64,
    pub(super) span: u64,
    /// Offset of the streams.
    body: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    Integers,
    Floats,
    Both,
}

/// Width of floating point values in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloatWidth {
    Eight,
    Four,
    /// Four bytes if exact, as telnet puts store them.
    Shortest,
    Marked,
}

impl Header {
    /// Milliseconds of the resolution.
    pub(super) const fn unit_ms(self) -> u64 {
        if self.millis { 1 } else { 1_000 }
    }

    /// Offsets of the first and the last point, milliseconds.
    pub(super) const fn offset_range_ms(self) -> (u64, u64) {
        let unit = self.unit_ms();
        (self.first * unit, (self.first + self.span) * unit)
    }

    /// Parses and validates the header of a run or chunk of this version. Offsets are below
    /// `limit_secs`, which is at most 2^33.
    pub(super) fn parse(
        bytes: &[u8],
        version: u8,
        max_points: usize,
        limit_secs: u64,
    ) -> Result<Self, PackedRunError> {
        const WRONG: PackedRunError = PackedRunError::Damaged("header");
        let mut reader = Reader::new(bytes);
        let flags = reader.byte()?;
        if flags & !(COMPACTED | MILLIS | IRREGULAR) != version {
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
        let [count, first, span] = [reader.varint()?, reader.varint()?, reader.varint()?];
        let millis = flags & MILLIS != 0;
        let end = limit_secs * if millis { 1_000 } else { 1 };
        let regular = flags & IRREGULAR == 0;
        let gaps = count.wrapping_sub(1);
        let possible = (1..=max_points as u64).contains(&count)
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
            raw: kinds & RAW != 0,
            count: count as usize,
            first,
            span,
            body: bytes.len() - reader.remaining(),
        })
    }

    /// Appends the points of `bytes`, in time order, to `columns`. If the header does not decide
    /// the precision, appends to `marks` which values are single. Returns a reader of the bytes
    /// after the values. After an error `columns` is unchanged.
    pub(super) fn decode_points<'a>(
        self,
        bytes: &'a [u8],
        origin_ms: i64,
        columns: &mut PointColumns,
        marks: Option<&mut Vec<u64>>,
    ) -> Result<Reader<'a>, PackedRunError> {
        let (times, values) = (columns.times_ms.len(), columns.bits.len());
        let mut reader = Reader::new(bytes.get(self.body..).unwrap_or_default());
        match self.decode_times_and_values(&mut reader, origin_ms, columns, marks) {
            Ok(kinds) => append_kinds(&mut columns.kinds, times, kinds, self.count),
            Err(error) => {
                columns.times_ms.truncate(times);
                columns.bits.truncate(values);
                return Err(error);
            }
        }
        Ok(reader)
    }

    fn decode_times_and_values(
        self,
        reader: &mut Reader<'_>,
        origin_ms: i64,
        columns: &mut PointColumns,
        marks: Option<&mut Vec<u64>>,
    ) -> Result<ValueKinds, PackedRunError> {
        let old = columns.bits.len();
        columns.bits.resize(old + self.count, 0);
        let bits = columns.bits.get_mut(old..).unwrap_or_default();

        let unit = self.unit_ms() as i64;
        if self.regular {
            let step = self.span as i64 / (self.count as i64 - 1).max(1) * unit;
            let start = origin_ms + self.first as i64 * unit;
            columns.times_ms.extend((0..self.count as i64).map(|i| start + i * step));
        } else {
            // The value column is free until the values are decoded; it serves as a buffer for the offsets.
            self.decode_offsets(reader, bits)?;
            columns.times_ms.extend(bits.iter().map(|&o| origin_ms + o as i64 * unit));
        }
        let kinds = match self.mix {
            Mix::Integers => ValueKinds::AllIntegers,
            Mix::Floats => ValueKinds::AllFloats,
            Mix::Both => {
                int_stream::decode(reader, bits)?;
                ValueKinds::Mixed(bits.iter().map(|&b| b != 0).collect())
            }
        };
        if self.floats == FloatWidth::Marked {
            int_stream::decode(reader, bits)?;
            if let Some(marks) = marks {
                marks.extend_from_slice(bits);
            }
        }
        self.decode_values(reader, &kinds, bits)?;
        Ok(kinds)
    }

    /// Offsets with different steps: increasing, from the first to the last of the header.
    fn decode_offsets(
        self,
        reader: &mut Reader<'_>,
        offsets: &mut [u64],
    ) -> Result<(), PackedRunError> {
        let Some((first, rest)) = offsets.split_first_mut() else { return Ok(()) };
        int_stream::decode(reader, rest)?;
        let mut offset = self.first;
        let end = offset + self.span;
        *first = offset;
        let mut rising = true;
        for v in rest {
            // Steps up to the span cannot overflow: there are at most `max_points` of them.
            rising &= v.wrapping_sub(1) < self.span;
            offset = offset.wrapping_add(*v);
            *v = offset;
        }
        if rising && offset == end {
            Ok(())
        } else {
            Err(PackedRunError::Damaged("times do not rise"))
        }
    }

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

    /// The number of the decoded floating point value with this index, in the width of its cell.
    pub(super) fn float(self, index: usize, value: f64, marks: &[u64]) -> Number {
        let single = match self.floats {
            FloatWidth::Eight => false,
            FloatWidth::Four => true,
            FloatWidth::Shortest => is_single(value),
            FloatWidth::Marked => marks.get(index).is_some_and(|&mark| mark != 0),
        };
        if single { Number::Single(value as f32) } else { Number::Double(value) }
    }
}

/// Appends the types of `count` points to the types of `len` existing points.
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

//! Encoder of packed runs.
//!
//! A run stores numbers, not bytes. Only cells whose bytes follow from the number can be packed:
//! the shortest integer width, a float of four or eight bytes, a length that matches the flags, no
//! reserved bit. All other cells stay unpacked.

use super::{
    PackedRun, VERSION, decimal,
    error::PackedRunError,
    header::{COMPACTED, FloatWidth, IRREGULAR, MILLIS, Mix, RAW, RunShape},
    int_stream::{self, IntEncoder},
    number::{Number, is_single},
    qualifier::{QualifierParts, parse_qualifier},
    varint::{self, zigzag},
};
use crate::columns::Value;

/// A point whose cell a run reproduces exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackablePoint {
    pub(super) offset: u32,
    pub(super) millis: bool,
    pub(super) value: Number,
}

impl PackablePoint {
    /// The point of one cell; `None` if a run cannot reproduce the cell.
    #[must_use]
    pub fn try_from_cell(qualifier: &[u8], value: &[u8]) -> Option<Self> {
        let QualifierParts { offset, millis, flags } = parse_qualifier(qualifier)?;
        let value = match (flags, value) {
            (0, &[a]) => Number::Integer(i64::from(a as i8)),
            (1, &[a, b]) => Number::Integer(i64::from(i16::from_be_bytes([a, b]))),
            (3, &[a, b, c, d]) => Number::Integer(i64::from(i32::from_be_bytes([a, b, c, d]))),
            (0xB, &[a, b, c, d]) => Number::Single(f32::from_be_bytes([a, b, c, d])),
            (7, value) => Number::Integer(i64::from_be_bytes(value.try_into().ok()?)),
            (0xF, value) => Number::Double(f64::from_be_bytes(value.try_into().ok()?)),
            _ => return None,
        };
        let exact = match value {
            Number::Integer(v) => integer_flags(v) == flags,
            Number::Single(v) => v.is_finite(),
            Number::Double(v) => v.is_finite(),
        };
        exact.then_some(Self { offset, millis, value })
    }

    /// Offset from the base time, in milliseconds.
    #[must_use]
    pub const fn offset_ms(&self) -> u32 {
        if self.millis { self.offset } else { self.offset * 1_000 }
    }

    /// The four flag bits of the qualifier: type and length of the value.
    #[must_use]
    pub const fn flags(&self) -> u8 {
        match self.value {
            Number::Integer(v) => integer_flags(v),
            Number::Single(_) => 0xB,
            Number::Double(_) => 0xF,
        }
    }

    /// The value; single precision is widened.
    #[must_use]
    pub fn value(&self) -> Value {
        match self.value {
            Number::Integer(v) => Value::Integer(v),
            Number::Single(v) => Value::Float(f64::from(v)),
            Number::Double(v) => Value::Float(v),
        }
    }

    /// Appends the qualifier of the cell.
    pub fn write_qualifier(&self, out: &mut Vec<u8>) {
        self.put_qualifier(self.flags(), out);
    }

    /// Appends the value of the cell.
    pub fn write_value(&self, out: &mut Vec<u8>) {
        self.put_value(self.flags(), out);
    }

    /// Appends qualifier and value of the cell.
    #[inline]
    pub(super) fn write_cell(&self, qualifier: &mut Vec<u8>, value: &mut Vec<u8>) {
        let flags = self.flags();
        self.put_qualifier(flags, qualifier);
        self.put_value(flags, value);
    }

    #[inline]
    fn put_qualifier(&self, flags: u8, out: &mut Vec<u8>) {
        if self.millis {
            let q = 0xF000_0000 | self.offset << 6 | u32::from(flags);
            out.extend_from_slice(&q.to_be_bytes());
        } else {
            let q = (self.offset << 4) as u16 | u16::from(flags);
            out.extend_from_slice(&q.to_be_bytes());
        }
    }

    #[inline]
    fn put_value(&self, flags: u8, out: &mut Vec<u8>) {
        match self.value {
            Number::Integer(v) => {
                let unused = 7 - usize::from(flags);
                out.extend_from_slice(v.to_be_bytes().get(unused..).unwrap_or_default());
            }
            Number::Single(v) => out.extend_from_slice(&v.to_be_bytes()),
            Number::Double(v) => out.extend_from_slice(&v.to_be_bytes()),
        }
    }

    /// True if the qualifier has millisecond form. All points of a run have the same form.
    #[must_use]
    pub const fn is_millis(&self) -> bool {
        self.millis
    }
}

/// Flags of the shortest width of an integer: width − 1.
pub(super) const fn integer_flags(v: i64) -> u8 {
    if v as i8 as i64 == v {
        0
    } else if v as i16 as i64 == v {
        1
    } else if v as i32 as i64 == v {
        3
    } else {
        7
    }
}

/// Encodes packed runs; reuses its buffers.
#[derive(Debug, Default)]
pub struct RunEncoder {
    pub(super) points: Vec<PackablePoint>,
    pub(super) timestamps_ms: Vec<i64>,
    pub(super) numbers: Vec<i64>,
    pub(super) ints: Ints,
}

/// Integer stream encoder: smallest form, or fastest.
#[derive(Debug, Default)]
pub(super) struct Ints {
    encoder: IntEncoder,
    quick: bool,
}

impl Ints {
    pub(super) fn encode(&mut self, values: &[i64], out: &mut Vec<u8>) {
        if self.quick {
            int_stream::encode_quickly(values, out);
        } else {
            self.encoder.encode(values, out);
        }
    }
}

impl RunEncoder {
    /// An encoder without points.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of points.
    #[must_use]
    pub const fn point_count(&self) -> usize {
        self.points.len()
    }

    /// True if there are no points.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Removes all points.
    pub fn clear(&mut self) {
        self.points.clear();
        self.timestamps_ms.clear();
    }

    /// Adds a point, which must be later than all previous points and of the same resolution.
    /// `timestamp_ms` is its cell timestamp.
    pub fn push(&mut self, point: PackablePoint, timestamp_ms: i64) -> Result<(), PackedRunError> {
        if let Some(last) = self.points.last() {
            if last.millis != point.millis {
                return Err(PackedRunError::NotPackable("seconds beside milliseconds"));
            }
            if last.offset >= point.offset {
                return Err(PackedRunError::NotPackable("times that do not rise"));
            }
            if self.points.len() >= PackedRun::MAX_POINTS {
                return Err(PackedRunError::NotPackable("too many points"));
            }
        }
        self.points.push(point);
        self.timestamps_ms.push(timestamp_ms);
        Ok(())
    }

    /// Encodes one compacted column in canonical form (increasing times of one resolution, correct
    /// trailing byte) and appends it to `out` as a run of shape [`RunShape::Compacted`]. Points added
    /// before are dropped.
    pub fn encode_compacted(
        &mut self,
        qualifier: &[u8],
        value: &[u8],
        timestamp_ms: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), PackedRunError> {
        self.clear();
        let taken = self.push_compacted(qualifier, value, timestamp_ms);
        let written = taken.and_then(|()| self.finish(RunShape::Compacted, out));
        self.clear();
        written
    }

    fn push_compacted(
        &mut self,
        mut qualifier: &[u8],
        mut value: &[u8],
        timestamp_ms: i64,
    ) -> Result<(), PackedRunError> {
        const CUT: PackedRunError = PackedRunError::NotPackable("cut column");
        while let Some(&first) = qualifier.first() {
            let width = if first >= 0xF0 { 4 } else { 2 };
            let (head, rest) = qualifier.split_at_checked(width).ok_or(CUT)?;
            let length = usize::from(head.last().copied().unwrap_or(0) & 7) + 1;
            let (number, tail) = value.split_at_checked(length).ok_or(CUT)?;
            let point = PackablePoint::try_from_cell(head, number)
                .ok_or(PackedRunError::NotPackable("odd point in a column"))?;
            self.push(point, timestamp_ms)?;
            (qualifier, value) = (rest, tail);
        }
        let tail: &[u8] = if self.points.len() > 1 { &[0] } else { &[] };
        if value == tail {
            Ok(())
        } else {
            Err(PackedRunError::NotPackable("another trailing byte"))
        }
    }

    /// Appends the points to `out` as a run, and removes them. In [`RunShape::Compacted`] all must
    /// have one cell timestamp. After an error `out` is unchanged.
    pub fn finish(&mut self, shape: RunShape, out: &mut Vec<u8>) -> Result<(), PackedRunError> {
        let written = self.write(shape, out);
        self.clear();
        written
    }

    /// [`Self::finish`] in shape [`RunShape::Singles`] without searching for the smallest form: for a
    /// run that is read once and not stored.
    pub fn finish_quickly(&mut self, out: &mut Vec<u8>) -> Result<(), PackedRunError> {
        self.ints.quick = true;
        let written = self.finish(RunShape::Singles, out);
        self.ints.quick = false;
        written
    }

    fn write(&mut self, shape: RunShape, out: &mut Vec<u8>) -> Result<(), PackedRunError> {
        let (Some(first), Some(last), Some(&timestamp)) =
            (self.points.first(), self.points.last(), self.timestamps_ms.first())
        else {
            return Err(PackedRunError::NotPackable("no points"));
        };
        let compacted = shape == RunShape::Compacted;
        if compacted && self.timestamps_ms.iter().any(|&t| t != timestamp) {
            return Err(PackedRunError::NotPackable("several cell timestamps in one column"));
        }
        let (start, span) = (u64::from(first.offset), u64::from(last.offset - first.offset));
        let neighbours = self.points.iter().zip(self.points.iter().skip(1));
        self.numbers.clear();
        self.numbers.extend(neighbours.map(|(a, b)| i64::from(b.offset - a.offset)));
        self.write_points(VERSION, shape, (start, span), out);
        if compacted {
            varint::put(out, zigzag(timestamp));
        } else {
            self.numbers.clear();
            let pairs = self.timestamps_ms.iter().zip(&self.points);
            self.numbers.extend(pairs.map(|(t, p)| t.wrapping_sub(i64::from(p.offset_ms()))));
            self.ints.encode(&self.numbers, out);
        }
        Ok(())
    }

    /// Writes header, steps and values of the points, that is, a run or chunk without its cell
    /// times. `numbers` has the steps; `start` and `span` are in the points' resolution.
    pub(super) fn write_points(
        &mut self,
        version: u8,
        shape: RunShape,
        (start, span): (u64, u64),
        out: &mut Vec<u8>,
    ) {
        let regular = self.numbers.iter().all(|s| Some(s) == self.numbers.first());
        let millis = self.points.first().is_some_and(|p| p.millis);
        out.push(
            version
                | if shape == RunShape::Compacted { COMPACTED } else { 0 }
                | if millis { MILLIS } else { 0 }
                | if regular { 0 } else { IRREGULAR },
        );
        let kinds_at = out.len();
        out.push(0);
        varint::put(out, self.points.len() as u64);
        varint::put(out, start);
        varint::put(out, span);
        if !regular {
            self.ints.encode(&self.numbers, out);
        }
        let kinds = self.write_values(out);
        if let Some(at) = out.get_mut(kinds_at) {
            *at = kinds;
        }
    }

    /// Writes marks and values; returns the kinds byte.
    fn write_values(&mut self, out: &mut Vec<u8>) -> u8 {
        let (mix, width) = self.survey();
        let Self { points, numbers, ints, .. } = self;
        if mix == Mix::Both {
            numbers.clear();
            numbers.extend(points.iter().map(|p| i64::from(matches!(p.value, Number::Integer(_)))));
            ints.encode(numbers, out);
        }
        let mut kinds = match mix {
            Mix::Integers => 0,
            Mix::Floats => 1,
            Mix::Both => 2,
        };
        if mix == Mix::Integers {
            numbers.clear();
            numbers.extend(points.iter().map(|p| match p.value {
                Number::Integer(v) => v,
                Number::Single(_) | Number::Double(_) => 0,
            }));
            ints.encode(numbers, out);
            return kinds;
        }
        kinds |= match width {
            FloatWidth::Eight => 0x00,
            FloatWidth::Four => 0x04,
            FloatWidth::Shortest => 0x08,
            FloatWidth::Marked => 0x0C,
        };
        if width == FloatWidth::Marked {
            numbers.clear();
            numbers.extend(points.iter().map(|p| i64::from(matches!(p.value, Number::Single(_)))));
            ints.encode(numbers, out);
        }
        let all_narrow = width == FloatWidth::Four;
        let doubles = points.iter().map(|p| match p.value {
            Number::Integer(v) => (v as f64, false),
            Number::Single(v) => (f64::from(v), all_narrow),
            Number::Double(v) => (v, false),
        });
        // Beyond 2^53 an integer is not an exact double.
        let exact = points.iter().all(|p| match p.value {
            Number::Integer(v) => v.unsigned_abs() < 1 << 53,
            Number::Single(_) | Number::Double(_) => true,
        });
        let exponent = if exact && !ints.quick { decimal::scale(doubles, numbers) } else { None };
        if let Some(exponent) = exponent {
            out.push(exponent);
        } else {
            kinds |= RAW;
            numbers.clear();
            numbers.extend(points.iter().map(|p| match p.value {
                Number::Integer(v) => v,
                Number::Single(v) if all_narrow && mix == Mix::Floats => i64::from(v.to_bits()),
                Number::Single(v) => f64::from(v).to_bits() as i64,
                Number::Double(v) => v.to_bits() as i64,
            }));
        }
        ints.encode(numbers, out);
        kinds
    }

    /// Types of the values, and how singles are distinguished from doubles.
    fn survey(&self) -> (Mix, FloatWidth) {
        let (mut integers, mut singles, mut doubles, mut shortest) = (false, false, false, true);
        for p in &self.points {
            match p.value {
                Number::Integer(_) => integers = true,
                Number::Single(_) => singles = true,
                Number::Double(v) => {
                    doubles = true;
                    shortest &= !is_single(v);
                }
            }
        }
        let mix = match (integers, singles || doubles) {
            (_, false) => Mix::Integers,
            (false, true) => Mix::Floats,
            (true, true) => Mix::Both,
        };
        let width = match (singles, doubles) {
            (_, false) => FloatWidth::Four,
            (false, true) => FloatWidth::Eight,
            (true, true) if shortest => FloatWidth::Shortest,
            (true, true) => FloatWidth::Marked,
        };
        (mix, width)
    }
}

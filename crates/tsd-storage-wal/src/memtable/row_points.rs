//! Decodes the points of a row straight into columns.
//!
//! Almost all rows have puts of points only, in time order. Reading an operation, checking its cell and pushing its
//! point one by one takes ten times as long.

use tsd_model::{BaseTime, PointColumns, Value, ValueKinds};

use super::row_op::{LONG_QUALIFIER, OTHER, point_len};

/// Most bytes of an operation that decide its point: head, qualifier and value.
const WINDOW: usize = 1 + 4 + 8;
/// Points that are appended to the columns at once.
const POINTS: usize = 32;
/// First bits of a qualifier in milliseconds.
const MILLIS: u32 = 0xF;
/// Exponent of an infinite double or of NaN.
const NOT_FINITE: u64 = 0x7FF;

/// A decoded put.
struct DecodedPoint {
    offset_ms: u32,
    bits: u64,
    is_integer: bool,
    /// Bytes of the operation.
    len: usize,
}

/// Points of one type that are not appended yet.
struct PendingPoints {
    times_ms: [i64; POINTS],
    bits: [u64; POINTS],
    len: usize,
    is_integer: bool,
}

impl PendingPoints {
    fn append_to(&mut self, columns: &mut PointColumns) {
        let points = self.times_ms.get(..self.len).zip(self.bits.get(..self.len));
        self.len = 0;
        let Some((&[first_ms, ref times_ms @ ..], &[first, ref bits @ ..])) = points else {
            return;
        };
        let value = if self.is_integer {
            Value::Integer(first as i64)
        } else {
            Value::Float(f64::from_bits(first))
        };
        // Types are uniform or mixed from the first point on.
        columns.push(first_ms, value);
        columns.times_ms.extend_from_slice(times_ms);
        columns.bits.extend_from_slice(bits);
        if let ValueKinds::Mixed(integers) = &mut columns.kinds {
            integers.resize(columns.times_ms.len(), self.is_integer);
        }
    }
}

/// Approximate number of points of encoded operations: as many as if all were like the first.
pub(crate) fn estimated_points(ops: &[u8]) -> usize {
    ops.first().map_or(0, |head| ops.len().div_ceil(point_len(head & !OTHER)))
}

/// Appends the points of encoded operations, whose row begins at `row_ms` (epoch milliseconds), to the columns.
/// `last_ms` is the time of the previous point of the row; it becomes the time of the last point.
///
/// Returns false if an operation is not the put of a point that [`tsd_model::PackablePoint`] accepts, or if the times
/// do not increase. The columns then have some of the points.
pub(crate) fn append_rising(
    ops: &[u8],
    row_ms: i64,
    last_ms: &mut i64,
    columns: &mut PointColumns,
) -> bool {
    let mut points =
        PendingPoints { times_ms: [0; POINTS], bits: [0; POINTS], len: 0, is_integer: false };
    let mut rest = ops;
    while !rest.is_empty() {
        let found = match rest.first_chunk::<WINDOW>() {
            Some(window) => decode(window),
            None => decode_short(rest),
        };
        let Some(point) = found else { return false };
        let time_ms = row_ms + i64::from(point.offset_ms);
        let Some(after) = rest.get(point.len..) else { return false };
        if time_ms <= *last_ms {
            return false;
        }
        if points.len == POINTS || point.is_integer != points.is_integer {
            points.append_to(columns);
            points.is_integer = point.is_integer;
        }
        let at = points.len % POINTS;
        #[expect(clippy::indexing_slicing, reason = "both arrays have this many points")]
        {
            points.times_ms[at] = time_ms;
            points.bits[at] = point.bits;
        }
        points.len = at + 1;
        *last_ms = time_ms;
        rest = after;
    }
    points.append_to(columns);
    true
}

/// Decodes an operation near the end of a row.
#[cold]
fn decode_short(rest: &[u8]) -> Option<DecodedPoint> {
    let mut window = [0; WINDOW];
    window.get_mut(..rest.len())?.copy_from_slice(rest);
    decode(&window)
}

/// Bytes of a window from an index on; zeros past its end.
#[inline]
fn bytes_at<const N: usize>(window: &[u8; WINDOW], at: usize) -> [u8; N] {
    window.get(at..).and_then(<[u8]>::first_chunk::<N>).copied().unwrap_or([0; N])
}

/// Decodes the put at the start of a window.
#[inline]
fn decode(window: &[u8; WINDOW]) -> Option<DecodedPoint> {
    let head = window[0];
    if head & OTHER != 0 {
        return None;
    }
    let (offset_ms, flags, value) = if head & LONG_QUALIFIER == 0 {
        let qualifier = u32::from(u16::from_be_bytes(bytes_at(window, 1)));
        let offset_secs = qualifier >> 4;
        if offset_secs >= BaseTime::SPAN_SECONDS {
            return None;
        }
        (offset_secs * 1_000, qualifier & 0xF, bytes_at(window, 3))
    } else {
        let qualifier = u32::from_be_bytes(bytes_at(window, 1));
        let offset_ms = (qualifier & 0x0FFF_FFFF) >> 6;
        let is_valid = qualifier >> 28 == MILLIS && qualifier & 0x30 == 0;
        if !is_valid || offset_ms >= BaseTime::SPAN_SECONDS * 1_000 {
            return None;
        }
        (offset_ms, qualifier & 0xF, bytes_at(window, 5))
    };
    let value_len = u32::from((head >> 3) & 7) + 1;
    let shift = 64 - 8 * value_len;
    let raw = u64::from_be_bytes(value) >> shift;
    let (bits, is_integer) = match flags {
        0xF if value_len == 8 && (raw >> 52) & NOT_FINITE != NOT_FINITE => (raw, false),
        0xB if value_len == 4 => {
            let single = f32::from_bits(raw as u32);
            if !single.is_finite() {
                return None;
            }
            (f64::from(single).to_bits(), false)
        }
        0 | 1 | 3 | 7 if flags + 1 == value_len => {
            let integer = (u64::from_be_bytes(value) as i64) >> shift;
            // A longer value than necessary is another column. All bits above half of the length are then equal.
            let above = integer >> (4 * value_len - 1);
            if value_len > 1 && (above == 0 || above == -1) {
                return None;
            }
            (integer as u64, true)
        }
        _ => return None,
    };
    Some(DecodedPoint { offset_ms, bits, is_integer, len: point_len(head) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tsd_model::{Family, PackablePoint};

    use super::*;
    use crate::memtable::row_op::{RowOp, RowOpIter, encode_op};

    const ROW_MS: i64 = 1_356_998_400_000;

    /// The points of operations, one by one.
    fn one_by_one(ops: &[u8]) -> Option<Vec<(i64, u64, bool)>> {
        let mut points: Vec<(i64, u64, bool)> = Vec::new();
        for op in RowOpIter::new(ops, 0) {
            let RowOp::Put { family: Family::T, qualifier, value, .. } = op else { return None };
            let point = PackablePoint::try_from_cell(qualifier, value)?;
            let (bits, is_integer) = match point.value() {
                Value::Integer(v) => (v as u64, true),
                Value::Float(v) => (v.to_bits(), false),
            };
            points.push((ROW_MS + i64::from(point.offset_ms()), bits, is_integer));
        }
        points.is_sorted_by(|a, b| a.0 < b.0).then_some(points)
    }

    fn decoded(ops: &[u8]) -> Option<Vec<(i64, u64, bool)>> {
        let (mut columns, mut last_ms) = (PointColumns::default(), i64::MIN);
        append_rising(ops, ROW_MS, &mut last_ms, &mut columns).then(|| {
            let points = columns.times_ms.iter().zip(&columns.bits).enumerate();
            points.map(|(i, (time, bits))| (*time, *bits, columns.is_integer(i))).collect()
        })
    }

    /// A value and its flags: integers of all lengths, floats, values that are not finite, wrong lengths.
    fn value() -> impl Strategy<Value = (u8, Vec<u8>)> {
        let integer = |v: i64| match v {
            -128..=127 => (0, (v as i8).to_be_bytes().to_vec()),
            -32_768..=32_767 => (1, (v as i16).to_be_bytes().to_vec()),
            -2_147_483_648..=2_147_483_647 => (3, (v as i32).to_be_bytes().to_vec()),
            _ => (7, v.to_be_bytes().to_vec()),
        };
        prop_oneof![
            40 => (any::<i64>(), 0..64_u32).prop_map(move |(v, shift)| integer(v >> shift)),
            40 => any::<f64>().prop_map(|v| (0xF, v.to_be_bytes().to_vec())),
            20 => any::<f32>().prop_map(|v| (0xB, v.to_be_bytes().to_vec())),
            1 => any::<i8>().prop_map(|v| (1, i16::from(v).to_be_bytes().to_vec())),
            1 => Just((0xF, f64::NAN.to_be_bytes().to_vec())),
            1 => Just((0xB, f32::INFINITY.to_be_bytes().to_vec())),
            1 => (0..16_u8, prop::collection::vec(any::<u8>(), 0..12)),
        ]
    }

    /// An encoded operation after the offset of the previous one; some rows are not in order.
    fn ops() -> impl Strategy<Value = Vec<u8>> {
        let op = (
            value(),
            1..9_000_i64,
            any::<bool>(),
            0..400_u16,
            prop_oneof![-5..70_000_i64, 16_777_000..16_778_000_i64, any::<i64>()],
        );
        (prop::collection::vec(op, 0..150), any::<bool>(), any::<bool>()).prop_map(
            |(ops, in_seconds, has_others)| {
                let (mut out, mut at) = (Vec::new(), 0_i64);
                for ((flags, value), step, is_given, odd, timestamp_ms) in ops {
                    let step = if in_seconds { step.max(1_000) } else { step };
                    at += if has_others && odd == 0 { -step } else { step };
                    let offset_ms = u32::try_from(at).unwrap_or_default();
                    let is_long = !in_seconds ^ (has_others && odd == 1);
                    let qualifier = if is_long {
                        (0xF000_0000 | (offset_ms << 6) | u32::from(flags)).to_be_bytes().to_vec()
                    } else {
                        let both = ((offset_ms / 1_000) << 4) as u16 | u16::from(flags);
                        both.to_be_bytes().to_vec()
                    };
                    let (qualifier, value) = (qualifier.as_slice(), value.as_slice());
                    let family = if has_others && odd == 2 { Family::Id } else { Family::T };
                    let op = match odd {
                        3 if has_others => RowOp::DeleteColumn { family, qualifier, timestamp_ms },
                        4 if has_others => RowOp::DeleteRow { timestamp_ms },
                        _ => RowOp::Put { family, qualifier, value, timestamp_ms, is_given },
                    };
                    encode_op(op, 0, &mut out);
                }
                out
            },
        )
    }

    proptest! {
        #[test]
        fn points_are_those_of_single_operations(ops in ops()) {
            prop_assert_eq!(decoded(&ops), one_by_one(&ops));
        }

        #[test]
        fn any_bytes_do_not_panic(bytes: Vec<u8>) {
            decoded(&bytes);
        }

        #[test]
        fn points_of_two_memtables_must_rise_too(ops in ops(), cut in 0..200_usize) {
            // Cut between two operations.
            let mut iter = RowOpIter::new(&ops, 0);
            iter.by_ref().take(cut).for_each(drop);
            let (first, second) = ops.split_at(ops.len() - iter.rest_len());
            let (mut columns, mut last_ms) = (PointColumns::default(), i64::MIN);
            let parts = append_rising(first, ROW_MS, &mut last_ms, &mut columns)
                && append_rising(second, ROW_MS, &mut last_ms, &mut columns);
            let (mut whole, mut last_ms) = (PointColumns::default(), i64::MIN);
            prop_assert_eq!(parts, append_rising(&ops, ROW_MS, &mut last_ms, &mut whole));
            prop_assert!(!parts || (&columns.times_ms, &columns.bits) == (&whole.times_ms, &whole.bits));
        }
    }
}

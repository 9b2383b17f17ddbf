//! Packed summaries: the summaries of all hours of one series in a span, and the sum of its UTC day.
//!
//! ```text
//! summaries   = version and flags u8 | hours | first hour | [hour steps] | [exponent u8 | unit] | counts
//!               | minima | ranges | sums | [corrections] | correction of the day | [firsts | lasts]
//! flags       : 20 version 1, 01 hours are missing, 02 all values are integers, 04 values are bits,
//!               08 firsts and lasts, 10 singles
//! ```
//!
//! Values are multiples of `unit / 10^exponent` with few digits, or bits of doubles. Ranges are the
//! maxima less the minima. Firsts and lasts are stored less the minima, and sums less the sum that
//! count, minimum and range suggest. A correction is the distance of a sum from its multiple, in
//! steps of the least significant bit. The correction of the day is the distance from the sum of
//! the hours' sums; it exists only if values have fractions.

use super::{
    decimal,
    error::PackedRunError,
    int_stream::{self, IntEncoder},
    varint::{self, Reader, zigzag},
};
use crate::{
    calendar_units::{DAY_MS, HOUR_MS},
    columns::{PointColumns, Value},
    summary::{Summary, SummaryFold, fold_extreme, fold_sum},
};

const VERSION: u8 = 0x20;
const GAPS: u8 = 0x01;
const INTEGRAL: u8 = 0x02;
const RAW: u8 = 0x04;
const ENDS: u8 = 0x08;
const SINGLES: u8 = 0x10;
const VERSION_BITS: u8 = 0xE0;

/// Hours of a UTC day.
const HOURS: usize = 24;

/// Encodes the summaries of series; reuses its buffers.
#[derive(Debug, Default)]
pub struct SummaryEncoder {
    ints: IntEncoder,
    hours: Vec<Hour>,
    mantissas: Vec<i64>,
    numbers: Vec<i64>,
    ends: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Hour {
    number: u32,
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
    first: f64,
    last: f64,
}

/// How values are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Bits,
    /// Multiples of `unit / power`; with `singles` rounded to single precision.
    Decimals {
        power: f64,
        unit: i64,
        singles: bool,
    },
}

impl Scale {
    fn decode(flags: u8, reader: &mut Reader<'_>) -> Result<Self, PackedRunError> {
        if flags & RAW != 0 {
            return Ok(Self::Bits);
        }
        let power = decimal::power(reader.byte()?).ok_or(WRONG_HOURS)?;
        let unit = i64::try_from(reader.varint()?).ok().filter(|unit| *unit > 0);
        let unit = unit.ok_or(WRONG_HOURS)?;
        Ok(Self::Decimals { power, unit, singles: flags & SINGLES != 0 })
    }

    fn value(self, stored: i64) -> f64 {
        match self {
            Self::Bits => f64::from_bits(stored as u64),
            Self::Decimals { power, unit, singles } => {
                let v = stored.wrapping_mul(unit) as f64 / power;
                if singles { f64::from(v as f32) } else { v }
            }
        }
    }

    /// The value of a stored sum: sums are not rounded to single precision.
    fn sum(self, stored: i64) -> f64 {
        match self {
            Self::Bits => f64::from_bits(stored as u64),
            Self::Decimals { power, unit, .. } => stored.wrapping_mul(unit) as f64 / power,
        }
    }

    /// Expected stored sum, from count, minimum and range.
    fn expected_sum(self, count: u64, min: i64, range: i64) -> i64 {
        match self {
            Self::Bits => {
                let max = f64::from_bits(min.wrapping_add(range) as u64);
                let middle = f64::from_bits(min as u64) * 0.5 + max * 0.5;
                (count as f64 * middle).to_bits() as i64
            }
            Self::Decimals { .. } => {
                let twice = min.wrapping_add(min.wrapping_add(range));
                (count as i64).wrapping_mul(twice) >> 1
            }
        }
    }
}

fn bits_distance(from: f64, to: f64) -> i64 {
    (to.to_bits() as i64).wrapping_sub(from.to_bits() as i64)
}

fn bits_at_distance(from: f64, distance: i64) -> f64 {
    f64::from_bits((from.to_bits() as i64).wrapping_add(distance) as u64)
}

fn as_double(value: Value) -> f64 {
    match value {
        Value::Integer(v) => v as f64,
        Value::Float(v) => v,
    }
}

/// Greatest common divisor of magnitudes; 0 divides nothing.
fn common_divisor(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl SummaryEncoder {
    /// Appends the summaries of the points of a UTC day, in time order, to `out`; `origin_secs` is
    /// the start of the day, epoch seconds. Appends nothing and returns false without points, or
    /// with points that cannot be summarized. First and last values are left out if they take more
    /// than `max_ends` bytes.
    pub fn encode(
        &mut self,
        points: &PointColumns,
        origin_secs: u32,
        max_ends: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let done = self.try_encode(points, i64::from(origin_secs) * 1_000, max_ends, out);
        if done.is_none() {
            out.truncate(start);
        }
        done.is_some()
    }

    fn try_encode(
        &mut self,
        points: &PointColumns,
        origin_ms: i64,
        max_ends: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let day_sum = self.fold_hours(points, origin_ms)?;
        let (first, last) = (*self.hours.first()?, *self.hours.last()?);
        let has_gaps = (last.number - first.number) as usize + 1 != self.hours.len();
        let is_integral = (0..points.len())
            .filter_map(|i| points.value(i))
            .all(|value| as_double(value).fract() == 0.0);
        let scale = self.scale();
        let head = out.len();
        let singles = matches!(scale, Scale::Decimals { singles: true, .. });
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        out.push(
            VERSION
                | flag(has_gaps, GAPS)
                | flag(is_integral, INTEGRAL)
                | flag(scale == Scale::Bits, RAW)
                | flag(singles, SINGLES),
        );
        varint::put(out, self.hours.len() as u64);
        varint::put(out, u64::from(first.number));
        let Self { ints, hours, numbers, mantissas, ends } = self;
        let mut stream = |out: &mut Vec<u8>, values: &mut dyn Iterator<Item = i64>| {
            numbers.clear();
            numbers.extend(values);
            ints.encode(numbers, out);
        };
        if has_gaps {
            let steps = hours.iter().zip(hours.iter().skip(1));
            stream(out, &mut steps.map(|(a, b)| i64::from(b.number - a.number)));
        }
        if let Scale::Decimals { power, unit, .. } = scale {
            out.push((0..=decimal::MAX_EXPONENT).find(|e| decimal::power(*e) == Some(power))?);
            varint::put(out, unit as u64);
        }
        let (minima, rest) = mantissas.split_at_checked(hours.len())?;
        let (maxima, rest) = rest.split_at_checked(hours.len())?;
        let (firsts, lasts) = rest.split_at_checked(hours.len())?;
        let above_minima = |values: &[i64]| -> Vec<i64> {
            values.iter().zip(minima).map(|(v, min)| v.wrapping_sub(*min)).collect()
        };
        let ranges = above_minima(maxima);
        stream(out, &mut hours.iter().map(|hour| hour.count as i64));
        stream(out, &mut minima.iter().copied());
        stream(out, &mut ranges.iter().copied());
        let stored_sum = |hour: &Hour| match scale {
            Scale::Bits => hour.sum.to_bits() as i64,
            Scale::Decimals { power, unit, .. } => {
                (hour.sum * power / unit as f64).round_ties_even() as i64
            }
        };
        stream(
            out,
            &mut hours.iter().zip(minima).zip(&ranges).map(|((hour, min), range)| {
                stored_sum(hour).wrapping_sub(scale.expected_sum(hour.count, *min, *range))
            }),
        );
        if scale != Scale::Bits {
            let correction = |hour: &Hour| bits_distance(scale.sum(stored_sum(hour)), hour.sum);
            stream(out, &mut hours.iter().map(correction));
        }
        let (of_hours, _) = fold_sum(0.0, hours.iter().map(|hour| hour.sum));
        varint::put(out, zigzag(bits_distance(of_hours, day_sum)));
        ends.clear();
        stream(ends, &mut above_minima(firsts).into_iter());
        stream(ends, &mut above_minima(lasts).into_iter());
        if ends.len() <= max_ends {
            out.extend_from_slice(ends);
            *out.get_mut(head)? |= ENDS;
        }
        Some(())
    }

    /// Folds the points of each hour; returns the sum of all points.
    fn fold_hours(&mut self, points: &PointColumns, origin_ms: i64) -> Option<f64> {
        self.hours.clear();
        let values: Vec<f64> =
            (0..points.len()).filter_map(|i| points.value(i).map(as_double)).collect();
        if values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let (mut times, mut rest) = (points.times_ms.as_slice(), values.as_slice());
        while let Some(time_ms) = times.first() {
            let number = u32::try_from((time_ms - origin_ms).div_euclid(HOUR_MS)).ok()?;
            if number as usize >= HOURS {
                return None;
            }
            let end_ms = origin_ms + (i64::from(number) + 1) * HOUR_MS;
            let len = times.partition_point(|time| *time < end_ms);
            let (of_hour, later) = rest.split_at_checked(len)?;
            let values = of_hour.iter().copied();
            let (sum, count) = fold_sum(0.0, values.clone());
            self.hours.push(Hour {
                number,
                count,
                min: fold_extreme(None, values.clone(), |v, best| v < best)?,
                max: fold_extreme(None, values, |v, best| v > best)?,
                sum,
                first: *of_hour.first()?,
                last: *of_hour.last()?,
            });
            (times, rest) = (times.get(len..)?, later);
        }
        let (sum, _) = fold_sum(0.0, values.iter().copied());
        // A sum may overflow where no value is infinite.
        let is_finite = sum.is_finite() && self.hours.iter().all(|hour| hour.sum.is_finite());
        is_finite.then_some(sum)
    }

    /// Sets `mantissas` to minima, maxima, first and last values as they are stored.
    fn scale(&mut self) -> Scale {
        let Self { hours, mantissas, .. } = self;
        let columns: [fn(&Hour) -> f64; 4] = [|h| h.min, |h| h.max, |h| h.first, |h| h.last];
        let values = columns.iter().flat_map(|column| hours.iter().map(column));
        let as_singles = |singles: bool| values.clone().map(move |v| (v, singles));
        let found = decimal::scale(as_singles(false), mantissas).map(|e| (e, false));
        let found = found.or_else(|| {
            let all_single = values.clone().all(|v| f64::from(v as f32).to_bits() == v.to_bits());
            let exponent = decimal::scale(as_singles(true), mantissas).filter(|_| all_single)?;
            Some((exponent, true))
        });
        if let Some((exponent, singles)) = found
            && let Some(power) = decimal::power(exponent)
        {
            let magnitudes = mantissas.iter().map(|m| m.unsigned_abs());
            // Mantissas are below 2^53.
            let unit = magnitudes.fold(0, common_divisor).max(1) as i64;
            for m in mantissas.iter_mut() {
                *m /= unit;
            }
            return Scale::Decimals { power, unit, singles };
        }
        mantissas.clear();
        mantissas.extend(values.map(|v| v.to_bits() as i64));
        Scale::Bits
    }
}

/// The summaries of one series on a UTC day; decoding skips the fields that the query does not use.
#[derive(Clone, Debug, Default)]
pub struct DaySummaries {
    /// Hours that have points, in order.
    pub hours: Vec<Summary>,
    /// Sum of all points in time order.
    day_sum: f64,
}

impl DaySummaries {
    /// Decodes what [`SummaryEncoder`] wrote with the same origin. `None` if the summaries lack what
    /// `fold` uses.
    pub fn decode(
        bytes: &[u8],
        origin_secs: u32,
        fold: SummaryFold,
    ) -> Result<Option<Self>, PackedRunError> {
        let mut reader = Reader::new(bytes);
        let flags = reader.byte()?;
        if flags & VERSION_BITS != VERSION {
            return Err(PackedRunError::Damaged("unknown version of summaries"));
        }
        if fold == SummaryFold::Ends && flags & ENDS == 0 {
            return Ok(None);
        }
        decode_day(flags, reader, i64::from(origin_secs) * 1_000, fold).map(Some)
    }

    /// The summary of the whole day; `None` without points.
    #[must_use]
    pub fn day(&self) -> Option<Summary> {
        let (first, last) = (self.hours.first()?, self.hours.last()?);
        let start_ms = first.start_ms - first.start_ms.rem_euclid(DAY_MS);
        let hours = self.hours.iter();
        Some(Summary {
            start_ms,
            end_ms: start_ms + DAY_MS,
            count: hours.clone().map(|hour| hour.count).sum(),
            min: fold_extreme(None, hours.clone().map(|hour| hour.min), |v, best| v < best)?,
            max: fold_extreme(None, hours.map(|hour| hour.max), |v, best| v > best)?,
            sum: self.day_sum,
            first: first.first,
            last: last.last,
            is_integral: first.is_integral,
            points: None,
        })
    }
}

/// Numbers of one hour each.
type HourColumn = [u64; HOURS];

const WRONG_HOURS: PackedRunError = PackedRunError::Damaged("hours of summaries");

/// Reads the numbers of the hours of the day that have points, which rise.
fn decode_hours(flags: u8, reader: &mut Reader<'_>) -> Result<(usize, HourColumn), PackedRunError> {
    let [len, first] = [reader.varint()?, reader.varint()?];
    let len = usize::try_from(len).ok().filter(|len| (1..=HOURS).contains(len));
    let len = len.ok_or(WRONG_HOURS)?;
    let mut column = [0; HOURS];
    let numbers = column.get_mut(..len).ok_or(WRONG_HOURS)?;
    if flags & GAPS != 0 {
        int_stream::decode(reader, numbers.get_mut(1..).ok_or(WRONG_HOURS)?)?;
    } else {
        numbers.fill(1);
    }
    let mut number = first;
    for (index, step) in numbers.iter_mut().enumerate() {
        if index > 0 {
            number = number.checked_add(*step).filter(|_| *step > 0).ok_or(WRONG_HOURS)?;
        }
        *step = number;
    }
    if number >= HOURS as u64 { Err(WRONG_HOURS) } else { Ok((len, column)) }
}

fn decode_day(
    flags: u8,
    mut reader: Reader<'_>,
    origin_ms: i64,
    fold: SummaryFold,
) -> Result<DaySummaries, PackedRunError> {
    let (len, numbers) = decode_hours(flags, &mut reader)?;
    let scale = Scale::decode(flags, &mut reader)?;
    let column = |reader: &mut Reader<'_>, is_read: bool| -> Result<HourColumn, PackedRunError> {
        let mut column = [0; HOURS];
        if is_read {
            int_stream::decode(reader, column.get_mut(..len).ok_or(WRONG_HOURS)?)?;
        }
        Ok(column)
    };
    // They are read in this order, and only as far as they are used.
    let has_sums = fold != SummaryFold::Extremes;
    let has_ends = fold == SummaryFold::Ends;
    let counts = column(&mut reader, true)?;
    let minima = column(&mut reader, true)?;
    let ranges = column(&mut reader, true)?;
    let sums = column(&mut reader, has_sums)?;
    let corrections = column(&mut reader, has_sums && scale != Scale::Bits)?;
    let day_correction = if has_sums { reader.zigzag()? } else { 0 };
    let firsts = column(&mut reader, has_ends)?;
    let lasts = column(&mut reader, has_ends)?;
    let is_integral = flags & INTEGRAL != 0;
    let mut hours = Vec::with_capacity(len);
    for (index, number) in numbers.iter().take(len).enumerate() {
        let at = |column: &HourColumn| column.get(index).copied().unwrap_or_default() as i64;
        let (min, range) = (at(&minima), at(&ranges));
        let count = at(&counts) as u64;
        if !(1..=1 << 32).contains(&count) {
            return Err(PackedRunError::Damaged("count of a summary"));
        }
        let sum = if has_sums {
            let stored = at(&sums).wrapping_add(scale.expected_sum(count, min, range));
            bits_at_distance(scale.sum(stored), at(&corrections))
        } else {
            f64::NAN
        };
        let end = |column| {
            if has_ends { scale.value(min.wrapping_add(at(column))) } else { f64::NAN }
        };
        let start_ms = origin_ms + *number as i64 * HOUR_MS;
        hours.push(Summary {
            start_ms,
            end_ms: start_ms + HOUR_MS,
            count,
            min: scale.value(min),
            max: scale.value(min.wrapping_add(range)),
            sum,
            first: end(&firsts),
            last: end(&lasts),
            is_integral,
            points: None,
        });
    }
    let (of_hours, _) = fold_sum(0.0, hours.iter().map(|hour| hour.sum));
    Ok(DaySummaries { hours, day_sum: bits_at_distance(of_hours, day_correction) })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    const DAY: u32 = 1_356_998_400;

    #[derive(Clone, Copy, Debug)]
    enum Kind {
        Integers,
        Large,
        Decimals,
        Singles,
        Doubles,
        Mixed,
    }

    fn value(kind: Kind, raw: i64) -> Value {
        match (kind, raw % 3) {
            (Kind::Integers, _) => Value::Integer(raw % 1_000),
            (Kind::Large, _) => Value::Integer(raw.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64)),
            (Kind::Decimals, _) | (Kind::Mixed, 1) => Value::Float((raw % 10_000) as f64 / 100.0),
            (Kind::Singles, _) => Value::Float(f64::from((raw % 10_000) as f32 / 10.0)),
            (Kind::Mixed, 2) if raw % 7 == 0 => Value::Float(-0.0),
            (Kind::Doubles, _) => Value::Float((raw as f64).sin() * 1e9),
            (Kind::Mixed, _) => Value::Integer(raw % 50),
        }
    }

    fn kind() -> impl Strategy<Value = Kind> {
        prop::sample::select(vec![
            Kind::Integers,
            Kind::Large,
            Kind::Decimals,
            Kind::Singles,
            Kind::Doubles,
            Kind::Mixed,
        ])
    }

    fn folded(values: &[f64], start_ms: i64, end_ms: i64) -> [u64; 8] {
        let (sum, count) = fold_sum(0.0, values.iter().copied());
        let extreme = |beats: fn(f64, f64) -> bool| {
            fold_extreme(None, values.iter().copied(), beats).unwrap().to_bits()
        };
        [
            start_ms as u64,
            end_ms as u64,
            count,
            extreme(|v, best| v < best),
            extreme(|v, best| v > best),
            sum.to_bits(),
            values[0].to_bits(),
            values[values.len() - 1].to_bits(),
        ]
    }

    fn fields(s: &Summary) -> [u64; 8] {
        let [min, max, sum, first, last] = [s.min, s.max, s.sum, s.first, s.last].map(f64::to_bits);
        [s.start_ms as u64, s.end_ms as u64, s.count, min, max, sum, first, last]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn summaries_have_the_bits_of_the_folds(
            kind in kind(),
            points in prop::collection::btree_map(0_i64..86_400_000, any::<i32>(), 1..300),
        ) {
            let origin_ms = i64::from(DAY) * 1_000;
            let mut columns = PointColumns::default();
            for (time, raw) in &points {
                columns.push(origin_ms + time, value(kind, i64::from(*raw)));
            }
            let mut bytes = Vec::new();
            prop_assert!(SummaryEncoder::default().encode(&columns, DAY, usize::MAX, &mut bytes));
            let day = DaySummaries::decode(&bytes, DAY, SummaryFold::Ends).unwrap().unwrap();
            let doubles = |from: i64, to: i64| -> Vec<f64> {
                let of = |(_, raw): (&i64, &i32)| as_double(value(kind, i64::from(*raw)));
                points.range(from..to).map(of).collect()
            };
            let expected: Vec<_> = (0..24)
                .map(|hour| (hour * HOUR_MS, (hour + 1) * HOUR_MS))
                .filter(|(from, to)| !doubles(*from, *to).is_empty())
                .map(|(from, to)| folded(&doubles(from, to), origin_ms + from, origin_ms + to))
                .collect();
            prop_assert_eq!(&day.hours.iter().map(fields).collect::<Vec<_>>(), &expected);
            let all = doubles(0, DAY_MS);
            let whole = day.day().unwrap();
            prop_assert_eq!(fields(&whole), folded(&all, origin_ms, origin_ms + DAY_MS));
            prop_assert_eq!(whole.is_integral, all.iter().all(|v| v.fract() == 0.0));
            for fold in [SummaryFold::Extremes, SummaryFold::Sums(crate::SumBucket::Day)] {
                let part = DaySummaries::decode(&bytes, DAY, fold).unwrap().unwrap();
                let shared = if fold == SummaryFold::Extremes { 5 } else { 6 };
                for (hour, expected) in part.hours.iter().zip(&expected) {
                    prop_assert_eq!(&fields(hour)[..shared], &expected[..shared]);
                }
                if shared == 6 {
                    prop_assert_eq!(part.day().unwrap().sum.to_bits(), whole.sum.to_bits());
                }
            }
            // Without first and last values.
            let mut short = Vec::new();
            prop_assert!(SummaryEncoder::default().encode(&columns, DAY, 0, &mut short));
            prop_assert!(short.len() < bytes.len());
            prop_assert!(DaySummaries::decode(&short, DAY, SummaryFold::Ends).unwrap().is_none());
            prop_assert!(DaySummaries::decode(&short, DAY, SummaryFold::Extremes).unwrap().is_some());
        }

        #[test]
        fn changed_bytes_do_not_panic(
            kind in kind(),
            points in prop::collection::btree_map(0_i64..86_400_000, any::<i32>(), 1..60),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(), cuts: bool,
        ) {
            let mut columns = PointColumns::default();
            for (time, raw) in points {
                columns.push(i64::from(DAY) * 1_000 + time, value(kind, i64::from(raw)));
            }
            let mut bytes = Vec::new();
            prop_assert!(SummaryEncoder::default().encode(&columns, DAY, usize::MAX, &mut bytes));
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if cuts {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(Some(day)) = DaySummaries::decode(&bytes, DAY, SummaryFold::Ends) {
                prop_assert!(day.day().is_some());
            }
        }
    }

    #[test]
    fn values_that_are_no_numbers_and_times_of_other_days_have_no_summaries() {
        let encode = |time_ms: i64, value: f64| {
            let mut columns = PointColumns::default();
            columns.push(i64::from(DAY) * 1_000 + time_ms, Value::Float(value));
            let mut bytes = vec![7];
            let done = SummaryEncoder::default().encode(&columns, DAY, 100, &mut bytes);
            assert!(done || bytes == [7]);
            done
        };
        assert!(encode(0, 1.5));
        assert!(!encode(0, f64::NAN));
        assert!(!encode(0, f64::INFINITY));
        assert!(!encode(-1, 1.5));
        assert!(!encode(DAY_MS, 1.5));
    }
}

#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::{Cell, Family};

fn second(offset: u16, flags: u16) -> Vec<u8> {
    (offset << 4 | flags).to_be_bytes().to_vec()
}

fn milli(offset: u32, flags: u32) -> Vec<u8> {
    (0xF000_0000 | offset << 6 | flags).to_be_bytes().to_vec()
}

fn integer(v: i64) -> (u8, Vec<u8>) {
    let flags = encoder::integer_flags(v);
    (flags, v.to_be_bytes().into_iter().skip(7 - usize::from(flags)).collect())
}

/// A value as one of the interfaces writes it.
#[derive(Clone, Copy, Debug)]
enum Put {
    Int(i64),
    Single(f32),
    Double(f64),
    Telnet(f64),
}

impl Put {
    fn encode(self) -> (u8, Vec<u8>) {
        match self {
            Self::Int(v) => integer(v),
            Self::Single(v) => (0xB, v.to_be_bytes().to_vec()),
            Self::Telnet(v) if number::is_single(v) => (0xB, (v as f32).to_be_bytes().to_vec()),
            Self::Double(v) | Self::Telnet(v) => (0xF, v.to_be_bytes().to_vec()),
        }
    }

    fn bits(self) -> u64 {
        match self {
            Self::Int(v) => v as u64,
            Self::Single(v) => f64::from(v).to_bits(),
            Self::Double(v) | Self::Telnet(v) => v.to_bits(),
        }
    }
}

fn cells(millis: bool, points: &[(u32, Put, i64)]) -> Vec<Cell> {
    points
        .iter()
        .map(|&(offset, put, timestamp_ms)| {
            let (flags, value) = put.encode();
            let qualifier = if millis {
                milli(offset, flags.into())
            } else {
                second(offset as u16, flags.into())
            };
            Cell {
                family: Family::T,
                qualifier: qualifier.into(),
                value: value.into(),
                timestamp_ms,
            }
        })
        .collect()
}

fn pack_singles(cells: &[Cell]) -> Vec<u8> {
    let mut encoder = RunEncoder::new();
    for cell in cells {
        let point = PackablePoint::try_from_cell(&cell.qualifier, &cell.value).unwrap();
        encoder.push(point, cell.timestamp_ms).unwrap();
    }
    let mut out = Vec::new();
    encoder.finish(RunShape::Singles, &mut out).unwrap();
    out
}

fn compact(cells: &[Cell], timestamp_ms: i64) -> Cell {
    let qualifier = cells.iter().flat_map(|c| c.qualifier.to_vec()).collect::<Vec<_>>();
    let mut value = cells.iter().flat_map(|c| c.value.to_vec()).collect::<Vec<_>>();
    if cells.len() > 1 {
        value.push(0);
    }
    Cell { family: Family::T, qualifier: qualifier.into(), value: value.into(), timestamp_ms }
}

/// Checks that both shapes reproduce cells and points; returns the length of the compacted run.
#[track_caller]
fn check(millis: bool, points: &[(u32, Put, i64)]) -> usize {
    let expected = cells(millis, points);
    let singles = PackedRun::open(pack_singles(&expected).into()).unwrap();
    assert_eq!(singles.shape(), RunShape::Singles);
    let column = compact(&expected, 1_400_000_000_123);
    let mut bytes = Vec::new();
    RunEncoder::new()
        .encode_compacted(&column.qualifier, &column.value, column.timestamp_ms, &mut bytes)
        .unwrap();
    let compacted = PackedRun::open(bytes.into()).unwrap();
    assert_eq!(compacted.shape(), RunShape::Compacted);

    let mut encoder = RunEncoder::new();
    for cell in &expected {
        let point = PackablePoint::try_from_cell(&cell.qualifier, &cell.value).unwrap();
        encoder.push(point, cell.timestamp_ms).unwrap();
    }
    let mut bytes = Vec::new();
    encoder.finish_quickly(&mut bytes).unwrap();
    let quick = PackedRun::open(bytes.into()).unwrap();

    for (run, cells) in
        [(&singles, expected.clone()), (&quick, expected), (&compacted, vec![column])]
    {
        let mut got = Vec::new();
        run.expand_into(&mut got).unwrap();
        assert_eq!(got, cells);
        for cell in &cells {
            assert!(run.may_contain_column(&cell.qualifier));
        }
        assert_eq!(run.point_count(), points.len());
        let mut columns = PointColumns::default();
        columns.push(5, crate::Value::Float(1.0));
        run.decode_into(7_200, &mut columns).unwrap();
        let unit = if millis { 1 } else { 1_000 };
        let times: Vec<i64> = points.iter().map(|p| 7_200_000 + i64::from(p.0) * unit).collect();
        assert_eq!(columns.times_ms.get(1..).unwrap(), times);
        assert_eq!(
            columns.bits.get(1..).unwrap(),
            points.iter().map(|p| p.1.bits()).collect::<Vec<_>>()
        );
        for (i, p) in points.iter().enumerate() {
            assert_eq!(columns.is_integer(i + 1), matches!(p.1, Put::Int(_)));
        }
        let range = run.offset_range_ms();
        assert_eq!(i64::from(range.0) + 7_200_000, *times.first().unwrap());
        assert_eq!(i64::from(range.1) + 7_200_000, *times.last().unwrap());
    }
    compacted.as_bytes().len()
}

fn ten_seconds(value: impl Fn(u32) -> Put) -> Vec<(u32, Put, i64)> {
    (0..360).map(|i| (i * 10, value(i), 1_500_000_000_000 + i64::from(i) * 10_003)).collect()
}

#[test]
fn ordinary_series_take_few_bytes() {
    // Maximum bytes for 360 points, header included.
    let noise = |i: u32| i64::from(i.wrapping_mul(2_654_435_761) >> 8);
    assert!(check(false, &ten_seconds(|_| Put::Int(42))) <= 20);
    assert!(check(false, &ten_seconds(|_| Put::Telnet(42.1))) <= 20);
    assert!(check(false, &ten_seconds(|i| Put::Int(i64::from(i) * 1_000_003))) <= 24);
    assert!(check(false, &ten_seconds(|i| Put::Int(noise(i) % 1_024))) <= 450 + 24);
    assert!(check(false, &ten_seconds(|i| Put::Int(noise(i / 7) % 2_000))) <= 52 * 11 / 8 + 30);
    let hundredth = |i| (noise(i) % 12_800) as f64 / 100.0;
    for put in [Put::Double, Put::Telnet, |v| Put::Single(v as f32)] {
        assert!(check(false, &ten_seconds(|i| put(hundredth(i)))) <= 360 * 14 / 8 + 24);
    }
    // A collector that omits the point of whole numbers.
    let dropping = |v: f64| if v.fract() == 0.0 { Put::Int(v as i64) } else { Put::Telnet(v) };
    assert!(check(false, &ten_seconds(|i| dropping(hundredth(i)))) <= 360 * 15 / 8 + 40);
}

#[test]
fn irregular_sequences_are_reproduced() {
    check(false, &[(0, Put::Int(0), i64::MIN)]);
    check(false, &[(3_599, Put::Double(-0.0), i64::MAX)]);
    check(true, &[(3_599_999, Put::Single(0.1), 0)]);
    check(false, &[(0, Put::Int(i64::MIN), 1), (3_599, Put::Int(i64::MAX), -1)]);
    check(false, &[(7, Put::Int(1 << 60), 1), (8, Put::Double(0.5), 2), (10, Put::Single(0.5), 3)]);
    check(true, &[(1, Put::Double(0.1 + 0.2), 1), (2, Put::Double(f64::MIN_POSITIVE), 2)]);
    check(true, &[(1, Put::Single(1e-45), 1), (2, Put::Single(f32::MAX), 2)]);
    // One violation of the telnet rule.
    check(false, &[(1, Put::Double(0.5), 1), (2, Put::Single(0.5), 2), (9, Put::Double(0.1), 0)]);
    check(false, &[(1, Put::Int(99_999_999), 1), (2, Put::Single(0.1), 2)]);
}

#[test]
fn cells_that_runs_cannot_reproduce_are_rejected() {
    for (qualifier, value) in [
        (second(1, 1), vec![0, 5]),
        (second(1, 3), vec![0, 0, 1, 0]),
        (second(1, 7), vec![0xFF; 8]),
        (second(1, 2), vec![1, 2, 3]),
        (second(1, 0), vec![0, 5]),
        (second(1, 0), vec![]),
        (second(1, 0xB), vec![0, 0, 0, 0, 0x42, 0x2A, 0, 0]),
        (second(1, 0xB), f32::NAN.to_be_bytes().to_vec()),
        (second(1, 0xF), f64::INFINITY.to_be_bytes().to_vec()),
        (second(1, 0x8), vec![5]),
        (second(3_600, 0), vec![5]),
        (milli(3_600_000, 0), vec![5]),
        (milli(1, 0x10), vec![5]),
        (vec![1, 0, 0], vec![5]),
        (vec![0, 0x10, 0, 0x20], vec![5, 5, 0]),
        (vec![], vec![]),
    ] {
        let point = PackablePoint::try_from_cell(&qualifier, &value);
        assert_eq!(point, None, "{qualifier:?} {value:?}");
    }
}

#[test]
fn non_canonical_columns_are_rejected() {
    let two = [second(1, 0), second(2, 0)].concat();
    for (qualifier, value) in [
        (two.clone(), vec![5, 6]),
        (two.clone(), vec![5, 6, 1]),
        (two.clone(), vec![5, 6, 0, 0]),
        (two, vec![5]),
        (second(1, 0), vec![5, 0]),
        ([second(2, 0), second(1, 0)].concat(), vec![5, 6, 0]),
        ([second(1, 0), second(1, 0)].concat(), vec![5, 6, 0]),
        ([second(1, 0), milli(2_000, 0)].concat(), vec![5, 6, 1]),
        ([second(1, 0), vec![0xF0, 0]].concat(), vec![5, 6, 0]),
        (vec![], vec![]),
    ] {
        let mut out = vec![9];
        let got = RunEncoder::new().encode_compacted(&qualifier, &value, 1, &mut out);
        assert!(matches!(got, Err(PackedRunError::NotPackable(_))), "{qualifier:?} {value:?}");
        assert_eq!(out, [9]);
    }
}

#[test]
fn points_of_a_run_increase_and_share_a_resolution() {
    let point = |q: &[u8]| PackablePoint::try_from_cell(q, &[1]).unwrap();
    let mut encoder = RunEncoder::new();
    encoder.push(point(&second(5, 0)), 0).unwrap();
    assert!(encoder.push(point(&second(5, 0)), 0).is_err());
    assert!(encoder.push(point(&second(4, 0)), 0).is_err());
    assert!(encoder.push(point(&milli(6_000, 0)), 0).is_err());
    encoder.push(point(&second(6, 0)), 1).unwrap();
    assert_eq!(encoder.point_count(), 2);
    assert!(encoder.finish(RunShape::Compacted, &mut Vec::new()).is_err());
    assert!(encoder.finish(RunShape::Singles, &mut Vec::new()).is_err());
}

#[test]
fn header_excludes_other_columns() {
    let run = PackedRun::open(
        pack_singles(&cells(false, &[(10, Put::Int(1), 0), (20, Put::Int(2), 0)])).into(),
    )
    .unwrap();
    assert!(run.may_contain_column(&second(10, 0)));
    assert!(!run.may_contain_column(&second(9, 0)));
    assert!(!run.may_contain_column(&second(21, 0)));
    assert!(!run.may_contain_column(&milli(15_000, 0)));
    assert!(!run.may_contain_column(&[1, 0, 0]));
    assert!(!run.may_contain_column(&[]));
    assert!(!run.may_contain_column(&[second(10, 0), second(20, 0)].concat()));
}

fn any_put() -> impl Strategy<Value = Put> {
    let finite32 = any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |v| v.is_finite());
    let finite64 = any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |v| v.is_finite());
    let cents = (-100_000_i32..100_000).prop_map(|v| f64::from(v) / 100.0);
    prop_oneof![
        any::<i64>().prop_map(Put::Int),
        (-300_i64..300).prop_map(Put::Int),
        finite32.prop_map(Put::Single),
        finite64.prop_map(Put::Double),
        cents.clone().prop_map(Put::Telnet),
        cents.clone().prop_map(Put::Double),
        cents.prop_map(|v| Put::Single(v as f32)),
    ]
}

fn any_points() -> impl Strategy<Value = (bool, Vec<(u32, Put, i64)>)> {
    let kinds = prop::collection::vec(any_put(), 1..4);
    (
        any::<bool>(),
        kinds,
        prop::collection::vec((1_u32..30, any::<prop::sample::Index>(), any::<i64>()), 1..100),
        any_put(),
    )
        .prop_flat_map(|(millis, kinds, steps, odd)| {
            let count = steps.len();
            (Just((millis, kinds, steps, odd)), 0..count * 4)
        })
        .prop_map(|((millis, kinds, steps, odd), odd_at)| {
            let mut offset = 0;
            let points = steps
                .iter()
                .enumerate()
                .map(|(i, (step, which, ts))| {
                    offset += step;
                    let put = if i == odd_at { odd } else { *which.get(&kinds) };
                    (offset, put, *ts)
                })
                .collect();
            (millis, points)
        })
}

proptest! {
    #[test]
    fn expand_inverts_pack((millis, points) in any_points()) {
        check(millis, &points);
    }

    #[test]
    fn damaged_bytes_do_not_panic(
        (millis, points) in any_points(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        cuts: bool,
    ) {
        let mut bytes = pack_singles(&cells(millis, &points));
        for (at, to) in changes {
            let at = at.index(bytes.len());
            *bytes.get_mut(at).unwrap() = to;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        survive(bytes);
    }

    #[test]
    fn random_bytes_do_not_panic(
        head in prop::collection::vec(0_u8..32, 2..7),
        bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        survive([&[VERSION], head.as_slice(), &bytes].concat());
        survive(bytes);
    }
}

fn survive(bytes: Vec<u8>) {
    let Ok(run) = PackedRun::open(bytes.into()) else { return };
    let mut columns = PointColumns::default();
    columns.push(-1, crate::Value::Integer(1));
    let before = columns.clone();
    if run.decode_into(0, &mut columns).is_ok() {
        assert_eq!(columns.len(), 1 + run.point_count());
        assert_eq!(columns.bits.len(), columns.len());
        assert!(columns.times_ms.is_sorted_by(|a, b| a < b));
        assert!(*columns.times_ms.last().unwrap() < 3_600_000);
    } else {
        assert_eq!(columns, before);
    }
    let mut cells = Vec::new();
    if run.expand_into(&mut cells).is_err() {
        assert!(cells.is_empty());
    }
}

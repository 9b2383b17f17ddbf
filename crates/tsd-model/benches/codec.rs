//! Cost of encoding and decoding a point: text to cell, cells to columns. Every bench checks its
//! result.

use bytes::Bytes;
use divan::{Bencher, counter::ItemsCount};
use tsd_model::{
    BaseTime, Cell, Family, InputFormat, KindUid, KnownKind, MergeRule, PackablePoint, PackedRun,
    PointColumns, PointValue, Qualifier, Row, RowExtras, RunEncoder, RunShape, SeriesKey,
    StoredPoint, TableSchema, Timestamp, decode_row, encode_column, parse_point_value,
    parse_telnet_timestamp, plan_row_compaction,
};

const BASE: i64 = 1_356_998_400;
const POINTS: usize = 360;

fn main() {
    divan::main();
}

/// Timestamp and value texts as collectors send them.
fn texts(decimals: bool) -> Vec<(String, String)> {
    let value = |i: i64| {
        if decimals { format!("{}.{:02}", i * 7, (i * 37) % 100) } else { format!("{}", i * 7_919) }
    };
    (0..1_000).map(|i| (format!("{}", BASE + i * 3), value(i))).collect()
}

fn text_to_cell(bencher: Bencher<'_, '_>, texts: &[(String, String)]) {
    bencher.counter(ItemsCount::new(texts.len())).bench(|| {
        let mut bytes = 0;
        for (time, value) in texts {
            let time = parse_telnet_timestamp(divan::black_box(time.as_bytes()));
            let value = parse_point_value(divan::black_box(value.as_bytes()), InputFormat::Telnet);
            let (Ok(time), Ok(value)) = (time, value) else { panic!("no point") };
            let Ok(time) = Timestamp::try_new(time) else { panic!("{time}") };
            let (flags, value) = value.encode();
            let qualifier = Qualifier::new(time, flags);
            bytes += divan::black_box(qualifier.as_bytes()).len() + divan::black_box(&*value).len();
        }
        assert!(bytes >= texts.len() * 3);
        bytes
    });
}

#[divan::bench]
fn integer_text_to_cell(bencher: Bencher<'_, '_>) {
    text_to_cell(bencher, &texts(false));
}

#[divan::bench]
fn decimal_text_to_cell(bencher: Bencher<'_, '_>) {
    text_to_cell(bencher, &texts(true));
}

fn uid<K: KnownKind>(number: u64) -> KindUid<K> {
    KindUid::from_number(number, 3).unwrap_or_else(|e| panic!("{e}"))
}

#[divan::bench]
fn row_key(bencher: Bencher<'_, '_>) {
    let schema = TableSchema::try_new(3, 3, 3, 1, 20).unwrap_or_else(|e| panic!("{e}"));
    let series = SeriesKey::try_new(&schema, uid(1), &[(uid(1), uid(2)), (uid(3), uid(4))]);
    let series = series.unwrap_or_else(|e| panic!("{e}"));
    let mut buffer = Vec::new();
    bencher.counter(ItemsCount::new(1_000_usize)).bench_local(|| {
        buffer.clear();
        for hour in 0..1_000_u32 {
            let base = BaseTime::containing(divan::black_box(hour * 3_600));
            series.write_row_key(base, &mut buffer);
        }
        assert_eq!(buffer.len(), 1_000 * series.key_len());
    });
}

/// An hour at 10 s, a third of the values integers of two widths.
fn points() -> Vec<(Qualifier, Vec<u8>)> {
    (0..POINTS as i64)
        .map(|i| {
            let value = match i % 3 {
                0 => PointValue::Integer(i * 100),
                1 => PointValue::Double(i as f64 * 0.1),
                _ => PointValue::Single(i as f32 * 0.5),
            };
            let (flags, bytes) = value.encode();
            let time = Timestamp::try_new(BASE + i * 10).unwrap_or_else(|e| panic!("{e}"));
            (Qualifier::new(time, flags), bytes.to_vec())
        })
        .collect()
}

fn integers() -> Vec<(Qualifier, Vec<u8>)> {
    let integer = |i: i64| {
        let (flags, bytes) = PointValue::Integer(i * 1_000).encode();
        let time = Timestamp::try_new(BASE + i * 10).unwrap_or_else(|e| panic!("{e}"));
        (Qualifier::new(time, flags), bytes.to_vec())
    };
    (0..POINTS as i64).map(integer).collect()
}

fn cell(qualifier: &[u8], value: &[u8]) -> Cell {
    Cell {
        family: Family::T,
        qualifier: Bytes::copy_from_slice(qualifier),
        value: Bytes::copy_from_slice(value),
        timestamp_ms: 0,
    }
}

fn singles(points: &[(Qualifier, Vec<u8>)]) -> Row {
    let cells = points.iter().map(|(qualifier, value)| cell(qualifier.as_bytes(), value));
    Row::from_cells(Bytes::from_static(b"key"), cells.collect())
}

fn compacted(points: &[(Qualifier, Vec<u8>)]) -> Row {
    let stored: Vec<_> = points
        .iter()
        .map(|(qualifier, value)| StoredPoint { qualifier: *qualifier, value })
        .collect();
    let (qualifier, value) = encode_column(&stored);
    Row::from_cells(Bytes::from_static(b"key"), vec![cell(&qualifier, &value)])
}

fn packed(points: &[(Qualifier, Vec<u8>)]) -> Row {
    let mut encoder = RunEncoder::new();
    for (qualifier, value) in points {
        let point = PackablePoint::try_from_cell(qualifier.as_bytes(), value);
        let point = point.unwrap_or_else(|| panic!("{qualifier:?}"));
        encoder.push(point, 0).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut bytes = Vec::new();
    encoder.finish(RunShape::Compacted, &mut bytes).unwrap_or_else(|e| panic!("{e}"));
    let mut row = Row::from_cells(Bytes::from_static(b"key"), Vec::new());
    row.runs.push(PackedRun::open(bytes.into()).unwrap_or_else(|e| panic!("{e}")));
    row
}

fn decode(bencher: Bencher<'_, '_>, rows: &[Row]) {
    let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
    let base = BaseTime::containing(BASE as u32);
    bencher.counter(ItemsCount::new(POINTS * rows.len())).bench_local(|| {
        let mut points = 0;
        for row in rows {
            columns.clear();
            let rule = MergeRule::Unanimous;
            let done = decode_row(divan::black_box(row), base, rule, &mut columns, &mut extras);
            assert!(done.is_ok());
            points += divan::black_box(&columns).len();
        }
        assert_eq!(points, POINTS * rows.len());
    });
}

/// More rows than fit in a processor cache.
fn many(row: impl Fn() -> Row) -> Vec<Row> {
    (0..100).map(|_| row()).collect()
}

#[divan::bench]
fn decode_single_cells(bencher: Bencher<'_, '_>) {
    let points = points();
    decode(bencher, &many(|| singles(&points)));
}

#[divan::bench]
fn decode_single_integer_cells(bencher: Bencher<'_, '_>) {
    let points = integers();
    decode(bencher, &many(|| singles(&points)));
}

#[divan::bench]
fn decode_compacted_column(bencher: Bencher<'_, '_>) {
    let points = points();
    decode(bencher, &many(|| compacted(&points)));
}

#[divan::bench]
fn decode_packed_run(bencher: Bencher<'_, '_>) {
    let points = integers();
    decode(bencher, &many(|| packed(&points)));
}

#[divan::bench]
fn decode_column_and_late_cells(bencher: Bencher<'_, '_>) {
    let points = points();
    let (late, early): (Vec<_>, Vec<_>) =
        points.into_iter().enumerate().partition(|(at, _)| at % 10 == 5);
    let strip = |list: Vec<(usize, (Qualifier, Vec<u8>))>| -> Vec<_> {
        list.into_iter().map(|(_, point)| point).collect()
    };
    let (late, early) = (strip(late), strip(early));
    decode(
        bencher,
        &many(|| {
            let mut row = compacted(&early);
            row.cells.extend(singles(&late).cells);
            row.cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
            row
        }),
    );
}

#[divan::bench]
fn plan_compaction_of_single_cells(bencher: Bencher<'_, '_>) {
    let row = singles(&points());
    bencher.counter(ItemsCount::new(POINTS)).bench_local(|| {
        let plan = plan_row_compaction(&row.key, &row.cells, MergeRule::Unanimous);
        let plan = plan.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(plan.delete.len(), POINTS);
    });
}

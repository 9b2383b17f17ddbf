//! From stored rows to a result, on one core: decode, average over five minutes, aggregate.
//!
//! A hundred series over a day, one point every ten seconds. Rows are stored as single cells, as
//! one compacted column, or as packed runs as in the embedded store.
//!
//! `cargo bench -p tsd-query --bench rows`

#![expect(clippy::unwrap_used, reason = "a bench stops at the first error")]

use bytes::Bytes;
use divan::{Bencher, counter::ItemsCount};
use tsd_model::{
    BaseTime, Cell, Family, MergeRule, PackablePoint, PackedRun, PointColumns, PointValue,
    Qualifier, Row, RowExtras, RunEncoder, RunShape, StoredPoint, decode_row, encode_column,
};
use tsd_query::{
    AggregateInput, Aggregator, Clock, RawQuery, ScanWindow, SeriesPipeline, aggregate,
    parse_m_parameter,
};

/// 2013-01-01, an hour boundary.
const T: u32 = 1_356_998_400;
const ROW_POINTS: u32 = 360;
const ROWS: u32 = 24;
const SERIES: u64 = 100;

fn main() {
    divan::main();
}

/// Storage format of the rows.
#[derive(Clone, Copy, Debug)]
enum RowFormat {
    Cells,
    Column,
    Run,
}

/// Values of the points.
#[derive(Clone, Copy, Debug)]
enum ValueSeries {
    Integers,
    Walk,
}

const CASES: [(RowFormat, ValueSeries); 6] = [
    (RowFormat::Cells, ValueSeries::Integers),
    (RowFormat::Cells, ValueSeries::Walk),
    (RowFormat::Column, ValueSeries::Integers),
    (RowFormat::Column, ValueSeries::Walk),
    (RowFormat::Run, ValueSeries::Integers),
    (RowFormat::Run, ValueSeries::Walk),
];

/// The rows of one series.
fn rows(form: RowFormat, kind: ValueSeries, series: u64) -> Vec<(BaseTime, Row)> {
    let mut random = (series + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut walk = 5_000_i64;
    (0..ROWS)
        .map(|hour| {
            let points: Vec<(Qualifier, Vec<u8>)> = (0..ROW_POINTS)
                .map(|i| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let number = (random >> 11) as i64;
                    let value = match kind {
                        ValueSeries::Integers => PointValue::Integer(number % 2_000),
                        ValueSeries::Walk => {
                            walk = (walk + number % 101 - 50).max(0);
                            PointValue::Double(walk as f64 / 100.0)
                        }
                    };
                    let (flags, bytes) = value.encode();
                    (Qualifier::at_seconds(i * 10, flags).unwrap(), bytes.to_vec())
                })
                .collect();
            (BaseTime::containing(T + hour * 3_600), row(form, &points))
        })
        .collect()
}

fn row(form: RowFormat, points: &[(Qualifier, Vec<u8>)]) -> Row {
    let (mut cells, mut runs) = (Vec::new(), Vec::new());
    let cell = |qualifier: Vec<u8>, value: Vec<u8>| Cell {
        family: Family::T,
        qualifier: qualifier.into(),
        value: value.into(),
        timestamp_ms: 0,
    };
    let stored: Vec<_> =
        points.iter().map(|(q, v)| StoredPoint { qualifier: *q, value: v }).collect();
    match form {
        RowFormat::Cells => {
            // As a store returns them: slices of one buffer.
            let all = Bytes::from(
                points.iter().flat_map(|(q, v)| [q.as_bytes(), v].concat()).collect::<Vec<_>>(),
            );
            let mut at = 0;
            for (qualifier, value) in points {
                let middle = at + qualifier.as_bytes().len();
                let end = middle + value.len();
                cells.push(Cell {
                    family: Family::T,
                    qualifier: all.slice(at..middle),
                    value: all.slice(middle..end),
                    timestamp_ms: 0,
                });
                at = end;
            }
        }
        RowFormat::Column => {
            let (qualifier, value) = encode_column(&stored);
            cells.push(cell(qualifier, value));
        }
        RowFormat::Run => {
            let mut encoder = RunEncoder::new();
            for (qualifier, value) in points {
                let point = PackablePoint::try_from_cell(qualifier.as_bytes(), value).unwrap();
                encoder.push(point, 0).unwrap();
            }
            let mut bytes = Vec::new();
            encoder.finish(RunShape::Compacted, &mut bytes).unwrap();
            runs.push(PackedRun::open(bytes.into()).unwrap());
        }
    }
    Row { key: Bytes::from_static(b"row"), cells, runs }
}

fn pipeline(m: &str) -> SeriesPipeline {
    let start = i64::from(T) * 1_000;
    let raw = RawQuery {
        start: Some(start.to_string()),
        end: Some((start + 86_399_000).to_string()),
        queries: Some(vec![parse_m_parameter(m).unwrap()]),
        ..RawQuery::default()
    };
    let query = raw.validate(&Clock::utc(0)).unwrap();
    let sub = query.sub_queries.first().unwrap();
    let interval = sub.downsample.as_ref().map_or(0, tsd_query::DownsampleSpec::interval_ms);
    let window = ScanWindow::raw(query.start_ms, query.end_ms, interval);
    SeriesPipeline::new(sub, &window, &query.zone)
}

#[divan::bench(args = CASES)]
fn average_of_a_day(bencher: Bencher, (form, kind): (RowFormat, ValueSeries)) {
    let pipeline = pipeline("avg:5m-avg:m");
    let all: Vec<_> = (0..SERIES).map(|series| rows(form, kind, series)).collect();
    let points = SERIES * u64::from(ROWS * ROW_POINTS);
    bencher.counter(ItemsCount::new(points)).bench(|| {
        let mut columns = PointColumns::default();
        let spans: Vec<PointColumns> = all
            .iter()
            .map(|rows| {
                let mut builder = pipeline.start();
                for (base, row) in rows {
                    let mut extras = RowExtras::default();
                    columns.clear();
                    decode_row(row, *base, MergeRule::Unanimous, &mut columns, &mut extras)
                        .unwrap();
                    builder.push(&pipeline, &columns);
                }
                builder.finish(&pipeline, Bytes::new()).unwrap().unwrap().points
            })
            .collect();
        let result = aggregate(&AggregateInput {
            aggregator: Aggregator::Avg,
            is_rate: false,
            series: &spans.iter().collect::<Vec<_>>(),
            from_ms: i64::from(T) * 1_000,
            to_ms: i64::from(T) * 1_000 + 86_400_000,
        })
        .unwrap();
        assert_eq!(result.len(), 288);
        result
    });
}

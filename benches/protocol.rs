//! Measures parsing of telnet lines and put bodies, and rendering of query responses.
//!
//! Parsing ends before the lookup in the series cache: metric, time and value are slices and numbers, tags
//! are not parsed. Responses are rendered in chunks.

#![expect(clippy::unwrap_used, reason = "a bench may panic")]

use std::fmt::Write;

use divan::{Bencher, black_box, counter::ItemsCount};
use tsd_model::{PointColumns, Value};
use tsd_protocol::{
    InputLine, LineSplitter, PutBatch, PutLine, QueryResponseWriter, ResponseLayout, SeriesResult,
    SeriesRules, UnlimitedMemory,
};

const POINTS: u64 = 50;

/// Texts of the values.
#[derive(Clone, Copy, Debug)]
enum ValueText {
    Integers,
    TwoDecimals,
    LongDoubles,
}

const VALUES: [ValueText; 3] =
    [ValueText::Integers, ValueText::TwoDecimals, ValueText::LongDoubles];

impl ValueText {
    fn text(self, i: u64) -> String {
        match self {
            Self::Integers => (i * 7_919).to_string(),
            Self::TwoDecimals => format!("{}.{:02}", i * 37 % 1_000, i * 31 % 100),
            Self::LongDoubles => format!("{:e}", (i as f64 + 0.1).sqrt() / 3.0),
        }
    }
}

fn main() {
    divan::main();
}

fn lines(values: ValueText) -> Vec<u8> {
    let mut text = String::new();
    for i in 0..POINTS {
        writeln!(
            text,
            "put sys.cpu.user {} {} host=web{:02} cpu={} dc=lga",
            1_356_998_400 + i,
            values.text(i),
            i % 20,
            i % 4,
        )
        .unwrap();
    }
    text.into_bytes()
}

fn body(values: ValueText) -> String {
    let points: Vec<String> = (0..POINTS)
        .map(|i| {
            format!(
                r#"{{"metric":"sys.cpu.user","timestamp":{},"value":{},"tags":{{"host":"web{:02}","cpu":"{}","dc":"lga"}}}}"#,
                1_356_998_400 + i,
                values.text(i),
                i % 20,
                i % 4,
            )
        })
        .collect();
    format!("[{}]", points.join(","))
}

/// The lines of a read buffer.
fn complete_lines(buffer: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut splitter, mut consumed) = (LineSplitter::new(16 << 10), 0);
    std::iter::from_fn(move || match splitter.next_line(buffer, &mut consumed)? {
        InputLine::Complete(line) | InputLine::TooLong(line) => Some(line),
    })
}

/// A read buffer of 50 lines, split and parsed.
#[divan::bench(args = VALUES)]
fn telnet_lines(bencher: Bencher<'_, '_>, values: ValueText) {
    let buffer = lines(values);
    bencher.counter(ItemsCount::new(POINTS)).bench(|| {
        let mut points = 0;
        for line in complete_lines(black_box(&buffer)) {
            black_box(PutLine::parse(line).unwrap());
            points += 1;
        }
        assert_eq!(points, POINTS);
    });
}

/// The same, with parsed tags as on a miss of the series cache.
#[divan::bench]
fn telnet_lines_unknown_to_the_cache(bencher: Bencher<'_, '_>) {
    let buffer = lines(ValueText::Integers);
    let rules = SeriesRules::default();
    bencher.counter(ItemsCount::new(POINTS)).bench(|| {
        for line in complete_lines(black_box(&buffer)) {
            let point = PutLine::parse(line).unwrap();
            assert_eq!(point.tags(&rules).unwrap().len(), 3);
        }
    });
}

/// A put body of 50 points, UTF-8 check included.
#[divan::bench(args = VALUES)]
fn json_points(bencher: Bencher<'_, '_>, values: ValueText) {
    let body = body(values).into_bytes();
    let mut batch = PutBatch::default();
    bencher.counter(ItemsCount::new(POINTS)).bench_local(|| {
        let text = std::str::from_utf8(black_box(&body)).unwrap();
        batch.read(text, None, &mut UnlimitedMemory).unwrap();
        assert_eq!(batch.points().len() as u64, POINTS);
        batch.points().map(|point| point.metric.len() + point.tags_raw.len()).sum::<usize>()
    });
}

/// A response of one series, in chunks of 64 KB.
#[divan::bench(args = VALUES)]
fn answer_points(bencher: Bencher<'_, '_>, values: ValueText) {
    const RESULT_POINTS: u64 = 100_000;
    let mut points = PointColumns::default();
    for i in 0..RESULT_POINTS {
        let value = match values {
            ValueText::Integers => Value::Integer(i as i64 * 7_919),
            ValueText::TwoDecimals => Value::Float((i * 37 % 100_000) as f64 / 100.0),
            ValueText::LongDoubles => Value::Float((i as f64 + 0.1).sqrt() / 3.0),
        };
        points.push(1_356_998_400_000 + i as i64 * 10_000, value);
    }
    let series = SeriesResult { metric: "m".into(), points, ..SeriesResult::default() };
    let mut chunk = Vec::with_capacity(1 << 17);
    bencher
        .counter(ItemsCount::new(RESULT_POINTS))
        .with_inputs(|| {
            QueryResponseWriter::new(ResponseLayout::default(), [series.clone()].into_iter(), None)
        })
        .bench_local_values(|mut writer| {
            let mut bytes = 0;
            while writer.write(&mut chunk, 1 << 16) {
                bytes += chunk.len();
                chunk.clear();
            }
            assert!(bytes > 1_000_000);
            chunk.clear();
        });
}

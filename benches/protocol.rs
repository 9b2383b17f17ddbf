//! Text to points: how fast telnet lines and put bodies are read.
//!
//! What is measured ends where a series cache would be asked: metric, time and value are numbers
//! and slices, tags are left as they stand.

#![expect(clippy::unwrap_used, reason = "a bench stops where it is wrong")]

use std::fmt::Write;

use divan::{Bencher, black_box, counter::ItemsCount};
use tsd_protocol::{LineCutter, PutBatch, PutLine, SeriesRules};

const POINTS: u64 = 50;

/// What the values of the points look like.
#[derive(Clone, Copy, Debug)]
enum Values {
    Integers,
    TwoDecimals,
    LongDoubles,
}

const VALUES: [Values; 3] = [Values::Integers, Values::TwoDecimals, Values::LongDoubles];

impl Values {
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

fn lines(values: Values) -> Vec<u8> {
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

fn body(values: Values) -> String {
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

/// A read buffer of 50 lines, cut and parsed.
#[divan::bench(args = VALUES)]
fn telnet_lines(bencher: Bencher<'_, '_>, values: Values) {
    let buffer = lines(values);
    bencher.counter(ItemsCount::new(POINTS)).bench(|| {
        let mut points = 0;
        for line in LineCutter::new(black_box(&buffer)) {
            black_box(PutLine::parse(line).unwrap());
            points += 1;
        }
        assert_eq!(points, POINTS);
    });
}

/// The same, and the tags as if no cache knew them.
#[divan::bench]
fn telnet_lines_unknown_to_the_cache(bencher: Bencher<'_, '_>) {
    let buffer = lines(Values::Integers);
    let rules = SeriesRules::default();
    bencher.counter(ItemsCount::new(POINTS)).bench(|| {
        for line in LineCutter::new(black_box(&buffer)) {
            let point = PutLine::parse(line).unwrap();
            assert_eq!(point.tags(&rules).unwrap().len(), 3);
        }
    });
}

/// A put body of 50 points, UTF-8 check included.
#[divan::bench(args = VALUES)]
fn json_points(bencher: Bencher<'_, '_>, values: Values) {
    let body = body(values).into_bytes();
    let mut batch = PutBatch::default();
    bencher.counter(ItemsCount::new(POINTS)).bench_local(|| {
        let text = std::str::from_utf8(black_box(&body)).unwrap();
        batch.read(text, None).unwrap();
        assert_eq!(batch.points().len() as u64, POINTS);
        batch.points().map(|point| point.metric.len() + point.tags_raw.len()).sum::<usize>()
    });
}

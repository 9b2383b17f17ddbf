//! Measures packed runs: speed of encoding and decoding, and bytes per point.
//!
//! Runs are an hour of points at ten seconds, as row compaction writes them, of four kinds of
//! series, and of two kinds that decode slower.

#![expect(clippy::unwrap_used, reason = "a bench may panic")]

use divan::{Bencher, black_box, counter::ItemsCount};
use tsd_model::{PackedRun, PointColumns, RunEncoder};
use tsd_testkit::SplitMix64;

const POINTS: u32 = 360;
const RUNS: u64 = 64;

#[derive(Clone, Copy, Debug)]
enum SeriesKind {
    RandomWalk,
    Counter,
    Gauge,
    Constant,
    Jittered,
    FullDoubles,
}

const KINDS: [SeriesKind; 6] = [
    SeriesKind::RandomWalk,
    SeriesKind::Counter,
    SeriesKind::Gauge,
    SeriesKind::Constant,
    SeriesKind::Jittered,
    SeriesKind::FullDoubles,
];

/// Offset in seconds, bits of the value, and true if it is an integer.
fn points(kind: SeriesKind, seed: u64) -> Vec<(u32, u64, bool)> {
    let mut random = SplitMix64::new(seed);
    let mut walk = random.below(100_000) as i64;
    let mut counter = random.below(1 << 40);
    let mut gauge = random.below(2_000);
    (0..POINTS)
        .map(|i| {
            let mut offset = i * 10;
            walk += random.below(101) as i64 - 50;
            counter += random.below(1_500);
            if (u64::from(i) + seed).is_multiple_of(7) {
                gauge = random.below(2_000);
            }
            let cents = (walk as f64 / 100.0).to_bits();
            let (bits, integer) = match kind {
                SeriesKind::RandomWalk => (cents, false),
                SeriesKind::Counter => (counter, true),
                SeriesKind::Gauge => (gauge, true),
                SeriesKind::Constant => (42, true),
                SeriesKind::Jittered => {
                    offset += random.below(4) as u32;
                    (cents, false)
                }
                SeriesKind::FullDoubles => ((walk as f64 / 3.0).to_bits(), false),
            };
            (offset, bits, integer)
        })
        .collect()
}

/// The compacted column of the points.
fn column(points: &[(u32, u64, bool)]) -> (Vec<u8>, Vec<u8>) {
    let (mut qualifier, mut value) = (Vec::new(), Vec::new());
    for &(offset, bits, integer) in points {
        let v = bits as i64;
        let flags = match (integer, v) {
            (false, _) => 0xF,
            (true, -0x80..=0x7F) => 0,
            (true, -0x8000..=0x7FFF) => 1,
            (true, -0x8000_0000..=0x7FFF_FFFF) => 3,
            (true, _) => 7,
        };
        qualifier.extend_from_slice(&((offset << 4 | flags) as u16).to_be_bytes());
        value.extend(bits.to_be_bytes().iter().skip(7 - (flags as usize & 7)));
    }
    value.push(0);
    (qualifier, value)
}

fn pack(encoder: &mut RunEncoder, (qualifier, value): &(Vec<u8>, Vec<u8>)) -> PackedRun {
    let mut out = Vec::new();
    encoder.encode_compacted(qualifier, value, 1_500_000_000_000, &mut out).unwrap();
    PackedRun::open(out.into()).unwrap()
}

#[divan::bench(args = KINDS)]
fn decode(bencher: Bencher, kind: SeriesKind) {
    let series: Vec<_> = (0..RUNS).map(|seed| points(kind, seed)).collect();
    let mut encoder = RunEncoder::new();
    let runs: Vec<_> = series.iter().map(|p| pack(&mut encoder, &column(p))).collect();
    let mut columns = PointColumns::default();
    for (run, points) in runs.iter().zip(&series) {
        columns.clear();
        run.decode_into(3_600, &mut columns).unwrap();
        assert!(points.iter().map(|p| p.1).eq(columns.bits.iter().copied()));
        assert!(
            points
                .iter()
                .map(|p| 3_600_000 + i64::from(p.0) * 1_000)
                .eq(columns.times_ms.iter().copied())
        );
    }
    bencher.counter(ItemsCount::new(RUNS * u64::from(POINTS))).bench_local(|| {
        for run in &runs {
            columns.clear();
            run.decode_into(3_600, &mut columns).unwrap();
            black_box(&columns);
        }
    });
}

#[divan::bench(args = KINDS)]
fn encode(bencher: Bencher, kind: SeriesKind) {
    let series: Vec<_> = (0..RUNS).map(|seed| column(&points(kind, seed))).collect();
    let mut encoder = RunEncoder::new();
    bencher.counter(ItemsCount::new(RUNS * u64::from(POINTS))).bench_local(|| {
        for column in &series {
            black_box(pack(&mut encoder, column));
        }
    });
}

fn main() {
    let mut encoder = RunEncoder::new();
    for kind in KINDS {
        let bytes: usize = (0..RUNS)
            .map(|seed| pack(&mut encoder, &column(&points(kind, seed))).as_bytes().len())
            .sum();
        let per_point = bytes as f64 / (RUNS * u64::from(POINTS)) as f64;
        println!("{kind:?}: {per_point:.3} bytes a point");
    }
    divan::main();
}

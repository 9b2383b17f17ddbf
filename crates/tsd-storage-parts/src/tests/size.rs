//! Disk space per point.

use std::sync::Arc;

use tsd_files::{DiskSpace, FaultyDisk};
use tsd_model::{Family, TableSchema};
use tsd_storage::OwnedFlushRow;

use super::scenario::config;
use crate::{PartConfig, PartLayout, PartStore, part::BlockUse};

/// A splitmix64 generator with a fixed seed: every run of the test has the same points.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

struct Series {
    kind: usize,
    random: Random,
    walk: i64,
    counter: u64,
    gauge: u64,
    step: u64,
}

impl Series {
    fn new(number: u64) -> Self {
        let mut random = Random(number);
        let (walk, counter) = (random.below(100_000) as i64, random.below(1 << 30));
        Self { kind: number as usize % 4, walk, counter, gauge: 0, step: number, random }
    }

    /// Flags and value of the next point.
    fn next(&mut self) -> (u16, Vec<u8>) {
        self.step += 1;
        let integer = |v: u64| match v {
            0..0x80 => (0, vec![v as u8]),
            0x80..0x8000 => (1, (v as u16).to_be_bytes().to_vec()),
            0x8000..0x8000_0000 => (3, (v as u32).to_be_bytes().to_vec()),
            _ => (7, v.to_be_bytes().to_vec()),
        };
        match self.kind {
            0 => {
                self.walk += self.random.below(101) as i64 - 50;
                (0xF, (self.walk as f64 / 100.0).to_be_bytes().to_vec())
            }
            1 => {
                self.counter += self.random.below(1_500);
                integer(self.counter)
            }
            2 => {
                if self.step.is_multiple_of(7) {
                    self.gauge = self.random.below(2_000);
                }
                integer(self.gauge)
            }
            _ => integer(42),
        }
    }
}

/// Compacted hours of series with a point every `step` seconds: salt, metric, base time and two tags
/// in the key, one compacted column per row.
fn compacted_rows(series: u64, hours: u32, step: u16, kind: Option<usize>) -> Vec<OwnedFlushRow> {
    let mut rows = Vec::new();
    for number in 0..series {
        let number = kind.map_or(number, |kind| number * 4 + kind as u64);
        let mut one = Series::new(number);
        for hour in 0..hours {
            let mut key = vec![(number % 20) as u8, 0, 0, (number % 10) as u8 + 1];
            key.extend_from_slice(&(1_500_000_000 / 3_600 * 3_600 + hour * 3_600).to_be_bytes());
            key.extend_from_slice(&[
                0,
                0,
                1,
                0,
                (number >> 8) as u8,
                number as u8,
                0,
                0,
                2,
                0,
                0,
                3,
            ]);
            let (mut qualifier, mut value) = (Vec::new(), Vec::new());
            for second in (0..3_600_u16).step_by(step.into()) {
                let (flags, bytes) = one.next();
                qualifier.extend_from_slice(&(second << 4 | flags).to_be_bytes());
                value.extend_from_slice(&bytes);
            }
            value.push(0);
            let timestamp = 1_500_004_000_000 + i64::from(hour) * 3_600_000 + number as i64 * 7;
            let cells = vec![(Family::T, qualifier, value, timestamp)];
            rows.push(OwnedFlushRow { key, cells, ..OwnedFlushRow::default() });
        }
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows
}

/// Bytes on disk a point, and the share of them that summaries take.
fn bytes_per_point(series: u64, hours: u32, step: u16, kind: Option<usize>) -> (f64, f64) {
    let schema = TableSchema::try_new(3, 3, 3, 1, 20).unwrap();
    let layout = PartLayout::try_new(&schema, PartLayout::DAY_SECS).unwrap();
    let config = PartConfig { layout, ..config(DiskSpace::new("/", 0)) };
    let store = PartStore::open(Arc::new(FaultyDisk::new(1)), config).unwrap();
    let rows = compacted_rows(series, hours, step, kind);
    store.flush(&mut *OwnedFlushRow::flush_rows(rows)).unwrap();
    store.merge_all(u32::MAX).unwrap();
    let snapshot = store.snapshot();
    assert_eq!(snapshot.section_count(), 1);
    let points = series * u64::from(hours) * u64::from(3_600 / step);
    assert_eq!(store.stats().merged_points, points);
    let section = snapshot.spans().values().flatten().next().unwrap();
    let head = section.part.head(section.section, BlockUse::Once).unwrap();
    let summaries: u32 = head.summary_blocks.iter().map(|place| place.block.len).sum();
    let bytes = store.disk_bytes() as f64;
    (bytes / points as f64, f64::from(summaries) / bytes)
}

#[test]
fn mixed_series_need_less_than_four_fifths_of_a_byte_per_point() {
    let (mixed, _) = bytes_per_point(200, 6, 10, None);
    println!("mixed: {mixed:.3} bytes per point");
    assert!(mixed <= 0.8, "{mixed} bytes per point");
    for (kind, most) in [1.05, 1.6, 0.42, 0.16].into_iter().enumerate() {
        let (bytes, _) = bytes_per_point(40, 6, 10, Some(kind));
        println!("kind {kind}: {bytes:.3} bytes per point");
        assert!(bytes <= most, "kind {kind}: {bytes} bytes per point");
    }
}

#[test]
fn summaries_take_little_space() {
    for (step, most) in [(10, 0.035), (60, 0.14)] {
        let (mixed, share) = bytes_per_point(100, 15, step, None);
        println!("every {step} s: {mixed:.3} bytes per point, {:.1} % summaries", share * 100.0);
        assert!(share > 0.0 && share <= most, "every {step} s: {share}");
        for kind in 0..4 {
            let (bytes, share) = bytes_per_point(40, 15, step, Some(kind));
            println!("  kind {kind}: {bytes:.3} bytes per point, {:.1} %", share * 100.0);
        }
    }
}

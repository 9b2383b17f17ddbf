//! Points, flushes and row keys of the load.

use std::{collections::BTreeMap, ops::Range};

use tsd_model::Family;
use tsd_storage::{FlushCell, FlushRow, FlushRows};

pub(crate) const START: u32 = 1_500_076_800;
pub(crate) const DAY: u32 = 86_400;
pub(crate) const HOUR: u32 = 3_600;

pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xD1B5_4A32_D192_ED03);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// What the load consists of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) series: u32,
    pub(crate) steps: u32,
    pub(crate) interval: u32,
    /// Series of one flush of the live edge, and steps.
    pub(crate) flush_series: u32,
    pub(crate) flush_steps: u32,
    /// Steps after which late and corrected points come.
    pub(crate) lag: u32,
}

impl Load {
    pub(crate) fn time(&self, step: u32) -> u32 {
        START + step * self.interval
    }

    pub(crate) fn is_late(series: u32, step: u32) -> bool {
        mix(u64::from(series), u64::from(step) | 1 << 40) % 100 < 3
    }

    pub(crate) fn is_corrected(series: u32, step: u32) -> bool {
        mix(u64::from(series), u64::from(step) | 2 << 40) % 100 < 1
    }

    /// Value in hundredths: a slow wave and noise.
    pub(crate) fn hundredths(series: u32, step: u32, corrected: bool) -> i64 {
        let phase = mix(u64::from(series), 7) % 4_000;
        let at = (u64::from(step) * 10 + phase) % 4_000;
        let wave = if at < 2_000 { at } else { 4_000 - at };
        let noise = mix(u64::from(series), u64::from(step)) % 64;
        5_000 + (wave + noise) as i64 + if corrected { 100_000 } else { 0 }
    }

    pub(crate) fn flushes(&self) -> Vec<FlushSpec> {
        let mut all = Vec::new();
        let mut step = 0;
        while step < self.steps + self.lag {
            let end = step + self.flush_steps;
            let mut first = 0;
            while first < self.series {
                let last = (first + self.flush_series).min(self.series);
                all.push(FlushSpec { series: first..last, steps: step..end });
                first = last;
            }
            step = end;
        }
        all
    }

    /// Points of a flush: series, step, corrected.
    pub(crate) fn points(&self, flush: &FlushSpec) -> Vec<(u32, u32, bool)> {
        let mut points = Vec::new();
        for series in flush.series.clone() {
            for step in flush.steps.clone() {
                if step < self.steps && !Self::is_late(series, step) {
                    points.push((series, step, false));
                }
                if let Some(old) = step.checked_sub(self.lag)
                    && old < self.steps
                {
                    if Self::is_corrected(series, old) {
                        points.push((series, old, true));
                    } else if Self::is_late(series, old) {
                        points.push((series, old, false));
                    }
                }
            }
        }
        points
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FlushSpec {
    pub(crate) series: Range<u32>,
    pub(crate) steps: Range<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    HourSeries,
    SeriesHour,
}

pub(crate) fn tags(series: u32) -> [u8; 12] {
    let [_, a, b, c] = series.to_be_bytes();
    [0, 0, 1, a, b, c, 0, 0, 2, 0, 0, 3]
}

pub(crate) fn row_key(order: KeyOrder, series: u32, base: u32) -> Vec<u8> {
    let mut key = vec![0, 0, 1];
    match order {
        KeyOrder::HourSeries => {
            key.extend_from_slice(&base.to_be_bytes());
            key.extend_from_slice(&tags(series));
        }
        KeyOrder::SeriesHour => {
            key.extend_from_slice(&(base - base % DAY).to_be_bytes());
            key.extend_from_slice(&tags(series));
            key.push((base % DAY / HOUR) as u8);
        }
    }
    key
}

/// Base time and series of a key.
pub(crate) fn split(order: KeyOrder, key: &[u8]) -> (u32, u32) {
    let base = u32::from_be_bytes(key[3..7].try_into().unwrap());
    let series = u32::from_be_bytes([0, key[10], key[11], key[12]]);
    match order {
        KeyOrder::HourSeries => (base, series),
        KeyOrder::SeriesHour => (base + u32::from(key[19]) * HOUR, series),
    }
}

/// A flush, built before it is measured.
pub(crate) struct BenchRows {
    pub(crate) rows: Vec<(Vec<u8>, Range<usize>)>,
    pub(crate) cells: Vec<([u8; 2], [u8; 8], i64)>,
    pub(crate) next: usize,
    /// The rows replace older ones by one column.
    pub(crate) compacted: bool,
    pub(crate) column: (Vec<u8>, Vec<u8>),
}

impl BenchRows {
    pub(crate) fn build(
        load: &Load,
        order: KeyOrder,
        points: &[(u32, u32, bool)],
        compacted: bool,
    ) -> Self {
        let mut cells = Vec::with_capacity(points.len());
        let mut sorted: Vec<(u32, u32, u32, bool)> = points
            .iter()
            .map(|&(series, step, corrected)| {
                (series, load.time(step) / HOUR * HOUR, step, corrected)
            })
            .collect();
        sorted.sort_unstable();
        let mut rows = Vec::new();
        for row in sorted.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let start = cells.len();
            for &(series, base, step, corrected) in row {
                let offset = load.time(step) - base;
                let value = Load::hundredths(series, step, corrected) as f64 / 100.0;
                let qualifier = ((offset << 4 | 0xF) as u16).to_be_bytes();
                let delay = (mix(u64::from(step), 3) % 300) as i64;
                let written = i64::from(load.time(step)) * 1_000 + delay;
                cells.push((qualifier, value.to_be_bytes(), written));
            }
            rows.push((row_key(order, row[0].0, row[0].1), start..cells.len()));
        }
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Self { rows, cells, next: 0, compacted, column: (Vec::new(), Vec::new()) }
    }
}

impl FlushRows for BenchRows {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        let (key, range) = self.rows.get(self.next)?;
        self.next += 1;
        let cells = &self.cells[range.clone()];
        if self.compacted {
            self.column.0.clear();
            self.column.1.clear();
            for (qualifier, value, _) in cells {
                self.column.0.extend_from_slice(qualifier);
                self.column.1.extend_from_slice(value);
            }
            if cells.len() > 1 {
                self.column.1.push(0);
            }
            let timestamp_ms = cells.iter().map(|c| c.2).max().unwrap();
            let (qualifier, value) = (self.column.0.as_slice(), self.column.1.as_slice());
            let cell = FlushCell { family: Family::T, qualifier, value, timestamp_ms };
            let delete_row = Some(i64::MAX);
            return Some(FlushRow { key, delete_row, deletes: Vec::new(), cells: vec![cell] });
        }
        let cells = cells
            .iter()
            .map(|(qualifier, value, timestamp_ms)| FlushCell {
                family: Family::T,
                qualifier,
                value,
                timestamp_ms: *timestamp_ms,
            })
            .collect();
        Some(FlushRow { key, delete_row: None, deletes: Vec::new(), cells })
    }
}

pub(crate) fn load(arguments: &BTreeMap<String, String>, wide: bool) -> Load {
    if wide {
        let series = option(arguments, "--series", 20_000);
        let interval = option(arguments, "--interval", 3 * HOUR);
        let flush_series = series.div_ceil(4);
        Load { series, steps: DAY / interval, interval, flush_series, flush_steps: 1, lag: 2 }
    } else {
        let series = option(arguments, "--series", 100);
        let interval = option(arguments, "--interval", 300);
        let days = option(arguments, "--days", 20);
        let steps = days * (DAY / interval);
        let flush_steps = (6 * HOUR / interval).max(1);
        let lag = 10 * DAY / interval;
        Load { series, steps, interval, flush_series: series, flush_steps, lag }
    }
}

pub(crate) fn option(arguments: &BTreeMap<String, String>, name: &str, default: u32) -> u32 {
    arguments.get(name).map_or(default, |v| v.parse().expect("a number"))
}

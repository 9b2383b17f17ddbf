//! Estimates the share of a copy that is done, to show the remaining time. It decides nothing.
//!
//! No store knows how many rows a range of keys has. So the first and the last row of each range are looked up, and the
//! rows are assumed to be spread evenly between them: over the metric numbers, over the hours between the two rows,
//! and over the tags within each hour. Ranges without rows do not count.

use parking_lot::Mutex;
use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_engine::EngineHandle;
use tsd_model::{BaseTime, TableSchema, Uid};
use tsd_storage::{Scan, Storage};

use super::{options::RangeProgress, ranges::TableRange};

/// Most bytes of the tags of a key that count.
const TAG_BYTES: usize = 8;

/// The share of all ranges that is done.
#[derive(Debug)]
pub(super) struct TotalProgress {
    schema: TableSchema,
    spans: BTreeMap<String, RangeSpan>,
    /// Metrics of all ranges.
    total: f64,
    /// Metrics that are copied, by range.
    copied: Mutex<BTreeMap<String, f64>>,
}

/// First and last row of a range.
#[derive(Clone, Copy, Debug)]
struct RangeSpan {
    first: RowPosition,
    last: RowPosition,
}

/// Position of a row in its table, without the salt. A key that is too short counts as far as it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowPosition {
    metric: u64,
    base: u32,
    /// The first bytes of the tags.
    tags: u64,
}

impl TotalProgress {
    /// Looks up the first and last rows of the ranges. A range that cannot be read counts as empty.
    pub(super) async fn new(
        of: &EngineHandle,
        ranges: &[TableRange],
        copied: &BTreeMap<String, RangeProgress>,
        threads: usize,
    ) -> Self {
        let schema = of.config().schema;
        let with_rows = ranges.iter().filter(|range| range.kind.has_row_keys());
        let spans = with_rows.map(|range| async move {
            let lookup = RowLookup { storage: &**of.storage(), range };
            Some((range.name.clone(), lookup.span(schema).await?))
        });
        let spans: BTreeMap<_, _> = stream::iter(spans)
            .buffer_unordered(threads.max(1))
            .filter_map(|span| async { span })
            .collect()
            .await;
        let total = spans.values().map(RangeSpan::metrics).sum();
        let progress = Self { schema, spans, total, copied: Mutex::default() };
        for (range, of_range) in copied {
            progress.share(range, of_range);
        }
        progress
    }

    /// The share that is done, from 0 to 1, with this progress of a range.
    pub(super) fn share(&self, range: &str, progress: &RangeProgress) -> f64 {
        let mut copied = self.copied.lock();
        if let Some(span) = self.spans.get(range) {
            let of_range = if progress.is_complete {
                span.metrics()
            } else if progress.row.is_empty() {
                0.0
            } else {
                span.metrics_before(RowPosition::of(self.schema, &progress.row))
            };
            copied.insert(range.to_owned(), of_range);
        }
        if self.total == 0.0 {
            return 0.0;
        }
        (copied.values().sum::<f64>() / self.total).min(1.0)
    }
}

impl RangeSpan {
    fn metrics(&self) -> f64 {
        self.last.metric.saturating_sub(self.first.metric) as f64 + 1.0
    }

    /// Number of metrics before a row, including a fraction for the metric of the row.
    fn metrics_before(&self, row: RowPosition) -> f64 {
        let Self { first, last } = *self;
        let metrics = row.metric.saturating_sub(first.metric) as f64;
        let between = |from: u64, to: u64, at: u64| {
            let length = to.saturating_sub(from);
            at.saturating_sub(from).min(length) as f64 / length.max(1) as f64
        };
        let hour = f64::from(BaseTime::SPAN_SECONDS);
        let seconds = f64::from(last.base.saturating_sub(first.base));
        let past = seconds * between(first.base.into(), last.base.into(), row.base.into());
        let of_hour = between(first.tags, last.tags, row.tags);
        let of_metric = (past + hour * of_hour) / (seconds + hour);
        (metrics + of_metric).min(self.metrics())
    }
}

impl RowPosition {
    fn of(schema: TableSchema, key: &[u8]) -> Self {
        let mut key = key.to_vec();
        key.resize(key.len().max(schema.base_time_start() + 4 + TAG_BYTES), 0);
        let (prefix, rest) = key.split_at(schema.base_time_start());
        let (base, tags) = rest.split_at(4);
        Self {
            metric: Uid::number_of(prefix.get(schema.salt_width()..).unwrap_or_default()),
            base: Uid::number_of(base) as u32,
            tags: Uid::number_of(tags.get(..TAG_BYTES).unwrap_or_default()),
        }
    }
}

/// Looks for single rows of a range.
struct RowLookup<'a> {
    storage: &'a dyn Storage,
    range: &'a TableRange,
}

impl RowLookup<'_> {
    /// The first and the last row; `None` for a range without rows.
    async fn span(&self, schema: TableSchema) -> Option<RangeSpan> {
        let first = self.first_from(self.range.start.clone()).await?;
        let mut last = Vec::new();
        let widths = [schema.salt_width(), schema.metric_width(), 4, TAG_BYTES];
        for (at, width) in widths.into_iter().enumerate() {
            let start = first.get(last.len()..).unwrap_or_default();
            let is_of_first = first.starts_with(&last);
            let low = if is_of_first { number(start, width) } else { 0 };
            last = match at {
                // A range has one salt.
                0 => padded(start, width),
                _ => self.last_after(last, width, low).await,
            };
        }
        let position = |key: &[u8]| {
            let position = RowPosition::of(schema, key);
            let (from, to) = self.range.bases.unwrap_or((0, u32::MAX));
            RowPosition { base: position.base.max(from).min(to), ..position }
        };
        Some(RangeSpan { first: position(&first), last: position(&last) })
    }

    /// Extends a prefix by the highest number of `width` bytes that a row with the prefix has. Bisects from `low`
    /// upwards.
    async fn last_after(&self, prefix: Vec<u8>, width: usize, low: u64) -> Vec<u8> {
        let (mut low, mut high) = (u128::from(low), 1_u128 << (8 * width));
        while high - low > 1 {
            let middle = low.midpoint(high);
            let bytes = middle.to_be_bytes();
            let start = [&prefix, bytes.get(16 - width..).unwrap_or_default()].concat();
            let found = self.first_from(start.into()).await;
            match found.as_deref().and_then(|key| key.strip_prefix(&prefix[..])) {
                Some(rest) => low = u128::from(number(rest, width)).clamp(middle, high - 1),
                None => high = middle,
            }
        }
        let bytes = low.to_be_bytes();
        [&prefix, bytes.get(16 - width..).unwrap_or_default()].concat()
    }

    /// The first row from a key on.
    async fn first_from(&self, start: Bytes) -> Option<Bytes> {
        let TableRange { from, stop, .. } = self.range;
        if !stop.is_empty() && start >= stop {
            return None;
        }
        let scan = Scan { start, stop: stop.clone(), limit: Some(1), ..Scan::default() };
        let rows = self.storage.scan(from, scan).next_rows().await.ok()??;
        Some(rows.into_iter().next()?.key)
    }
}

fn padded(bytes: &[u8], width: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(width, 0);
    bytes
}

fn number(bytes: &[u8], width: usize) -> u64 {
    Uid::number_of(&padded(bytes, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn row(metric: u64, day: u32, tags: u64) -> RowPosition {
        RowPosition { metric, base: 1_600_000_000 / 3_600 * 3_600 + day * 86_400, tags }
    }

    /// Metrics of a span before a row.
    #[track_caller]
    fn check(first: RowPosition, last: RowPosition, at: RowPosition, expected: f64) {
        let before = RangeSpan { first, last }.metrics_before(at);
        assert!((before - expected).abs() < 0.01, "{before} {expected}");
    }

    #[test]
    fn rows_of_few_hours_are_the_whole_of_their_metric() {
        let (first, last) = (row(7, 0, 10), row(7, 40, 20));
        check(first, last, row(7, 0, 10), 0.0);
        check(first, last, row(7, 10, 15), 0.25);
        check(first, last, row(7, 40, 20), 1.0);
        check(first, last, row(7, 41, 30), 1.0);
        // In one hour only the tags differ.
        check(row(7, 0, 10), row(7, 0, 20), row(7, 0, 15), 0.5);
        check(row(7, 0, 10), row(7, 0, 10), row(7, 0, 10), 0.0);
        let (first, last) = (row(7, 0, 10), row(10, 40, 20));
        check(first, last, row(9, 20, 15), 2.5);
        check(first, last, row(9, 50, 15), 3.0);
        check(first, last, row(90, 0, 0), 4.0);
    }
}

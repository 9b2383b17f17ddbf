//! Which share of a copy is done, for the time that is left: an estimate that decides nothing.
//!
//! No store tells how many rows a range of keys has. So the first and the last row of each part are looked up, and
//! the rows count as spread evenly between them: each number of a metric has as many as the others, in the hours
//! between those of the two rows, and each hour between their tags. Parts without rows count nothing.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_model::{BaseTime, TableSchema, Uid};
use tsd_storage::{Scan, Storage};

use super::{options::PartProgress, parts::TablePart};
use crate::EngineHandle;

/// Bytes of the tags of a key that count, at most.
const TAG_BYTES: usize = 8;

/// The share of all parts that is copied.
#[derive(Debug)]
pub(super) struct TotalProgress {
    schema: TableSchema,
    spans: BTreeMap<String, PartSpan>,
    /// Metrics of all parts.
    total: f64,
    /// Metrics that are copied, by part.
    copied: Mutex<BTreeMap<String, f64>>,
}

/// First and last row of a part.
#[derive(Clone, Copy, Debug)]
struct PartSpan {
    first: RowPlace,
    last: RowPlace,
}

/// Where a row is in its table, without the salt; of a key that is too short as far as it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowPlace {
    metric: u64,
    base: u32,
    /// The first bytes of the tags.
    tags: u64,
}

impl TotalProgress {
    /// Looks up where the rows of the parts are; a part that cannot be read counts as empty.
    pub(super) async fn new(
        of: &EngineHandle,
        parts: &[TablePart],
        copied: &BTreeMap<String, PartProgress>,
        threads: usize,
    ) -> Self {
        let schema = of.config().schema;
        let with_rows = parts.iter().filter(|part| part.kind.has_row_keys());
        let spans = with_rows.map(|part| async move {
            let lookup = RowLookup { storage: &**of.storage(), part };
            Some((part.name.clone(), lookup.span(schema).await?))
        });
        let spans: BTreeMap<_, _> = stream::iter(spans)
            .buffer_unordered(threads.max(1))
            .filter_map(|span| async { span })
            .collect()
            .await;
        let total = spans.values().map(PartSpan::metrics).sum();
        let progress = Self { schema, spans, total, copied: Mutex::default() };
        for (part, of_part) in copied {
            progress.share(part, of_part);
        }
        progress
    }

    /// The share that is copied, from 0 to 1, with this progress of a part.
    pub(super) fn share(&self, part: &str, progress: &PartProgress) -> f64 {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(span) = self.spans.get(part) {
            let of_part = if progress.is_complete {
                span.metrics()
            } else if progress.row.is_empty() {
                0.0
            } else {
                span.metrics_before(RowPlace::of(self.schema, &progress.row))
            };
            copied.insert(part.to_owned(), of_part);
        }
        if self.total == 0.0 {
            return 0.0;
        }
        (copied.values().sum::<f64>() / self.total).min(1.0)
    }
}

impl PartSpan {
    fn metrics(&self) -> f64 {
        self.last.metric.saturating_sub(self.first.metric) as f64 + 1.0
    }

    /// Metrics before a row, that of the row in part.
    fn metrics_before(&self, row: RowPlace) -> f64 {
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

impl RowPlace {
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

/// Looks for single rows of a part.
struct RowLookup<'a> {
    storage: &'a dyn Storage,
    part: &'a TablePart,
}

impl RowLookup<'_> {
    /// The first and the last row; `None` if there is none.
    async fn span(&self, schema: TableSchema) -> Option<PartSpan> {
        let first = self.first_from(self.part.start.clone()).await?;
        let mut last = Vec::new();
        let widths = [schema.salt_width(), schema.metric_width(), 4, TAG_BYTES];
        for (at, width) in widths.into_iter().enumerate() {
            let start = first.get(last.len()..).unwrap_or_default();
            let is_of_first = first.starts_with(&last);
            let low = if is_of_first { number(start, width) } else { 0 };
            last = match at {
                // A part has one salt.
                0 => padded(start, width),
                _ => self.last_after(last, width, low).await,
            };
        }
        let place = |key: &[u8]| {
            let place = RowPlace::of(schema, key);
            let (from, to) = self.part.bases.unwrap_or((0, u32::MAX));
            RowPlace { base: place.base.max(from).min(to), ..place }
        };
        Some(PartSpan { first: place(&first), last: place(&last) })
    }

    /// Extends a prefix by the highest number of some bytes that a row with the prefix has, by bisection from `low` on.
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
        let TablePart { from, stop, .. } = self.part;
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

    const fn row(metric: u64, day: u32, tags: u64) -> RowPlace {
        RowPlace { metric, base: 1_600_000_000 / 3_600 * 3_600 + day * 86_400, tags }
    }

    /// Metrics of a span before a row.
    #[track_caller]
    fn check(first: RowPlace, last: RowPlace, at: RowPlace, expected: f64) {
        let before = PartSpan { first, last }.metrics_before(at);
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

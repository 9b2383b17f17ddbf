//! Merges that remove the series of metrics with a shorter retention.
//!
//! A span is due when it has series of a metric whose cut-off is after its end. The cut-offs of one rule
//! pass it together, so it is written anew once for each different retention at most. Only a merge of all
//! sections of the span removes series: what is left of a row in another section would be read again after the
//! rule was made longer.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, OnceLock},
};

use tsd_storage::{Cutoffs, Retention, first_base};

use super::{PartStore, compaction_limit::MergeLimits, lock};
use crate::{
    error::PartError, layout::PartLayout, merger::MergeCheckpoint, part::BlockUse,
    snapshot::SnapshotSection,
};

/// How long the points of a table are kept.
#[derive(Debug, Default)]
pub(super) struct TableRetention {
    /// With the seconds of a row.
    retention: OnceLock<(Arc<Retention>, u32)>,
    /// What was looked for in a span and its sections without finding it.
    checked: Mutex<BTreeMap<u32, u64>>,
}

/// Says which series of a span are expired.
#[derive(Clone, Debug)]
pub(crate) struct ExpiredSeries {
    retention: Arc<Retention>,
    cutoffs: Arc<Cutoffs>,
    row_secs: u32,
    /// End of the span.
    end: u32,
}

impl ExpiredSeries {
    /// True if all rows of the series in the span are expired.
    pub(crate) fn contains(&self, series: &[u8]) -> bool {
        let cutoff = self.cutoffs.of_metric(self.retention.metric_of(series));
        // What is expired whatever its metric is dropped with its span, after the floor was recorded.
        PartLayout::has_time(series)
            && cutoff > self.cutoffs.oldest()
            && first_base(cutoff, self.row_secs) >= self.end
    }
}

impl PartStore {
    /// Names the retention of the table, and the seconds of its rows; once.
    pub(crate) fn set_retention(&self, retention: Arc<Retention>, row_secs: u32) {
        // Of two the first one stays.
        let _ = self.retention.retention.set((retention, row_secs));
    }

    /// Rows with earlier base times are never read again.
    pub(crate) fn first_kept_base(&self) -> u32 {
        let retention = self.retention.retention.get();
        retention.map_or(0, |(retention, row_secs)| first_base(retention.floor(), *row_secs))
    }

    /// What a merge of a whole span leaves out.
    pub(super) fn expired_series(&self, span: u32) -> Option<ExpiredSeries> {
        let (retention, row_secs) = self.retention.retention.get()?;
        let end = span.saturating_add(self.layout.span_secs());
        let cutoffs = retention.cutoffs();
        (first_base(cutoffs.newest(), *row_secs) >= end).then(|| ExpiredSeries {
            retention: Arc::clone(retention),
            cutoffs,
            row_secs: *row_secs,
            end,
        })
    }

    /// Merges a span that has expired series; returns false if none has.
    pub(super) fn merge_expired(
        &self,
        limits: MergeLimits,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<bool, PartError> {
        let due = match self.span_with_expired(checkpoint) {
            Err(error) if error.is_damage() && self.quarantine(&error)? => return Ok(true),
            due => due?,
        };
        let Some(due) = due else { return Ok(false) };
        let choose =
            |span: u32, sections: &[SnapshotSection]| (span == due).then_some(0..sections.len());
        self.merge_where(limits.compact_before, choose, checkpoint)
    }

    /// The first span that has expired series.
    fn span_with_expired(&self, checkpoint: MergeCheckpoint<'_>) -> Result<Option<u32>, PartError> {
        let Some((retention, row_secs)) = self.retention.retention.get() else { return Ok(None) };
        let later = retention.cutoffs().later_metrics();
        let newest = later.iter().map(|(_, cutoff)| first_base(*cutoff, *row_secs)).max();
        let Some(newest) = newest else { return Ok(None) };
        let snapshot = self.snapshot();
        let mut checked = lock(&self.retention.checked);
        checked.retain(|span, _| snapshot.spans().contains_key(span));
        for (&span, sections) in snapshot.spans() {
            let end = span.saturating_add(self.layout.span_secs());
            if end > newest {
                break;
            }
            // A merge beside a loss removes nothing.
            if snapshot.lost().contains_key(&span) {
                continue;
            }
            let expired: HashSet<&[u8]> = later
                .iter()
                .filter(|(_, cutoff)| first_base(*cutoff, *row_secs) >= end)
                .map(|(metric, _)| &**metric)
                .collect();
            let looked_for = fingerprint(&later, &expired, sections);
            if checked.get(&span) == Some(&looked_for) {
                continue;
            }
            if has_series_of(sections, retention, &expired, checkpoint)? {
                return Ok(Some(span));
            }
            checked.insert(span, looked_for);
        }
        Ok(None)
    }
}

/// A number for metrics and sections.
fn fingerprint(
    all: &[(Box<[u8]>, u32)],
    expired: &HashSet<&[u8]>,
    sections: &[SnapshotSection],
) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (metric, _) in all.iter().filter(|(metric, _)| expired.contains(&**metric)) {
        metric.hash(&mut hasher);
    }
    for section in sections {
        (section.part.number(), section.section).hash(&mut hasher);
    }
    hasher.finish()
}

/// True if a section has a series of one of these metrics. Reads the names of series only.
fn has_series_of(
    sections: &[SnapshotSection],
    retention: &Retention,
    metrics: &HashSet<&[u8]>,
    checkpoint: MergeCheckpoint<'_>,
) -> Result<bool, PartError> {
    for SnapshotSection { part, section, .. } in sections {
        let head = part.head(*section, BlockUse::Once)?;
        let mut last = Vec::new();
        for place in &head.series_blocks {
            let mut series = part.read_series(&place.block, BlockUse::Once)?.walk();
            while series.next().map_err(part.malformed(place.block.offset))?.is_some() {
                checkpoint()?;
                let current = series.current();
                let metric = retention.metric_of(current);
                if metric == last.as_slice() || !PartLayout::has_time(current) {
                    continue;
                }
                if metrics.contains(metric) {
                    return Ok(true);
                }
                last.clear();
                last.extend_from_slice(metric);
            }
        }
    }
    Ok(false)
}

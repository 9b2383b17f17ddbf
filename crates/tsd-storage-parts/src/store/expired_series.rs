//! Merges that remove the series of metrics with a shorter retention.
//!
//! A span is due if it has series of a metric whose cut-off is after the end of the span. All cut-offs of one
//! rule pass the span together, so it is rewritten at most once per different retention. Only a merge of all
//! sections of the span removes series. Otherwise, rows that remain in another section would reappear when the
//! rule is made longer.
//!
//! The metrics of a span are read once and remembered, within a bound. Only one span is read at a time, since
//! merges that flushes may wait for come first.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use tsd_storage::{Retention, first_base};

use super::{PartStore, compaction_limit::MergeLimits};
use crate::{
    error::PartError, layout::PartLayout, merge_signal::MergeCheckpoint, part::BlockUse,
    series_expiry::ExpiredSeries, snapshot::SnapshotSection,
};

/// Result of a step of the search for expired series.
enum Search {
    /// This span has expired series.
    Due(u32),
    /// The search read a span without expired series.
    Continues,
    /// No span has expired series.
    Ended,
}

impl PartStore {
    /// Sets the retention of the table and the length of its rows in seconds; once.
    pub(crate) fn set_retention(&self, retention: Arc<Retention>, row_secs: u32) {
        // The first retention stays.
        let _ = self.retention.retention.set((retention, row_secs));
    }

    /// Base time before which rows are never read again.
    pub(crate) fn first_kept_base(&self) -> u32 {
        let retention = self.retention.retention.get();
        retention.map_or(0, |(retention, row_secs)| first_base(retention.floor(), *row_secs))
    }

    /// The series that a merge of a whole span leaves out.
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

    /// Merges a span with expired series, or reads one span; returns false if there is no span to read.
    pub(super) fn merge_expired(
        &self,
        limits: MergeLimits,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<bool, PartError> {
        let due = match self.search_expired(checkpoint) {
            Err(error) if error.is_damage() && self.quarantine(&error)? => return Ok(true),
            searched => match searched? {
                Search::Due(span) => span,
                Search::Continues => return Ok(true),
                Search::Ended => return Ok(false),
            },
        };
        let choose =
            |span: u32, sections: &[SnapshotSection]| (span == due).then_some(0..sections.len());
        self.merge_where(limits.compact_before, choose, checkpoint)
    }

    /// Looks for a span with expired series and reads at most one.
    fn search_expired(&self, checkpoint: MergeCheckpoint<'_>) -> Result<Search, PartError> {
        let Some((retention, row_secs)) = self.retention.retention.get() else {
            return Ok(Search::Ended);
        };
        let later = retention.cutoffs().later_metrics();
        let newest = later.iter().map(|(_, cutoff)| first_base(*cutoff, *row_secs)).max();
        let Some(newest) = newest else { return Ok(Search::Ended) };
        let snapshot = self.snapshot();
        let mut checked = self.retention.checked.lock();
        let gone = |span: &u32| !snapshot.spans().contains_key(span);
        let gone: Vec<u32> = checked.spans.keys().copied().filter(gone).collect();
        for span in gone {
            checked.remove(span);
        }
        for (&span, sections) in snapshot.spans() {
            let end = span.saturating_add(self.layout.span_secs());
            if end > newest {
                break;
            }
            // Merges of a span with a loss cannot remove expired series.
            if snapshot.has_damage(span) {
                continue;
            }
            let expired: Vec<&[u8]> = later
                .iter()
                .filter(|(_, cutoff)| first_base(*cutoff, *row_secs) >= end)
                .map(|(metric, _)| &**metric)
                .collect();
            let (place, looked_for) = (hash_of(&names_of(sections)), hash_of(&expired));
            let known = checked.spans.get(&span).filter(|known| known.sections == place);
            if let Some(known) = known {
                match &known.metrics {
                    Some(metrics) if has_any(metrics, &expired) => return Ok(Search::Due(span)),
                    None if known.looked_for != looked_for => {}
                    _ => continue,
                }
            }
            let metrics = metrics_of(sections, retention, checkpoint)?;
            let is_due = has_any(&metrics, &expired);
            checked.insert(span, place, looked_for, metrics);
            return Ok(if is_due { Search::Due(span) } else { Search::Continues });
        }
        Ok(Search::Ended)
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn names_of(sections: &[SnapshotSection]) -> Vec<(u64, usize)> {
    sections.iter().map(|section| (section.part.number(), section.section)).collect()
}

/// True if an ascending list of UIDs has one of the wanted metrics, which have the same width.
fn has_any(metrics: &[u8], wanted: &[&[u8]]) -> bool {
    let width = wanted.first().map_or(1, |first| first.len().max(1));
    let all: Vec<&[u8]> = metrics.chunks_exact(width).collect();
    wanted.iter().any(|wanted| all.binary_search(wanted).is_ok())
}

/// UIDs of the metrics of sections, ascending. Reads only the names of series.
fn metrics_of(
    sections: &[SnapshotSection],
    retention: &Retention,
    checkpoint: MergeCheckpoint<'_>,
) -> Result<Box<[u8]>, PartError> {
    let mut metrics: BTreeSet<Vec<u8>> = BTreeSet::new();
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
                last.clear();
                last.extend_from_slice(metric);
                if !metrics.contains(&last) {
                    metrics.insert(last.clone());
                }
            }
        }
    }
    Ok(metrics.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_in_a_list_of_their_width() {
        let uids = [0, 0, 1, 0, 0, 7, 1, 0, 0];
        assert!(has_any(&uids, &[&[0, 0, 2], &[0, 0, 7]]));
        assert!(!has_any(&uids, &[&[0, 0, 2], &[0, 1, 0]]));
        assert!(!has_any(&uids, &[]) && !has_any(&[], &[&[0, 0, 1]]));
    }
}

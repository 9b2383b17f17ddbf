//! Places every series that has a TSMeta in the enabled trees (`tsdb uid treesync`).
//!
//! The meta table is not salted: its rows are TSUIDs. It is read in ranges with about as many metrics each, several
//! concurrently. A range holds one batch of rows. Existing leaves stay unchanged, so an interrupted run can be
//! repeated.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_model::{Family, TS_META_QUALIFIER, Uid, UidKind};
use tsd_storage::Scan;

use super::{TreeError, Trees, placement::PlacementCounts};

/// Series that are placed together.
const SERIES_PER_BATCH: usize = 256;
/// Series between two lines of progress.
const PROGRESS_SERIES: u64 = 100_000;
/// Ranges per thread. Several, because ranges differ in size.
const RANGES_PER_THREAD: u64 = 4;

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSyncReport {
    /// Enabled trees. Without any, the run reads nothing.
    pub enabled_trees: usize,
    /// Series with a TSMeta.
    pub series: u64,
    /// New leaves.
    pub leaves: u64,
    /// Series whose leaf belongs to another series.
    pub collisions: u64,
    /// Series that a strict tree rejects.
    pub not_matched: u64,
    /// Series that were not placed because of an error.
    pub failed: u64,
}

impl Trees {
    /// Places every series that has a TSMeta in the enabled trees. `is_random` says that metrics have random UIDs.
    pub async fn sync(&self, threads: usize, is_random: bool) -> Result<TreeSyncReport, TreeError> {
        let enabled_trees = self.active().await?.len();
        let mut report = TreeSyncReport { enabled_trees, ..TreeSyncReport::default() };
        if enabled_trees == 0 {
            return Ok(report);
        }
        let width = self.meta.schema().metric_width();
        let highest = if is_random {
            Uid::max_number(width)
        } else {
            let used = self.meta.names.used(UidKind::Metric).await?;
            u64::try_from(used).unwrap_or(0).min(Uid::max_number(width))
        };
        let ranges = metric_ranges(highest, width, threads.max(1) as u64 * RANGES_PER_THREAD);
        let seen = AtomicU64::new(0);
        let mut counts = stream::iter(ranges)
            .map(|(start, stop)| self.sync_range(start, stop, &seen))
            .buffer_unordered(threads.max(1));
        let mut total = PlacementCounts::default();
        while let Some(placed) = counts.try_next().await? {
            total.add(&placed);
        }
        report.series = seen.load(Ordering::Relaxed);
        report.leaves = total.leaves;
        report.collisions = total.collisions;
        report.not_matched = total.not_matched;
        report.failed = total.failed;
        Ok(report)
    }

    async fn sync_range(
        &self,
        start: Bytes,
        stop: Bytes,
        seen: &AtomicU64,
    ) -> Result<PlacementCounts, TreeError> {
        let scan = Scan {
            start,
            stop,
            family: Some(Family::Name),
            qualifier: Some(Bytes::from_static(TS_META_QUALIFIER.as_bytes())),
            batch_rows: Some(SERIES_PER_BATCH),
            ..Scan::default()
        };
        let mut rows = self.storage().scan(&self.meta.table, scan);
        let mut counts = PlacementCounts::default();
        while let Some(batch) = rows.next_rows().await? {
            let tsuids: Vec<Bytes> = batch.into_iter().map(|row| row.key).collect();
            for tsuids in tsuids.chunks(SERIES_PER_BATCH) {
                counts.add(&self.place_by_tsuid(tsuids).await?);
            }
            let before = seen.fetch_add(tsuids.len() as u64, Ordering::Relaxed);
            let now = before + tsuids.len() as u64;
            if before / PROGRESS_SERIES != now / PROGRESS_SERIES {
                tracing::info!(series = now, "series are placed in trees");
            }
        }
        Ok(counts)
    }
}

/// Divides the rows of the metrics 1 to `highest` into ranges with about as many metrics each. The first and the last
/// range are open.
fn metric_ranges(highest: u64, width: usize, ranges: u64) -> Vec<(Bytes, Bytes)> {
    let step = highest.div_ceil(ranges.max(1)).max(1);
    let bounds = (1..ranges).map_while(|index| index.checked_mul(step)?.checked_add(1));
    let bounds = bounds.take_while(|first| *first <= highest).filter_map(|first| {
        let uid = Uid::from_number(first, width).ok()?;
        Some(Bytes::copy_from_slice(uid.as_bytes()))
    });
    let mut starts = vec![Bytes::new()];
    starts.extend(bounds);
    let stops: Vec<Bytes> = starts.iter().skip(1).cloned().chain([Bytes::new()]).collect();
    starts.into_iter().zip(stops).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn ranges_cover_all_metrics() {
        let starts = |highest, ranges| -> Vec<u64> {
            let ranges = metric_ranges(highest, 3, ranges);
            let open = |edge: Option<&Bytes>| edge.is_some_and(Bytes::is_empty);
            assert!(open(ranges.first().map(|p| &p.0)) && open(ranges.last().map(|p| &p.1)));
            assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0));
            ranges.iter().map(|(start, _)| Uid::number_of(start)).collect()
        };
        assert_eq!(starts(0, 4), [0]);
        assert_eq!(starts(1, 4), [0]);
        assert_eq!(starts(3, 8), [0, 2, 3]);
        assert_eq!(starts(10, 4), [0, 4, 7, 10]);
        assert_eq!(starts(Uid::max_number(3), 2), [0, 8_388_609]);
        assert_eq!(metric_ranges(Uid::max_number(8), 8, 16).len(), 16);
    }
}

//! Places every series that has a TSMeta in the enabled trees (`tsdb uid treesync`).
//!
//! The meta table is not salted: its rows are TSUIDs. It is read in parts of about as many metrics each, some
//! of them at once; a part keeps one batch of rows. What is in the trees already is left as it is, so a run
//! that was interrupted can be repeated.

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
/// Parts for each thread: parts are of different sizes.
const PARTS_PER_THREAD: u64 = 4;

/// What a run has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSyncReport {
    /// Enabled trees. Without any, nothing was read.
    pub enabled_trees: usize,
    /// Series with a TSMeta.
    pub series: u64,
    /// New leaves.
    pub leaves: u64,
    /// Series whose leaf another one has.
    pub collisions: u64,
    /// Series that a strict tree rejects.
    pub not_matched: u64,
    /// Series that were not placed because of an error.
    pub failed: u64,
}

impl Trees {
    /// Places every series that has a TSMeta in the enabled trees. `is_random` tells that metrics have random
    /// UIDs.
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
            let used = self.meta.uids.table.used(UidKind::Metric).await?;
            u64::try_from(used).unwrap_or(0).min(Uid::max_number(width))
        };
        let parts = metric_parts(highest, width, threads.max(1) as u64 * PARTS_PER_THREAD);
        let seen = AtomicU64::new(0);
        let mut counts = stream::iter(parts)
            .map(|(start, stop)| self.sync_part(start, stop, &seen))
            .buffer_unordered(threads.max(1));
        let mut total = PlacementCounts::default();
        while let Some(part) = counts.try_next().await? {
            total.add(&part);
        }
        report.series = seen.load(Ordering::Relaxed);
        report.leaves = total.leaves;
        report.collisions = total.collisions;
        report.not_matched = total.not_matched;
        report.failed = total.failed;
        Ok(report)
    }

    async fn sync_part(
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

/// Divides the rows of the metrics 1 to `highest` into parts of as many metrics each; the first and the last part
/// are open.
fn metric_parts(highest: u64, width: usize, parts: u64) -> Vec<(Bytes, Bytes)> {
    let step = highest.div_ceil(parts.max(1)).max(1);
    let bounds = (1..parts).map_while(|part| part.checked_mul(step)?.checked_add(1));
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
    fn parts_cover_all_metrics() {
        let starts = |highest, parts| -> Vec<u64> {
            let parts = metric_parts(highest, 3, parts);
            let open = |edge: Option<&Bytes>| edge.is_some_and(Bytes::is_empty);
            assert!(open(parts.first().map(|p| &p.0)) && open(parts.last().map(|p| &p.1)));
            assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0));
            parts.iter().map(|(start, _)| Uid::number_of(start)).collect()
        };
        assert_eq!(starts(0, 4), [0]);
        assert_eq!(starts(1, 4), [0]);
        assert_eq!(starts(3, 8), [0, 2, 3]);
        assert_eq!(starts(10, 4), [0, 4, 7, 10]);
        assert_eq!(starts(Uid::max_number(3), 2), [0, 8_388_609]);
        assert_eq!(metric_parts(Uid::max_number(8), 8, 16).len(), 16);
    }
}

//! Removes rows of segments that nobody reads any more.
//!
//! A request that puts the token of a segment may be executed after the segment was removed with its log. The row is
//! then one of an incarnation without a manifest: a manifest is there before the first segment, and goes after the
//! last one, and no incarnation comes back. One member looks for such rows, and removes those that it has found twice.

use std::{collections::BTreeSet, sync::Weak};

use hbase_rs::Scan;
use tokio::time::{Instant, sleep};
use tsd_cluster::{Manifest, MemberState, SegmentId, TableRequest};
use tsd_storage::StorageError;

use crate::{
    calls::{CallFailure, LogTable, failure, state},
    log::LogInner,
};

/// Rows that are remembered and removed at a time; others are found later.
const MAX_ORPHANS: usize = 10_000;

/// Looks again and again, until the log is closed or fenced.
pub(crate) async fn clean(log: Weak<LogInner>) {
    let mut found_before = BTreeSet::new();
    loop {
        let Some(interval) = log.upgrade().map(|inner| inner.config.orphan_age) else { return };
        sleep(interval).await;
        let Some(inner) = log.upgrade().filter(|inner| !inner.is_over()) else { return };
        if !inner.is_oldest() {
            found_before.clear();
            continue;
        }
        match inner.remove_orphans(&found_before).await {
            Ok(found) => found_before = found,
            Err(error) => {
                tracing::debug!(log = inner.name(), %error, "rows that nobody reads are not removed yet");
            }
        }
    }
}

impl LogInner {
    /// True if no older incarnation is a member: so one of all looks.
    fn is_oldest(&self) -> bool {
        let this = self.owner().incarnation();
        let members = self.members.watch().members();
        let mut present = members.iter().filter(|member| member.state != MemberState::Left);
        present.all(|member| member.incarnation >= this)
    }

    /// Removes the orphans that were found before, and returns the others.
    async fn remove_orphans(
        &self,
        before: &BTreeSet<SegmentId>,
    ) -> Result<BTreeSet<SegmentId>, StorageError> {
        let deadline = Instant::now() + self.config.start_timeout;
        let rows = self.table.segment_rows(deadline).await?;
        // After the rows: whoever has one of them had a manifest before it.
        let owners = self.table.manifests(deadline).await?;
        let is_owned = |of: &SegmentId| {
            owners.iter().any(|(owner, _): &(u64, Manifest)| *owner == of.incarnation)
        };
        let mut found: BTreeSet<SegmentId> =
            rows.into_iter().filter(|row| !is_owned(row)).take(MAX_ORPHANS).collect();
        let twice: Vec<SegmentId> = before.intersection(&found).copied().collect();
        for segment in twice {
            self.table.ask(&TableRequest::RemoveSegment { segment }, deadline).await?;
            self.metrics.orphans_removed.increment(1);
            found.remove(&segment);
        }
        Ok(found)
    }
}

impl LogTable {
    /// All segments that have a token or a fence.
    async fn segment_rows(&self, deadline: Instant) -> Result<Vec<SegmentId>, StorageError> {
        self.scan_segments(deadline).await.map_err(|failure| self.error(failure))
    }

    async fn scan_segments(&self, deadline: Instant) -> Result<Vec<SegmentId>, CallFailure> {
        let (start, stop) = self.keys.segments();
        let mut rows = self.until(deadline).table.scan(Scan::range(start, stop).select(state()));
        let mut found = Vec::new();
        while let Some(row) = rows.next().await {
            found.extend(self.keys.segment_of(row.map_err(failure)?.row.key()));
        }
        Ok(found)
    }
}

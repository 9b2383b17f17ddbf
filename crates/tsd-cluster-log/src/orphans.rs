//! Removes orphans: rows of segments whose log was removed.
//!
//! HBase may execute a put of a token after the segment was removed with its log. The new row then belongs to an
//! incarnation without a manifest: a manifest exists from before the first segment until after the last, and no
//! incarnation is reused. One member looks for such rows, and removes rows that it has found twice.

use std::{collections::BTreeSet, sync::Weak};

use hbase_rs::Scan;
use tokio::time::{Instant, sleep};
use tsd_cluster::{Manifest, MemberState, SegmentId, TableRequest};
use tsd_storage::StorageError;

use crate::{
    calls::{CallFailure, LogTable, failure, state},
    log::LogInner,
};

/// Maximum number of rows that one look remembers and removes; a later look finds the rest.
const MAX_ORPHANS: usize = 10_000;

/// Repeats the look until the log is closed or fenced.
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
                tracing::debug!(log = inner.name(), %error, "orphaned rows are not removed yet");
            }
        }
    }
}

impl LogInner {
    /// True if no older incarnation is a member, so that only one member looks.
    fn is_oldest(&self) -> bool {
        let this = self.owner().incarnation();
        let members = self.members.watch().members();
        let mut present = members.iter().filter(|member| member.state != MemberState::Left);
        present.all(|member| member.incarnation >= this)
    }

    /// Removes orphans that an earlier look has found, and returns the new ones.
    async fn remove_orphans(
        &self,
        before: &BTreeSet<SegmentId>,
    ) -> Result<BTreeSet<SegmentId>, StorageError> {
        let deadline = Instant::now() + self.config.start_timeout;
        let rows = self.table.segment_rows(deadline).await?;
        // Read after the rows, because each owner had its manifest before its rows.
        let owners = self.table.manifests(deadline).await?;
        let is_owned = |of: &SegmentId| {
            owners.iter().any(|(owner, _): &(u64, Manifest)| *owner == of.incarnation)
        };
        let mut found: BTreeSet<SegmentId> =
            rows.into_iter().filter(|row| !is_owned(row)).take(MAX_ORPHANS).collect();
        let twice: Vec<SegmentId> = before.intersection(&found).copied().collect();
        for segment in twice {
            self.table.ask(&TableRequest::RemoveSegment { segment }, deadline).await?;
            found.remove(&segment);
        }
        Ok(found)
    }
}

impl LogTable {
    /// Returns all segments with a token or a fence.
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

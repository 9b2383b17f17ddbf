//! Replays the logs of earlier owners, each into its own memtables.
//!
//! A flush must not merge their rows with rows of later commits, and each log is trimmed once its own rows are
//! flushed.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use tsd_storage::{FlushTarget, StorageError};

use super::{Replay, ReplayedLog, flush_job};
use crate::{
    FormerLog, FormerLogs, GroupIterator, OpenError, ReplayReport,
    executor::Executor,
    flush_queue::FlushJob,
    log::{SegmentItem, SegmentReader},
    memtable::Memtable,
    replay_target::ReplayTarget,
    sharing::SharingPolicy,
    state::WalState,
};

/// Replays former logs, oldest first, without changing the memtables of `state`.
pub(crate) fn replay_former<B: FlushTarget>(
    state: &WalState,
    former: FormerLogs,
    backend: &B,
    executor: &Executor,
    policy: &SharingPolicy,
) -> Result<ReplayedLog, OpenError> {
    let started = Instant::now();
    let mut replay = Replay::new(ReplayTarget::new(state, backend, executor), policy, 0);
    let mut jobs = Vec::new();
    for log in former.logs {
        jobs.extend(replay.former_log(log)?);
        replay.report.segments += 1;
    }
    let mut report = replay.report;
    report.duration = started.elapsed();
    Ok(ReplayedLog {
        jobs,
        last_commit_ms: replay.last_commit_ms,
        more_tables: replay.target.more_tables,
        next_memtable_id: replay.next_memtable_id,
        report,
        ..ReplayedLog::default()
    })
}

/// Replays a log. Passes on each full memtable, then the last one. Returns the report and the last commit time.
/// The memtables of `state` are not changed.
pub(crate) fn replay_in_parts<B: FlushTarget>(
    target: ReplayTarget<'_, B>,
    policy: &SharingPolicy,
    groups: GroupIterator,
    store: &mut dyn FnMut(Arc<Memtable>) -> Result<(), StorageError>,
) -> Result<(ReplayReport, i64), OpenError> {
    let mut replay = Replay::new(target, policy, 0);
    for group in groups {
        replay.group(&group.map_err(OpenError::Backend)?)?;
        for full in replay.target.memtables.drain(..) {
            store(full).map_err(OpenError::Backend)?;
        }
    }
    if let Some(rest) = replay.memtable.take() {
        store(Arc::new(rest)).map_err(OpenError::Backend)?;
    }
    Ok((replay.report, replay.last_commit_ms))
}

impl<B: FlushTarget> Replay<'_, B> {
    /// Replays a log and returns its flush jobs. The last job trims the log.
    fn former_log(&mut self, log: FormerLog) -> Result<Vec<FlushJob>, OpenError> {
        let mut bytes = 0;
        for group in log.groups {
            let group = group.map_err(OpenError::Backend)?;
            bytes += group.len() as u64;
            self.group(&group)?;
        }
        self.report.bytes += bytes;
        let mut memtables: VecDeque<Arc<Memtable>> = std::mem::take(&mut self.target.memtables);
        memtables.extend(self.memtable.take().map(Arc::new));
        if memtables.is_empty() {
            // The flush of an empty memtable trims the log.
            let pool = Arc::clone(&self.target.state.buffer_pool);
            let now_ms = (self.target.state.config.clock)();
            memtables.push_back(Arc::new(Memtable::new(self.next_memtable_id, now_ms, pool)));
            self.next_memtable_id += 1;
        }
        let mut jobs: Vec<FlushJob> = memtables.into_iter().map(flush_job).collect();
        if let Some(last) = jobs.last_mut() {
            (last.position, last.bytes) = (Some(log.position), bytes);
        }
        Ok(jobs)
    }

    fn group(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        for item in SegmentReader::of_group(bytes) {
            let is_read = match item {
                SegmentItem::Record { header, table, body, .. } => {
                    self.last_commit_ms = self.last_commit_ms.max(header.commit_ms);
                    self.read_record(header, table, body)?
                }
                SegmentItem::Mark { .. } => true,
                SegmentItem::Damage { .. } | SegmentItem::Torn { .. } => false,
            };
            if !is_read {
                let text = format!("a group of the log in {}", self.target.state.log.name());
                return Err(OpenError::Backend(StorageError::Damaged(text.into())));
            }
        }
        Ok(())
    }
}

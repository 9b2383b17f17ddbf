//! Removes log segments after the flush of their memtables.

use std::collections::VecDeque;

use bytes::Bytes;
use tsd_storage::StorageError;

use crate::{
    commit_time,
    local_files::LocalFiles,
    log::{ClosedSegment, segment_name},
};

/// Segments of flushed memtables, oldest first.
#[derive(Debug, Default)]
pub(crate) struct FlushedSegments {
    segments: VecDeque<ClosedSegment>,
    /// Sequence number of the first record after these segments.
    end_sequence: u64,
}

impl FlushedSegments {
    pub(crate) fn extend(&mut self, segments: Vec<ClosedSegment>, end_sequence: u64) {
        if !segments.is_empty() {
            self.segments.extend(segments);
            self.end_sequence = end_sequence;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Saves the last commit time, which a replay of the segments would find. Records the flush in the store and
    /// in the state of the log. Then removes the segments in order, each durably before the next, since a replay
    /// must not find an old segment without its successors. Fails if a removal fails; the next call retries it.
    pub(crate) fn remove_all(
        &mut self,
        files: &LocalFiles,
        last_commit_ms: i64,
        now_ms: i64,
        set_mark: impl FnOnce(Bytes) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let Some(last) = self.segments.back() else { return Ok(()) };
        commit_time::save(&*files.dir, last_commit_ms)
            .map_err(|source| StorageError::io("saving the commit time of the log", source))?;
        files.tie.flushed(last.number, self.end_sequence, now_ms, set_mark)?;
        while let Some(segment) = self.segments.front().copied() {
            segment.remove(&*files.dir).map_err(|source| {
                StorageError::io(format!("removing {}", segment_name(segment.number)), source)
            })?;
            self.segments.pop_front();
        }
        Ok(())
    }
}

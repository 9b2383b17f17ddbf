//! Log segments to remove after the flush of their memtables.

use std::{collections::VecDeque, sync::atomic::Ordering};

use bytes::Bytes;
use tsd_storage::StorageError;

use crate::{commit_time, flush_queue::ClosedSegment, state::WalState};

/// Segments of flushed memtables, oldest first.
#[derive(Debug, Default)]
pub(crate) struct FlushedSegments {
    segments: VecDeque<ClosedSegment>,
    /// Sequence number of the first record after them.
    end_sequence: u64,
}

impl FlushedSegments {
    pub(crate) fn extend(&mut self, segments: Vec<ClosedSegment>, end_sequence: u64) {
        if !segments.is_empty() {
            self.segments.extend(segments);
            self.end_sequence = end_sequence;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Saves the last commit time, which a replay of the segments would find, and records the flush in
    /// the store and in the state of the log. Then removes the segments in order, each durably before
    /// the next: a replay must not find an old segment without its successors. What cannot be removed
    /// now is retried by the next call.
    pub(crate) fn remove_all(
        &mut self,
        state: &WalState,
        set_mark: impl FnOnce(Bytes) -> Result<(), StorageError>,
    ) {
        let Some(last) = self.segments.back() else { return };
        let dir = state.dir.path().display();
        let last_ms = state.last_commit_ms.load(Ordering::Acquire);
        if let Err(error) = commit_time::save(&*state.dir, last_ms) {
            tracing::warn!(%dir, %error, "cannot save the commit time; log segments are kept");
            return;
        }
        let now_ms = (state.config.clock)();
        if let Err(error) = state.tie.flushed(last.number, self.end_sequence, now_ms, set_mark) {
            tracing::warn!(%dir, %error, "cannot record a flush; its log segments are kept");
            return;
        }
        while let Some(segment) = self.segments.front().copied() {
            if let Err(error) = segment.remove(&*state.dir) {
                let segment = segment.number;
                tracing::warn!(%dir, segment, %error, "cannot remove a log segment");
                return;
            }
            self.segments.pop_front();
            state.closed_segments.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

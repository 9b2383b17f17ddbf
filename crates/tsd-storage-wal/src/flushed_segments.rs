//! Log segments to remove after the flush of their memtables.

use std::{collections::VecDeque, sync::atomic::Ordering};

use crate::{flush_queue::ClosedSegment, state::WalState};

/// Segments of flushed memtables, oldest first.
#[derive(Debug, Default)]
pub(crate) struct FlushedSegments(VecDeque<ClosedSegment>);

impl FlushedSegments {
    pub(crate) fn extend(&mut self, segments: Vec<ClosedSegment>) {
        self.0.extend(segments);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the segments in order, each durably before the next: a replay must not find an old
    /// segment without its successors. What cannot be removed now is retried by the next call.
    pub(crate) fn remove_all(&mut self, state: &WalState) {
        while let Some(segment) = self.0.front().copied() {
            if let Err(error) = segment.remove(&*state.dir) {
                let dir = state.dir.path().display();
                let segment = segment.number;
                tracing::warn!(%dir, segment, %error, "cannot remove a log segment");
                return;
            }
            self.0.pop_front();
            state.closed_segments.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

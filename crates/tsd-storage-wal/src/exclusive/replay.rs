//! Limits the memory of a replay.

use std::sync::Arc;

use tsd_storage::FlushTarget;

use super::flusher::flush_memtable;
use crate::{memtable::Memtable, replay_target::ReplayTarget};

/// Flushes the oldest memtables while their total exceeds the limit. After a failed flush, all of them stay in
/// memory, and the flusher retries. A busy or full backend must not prevent reads.
pub(crate) fn flush_beyond_memory<B: FlushTarget>(target: &mut ReplayTarget<'_, B>) {
    let limit = target.state.config.memtable_bytes;
    let bytes = |memtables: &std::collections::VecDeque<Arc<Memtable>>| {
        memtables.iter().map(|memtable| memtable.bytes()).sum::<usize>()
    };
    while !target.flush_failed && bytes(&target.memtables) > limit {
        let Some(oldest) = target.memtables.front() else { return };
        match flush_memtable(target.backend, target.executor, target.state, oldest) {
            Ok(()) => {
                target.memtables.pop_front();
            }
            Err(error) => {
                tracing::warn!(%error, "replayed rows cannot be flushed; they stay in memory");
                target.flush_failed = true;
            }
        }
    }
}

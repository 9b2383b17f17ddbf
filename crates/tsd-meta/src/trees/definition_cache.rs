//! Caches the compiled rules of the enabled trees.

use parking_lot::{Mutex, MutexGuard};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::builder::TreeBuilder;

/// How long definitions are used after they were read. Edits by this process take effect at once.
pub(super) const DEFINITIONS_TTL: Duration = Duration::from_secs(10);

/// A tree that series are placed in.
#[derive(Debug)]
pub(crate) struct ActiveTree {
    pub(crate) builder: TreeBuilder,
    /// True if collisions and misses are stored.
    pub(crate) store_failures: bool,
}

/// The enabled trees, as last read.
#[derive(Debug, Default)]
pub(crate) struct DefinitionCache {
    /// Number of edits of this process.
    epoch: AtomicU64,
    last: Mutex<Option<CachedTrees>>,
}

#[derive(Clone, Debug)]
struct CachedTrees {
    epoch: u64,
    read_at: Instant,
    trees: Arc<[ActiveTree]>,
}

impl DefinitionCache {
    /// Records that a tree was edited, so definitions that were read before are outdated.
    pub(super) fn invalidate(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Number of edits so far.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The trees that were read at this epoch, unless that is too long ago.
    pub(super) fn fresh(&self, epoch: u64) -> Option<Arc<[ActiveTree]>> {
        let last = self.last();
        let cached = last.as_ref()?;
        let is_fresh = cached.epoch == epoch && cached.read_at.elapsed() < DEFINITIONS_TTL;
        is_fresh.then(|| Arc::clone(&cached.trees))
    }

    /// Caches the trees that were read at an epoch.
    pub(super) fn keep(&self, epoch: u64, read_at: Instant, trees: Arc<[ActiveTree]>) {
        *self.last() = Some(CachedTrees { epoch, read_at, trees });
    }

    fn last(&self) -> MutexGuard<'_, Option<CachedTrees>> {
        self.last.lock()
    }
}

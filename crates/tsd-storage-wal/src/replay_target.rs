//! The store into which a replay puts the rows of the log.

use std::{collections::VecDeque, sync::Arc};

use tsd_storage::Table;

use crate::{executor::Executor, memtable::Memtable, state::WalState};

/// A store that is being opened, as far as the replay needs it.
pub(crate) struct ReplayTarget<'a, B> {
    pub(crate) state: &'a WalState,
    pub(crate) backend: &'a B,
    pub(crate) executor: &'a Executor,
    /// Full memtables that are kept in memory, oldest first.
    pub(crate) memtables: VecDeque<Arc<Memtable>>,
    /// Tables in the log that are not configured and must be logged, too.
    pub(crate) more_tables: Vec<Table>,
    /// True if the backend did not accept rows of the replay.
    pub(crate) flush_failed: bool,
}

impl<'a, B> ReplayTarget<'a, B> {
    pub(crate) const fn new(state: &'a WalState, backend: &'a B, executor: &'a Executor) -> Self {
        Self {
            state,
            backend,
            executor,
            memtables: VecDeque::new(),
            more_tables: Vec::new(),
            flush_failed: false,
        }
    }
}

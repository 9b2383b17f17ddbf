//! Where a replay puts the rows of the log.

use tsd_storage::Table;

use crate::{executor::Executor, memtable::Memtable, state::WalState};

/// A store that is being opened, as the replay sees it.
pub(crate) struct ReplayTarget<'a, B> {
    pub(crate) state: &'a WalState,
    pub(crate) backend: &'a B,
    pub(crate) executor: &'a Executor,
    /// Full memtables that are kept in memory, oldest first.
    pub(crate) memtables: Vec<Memtable>,
    /// Tables in the log that are logged in addition to the configured ones.
    pub(crate) more_tables: Vec<Table>,
    /// True if no row may stay in memory after the replay.
    pub(crate) must_flush: bool,
}

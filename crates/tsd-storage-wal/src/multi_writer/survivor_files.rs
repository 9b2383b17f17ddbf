//! State of the survivor files of a store. `relocation.rs` relocates rows to them.

use std::time::Duration;

use tsd_storage::LogLimit;

/// Minimum interval between two messages about rows that are not relocated.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The survivor files of a store.
#[derive(Debug)]
pub(super) struct SurvivorFiles {
    /// Number of the next file; 0 while it is unknown.
    pub(super) next_number: u64,
    /// True once the files that existed at the start are known.
    pub(super) are_adopted: bool,
    /// True if all rows are flushed, but the files could not be removed yet.
    pub(super) are_flushed: bool,
    pub(super) log: LogLimit,
}

impl SurvivorFiles {
    pub(super) const fn new() -> Self {
        Self {
            next_number: 0,
            are_adopted: false,
            are_flushed: false,
            log: LogLimit::new(LOG_INTERVAL),
        }
    }
}

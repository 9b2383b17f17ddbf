//! Settings of reads that include the held rows of other nodes.

use std::{fmt, sync::Arc, time::Duration};

use tsd_storage::Table;

/// Memory for rows of other nodes during reads.
pub trait ReadMemory: fmt::Debug + Send + Sync + 'static {
    /// Reserves bytes until the result is dropped; `None` if no memory is left.
    fn try_reserve(&self, bytes: usize) -> Option<Box<dyn Send + Sync>>;
}

/// Settings of reads.
#[derive(Debug)]
pub struct ReadConfig {
    /// Tables whose rows nodes hold.
    pub tables: Vec<Table>,
    /// Time that a read waits for a silent node, or for its recovery.
    pub patience: Duration,
    /// Memory for the rows of other nodes.
    pub memory: Arc<dyn ReadMemory>,
}

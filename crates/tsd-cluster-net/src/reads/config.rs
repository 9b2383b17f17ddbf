//! Settings of reads that include the held rows of other nodes.

use std::{fmt, sync::Arc, time::Duration};

use tsd_cluster::SlotRule;
use tsd_storage::Table;

use crate::read_slots::ReadSlots;

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
    /// The slots of this node, and the owners of all others.
    pub slots: Arc<dyn ReadSlots>,
    /// Decides the slots of series, as on all nodes.
    pub rule: Arc<SlotRule>,
    /// Time that a read waits for the owner of a slot, or for the next owner.
    pub patience: Duration,
    /// Memory for the rows of other nodes.
    pub memory: Arc<dyn ReadMemory>,
}

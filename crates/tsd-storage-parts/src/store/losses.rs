//! Information about quarantined parts. `quarantine.rs` adds and removes them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{manifest::QuarantineRecord, part::Part, salvage::SectionLoss};

/// A quarantined part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedPart {
    /// Name with which an operator accepts the loss.
    pub name: String,
    /// Path of the file, below the store's directory.
    pub file: String,
    /// Size of the file, bytes; 0 if it was missing.
    pub bytes: u64,
    /// When it was quarantined, epoch milliseconds.
    pub since_ms: i64,
    /// Description of the damage, with its offset.
    pub what: String,
    /// Starts of the spans in which reads fail, epoch seconds: all reads, or reads that need a damaged block.
    pub spans: Vec<u32>,
    /// Number of damaged blocks in spans where other reads succeed.
    pub blocks: usize,
}

/// Assessed losses by file number, each with the record that was assessed; `None` if the loss of a file cannot be
/// determined.
pub(super) type KnownLosses = BTreeMap<u64, (QuarantineRecord, Option<SectionLoss>)>;

/// Files of quarantined sections by number, each with the record for which it was opened; `None` if the file is
/// missing or has no intact footer.
pub(super) type QuarantinedFiles = BTreeMap<u64, (QuarantineRecord, Option<Arc<Part>>)>;

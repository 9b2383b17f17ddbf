//! What is known of damaged parts in quarantine. How they come and go is in `quarantine.rs`.

use std::collections::BTreeMap;

use crate::{manifest::SectionRecord, salvage::SectionLoss};

/// A damaged part in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedPart {
    /// Name by which its loss is accepted.
    pub name: String,
    /// Path of the file, below the store's directory.
    pub file: String,
    /// Size of the file, bytes; 0 if it was missing.
    pub bytes: u64,
    /// When it was quarantined, epoch milliseconds.
    pub since_ms: i64,
    /// What is damaged, with the offset.
    pub what: String,
    /// Starts of the spans of which reads fail, epoch seconds.
    pub spans: Vec<u32>,
}

/// What is lost of quarantined files by number, with the sections that were looked at; `None` of a file
/// that does not tell.
pub(super) type KnownLosses = BTreeMap<u64, (Vec<SectionRecord>, Option<SectionLoss>)>;

//! What a node reports on itself to its peers.

use bytes::Bytes;

/// Report of a node on itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// Version of the program.
    pub version: String,
    /// Bytes of the log that are not trimmed.
    pub log_bytes: u64,
    /// Number of held rows.
    pub rows: u64,
    /// Bytes of the memtables.
    pub memtable_bytes: u64,
    /// The node's clock, epoch milliseconds.
    pub time_ms: i64,
    /// Problems that the health check reports.
    pub problems: Vec<String>,
    /// Its slots with many more points than others.
    pub hot_slots: Vec<HotSlot>,
}

/// A slot with many more points than others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotSlot {
    /// Number of the slot.
    pub slot: usize,
    /// Its share of the cells that the node wrote in the last minute, percent.
    pub percent: u32,
    /// UID of a tag value that places series in the slot; `None` if a series without a slot tag was written last.
    pub value: Option<Bytes>,
}

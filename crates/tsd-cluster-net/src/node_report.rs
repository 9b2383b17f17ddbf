//! What a node reports on itself to its peers.

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
}

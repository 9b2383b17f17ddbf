//! Rows that each writer has sent and that HBase has acknowledged.
//!
//! Key and value of a row follow from its writer and number, and each writer's rows are
//! acknowledged in order. So two counters per writer determine the rows that a reader must find,
//! however long the load runs.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Family of all columns.
pub(super) const FAMILY: &[u8] = b"f";
/// Timestamp of all cells of rows, so that a repeated put writes the same cells.
pub(super) const TIMESTAMP: u64 = 1_700_000_000_000;
/// Split points of the table; a key starts with a hexadecimal digit.
pub(super) const SPLITS: [&str; 5] = ["3", "6", "9", "b", "e"];

/// Cells of every sixteenth row: too many for one response of the slow scans.
const WIDE_ROW_CELLS: u64 = 12;

/// Key of a row. Successive numbers have distant keys, so that a batch touches all regions.
pub(super) fn key(writer: usize, number: u64) -> String {
    let prefix = (number * 157 + writer as u64 * 31) & 0xff;
    format!("{prefix:02x}-{writer}-{number:08}")
}

/// Writer and number of a row; `None` for rows of atomic updates.
pub(super) fn parse_key(key: &[u8]) -> Option<(usize, u64)> {
    let mut parts = std::str::from_utf8(key).ok()?.split('-').skip(1);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Qualifiers and values of a row.
pub(super) fn cells(writer: usize, number: u64) -> impl Iterator<Item = (String, String)> {
    let count = if number.is_multiple_of(16) { WIDE_ROW_CELLS } else { 1 };
    (0..count).map(move |at| (format!("q{at:02}"), format!("{writer}/{number}/{at}")))
}

/// Two counters for each writer.
#[derive(Debug)]
pub struct AckTracker {
    writers: Vec<WriterCounters>,
}

#[derive(Debug, Default)]
struct WriterCounters {
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

impl AckTracker {
    /// Counters of `writers` writers.
    #[must_use]
    pub fn new(writers: usize) -> Self {
        Self { writers: (0..writers).map(|_| WriterCounters::default()).collect() }
    }

    /// Records that all numbers below `end` are about to be sent.
    pub fn record_sent(&self, writer: usize, end: u64) {
        self.writers[writer].sent.store(end, SeqCst);
    }

    /// Records that all numbers below `end` were acknowledged.
    pub fn record_acknowledged(&self, writer: usize, end: u64) {
        self.writers[writer].acknowledged.store(end, SeqCst);
    }

    /// Numbers sent by each writer.
    #[must_use]
    pub fn sent(&self) -> Vec<u64> {
        self.writers.iter().map(|writer| writer.sent.load(SeqCst)).collect()
    }

    /// Numbers acknowledged to each writer.
    #[must_use]
    pub fn acknowledged(&self) -> Vec<u64> {
        self.writers.iter().map(|writer| writer.acknowledged.load(SeqCst)).collect()
    }

    /// Numbers acknowledged to all writers together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.acknowledged().iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_contain_writer_and_number() {
        for (writer, number) in [(0, 0), (3, 17), (11, 99_999_999)] {
            assert_eq!(parse_key(key(writer, number).as_bytes()), Some((writer, number)));
        }
        assert_eq!(parse_key(b"7f-counter"), None);
    }
}

//! What opening a log found.

use std::{fmt, path::PathBuf, time::Duration};

/// What was replayed when a store was opened.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Segments read.
    pub segments: usize,
    /// Records replayed.
    pub records: u64,
    /// Cells put and columns deleted by them.
    pub cells: u64,
    /// Bytes of the log that counted.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
    /// End of the log that was cut off because its last write was never finished.
    pub torn_tail: Option<TornTail>,
    /// What is lost; empty unless the operator accepted it.
    pub lost: Vec<LostRange>,
}

/// The end of the log, cut short in the middle of a write that nobody was told had succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Segment.
    pub file: PathBuf,
    /// Where it was cut.
    pub offset: u64,
    /// Bytes cut off.
    pub bytes: u64,
}

/// Bytes of the log that cannot be read though they were once written whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Segment.
    pub file: PathBuf,
    /// Where the unreadable bytes begin.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
    /// What is wrong with them.
    pub what: Damage,
    /// Sequence number of the first record that is lost.
    pub first_sequence: Option<u64>,
    /// Records that are lost; unknown where nothing readable follows.
    pub records: Option<u64>,
}

/// Kinds of damage to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// The head of a segment does not match its checksum.
    SegmentHeader,
    /// A segment between others is not there.
    MissingSegment,
    /// A segment is shorter than its successor says.
    ShortSegment,
    /// A record does not match its checksum.
    Record,
    /// A record that matches its checksum is not one this version can read.
    UnknownRecord,
    /// Records are not there, though what is there is sound.
    MissingRecords,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SegmentHeader => "damaged segment header",
            Self::MissingSegment => "missing segment",
            Self::ShortSegment => "segment cut short",
            Self::Record => "damaged record",
            Self::UnknownRecord => "unknown record",
            Self::MissingRecords => "missing records",
        })
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        write!(f, "{} at byte {} of {file} ({} bytes", self.what, self.offset, self.bytes)?;
        match (self.records, self.first_sequence) {
            (Some(records), Some(first)) => write!(f, ", {records} records from {first} on)"),
            (None, Some(first)) => write!(f, ", all records from {first} on that were in it)"),
            _ => f.write_str(")"),
        }
    }
}

//! Results of a replay: what was read, truncated and lost.

use std::{fmt, path::PathBuf, time::Duration};

/// Result of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Segments read.
    pub segments: usize,
    /// Records replayed.
    pub records: u64,
    /// Cells put and columns deleted by them.
    pub cells: u64,
    /// Bytes of the replayed segments.
    pub bytes: u64,
    /// Duration of verification and replay.
    pub duration: Duration,
    /// The incomplete last write, which was truncated.
    pub torn_tail: Option<TornTail>,
    /// Lost records; empty unless damage was accepted.
    pub lost: Vec<LostRange>,
}

/// An incomplete write at the end of the log. It was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Segment file.
    pub file: PathBuf,
    /// Offset at which the segment was truncated.
    pub offset: u64,
    /// Bytes removed.
    pub bytes: u64,
}

/// Bytes of the log that were written completely and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Segment file.
    pub file: PathBuf,
    /// Offset of the first unreadable byte.
    pub offset: u64,
    /// Number of unreadable bytes.
    pub bytes: u64,
    /// Kind of damage.
    pub what: Damage,
    /// Sequence number of the first lost record.
    pub first_sequence: Option<u64>,
    /// Number of lost records; unknown if no readable record follows.
    pub records: Option<u64>,
}

/// Kinds of damage to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// A segment header does not match its checksum.
    SegmentHeader,
    /// A segment between others is missing.
    MissingSegment,
    /// A segment is shorter than stated by its successor.
    ShortSegment,
    /// A record does not match its checksum.
    Record,
    /// A record matches its checksum but is unknown to this version.
    UnknownRecord,
    /// Sequence numbers are missing between readable records.
    MissingRecords,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SegmentHeader => "damaged segment header",
            Self::MissingSegment => "missing segment",
            Self::ShortSegment => "truncated segment",
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

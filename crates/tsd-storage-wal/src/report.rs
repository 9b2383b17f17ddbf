//! The report of a replay: what was read, truncated and lost.

use std::{fmt, path::PathBuf, time::Duration};

use jiff::Timestamp;

/// Result of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Number of segments that were read.
    pub segments: usize,
    /// Number of replayed records.
    pub records: u64,
    /// Number of put cells and deleted columns in these records.
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
    /// Number of removed bytes.
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
    /// Time after which the lost records were written, epoch milliseconds, if it is known.
    pub since_ms: Option<i64>,
}

/// Kinds of damage to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// A segment header does not match its checksum.
    SegmentHeader,
    /// The first segment, the last segment, or one between others is missing.
    MissingSegment,
    /// A segment is shorter than its successor or its own header states.
    ShortSegment,
    /// A record does not match its checksum.
    Record,
    /// A record matches its checksum, but this version does not know its kind.
    UnknownRecord,
    /// Sequence numbers are missing between readable records.
    MissingRecords,
    /// The state of the log is missing or damaged, so missing segments would not be noticed.
    LogState,
    /// The log belongs to another store. If that is accepted, its segments are renamed.
    OtherLog,
    /// The store contains records after the end of the log: the log is older than the store, or its end is lost.
    /// If that is accepted, its segments are renamed.
    LogBehindStore,
    /// The log begins after the last record that the store contains: the store is older than the log.
    StoreBehindLog,
    /// The store has no mark of the log: it was emptied, or replaced by an old copy.
    StoreWithoutMark,
    /// The mark of the log in the store is damaged.
    StoreMark,
    /// A survivor file is missing or damaged. If that is accepted, it is renamed.
    Survivors,
}

impl Damage {
    const fn is_in_a_segment(self) -> bool {
        matches!(
            self,
            Self::SegmentHeader
                | Self::ShortSegment
                | Self::Record
                | Self::UnknownRecord
                | Self::MissingRecords
        )
    }
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
            Self::LogState => "missing or damaged state of the log",
            Self::OtherLog => "the log belongs to another store",
            Self::LogBehindStore => "the log ends before what the store contains",
            Self::StoreBehindLog => "the log begins after what the store contains",
            Self::StoreWithoutMark => "the store has no record of this log",
            Self::StoreMark => "the store's record of this log is damaged",
            Self::Survivors => "missing or damaged file of rows that could not be flushed",
        })
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        if self.what.is_in_a_segment() {
            write!(f, "{} at byte {} of {file} ({} bytes", self.what, self.offset, self.bytes)?;
        } else {
            write!(f, "{} ({file}", self.what)?;
        }
        match (self.records, self.first_sequence) {
            (Some(records), Some(first)) => write!(f, ", {records} records from {first} on")?,
            (None, Some(first)) => write!(f, ", all records from {first} on that were in it")?,
            _ => {}
        }
        if let Some(since) = self.since_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()) {
            write!(f, ", written after {since:.0}")?;
        }
        f.write_str(")")
    }
}

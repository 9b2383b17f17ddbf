//! The write-ahead log: segments of records in a directory.

mod closed_segment;
mod continuity;
mod file_log;
mod record;
mod segment;
mod segment_reader;
mod state_file;
mod store_mark;
mod verify;
mod writer;

pub use self::record::RecordGroup;
#[cfg(test)]
pub(crate) use self::segment::SegmentHeader;
pub(crate) use self::{
    closed_segment::ClosedSegment,
    continuity::{Continuation, ContinuityCheck},
    file_log::{FileLog, SetMark},
    record::RecordHeader,
    segment::{segment_name, segment_of_name, unknown_segment},
    segment_reader::{SegmentItem, SegmentReader},
    state_file::{FoundState, LogState, STATE_FILE, StateFile, newest_state, unknown_state},
    store_mark::{StoreMark, unknown_mark},
    verify::{VerifiedLog, verify, verify_with},
    writer::LogTail,
};

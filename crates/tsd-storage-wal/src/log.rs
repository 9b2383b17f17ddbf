//! The write-ahead log: segments of records in a directory.

mod record;
mod segment;
mod segment_reader;
mod verify;
mod writer;

pub(crate) use self::{
    record::RecordGroup,
    segment::{segment_name, segment_of_name},
    segment_reader::{SegmentItem, SegmentReader},
    verify::{VerifiedLog, verify},
    writer::{LogError, LogPosition, LogWriter},
};

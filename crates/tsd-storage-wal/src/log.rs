//! The write-ahead log: segments of records in a directory.

mod record;
mod segment;
mod verify;
mod walk;
mod writer;

pub(crate) use self::{
    record::Group,
    segment::{segment_name, segment_of_name},
    verify::{Verified, verify},
    walk::{Found, Walk},
    writer::{LogError, LogPosition, LogWriter},
};

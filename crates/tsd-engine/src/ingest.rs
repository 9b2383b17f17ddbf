//! The write path of a session: turns samples into cells and completes their chunks.
//!
//! The write actors and the series cache are elsewhere.

mod chunk;
mod chunk_log;
mod commit_group;
mod extra_cell;
mod name_list;
mod sample;
mod session;
mod shared;
mod start;
mod submission;
mod validate;

#[cfg(test)]
pub(crate) use self::commit_group::CommitGroup;
pub(crate) use self::{
    commit_group::WriteCompletion,
    extra_cell::{CellView, WriteTarget},
    name_list::NameList,
    shared::IngestShared,
    validate::NameRules,
};
pub use self::{
    sample::{RolledUpValue, RollupTarget, Sample, SampleContent},
    session::IngestSession,
};

/// Character encoding of names as clients send them.
///
/// Telnet sends ISO-8859-1, and JSON is UTF-8. Both are stored as ISO-8859-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameText {
    /// ISO-8859-1.
    Latin1,
    /// UTF-8.
    Utf8,
}

#[cfg(test)]
mod tests;

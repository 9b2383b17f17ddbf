//! The way of a point in: sessions that turn points into cells, and the countdown of their chunks.

mod chunk;
mod commit_group;
mod extra_cell;
mod pending;
mod session;
mod validate;

pub(crate) use self::{
    commit_group::WriteCompletion,
    extra_cell::{WriteTarget, WriteTargets},
    pending::NameList,
    session::{IngestShared, ResolvedSeries},
    validate::NameRules,
};
pub use self::{
    extra_cell::{ExtraCell, RollupPlace},
    session::{IngestSession, PointInput},
};

/// How the bytes of names are to be read.
///
/// The telnet port takes one byte for one character, JSON is UTF-8. Both are stored as ISO-8859-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameText {
    /// ISO-8859-1.
    Latin1,
    /// UTF-8.
    Utf8,
}

#[cfg(test)]
mod tests;

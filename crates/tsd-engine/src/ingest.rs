//! The way of a point in: sessions that turn points into cells, and the countdown of their chunks.

mod chunk;
mod extra_cell;
mod group;
mod pending;
mod session;
mod validate;

pub use self::{
    extra_cell::{ExtraCell, RollupPlace},
    session::{IngestSession, PointInput},
};
pub(crate) use self::{
    extra_cell::{WriteTarget, WriteTargets},
    group::Ticket,
    pending::NameList,
    session::{IngestShared, ResolvedSeries},
    validate::NameRules,
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

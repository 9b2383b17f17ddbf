//! Damaged files that a store has quarantined, and the consent to their loss.

use std::fmt;

use bytes::Bytes;

use crate::{StorageError, Table};

/// A damaged file in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedFile {
    /// Name by which its loss is accepted.
    pub name: String,
    /// Path of the file in the store, relative to the store's directory.
    pub file: String,
    /// The table that it was a part of.
    pub table: Table,
    /// What is damaged, with the offset.
    pub what: String,
    /// Size of the damaged file, in bytes; 0 if it was missing.
    pub bytes: u64,
    /// When it was quarantined, in epoch milliseconds.
    pub since_ms: i64,
    /// Rows of which cells may be lost; empty if the file was rebuilt without loss.
    pub lost: Vec<LostRows>,
    /// How much of that is damaged; `None` if the file does not tell.
    pub extent: Option<LossExtent>,
}

/// How much of the spans or ranges that reads miss is damaged. The rest stays when the loss is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossExtent {
    /// Points that are lost.
    pub points: u64,
    /// Points that there were.
    pub all_points: u64,
    /// Damaged blocks.
    pub blocks: u64,
    /// Blocks that there are.
    pub all_blocks: u64,
}

/// A range of rows of which cells may be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRows {
    /// Key of the first row; `None` for all from the start of the table.
    pub first: Option<Bytes>,
    /// Key of the last row; `None` for all up to the end of the table.
    pub last: Option<Bytes>,
    /// Epoch seconds between which the rows begin, the second excluded; `None` if at any time.
    pub time_secs: Option<(u64, u64)>,
}

impl QuarantinedFile {
    /// True if a read of rows of the table misses cells of the file, for all that is known. The rows begin
    /// from the first to the last of these epoch seconds.
    #[must_use]
    pub fn may_miss(&self, table: &Table, (first, last): (u64, u64)) -> bool {
        let is_read =
            |rows: &LostRows| rows.time_secs.is_none_or(|(from, end)| from <= last && first < end);
        self.table == *table && self.lost.iter().any(is_read)
    }
}

/// The quarantine of a store. Its calls block on the disk: they read and copy what is left of damaged files.
pub trait Quarantine: fmt::Debug + Send + Sync {
    /// The files whose loss was not accepted yet, by name.
    fn files(&self) -> Vec<QuarantinedFile>;

    /// Accepts the loss of what is damaged of a file, keeps the rest, and removes the file: from then on
    /// reads of its rows return what is left. Returns false if there is no such file.
    ///
    /// # Errors
    ///
    /// An error of the disk; the loss may or may not be accepted then.
    fn accept(&self, name: &str) -> Result<bool, StorageError>;

    /// True if a loss of the table was accepted and [`Self::loss_checked`] was not called since. What
    /// is derived from the cells of the table, such as the next free number, may be wrong.
    fn has_unchecked_loss(&self, table: &Table) -> bool;

    /// Records durably that the accepted losses of the table are dealt with.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    fn loss_checked(&self, table: &Table) -> Result<(), StorageError>;

    /// Records durably that cells of any table were lost with consent, outside of the store's files.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    fn note_loss(&self) -> Result<(), StorageError>;
}

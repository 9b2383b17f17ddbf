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
    /// Table of the file.
    pub table: Table,
    /// The damage, with its offset.
    pub what: String,
    /// Size of the damaged file, in bytes; 0 if it was missing.
    pub bytes: u64,
    /// When it was quarantined, in epoch milliseconds.
    pub since_ms: i64,
    /// Rows whose cells may be lost; empty if the file was rebuilt without loss.
    pub lost: Vec<LostRows>,
    /// Extent of the damage; `None` if the file does not tell.
    pub extent: Option<LossExtent>,
}

/// Extent of the damage in the spans or ranges that reads miss. The rest stays after the loss is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossExtent {
    /// Lost points.
    pub points: u64,
    /// All points before the damage.
    pub all_points: u64,
    /// Damaged blocks.
    pub blocks: u64,
    /// All blocks.
    pub all_blocks: u64,
}

/// A range of rows whose cells may be lost.
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
    /// True if a read of rows of the table may miss cells of the file. The base times of the rows are from the first
    /// to the last of these epoch seconds. Their keys begin with one of `prefixes`, which precede the base time.
    #[must_use]
    pub fn may_miss(&self, table: &Table, (first, last): (u64, u64), prefixes: &[&[u8]]) -> bool {
        let is_read =
            |rows: &LostRows| rows.time_secs.is_none_or(|(from, end)| from <= last && first < end);
        let has = |rows: &LostRows| prefixes.iter().any(|prefix| rows.may_begin_with(prefix));
        self.table == *table && self.lost.iter().any(|rows| is_read(rows) && has(rows))
    }
}

impl LostRows {
    /// False if no row key of the range begins with the bytes.
    fn may_begin_with(&self, prefix: &[u8]) -> bool {
        let begin = |key: &Bytes| key.get(..prefix.len()).unwrap_or(key).to_vec();
        self.first.as_ref().is_none_or(|first| begin(first).as_slice() <= prefix)
            && self.last.as_ref().is_none_or(|last| prefix <= begin(last).as_slice())
    }
}

/// The quarantine of a store. Its calls block on the disk: they read and copy the intact data of damaged files.
pub trait Quarantine: fmt::Debug + Send + Sync {
    /// The files whose loss was not accepted yet, by name.
    fn files(&self) -> Vec<QuarantinedFile>;

    /// Accepts the loss of the damaged data of a file, keeps the rest, and removes the file. From then on reads of
    /// its rows return the intact cells. Returns false for an unknown file.
    ///
    /// # Errors
    ///
    /// An error of the disk, after which the loss may or may not be accepted.
    fn accept(&self, name: &str) -> Result<bool, StorageError>;

    /// True if a loss of the table was accepted and [`Self::loss_checked`] was not called since. Values derived from
    /// the cells of the table, such as the next free number, may be wrong.
    fn has_unchecked_loss(&self, table: &Table) -> bool;

    /// Records durably that the consequences of the accepted losses of the table were checked.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    fn loss_checked(&self, table: &Table) -> Result<(), StorageError>;

    /// Records durably an accepted loss of cells of any table outside of the store's files.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    fn note_loss(&self) -> Result<(), StorageError>;
}

//! Rows that cannot be read.

use std::fmt;

use bytes::Bytes;

use crate::Table;

/// Rows of a damaged block that a read needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRows {
    /// The table.
    pub table: Table,
    /// Name by which the loss of the file is accepted.
    pub name: String,
    /// Path of the file in the store, relative to the store's directory.
    pub file: String,
    /// The damage, with its offset.
    pub what: String,
    /// A row key of each of the first series of the block, if known.
    pub series: Vec<Bytes>,
    /// Number of other series that the block may have.
    pub more_series: u64,
    /// Epoch seconds between which the rows begin, the second excluded.
    pub time_secs: (u64, u64),
}

impl UnreadableRows {
    /// Describes the problem and the remedy; `rows` describes the rows.
    #[must_use]
    pub fn describe(&self, rows: &str) -> String {
        let Self { file, what, name, .. } = self;
        format!(
            "{rows} cannot be read: store file {file} is damaged ({what}); it is in quarantine, \
             `tsdb quarantine accept {name}` accepts the loss, `allow_damaged` returns what is left"
        )
    }
}

impl fmt::Display for UnreadableRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let series = self.series.len() as u64 + self.more_series;
        let (from, to) = self.time_secs;
        f.write_str(&self.describe(&format!("rows of {series} series from second {from} to {to}")))
    }
}

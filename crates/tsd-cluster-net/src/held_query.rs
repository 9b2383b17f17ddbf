//! Selects the held rows that a node asks its peers for.

use tsd_storage::{KeyRange, RowFilter, Table};

/// Selects held rows.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldQuery {
    /// The table.
    pub table: Table,
    /// Ranges of row keys, in order and without overlap.
    pub ranges: Vec<KeyRange>,
    /// Condition on the row keys. A node may return rows that do not match.
    pub filter: Option<RowFilter>,
}

impl HeldQuery {
    /// True if the query selects the row.
    #[must_use]
    pub fn matches(&self, key: &[u8]) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(key))
    }
}

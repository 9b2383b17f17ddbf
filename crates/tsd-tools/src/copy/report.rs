//! Counters of a copy, and the result of a comparison.

use tsd_storage::Table;

/// Counters of the copied rows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedRows {
    /// Rows read.
    pub rows: u64,
    /// Cells read.
    pub cells: u64,
    /// Bytes of these cells: keys, qualifiers and values.
    pub bytes: u64,
    /// Cells that were kept because the target has a newer or equal cell.
    pub kept_cells: u64,
    /// Rows that were not copied. Their cells are included above.
    pub refused_rows: u64,
    /// Cells that were not copied although their rows were.
    pub refused_cells: u64,
    /// Cells that were copied unchanged although they name a series that has no UIDs in the target.
    pub stale_references: u64,
}

impl CopiedRows {
    /// Adds other counters.
    pub const fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.cells += other.cells;
        self.bytes += other.bytes;
        self.kept_cells += other.kept_cells;
        self.refused_rows += other.refused_rows;
        self.refused_cells += other.refused_cells;
        self.stale_references += other.stale_references;
    }

    /// True if some data was not copied as it is.
    #[must_use]
    pub const fn has_losses(&self) -> bool {
        self.refused_rows + self.refused_cells + self.stale_references > 0
    }
}

/// Digest of the contents of a table, independent of the order of rows and of the division of points into columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableDigest {
    /// Rows.
    pub rows: u64,
    /// Points, and cells other than points.
    pub cells: u64,
    /// Bytes of qualifiers and values.
    pub bytes: u64,
    /// Sum of the checksums of the rows.
    pub checksum: u128,
}

impl TableDigest {
    /// Adds a row.
    pub(crate) const fn add(&mut self, row: &Self) {
        self.rows += row.rows;
        self.cells += row.cells;
        self.bytes += row.bytes;
        self.checksum = self.checksum.wrapping_add(row.checksum);
    }
}

/// Comparison of a table in both stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableComparison {
    /// Name in the source.
    pub from: Table,
    /// Name in the target.
    pub to: Table,
    /// The source.
    pub source: TableDigest,
    /// The target.
    pub target: TableDigest,
    /// Rows that only the source has.
    pub only_in_source: u64,
    /// Rows that only the target has.
    pub only_in_target: u64,
    /// Rows whose contents differ.
    pub different: u64,
    /// Rows of the source that no target can have by name, because their keys are damaged or their UIDs have no names.
    /// The digest excludes them.
    pub without_names: u64,
    /// Rows of the target that were made equal to those of the source.
    pub repaired: u64,
    /// False if the comparison was stopped.
    pub is_complete: bool,
}

impl TableComparison {
    /// True if both have the same contents.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.is_complete && self.source == self.target
    }
}

//! Counters of a copy, and what a comparison found.

use tsd_storage::Table;

/// What was copied of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedRows {
    /// Rows that were read.
    pub rows: u64,
    /// Cells that were read.
    pub cells: u64,
    /// Their bytes: keys, qualifiers and values.
    pub bytes: u64,
    /// Cells that the target has newer or equal, and that were left alone.
    pub kept_cells: u64,
    /// Rows that were not copied, with their cells among those above.
    pub refused_rows: u64,
    /// Cells that were not copied though their rows were.
    pub refused_cells: u64,
    /// Cells that were copied as they are, although they name a series that has no UIDs in the target.
    pub stale_references: u64,
}

impl CopiedRows {
    /// Adds others.
    pub const fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.cells += other.cells;
        self.bytes += other.bytes;
        self.kept_cells += other.kept_cells;
        self.refused_rows += other.refused_rows;
        self.refused_cells += other.refused_cells;
        self.stale_references += other.stale_references;
    }

    /// True if something was not copied as it is.
    #[must_use]
    pub const fn has_losses(&self) -> bool {
        self.refused_rows + self.refused_cells + self.stale_references > 0
    }
}

/// Contents of a table, independent of the order of its rows and of how points are divided into columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableDigest {
    /// Rows.
    pub rows: u64,
    /// Points, and cells that are none.
    pub cells: u64,
    /// Bytes of their qualifiers and values.
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

/// A table in both stores.
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
    /// Rows that both have with other contents.
    pub different: u64,
    /// Rows of the source that no target can have by name: their keys are damaged or their UIDs have no
    /// names. They are not in the digest.
    pub without_names: u64,
    /// Rows of the target that were made as those of the source.
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

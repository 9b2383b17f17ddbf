//! Cells of a table, as in HBase, and rows of cells.

use bytes::Bytes;

use crate::packed_run::{PackedRun, PackedRunError};

/// Column families of OpenTSDB's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// `id` of the UID table: name to UID, and the counters.
    Id = 0,
    /// `name` of the UID table (UID to name, UIDMeta) and of the meta table.
    Name = 1,
    /// `t` of the data, rollup and tree tables.
    T = 2,
}

impl Family {
    /// Name of the family in HBase.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Name => "name",
            Self::T => "t",
        }
    }

    /// Finds the family with this name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"id" => Some(Self::Id),
            b"name" => Some(Self::Name),
            b"t" => Some(Self::T),
            _ => None,
        }
    }
}

/// One cell of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Column family.
    pub family: Family,
    /// Column qualifier, raw bytes.
    pub qualifier: Bytes,
    /// Value, raw bytes.
    pub value: Bytes,
    /// Cell timestamp: epoch milliseconds of the write, not of the point.
    pub timestamp_ms: i64,
}

/// A row as a store returns it: cells, and packed runs.
///
/// Invariants: `cells` is sorted by family, then qualifier; a column is present once, in `cells` or
/// inside one of `runs`; a row without cells and runs does not exist.
#[derive(Clone, Debug)]
pub struct Row {
    /// Row key, salt included.
    pub key: Bytes,
    /// Cells that are not packed.
    pub cells: Vec<Cell>,
    /// Point cells of family `t` in packed form (embedded store only).
    pub runs: Vec<PackedRun>,
}

impl Row {
    /// A row of plain cells. `cells` must be sorted by family, then qualifier.
    #[must_use]
    pub const fn from_cells(key: Bytes, cells: Vec<Cell>) -> Self {
        Self { key, cells, runs: Vec::new() }
    }

    /// All cells of the row, runs expanded, sorted by family, then qualifier.
    pub fn into_cells(self) -> Result<Vec<Cell>, PackedRunError> {
        let mut cells = self.cells;
        if !self.runs.is_empty() {
            for run in &self.runs {
                run.expand_into(&mut cells)?;
            }
            cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
        }
        Ok(cells)
    }
}

//! The kinds of cells that a read takes from the rows of a table.

use tsd_model::RollupInterval;
use tsd_query::RollupCells;

/// Kind of cells to read from each row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowContent {
    /// Points and annotations.
    Points,
    /// Cells of a rollup table.
    Rollup {
        /// Maps cells to times.
        interval: Box<RollupInterval>,
        /// Which cells are read.
        cells: RollupCells,
    },
    /// Histograms.
    Histograms,
}

//! Rollups and pre-aggregates: selects the tables that a sub query reads, and combines their cells.

mod average;
mod select;
mod split;

pub use average::RollupAverageBuilder;
pub use select::{
    ReadAttempt, ReadSource, ReadStrategy, RollupCells, RollupSettings, choose_reads,
};
pub use split::join_split;

//! Rollups and pre-aggregates: which tables a sub query reads, and how their cells are combined.

mod average;
mod select;
mod split;

pub use average::RollupAverageBuilder;
pub use select::{
    ReadAttempt, ReadSource, ReadStrategy, RollupCells, RollupSettings, choose_reads,
};
pub use split::join_split;

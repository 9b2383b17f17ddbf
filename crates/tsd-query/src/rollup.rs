//! Rollups and pre-aggregates: which table answers a sub query, and how its cells combine.

mod average;
mod select;
mod split;

pub use average::RollupAverageBuilder;
pub use select::{
    ReadAttempt, ReadSource, ReadStrategy, RollupCells, RollupSettings, choose_reads,
};
pub use split::join_split;

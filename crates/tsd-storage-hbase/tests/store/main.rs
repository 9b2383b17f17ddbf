//! The store on a fake cluster, and in `live` on a real one.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod cells;
mod conformance;
mod corrections;
mod fake_cluster;
mod filters;
mod flush;
mod in_doubt;
mod live;
mod overload;
mod rewrite;
mod scenarios;
mod series_registry;
mod stamps;
mod tables;

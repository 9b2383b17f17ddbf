//! The store against a model of cells, and files that were changed.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod blocks;
mod bounds;
mod compaction;
mod crash;
mod damage;
mod joined_spans;
mod listed;
mod model;
mod past_losses;
mod retention;
mod salvage;
mod scenario;
mod series;
mod series_days;
mod size;
mod storage;
mod summaries;
mod verify;

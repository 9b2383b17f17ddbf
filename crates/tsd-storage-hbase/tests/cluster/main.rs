//! The store on a fake cluster: the suite of all stores, faults, filters, held rows, tables.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod filters;
mod in_doubt;
mod ingest;
mod kit;
mod rewrite;
mod tables;

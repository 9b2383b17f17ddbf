//! Scenarios that hold on a fake cluster and on a real one. The store's data table is empty.

pub(crate) mod filters;
pub(crate) mod ingest;
pub(crate) mod rewrite;
pub(crate) mod words;

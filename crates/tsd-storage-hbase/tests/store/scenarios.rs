//! Scenarios for a fake and a real cluster; each starts with an empty data table.

pub(crate) mod corrections;
pub(crate) mod filters;
pub(crate) mod flush;
pub(crate) mod rewrite;

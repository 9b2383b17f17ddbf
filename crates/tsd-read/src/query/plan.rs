//! First stage: decides which tables, keys and cells to read.

pub(crate) mod attempts;
pub(crate) mod filter_cache;
pub(crate) mod memory_estimate;
pub(crate) mod names;
pub(crate) mod points_per_row;
pub(crate) mod row_access;
pub(crate) mod row_content;
pub(crate) mod row_filter;
pub(crate) mod row_keys;
pub(crate) mod series_rows;
pub(crate) mod series_selection;

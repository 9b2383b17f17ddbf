//! First stage: what is read, from which tables and keys.

pub(crate) mod attempts;
pub(crate) mod filter_cache;
pub(crate) mod names;
pub(crate) mod row_access;
pub(crate) mod row_content;
pub(crate) mod row_filter;
pub(crate) mod row_keys;
pub(crate) mod series_rows;
pub(crate) mod series_selection;

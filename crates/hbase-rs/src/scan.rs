//! State of a scan: calls of a region scanner, assembly of rows, progress over regions and failures.

pub(crate) mod calls;
pub(crate) mod position;
pub(crate) mod rows;

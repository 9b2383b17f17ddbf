//! Third stage: groups series, aggregates groups and attaches annotations.

pub(crate) mod aggregation;
pub(crate) mod annotations;
pub(crate) mod groups;

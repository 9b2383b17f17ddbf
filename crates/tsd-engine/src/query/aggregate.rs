//! Third stage: groups series, aggregates groups, attaches annotations.

pub(crate) mod aggregation;
pub(crate) mod annotations;
pub(crate) mod groups;

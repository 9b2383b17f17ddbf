//! Regions: their names, what hbase:meta says of them, and the cache of where they are.

pub(crate) mod cache;
pub(crate) mod info;
pub(crate) mod map;
pub(crate) mod meta;
pub(crate) mod name;

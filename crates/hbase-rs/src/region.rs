//! Regions: names, rows of hbase:meta, locations and their cache.

pub(crate) mod cache;
pub(crate) mod info;
pub(crate) mod map;
pub(crate) mod meta;
pub(crate) mod name;

pub use self::{
    info::{Region, RegionLocation},
    meta::MetaRow,
};

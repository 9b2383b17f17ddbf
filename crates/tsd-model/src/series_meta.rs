//! Meta objects of a name and of a series, together with the names that clients see.

use crate::{
    meta::{TsMeta, UidMeta},
    uid::Uid,
};

/// The UIDMeta of a UID, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedUidMeta {
    /// The UID.
    pub uid: Uid,
    /// Name of the UID.
    pub name: String,
    /// The stored object, or the default object.
    pub meta: UidMeta,
}

/// The TSMeta of a series, with the UIDMeta of its names and its counter.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesMeta {
    /// The stored object.
    pub meta: TsMeta,
    /// The metric with its UIDMeta.
    pub metric: NamedUidMeta,
    /// The tags with their UIDMeta, in order: key, value, key, value.
    pub tags: Vec<NamedUidMeta>,
    /// When the counter was last written, in epoch seconds; 0 if the row lacks a counter.
    pub last_received: i64,
    /// Counter of the data points; 0 if the row lacks a counter.
    pub data_points: i64,
}

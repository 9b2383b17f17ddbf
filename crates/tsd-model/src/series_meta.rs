//! Meta objects together with the names that clients see: those of a name, and those of a series.

use crate::{
    meta::{TsMeta, UidMeta},
    uid::Uid,
};

/// The UIDMeta of a UID, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedUidMeta {
    /// The UID.
    pub uid: Uid,
    /// Its name.
    pub name: String,
    /// The stored object, or one with defaults.
    pub meta: UidMeta,
}

/// The TSMeta of a series, with the UIDMeta of its names and its counter.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesMeta {
    /// The stored object.
    pub meta: TsMeta,
    /// Of its metric.
    pub metric: NamedUidMeta,
    /// Of its tags, in order: key, value, key, value.
    pub tags: Vec<NamedUidMeta>,
    /// When the counter was last written, in epoch seconds; 0 if there is none.
    pub last_received: i64,
    /// The counter; 0 if there is none.
    pub data_points: i64,
}

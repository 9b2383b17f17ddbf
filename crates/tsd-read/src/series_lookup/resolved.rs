//! A look-up with UIDs instead of names, and the page of series that it lists.

use std::collections::BTreeSet;

use tsd_model::{MetricUid, TagvUid};
use tsd_storage::TagUids;

/// Memory of a series in addition to its TSUID and the texts of its names.
pub(super) const SERIES_BYTES: usize = 256;

/// A look-up with UIDs instead of names.
#[derive(Default)]
pub(crate) struct ResolvedLookup {
    pub(crate) metric: Option<MetricUid>,
    pub(crate) tags: TagUids,
    /// Values for any key; an empty set matches all.
    pub(crate) tagvs: BTreeSet<TagvUid>,
}

/// The page of matching series to list.
#[derive(Clone, Copy, Default)]
pub(crate) struct LookupPage {
    /// Number of matching series to skip.
    pub(crate) start: usize,
    /// Most series; 0 means no limit.
    pub(crate) limit: usize,
}

impl LookupPage {
    /// Number of series up to the end of the page; 0 means all.
    pub(super) const fn last(self) -> usize {
        match self.limit {
            0 => 0,
            limit => self.start.saturating_add(limit),
        }
    }
}

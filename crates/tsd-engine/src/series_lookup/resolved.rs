//! A look-up with UIDs instead of names, and which of the series found it lists. It finds none.

use std::collections::BTreeSet;

use tsd_model::Uid;

use crate::series_scan::TagUids;

/// Memory of a series beside its TSUID and the texts of its names.
pub(super) const SERIES_BYTES: usize = 256;

/// A look-up with UIDs instead of names.
#[derive(Default)]
pub(super) struct ResolvedLookup {
    pub(super) metric: Option<Uid>,
    pub(super) tags: TagUids,
    /// Values of any key; empty matches all.
    pub(super) tagvs: BTreeSet<Uid>,
}

/// Which of the series found are listed.
#[derive(Clone, Copy)]
pub(super) struct LookupPage {
    /// Number of series that are left out first.
    pub(super) start: usize,
    /// Most series; 0: no limit.
    pub(super) limit: usize,
}

impl LookupPage {
    /// Number of series up to the end of the page; 0: all.
    pub(super) const fn last(self) -> usize {
        match self.limit {
            0 => 0,
            limit => self.start.saturating_add(limit),
        }
    }
}

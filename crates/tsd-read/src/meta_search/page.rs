//! The request of a search, and the page of its matches.

use bytes::Bytes;
use tsd_model::{Annotation, NamedUidMeta, SeriesMeta};
use tsd_query::SearchText;

use crate::series_lookup::LookupSeries;

/// Rows per batch of a scan.
pub(super) const BATCH_ROWS: usize = 1_024;
/// Memory of an object in addition to its texts.
pub(super) const OBJECT_BYTES: usize = 512;

/// Objects that a search looks for, and the form of its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchTarget {
    /// The TSMeta, with all fields.
    Series,
    /// Names of the series with matching TSMeta.
    SeriesNames,
    /// TSUIDs of the series with matching TSMeta.
    Tsuids,
    /// The UIDMeta.
    UidMetas,
    /// Annotations of series, and global annotations.
    Annotations,
}

/// A search for meta objects or annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaSearch {
    /// What is searched.
    pub target: SearchTarget,
    /// The text to match.
    pub text: SearchText,
    /// Number of matches before the page.
    pub start_index: usize,
    /// Most results of the page; 0 means no limit.
    pub limit: usize,
}

/// A page of results, by the target of the search.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchPage {
    /// [`SearchTarget::Series`].
    Series(Vec<SeriesMeta>),
    /// [`SearchTarget::SeriesNames`].
    SeriesNames(Vec<LookupSeries>),
    /// [`SearchTarget::Tsuids`].
    Tsuids(Vec<Bytes>),
    /// [`SearchTarget::UidMetas`].
    UidMetas(Vec<NamedUidMeta>),
    /// [`SearchTarget::Annotations`].
    Annotations(Vec<Annotation>),
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResult {
    /// The page.
    pub page: SearchPage,
    /// Number of all matches.
    pub total: u64,
}

/// Counts the matches, and tells which of them are on the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageCounter {
    start: u64,
    /// Number of matches up to the end of the page.
    pub(super) end: u64,
    pub(super) matches: u64,
}

impl PageCounter {
    pub(super) fn new(search: &MetaSearch) -> Self {
        let start = search.start_index as u64;
        let end = match search.limit {
            0 => u64::MAX,
            limit => start.saturating_add(limit as u64),
        };
        Self { start, end, matches: 0 }
    }

    /// Counts a match. True if it is on the page.
    pub(super) const fn count(&mut self) -> bool {
        let on_page = self.start <= self.matches && self.matches < self.end;
        self.matches += 1;
        on_page
    }
}

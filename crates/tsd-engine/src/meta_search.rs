//! Searches for stored meta objects and annotations, without an index.
//!
//! A search reads the meta table, the meta objects of the UID table, or the annotations of the data table. It
//! counts all matches and keeps one page of them: those of the two small tables are in the order of their keys, so
//! that only the page is in memory; annotations are in the order of their start times, so that as many are in memory
//! as there are before the end of the page. Batches of rows are bounded by the store.
//!
//! An object that cannot be read, or whose UIDs have no names any more, matches nothing; the log says so
//! for the former.

mod annotations;
mod fields;
mod series;
mod uid_metas;

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::{Annotation, NamedUidMeta, SeriesMeta};
use tsd_query::SearchText;

use crate::{
    EngineHandle,
    handle::EngineShared,
    query::{QueryContext, QueryControl, QueryFailure, QueryGuard},
    series_lookup::LookupSeries,
};

/// Rows per batch of a scan.
const BATCH_ROWS: usize = 1_024;
/// Memory of an object beside its texts.
const OBJECT_BYTES: usize = 512;

/// What a search looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchTarget {
    /// TSMeta with all fields.
    Series,
    /// Names of the series with matching TSMeta.
    SeriesNames,
    /// TSUIDs of the series with matching TSMeta.
    Tsuids,
    /// UIDMeta.
    UidMetas,
    /// Annotations of series, and global ones.
    Annotations,
}

/// A search for meta objects or annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaSearch {
    /// What is searched.
    pub target: SearchTarget,
    /// What its texts must match.
    pub text: SearchText,
    /// Number of matches before the page.
    pub start_index: usize,
    /// Most results of the page; 0: no limit.
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

/// The place of a page among the matches, and how many there were so far.
#[derive(Clone, Copy, Debug)]
struct PageCounter {
    start: u64,
    /// First match after the page.
    end: u64,
    matches: u64,
}

impl PageCounter {
    fn new(search: &MetaSearch) -> Self {
        let start = search.start_index as u64;
        let end = match search.limit {
            0 => u64::MAX,
            limit => start.saturating_add(limit as u64),
        };
        Self { start, end, matches: 0 }
    }

    /// Counts a match; true if it is on the page.
    const fn count(&mut self) -> bool {
        let on_page = self.start <= self.matches && self.matches < self.end;
        self.matches += 1;
        on_page
    }
}

impl EngineHandle {
    /// Searches for meta objects or annotations. Limited and scheduled like a query; dropping the future
    /// cancels it. Keep the guard until the response is written.
    pub async fn search(
        &self,
        search: MetaSearch,
        control: QueryControl,
    ) -> Result<(SearchResult, QueryGuard), QueryFailure> {
        let work = |shared: Arc<EngineShared>, context: Arc<QueryContext>| async move {
            match search.target {
                SearchTarget::UidMetas => uid_metas::find(&shared, &context, &search).await,
                SearchTarget::Annotations => annotations::find(&shared, &context, &search).await,
                _ => series::find(&shared, &context, &search).await,
            }
        };
        self.run_limited(control, work).await
    }

    /// Lists the stored TSMeta of the series with a metric and all of the tags, in the order of their TSUIDs.
    /// Limited and scheduled like a query.
    pub async fn series_metas(
        &self,
        metric: String,
        tags: Vec<(String, String)>,
        control: QueryControl,
    ) -> Result<(Vec<SeriesMeta>, QueryGuard), QueryFailure> {
        let work = |shared: Arc<EngineShared>, context: Arc<QueryContext>| async move {
            series::list(&shared, &context, &metric, &tags).await
        };
        self.run_limited(control, work).await
    }
}

#[cfg(test)]
mod tests;

//! Searches for stored meta objects and annotations, without an index.
//!
//! A search reads the meta table, the meta objects of the UID table, or the annotations of the data table. It counts
//! all matches and keeps one page of them. Matches of the two small tables are in the order of their keys, so memory
//! holds only the page. Annotations are ordered by start time, so memory holds as many as there are up to the end of
//! the page. The store bounds the batches of rows.
//!
//! An object that cannot be read, or whose UIDs have no names any more, matches nothing. Unreadable objects are
//! logged.

mod annotations;
mod fields;
mod page;
mod series;
mod uid_metas;

use std::sync::Arc;

use tsd_model::SeriesMeta;

pub use self::page::{MetaSearch, SearchPage, SearchResult, SearchTarget};
use crate::{
    query::{QueryContext, QueryControl, QueryEngine, QueryFailure, QueryGuard},
    read_subject::ReadSubject,
    reads::Reads,
};

impl Reads {
    /// Searches for meta objects or annotations. Limited and scheduled like a query; dropping the future
    /// cancels it. Keep the guard until the response is written.
    pub async fn search(
        &self,
        search: MetaSearch,
        control: QueryControl,
    ) -> Result<(SearchResult, QueryGuard), QueryFailure> {
        let search = Arc::new(search);
        let work = move |engine: Arc<QueryEngine>, context: Arc<QueryContext>| {
            let search = Arc::clone(&search);
            async move {
                let shared = &engine.shared;
                match search.target {
                    SearchTarget::UidMetas => uid_metas::find(shared, &context, &search).await,
                    SearchTarget::Annotations => annotations::find(shared, &context, &search).await,
                    _ => series::find(shared, &context, &search).await,
                }
            }
        };
        self.run_limited(control, ReadSubject::AllMetrics, work).await
    }

    /// Lists the stored TSMeta of the series with a metric and all of the tags, in the order of their TSUIDs.
    /// Limited and scheduled like a query.
    pub async fn series_metas(
        &self,
        metric: String,
        tags: Vec<(String, String)>,
        control: QueryControl,
    ) -> Result<(Vec<SeriesMeta>, QueryGuard), QueryFailure> {
        let (name, selected) = (metric.clone(), Arc::new((metric, tags)));
        let subject = ReadSubject::Metric(&name);
        let work = move |engine: Arc<QueryEngine>, context: Arc<QueryContext>| {
            let selected = Arc::clone(&selected);
            async move { series::list(&engine.shared, &context, &selected.0, &selected.1).await }
        };
        self.run_limited(control, subject, work).await
    }
}

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
mod page;
mod series;
mod uid_metas;

use std::sync::Arc;

use tsd_model::SeriesMeta;

pub use self::page::{MetaSearch, SearchPage, SearchResult, SearchTarget};
use crate::{
    EngineHandle,
    engine_shared::EngineShared,
    query::{QueryContext, QueryControl, QueryFailure, QueryGuard},
};

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

//! Sub queries as a response repeats them, with the UIDs of their filtered tag keys. `tsd-protocol` renders
//! their JSON.

use std::sync::Arc;

use bytes::Bytes;
use tsd_engine::{Query, SeriesSource, SubQueryStats, UidKind};
use tsd_protocol::{ApiError, render_sub_query};

use crate::{http::request::HttpRequest, query_failure_mapping::cause_of};

/// Returns the UIDs of the filtered tag keys of each sub query; empty unless the response repeats them.
pub(super) async fn filter_tagks(
    request: &HttpRequest<'_>,
    query: &Query,
) -> Result<Vec<Option<Vec<Bytes>>>, ApiError> {
    if !query.show_query {
        return Ok(Vec::new());
    }
    let mut tagks = Vec::with_capacity(query.sub_queries.len());
    for sub in &query.sub_queries {
        if sub.filters.is_empty() {
            tagks.push(None);
            continue;
        }
        let mut uids = Vec::with_capacity(sub.filters.len());
        // Filters of series named by TSUID are not resolved.
        if matches!(sub.source, SeriesSource::Metric(_)) {
            let mut names: Vec<String> =
                sub.filters.iter().map(|filter| filter.tagk.clone()).collect();
            names.sort();
            names.dedup();
            for uid in request.state.engine.uids().uids_of(UidKind::Tagk, &names).await {
                // The query itself reports a name without a UID.
                let uid = uid.map_err(|error| cause_of(&error.into()).query_error(None))?;
                uids.extend(uid.map(|uid| Bytes::copy_from_slice(uid.as_bytes())));
            }
            uids.sort();
        }
        tagks.push(Some(uids));
    }
    Ok(tagks)
}

/// Renders the sub queries as the response repeats them, with the rollups that the query read.
pub(super) fn echoes<'a>(
    query: &Query,
    tagks: &[Option<Vec<Bytes>>],
    stats: impl Iterator<Item = &'a SubQueryStats>,
) -> Vec<Arc<str>> {
    let mut rollups = stats.map(|stats| stats.rollup_interval.as_deref());
    query
        .sub_queries
        .iter()
        .zip(tagks)
        .map(|(sub, tagks)| {
            render_sub_query(sub, tagks.as_deref(), rollups.next().flatten()).into()
        })
        .collect()
}

//! What finding series by their tags takes, in the meta table and in the data table: ranges of keys, a
//! filter for the store, and bounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tsd_model::{TableSchema, Uid};
use tsd_query::QueryError;
use tsd_storage::{RowFilter, TagPattern, WantedTag};

use crate::query::QueryFailure;

const ADVICE: &str = "Please try filtering using more tags.";

/// Tag keys that must be there, each with the values it may have; `None` takes any.
pub(crate) type WantedTags = BTreeMap<Uid, Option<BTreeSet<Uid>>>;

/// The filter for rows whose tags begin at `tags_start`; `None` where every row will do.
pub(crate) fn tags_filter(
    schema: TableSchema,
    tags_start: usize,
    wanted: &WantedTags,
) -> Option<RowFilter> {
    if wanted.is_empty() {
        return None;
    }
    let bytes = |uid: &Uid| Bytes::copy_from_slice(uid.as_bytes());
    let wanted = wanted
        .iter()
        .map(|(tagk, tagvs)| WantedTag {
            tagk: bytes(tagk),
            tagvs: tagvs.as_ref().map(|tagvs| tagvs.iter().map(bytes).collect()),
        })
        .collect();
    Some(RowFilter::Tags(Arc::new(TagPattern {
        tags_start,
        tagk_width: schema.tagk_width(),
        tagv_width: schema.tagv_width(),
        wanted,
        explicit: false,
    })))
}

/// First key with a prefix, and the one to stop before; empty where there is none.
pub(crate) fn prefix_range(prefix: &[u8]) -> (Bytes, Bytes) {
    let mut stop = prefix.to_vec();
    while let Some(last) = stop.pop() {
        if let Some(next) = last.checked_add(1) {
            stop.push(next);
            break;
        }
    }
    (Bytes::copy_from_slice(prefix), stop.into())
}

/// What the series found so far take.
#[derive(Debug)]
pub(crate) struct SeriesBudget {
    held: AtomicU64,
    /// 0 sets no limit.
    limit: u64,
}

impl SeriesBudget {
    /// Nothing held yet.
    pub(crate) const fn new(limit: u64) -> Self {
        Self { held: AtomicU64::new(0), limit }
    }

    /// Takes so many bytes, if the limit lets it.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), QueryError> {
        let held = self.held.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if self.limit > 0 && held > self.limit {
            return Err(QueryError::too_large(format!(
                "Sorry, the series you asked for need more than our maximum of {}MB of memory. \
                 {ADVICE}",
                self.limit / 1_024 / 1_024
            )));
        }
        Ok(())
    }
}

/// Gives up when the time of a query is up.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, QueryFailure>>,
) -> Result<T, QueryFailure> {
    let Some(limit) = limit else { return work.await };
    let started = Instant::now();
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(QueryError::too_large(format!(
            "Sorry, your query timed out. Time limit: {} ms, fetch time: {} ms. {ADVICE}",
            limit.as_millis(),
            started.elapsed().as_millis()
        ))
        .into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        let stop = |prefix: &[u8]| prefix_range(prefix).1.to_vec();
        assert_eq!(stop(&[0, 0, 1]), [0, 0, 2]);
        assert_eq!(stop(&[0, 7, 255]), [0, 8]);
        assert!(stop(&[255, 255]).is_empty());
        assert!(stop(&[]).is_empty());
    }

    #[test]
    fn a_budget_of_nothing_is_no_limit() {
        assert!(SeriesBudget::new(0).take(1 << 40).is_ok());
        let budget = SeriesBudget::new(1 << 20);
        assert!(budget.take(1 << 20).is_ok());
        let refused = budget.take(1).map_err(|error| (error.class.status(), error.message));
        assert_eq!(
            refused,
            Err((
                413,
                "Sorry, the series you asked for need more than our maximum of 1MB of memory. \
                 Please try filtering using more tags."
                    .to_owned()
            ))
        );
    }
}

//! Limits the number of series of each metric.

use std::sync::Arc;

use metrics::Counter;
use tsd_meta::UidError;
use tsd_model::{MetricUid, decode_latin1};
use tsd_series_index::MetricIndex;
use tsd_storage::{Storage, Table};

use crate::ingest::NameList;

/// Rejects points of new series if their metric is at its limit. It needs a complete series index; without one it
/// rejects nothing. Points that arrive at the same time may exceed the limit together.
#[derive(Clone, Debug)]
pub(crate) struct SeriesLimit {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) table: Table,
    /// Most series of one metric.
    pub(crate) most: u64,
    pub(crate) refused: Counter,
}

impl SeriesLimit {
    /// The series of a metric, if it is at its limit.
    pub(crate) fn full_metric(&self, metric: MetricUid) -> Option<MetricIndex> {
        let index =
            self.storage.series().series_index(&self.table).filter(|index| index.is_complete())?;
        let series = index.metric(metric)?;
        (series.series_count() >= self.most).then_some(series)
    }

    /// The error of a point with these names. Counts the rejection.
    pub(crate) fn error(&self, names: &NameList) -> UidError {
        self.refused.increment(1);
        let metric = names.get(0).map(decode_latin1).unwrap_or_default();
        UidError::SeriesLimit { metric, limit: self.most }
    }
}

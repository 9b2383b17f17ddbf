//! The limit on the series of a metric.

use std::sync::Arc;

use metrics::Counter;
use tsd_model::{Uid, decode_latin1};
use tsd_series_index::MetricIndex;
use tsd_storage::{Storage, Table};

use super::error::UidError;
use crate::ingest::NameList;

/// Refuses points of new series where a metric has as many series as it may. The series index tells; while it is
/// not complete, nothing is refused. Points that arrive at once may pass together.
#[derive(Clone, Debug)]
pub(crate) struct SeriesLimit {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) table: Table,
    /// Most series of a metric.
    pub(crate) most: u64,
    pub(crate) refused: Counter,
}

impl SeriesLimit {
    /// The series of a metric that has as many as it may.
    pub(crate) fn full_metric(&self, metric: Uid) -> Option<MetricIndex> {
        let index = self.storage.series_index(&self.table).filter(|index| index.is_complete())?;
        let series = index.metric(metric.as_bytes())?;
        (series.series_count() >= self.most).then_some(series)
    }

    /// The error of a point with these names, which is counted.
    pub(crate) fn error(&self, names: &NameList) -> UidError {
        self.refused.increment(1);
        let metric = names.get(0).map(decode_latin1).unwrap_or_default();
        UidError::SeriesLimit { metric, limit: self.most }
    }
}

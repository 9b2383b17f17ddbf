//! Limits the number of series of each metric.

use std::sync::Arc;

use metrics::Counter;
use tsd_meta::UidError;
use tsd_model::{MetricUid, decode_latin1};
use tsd_series_index::{MetricIndex, SeriesIndex};
use tsd_storage::{Storage, Table};

use crate::ingest::NameList;

/// The stored series of points.
#[derive(Clone, Debug)]
pub(crate) struct KnownSeries {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) table: Table,
}

impl KnownSeries {
    /// The series index, if it has every stored series.
    fn complete_index(&self) -> Option<Arc<SeriesIndex>> {
        self.storage.series().series_index(&self.table).filter(|index| index.is_complete())
    }

    /// Returns true if the series is certainly not stored yet. `tags` are the UIDs of its tags, as in a row key.
    pub(crate) fn lacks(&self, metric: MetricUid, tags: &[u8]) -> bool {
        self.complete_index().is_some_and(|index| {
            index.metric(metric).is_none_or(|series| series.of_tags([tags]).is_empty())
        })
    }
}

/// Rejects points of new series if their metric is at its limit. It needs a complete series index; without one it
/// rejects nothing. Points that arrive at the same time may exceed the limit together.
#[derive(Clone, Debug)]
pub(crate) struct SeriesLimit {
    pub(crate) known: KnownSeries,
    /// Most series of one metric.
    pub(crate) most: u64,
    pub(crate) refused: Counter,
}

impl SeriesLimit {
    /// The series of a metric, if it is at its limit.
    pub(crate) fn full_metric(&self, metric: MetricUid) -> Option<MetricIndex> {
        let series = self.known.complete_index()?.metric(metric)?;
        (series.series_count() >= self.most).then_some(series)
    }

    /// The error of a point with these names. Counts the rejection.
    pub(crate) fn error(&self, names: &NameList) -> UidError {
        self.refused.increment(1);
        let metric = names.get(0).map(decode_latin1).unwrap_or_default();
        UidError::SeriesLimit { metric, limit: self.most }
    }
}

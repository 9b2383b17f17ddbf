//! The time series filter: decides which series may be written.
//!
//! OpenTSDB asks its filter about every point. Here the decision depends on the series alone, so the filter is asked
//! once for a series that is not in the series cache; points of cached series cost nothing. A new filter therefore
//! empties that cache.

mod rules;

use parking_lot::RwLock;
use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

pub use self::rules::{FilterRules, FilterRulesError};
use crate::{
    ingest::{NameList, SampleContent},
    put_error::PutError,
};

/// A filter of series.
pub trait WriteFilter: Debug + Send + Sync {
    /// The reason why points of the series are not stored; `None` if they are stored.
    fn refusal(&self, series: FilteredSeries<'_>) -> Option<String>;
}

/// The names of a series as they are stored (Latin-1).
#[derive(Clone, Copy, Debug)]
pub struct FilteredSeries<'a>(&'a NameList);

impl<'a> FilteredSeries<'a> {
    /// The metric.
    #[must_use]
    pub fn metric(&self) -> &'a [u8] {
        self.0.get(0).unwrap_or_default()
    }

    /// The value of a tag.
    #[must_use]
    pub fn tag(&self, tagk: &[u8]) -> Option<&'a [u8]> {
        let keys = (1..self.0.len()).step_by(2);
        let at = keys.into_iter().find(|at| self.0.get(*at) == Some(tagk))?;
        self.0.get(at + 1)
    }
}

/// The filter in force, with counters of rejected points.
#[derive(Debug)]
pub(crate) struct WriteFilterSlot {
    filter: RwLock<Option<Arc<dyn WriteFilter>>>,
    refused_raw: RefusedPoints,
    refused_aggregate: RefusedPoints,
}

#[derive(Debug)]
struct RefusedPoints {
    points: AtomicU64,
    exported: metrics::Counter,
}

impl RefusedPoints {
    fn new(kind: &'static str) -> Self {
        let exported = metrics::counter!("tsd_filter_refused_points_total", "kind" => kind);
        Self { points: AtomicU64::new(0), exported }
    }
}

impl Default for WriteFilterSlot {
    fn default() -> Self {
        Self {
            filter: RwLock::default(),
            refused_raw: RefusedPoints::new("raw"),
            refused_aggregate: RefusedPoints::new("aggregate"),
        }
    }
}

impl WriteFilterSlot {
    pub(crate) fn set(&self, filter: Option<Arc<dyn WriteFilter>>) {
        *self.filter.write() = filter;
    }

    /// Fails, and counts the point, if the filter rejects the series.
    pub(crate) fn check(
        &self,
        names: &NameList,
        content: &SampleContent<'_>,
    ) -> Result<(), PutError> {
        let filter = self.filter.read().clone();
        let Some(reason) = filter.and_then(|filter| filter.refusal(FilteredSeries(names))) else {
            return Ok(());
        };
        let refused = match content {
            SampleContent::Rollup { .. } => &self.refused_aggregate,
            SampleContent::Point(_) | SampleContent::Histogram(_) => &self.refused_raw,
        };
        refused.points.fetch_add(1, Ordering::Relaxed);
        refused.exported.increment(1);
        Err(PutError::Filtered(reason))
    }

    /// Number of rejected points, raw and aggregated.
    pub(crate) fn refused(&self) -> [u64; 2] {
        [&self.refused_raw, &self.refused_aggregate].map(|r| r.points.load(Ordering::Relaxed))
    }
}

//! What one sub query may read, counted over all of its scans.

use std::sync::{
    Arc,
    atomic::{AtomicIsize, AtomicU64, Ordering},
};

use tsd_query::QueryError;

use super::{QueryFailure, run::QueryRun};
use crate::config::QueryConfig;

/// What OpenTSDB advises those whose query is too large.
pub(crate) const ADVICE: &str = "Please try filtering using more tags or decrease your time range.";

/// Limits and what a sub query spent of them.
#[derive(Debug)]
pub(crate) struct Budget {
    run: Arc<QueryRun>,
    max_cells: u64,
    max_bytes: u64,
    cells: AtomicU64,
    bytes: AtomicU64,
    /// Memory entered for series.
    series: AtomicIsize,
}

impl Budget {
    /// A budget nothing was spent of. The rule for the metric, if there is one, takes the place of the
    /// usual limits; the query's wish to lift them, where that is allowed, comes before both.
    pub(crate) fn new(run: Arc<QueryRun>, config: &QueryConfig, metric: &str) -> Self {
        let usual = (config.max_bytes, config.max_data_points);
        let (max_bytes, max_cells) = config.overrides.find(metric).unwrap_or(usual);
        let lift_bytes = run.lifts.0 && config.allow_bytes_override;
        let lift_cells = run.lifts.1 && config.allow_data_points_override;
        Self {
            run,
            max_cells: if lift_cells { 0 } else { max_cells },
            max_bytes: if lift_bytes { 0 } else { max_bytes },
            cells: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            series: AtomicIsize::new(0),
        }
    }

    /// The query it belongs to.
    pub(crate) const fn run(&self) -> &Arc<QueryRun> {
        &self.run
    }

    /// Asked before a batch of rows is looked at. As in OpenTSDB, the batch that reaches the limit is
    /// still let through if it is the last.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        let Self { max_cells, max_bytes, .. } = *self;
        if max_cells > 0 && self.cells.load(Ordering::Relaxed) >= max_cells {
            self.run.refuse("data_points");
            return Err(QueryError::too_large(format!(
                "Sorry, you have attempted to fetch more than our limit of {max_cells} data \
                 points. {ADVICE}"
            )));
        }
        if max_bytes > 0 && self.bytes.load(Ordering::Relaxed) > max_bytes {
            self.run.refuse("bytes");
            return Err(QueryError::too_large(format!(
                "Sorry, you have attempted to fetch more than our maximum amount of {}MB from \
                 storage. {ADVICE}",
                max_bytes / 1_024 / 1_024
            )));
        }
        self.run.check_time()
    }

    /// Counts rows that were read.
    pub(crate) fn spend(&self, rows: u64, cells: u64, bytes: u64) {
        self.cells.fetch_add(cells, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.run.count(rows, cells, bytes);
    }

    /// Enters a change of the memory that the series take.
    pub(crate) fn hold_for_series(&self, change: isize) -> Result<(), QueryFailure> {
        if change > 0 {
            self.run.hold(change.unsigned_abs())?;
        } else {
            self.run.release(change.unsigned_abs());
        }
        self.series.fetch_add(change, Ordering::Relaxed);
        Ok(())
    }

    /// The series are gone: they were aggregated.
    pub(crate) fn release_series(&self) {
        let held = self.series.swap(0, Ordering::Relaxed);
        self.run.release(usize::try_from(held).unwrap_or(0));
    }
}

//! Read limits of one sub query, counted over all of its scans.

use std::sync::{
    Arc,
    atomic::{AtomicIsize, AtomicU64, Ordering},
};

use tsd_query::{LimitError, QueryError};

use super::context::QueryContext;
use crate::{config::QueryConfig, query::failure::QueryFailure};

/// Limits of a sub query on cells and bytes read, and the amounts read so far.
#[derive(Debug)]
pub(crate) struct ReadBudget {
    context: Arc<QueryContext>,
    max_cells: u64,
    max_bytes: u64,
    cells: AtomicU64,
    bytes: AtomicU64,
    /// Bytes reserved for series.
    series: AtomicIsize,
}

impl ReadBudget {
    /// An unused budget. A limit override for the metric replaces the configured limits. A query that asks to ignore
    /// limits overrides both, if the configuration allows it.
    pub(crate) fn new(context: Arc<QueryContext>, config: &QueryConfig, metric: &str) -> Self {
        let configured = (config.max_bytes, config.max_data_points);
        let (max_bytes, max_cells) = config.overrides.find(metric).unwrap_or(configured);
        let ignore_bytes = context.query.ignore_limits.0 && config.allow_bytes_override;
        let ignore_cells = context.query.ignore_limits.1 && config.allow_data_points_override;
        Self {
            context,
            max_cells: if ignore_cells { 0 } else { max_cells },
            max_bytes: if ignore_bytes { 0 } else { max_bytes },
            cells: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            series: AtomicIsize::new(0),
        }
    }

    /// The context of the query.
    pub(crate) const fn context(&self) -> &Arc<QueryContext> {
        &self.context
    }

    /// Checks the limits and the deadline; called before each batch of rows is processed. As in
    /// OpenTSDB, the batch that reaches the limit is accepted if it is the last.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        let Self { max_cells, max_bytes, .. } = *self;
        if max_cells > 0 && self.cells.load(Ordering::Relaxed) >= max_cells {
            self.context.record_limit("data_points");
            return Err(LimitError::DataPoints { limit: max_cells }.into());
        }
        if max_bytes > 0 && self.bytes.load(Ordering::Relaxed) > max_bytes {
            self.context.record_limit("bytes");
            return Err(LimitError::Bytes { limit_mb: max_bytes / 1_024 / 1_024 }.into());
        }
        self.context.check_client_bytes()?;
        self.context.check_time()
    }

    /// Counts rows that were read.
    pub(crate) fn record_read(&self, rows: u64, cells: u64, bytes: u64) {
        self.cells.fetch_add(cells, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.context.record_rows(rows, cells, bytes);
    }

    /// Reserves (positive) or releases (negative) `change` bytes of series memory.
    pub(crate) fn adjust_series_memory(&self, change: isize) -> Result<(), QueryFailure> {
        if change > 0 {
            self.context.reserve(change.unsigned_abs())?;
        } else {
            self.context.release(change.unsigned_abs());
        }
        self.series.fetch_add(change, Ordering::Relaxed);
        Ok(())
    }

    /// Releases the memory of all series after they were aggregated.
    pub(crate) fn release_series_memory(&self) {
        let reserved = self.series.swap(0, Ordering::Relaxed);
        self.context.release(usize::try_from(reserved).unwrap_or(0));
    }
}

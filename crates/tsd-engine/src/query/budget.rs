//! What one sub query may read, hold and spend, counted over all of its scans.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tsd_query::QueryError;

use crate::config::QueryConfig;

/// What a query may spend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    max_cells: u64,
    max_bytes: u64,
    max_held: u64,
    started: Instant,
    time: Option<Duration>,
}

/// Limits and what a sub query spent of them.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    cells: AtomicU64,
    bytes: AtomicU64,
    rows: AtomicU64,
    held: AtomicI64,
}

const ADVICE: &str = "Please try filtering using more tags or decrease your time range.";

impl Limits {
    /// The limits of a query that starts now. `lift_bytes` and `lift_cells` are its own wishes.
    pub(crate) fn new(
        config: &QueryConfig,
        lift_bytes: bool,
        lift_cells: bool,
        time: Option<Duration>,
    ) -> Self {
        let lift_bytes = lift_bytes && config.allow_bytes_override;
        let lift_cells = lift_cells && config.allow_data_points_override;
        Self {
            max_cells: if lift_cells { 0 } else { config.max_data_points },
            max_bytes: if lift_bytes { 0 } else { config.max_bytes },
            max_held: config.max_memory_bytes,
            started: Instant::now(),
            time,
        }
    }

    /// What a query is told whose time is up.
    pub(crate) fn timed_out(&self) -> QueryError {
        QueryError::too_large(format!(
            "Sorry, your query timed out. Time limit: {} ms, fetch time: {} ms. {ADVICE}",
            self.time.unwrap_or_default().as_millis(),
            self.started.elapsed().as_millis()
        ))
    }

    /// Time left; `None` without a limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.time.map(|time| time.saturating_sub(self.started.elapsed()))
    }
}

impl Budget {
    /// A budget nothing was spent of.
    pub(crate) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            cells: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            held: AtomicI64::new(0),
        }
    }

    /// Asked before a batch of rows is looked at. As in OpenTSDB, the batch that reaches the limit is
    /// still let through if it is the last.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        let Limits { max_cells, max_bytes, max_held, .. } = self.limits;
        if max_cells > 0 && self.cells.load(Ordering::Relaxed) >= max_cells {
            return Err(QueryError::too_large(format!(
                "Sorry, you have attempted to fetch more than our limit of {max_cells} data \
                 points. {ADVICE}"
            )));
        }
        if max_bytes > 0 && self.bytes.load(Ordering::Relaxed) > max_bytes {
            return Err(QueryError::too_large(format!(
                "Sorry, you have attempted to fetch more than our maximum amount of {}MB from \
                 storage. {ADVICE}",
                max_bytes / 1_024 / 1_024
            )));
        }
        let held = u64::try_from(self.held.load(Ordering::Relaxed)).unwrap_or(0);
        if max_held > 0 && held > max_held {
            return Err(QueryError::too_large(format!(
                "Sorry, the points of your query need more than our maximum of {}MB of memory. \
                 {ADVICE}",
                max_held / 1_024 / 1_024
            )));
        }
        match self.limits.time_left() {
            Some(Duration::ZERO) => Err(self.limits.timed_out()),
            _ => Ok(()),
        }
    }

    /// Counts rows that were read.
    pub(crate) fn spend(&self, rows: u64, cells: u64, bytes: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.cells.fetch_add(cells, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts memory taken, or given back.
    pub(crate) fn hold(&self, bytes: i64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn limits_speak_as_opentsdb_does() {
        let config =
            QueryConfig { max_data_points: 10, max_bytes: 2 << 20, ..QueryConfig::default() };
        let budget = Budget::new(Limits::new(&config, false, false, None));
        budget.spend(1, 9, 1);
        assert!(budget.check().is_ok());
        budget.spend(1, 1, 1);
        assert_eq!(
            budget.check().unwrap_err().message,
            "Sorry, you have attempted to fetch more than our limit of 10 data points. Please try \
             filtering using more tags or decrease your time range."
        );
        let config = QueryConfig { max_data_points: 0, ..config };
        let budget = Budget::new(Limits::new(&config, false, false, None));
        budget.spend(1, 1, 2 << 20);
        assert!(budget.check().is_ok());
        budget.spend(1, 0, 1);
        assert_eq!(
            budget.check().unwrap_err().message,
            "Sorry, you have attempted to fetch more than our maximum amount of 2MB from storage. \
             Please try filtering using more tags or decrease your time range."
        );
    }

    #[test]
    fn limits_are_lifted_only_where_that_is_allowed() {
        let mut config = QueryConfig { max_data_points: 1, ..QueryConfig::default() };
        for allowed in [false, true] {
            config.allow_data_points_override = allowed;
            let budget = Budget::new(Limits::new(&config, true, true, None));
            budget.spend(1, 2, 2);
            assert_eq!(budget.check().is_ok(), allowed);
        }
    }

    #[test]
    fn memory_given_back_may_be_taken_again() {
        let config = QueryConfig { max_memory_bytes: 100, ..QueryConfig::default() };
        let budget = Budget::new(Limits::new(&config, false, false, None));
        budget.hold(101);
        assert!(budget.check().is_err());
        budget.hold(-1);
        assert!(budget.check().is_ok());
    }

    #[test]
    fn time_that_is_up_is_told_with_its_limit() {
        let limits = Limits::new(&QueryConfig::default(), false, false, Some(Duration::ZERO));
        let message = Budget::new(limits).check().unwrap_err().message;
        assert!(message.starts_with("Sorry, your query timed out. Time limit: 0 ms, fetch time: "));
    }
}

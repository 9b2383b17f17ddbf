//! Decides how long points are kept, by cut-offs that every read, put and merge of a store checks.
//!
//! A cut-off is a time; points before it are expired. It is rounded down to an hour, so that a row
//! of the data table is expired as a whole. Rows of rollups cover more time: they are expired when
//! their whole time is. The *floor* is the cut-off up to which the store may have discarded rows.
//! No cut-off is earlier than the floor, whatever the clock and the rules become, so that partially
//! discarded rows stay hidden.

mod pattern;
mod storage;

use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
};

use tsd_model::{BaseTime, TableSchema};

pub use self::{pattern::MetricPattern, storage::RetainedStorage};
use crate::Table;

/// Retention of some metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionRule {
    /// Names of the metrics.
    pub pattern: MetricPattern,
    /// Retention in seconds; `None` keeps points for ever.
    pub keep_secs: Option<u64>,
}

/// Retention of all metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionRules {
    /// The first rule that matches a metric applies.
    pub rules: Vec<RetentionRule>,
    /// Retention of metrics that no rule matches, in seconds; `None` keeps points for ever.
    pub default_secs: Option<u64>,
}

/// Cut-offs at one time, epoch seconds.
#[derive(Clone, Debug)]
pub struct Cutoffs {
    /// Cut-off of each rule, then the cut-off of metrics without a rule.
    by_rule: Vec<u32>,
    /// Cut-off of metrics with unknown names.
    oldest: u32,
    /// Number of the list of rules.
    version: u64,
    metrics: Arc<RwLock<KnownMetrics>>,
}

/// Current cut-offs of a retention, and counts of dropped data since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionStatus {
    /// The time that the retention takes as now, epoch seconds.
    pub now_secs: u32,
    /// Retention of metrics without a rule, seconds; `None` for ever.
    pub default_secs: Option<u64>,
    /// Rules by metric.
    pub rules: usize,
    /// No point before this time is kept, whatever its metric, epoch seconds.
    pub oldest_cutoff: u32,
    /// Every point from this time on is kept, whatever its metric, epoch seconds.
    pub newest_cutoff: u32,
    /// How far the clock is ahead of now, seconds.
    pub clock_ahead_secs: i64,
    /// Spans that were dropped.
    pub dropped_spans: u64,
    /// Size of their sections, bytes.
    pub dropped_bytes: u64,
    /// Rejected puts.
    pub refused_puts: u64,
}

/// The retention of a store.
#[derive(Debug)]
pub struct Retention {
    /// Position of the metric in row keys.
    metric: Range<usize>,
    state: Mutex<RetentionState>,
    cutoffs: RwLock<Arc<Cutoffs>>,
    metrics: Arc<RwLock<KnownMetrics>>,
    /// Seconds of a row of each table that has points.
    tables: RwLock<BTreeMap<Table, u32>>,
    /// The newest of all cut-offs.
    newest: AtomicU32,
    /// Counts changes of cut-offs and of known names.
    changes: AtomicU64,
    refused: AtomicU64,
    asks_for_names: AtomicBool,
    accepts_clock: AtomicBool,
    /// The newest time of a put that is not after `latest_put`, epoch seconds.
    newest_put: AtomicU32,
    /// Time of the clock when it was last read, epoch seconds; 0 if nothing expires.
    latest_put: AtomicU32,
    clock_ahead_secs: AtomicI64,
    dropped_spans: AtomicU64,
    dropped_bytes: AtomicU64,
}

/// Names of metrics by UID, and the index of their rules in the list with this number.
#[derive(Debug, Default)]
struct KnownMetrics {
    version: u64,
    by_uid: HashMap<Box<[u8]>, KnownMetric>,
}

/// Name of a metric, and the index of its rule.
type KnownMetric = (Box<[u8]>, usize);

#[derive(Debug, Default)]
struct RetentionState {
    rules: RetentionRules,
    version: u64,
    now_secs: u32,
    floor: u32,
}

impl RetentionRules {
    /// Index of the rule of a metric, or the number of rules.
    fn index_of(&self, name: &[u8]) -> usize {
        let found = self.rules.iter().position(|rule| rule.pattern.matches(name));
        found.unwrap_or(self.rules.len())
    }

    fn all(&self) -> impl Iterator<Item = Option<u64>> {
        self.rules.iter().map(|rule| rule.keep_secs).chain([self.default_secs])
    }

    /// The longest retention, seconds; `None` if some metrics are kept for ever.
    #[must_use]
    pub fn longest_secs(&self) -> Option<u64> {
        self.all().try_fold(0, |longest, keep| Some(longest.max(keep?)))
    }

    /// The shortest retention, seconds; `None` if all metrics are kept for ever.
    #[must_use]
    pub fn shortest_secs(&self) -> Option<u64> {
        self.all().flatten().min()
    }
}

/// Now less the retention, rounded down to an hour.
fn cutoff(now_secs: u32, keep_secs: Option<u64>) -> u32 {
    let Some(keep) = keep_secs else { return 0 };
    let cutoff = now_secs.saturating_sub(u32::try_from(keep).unwrap_or(u32::MAX));
    cutoff - cutoff % BaseTime::SPAN_SECONDS
}

impl Cutoffs {
    /// The cut-off of a metric.
    #[must_use]
    pub fn of_metric(&self, metric: &[u8]) -> u32 {
        let index = if self.by_rule.len() == 1 {
            Some(0)
        } else {
            let metrics = self.metrics.read();
            let known = metrics.by_uid.get(metric).filter(|_| metrics.version == self.version);
            known.map(|(_, index)| *index)
        };
        index.and_then(|index| self.by_rule.get(index)).copied().unwrap_or(self.oldest)
    }

    /// The oldest cut-off of all metrics: earlier points are expired whatever their metric.
    #[must_use]
    pub const fn oldest(&self) -> u32 {
        self.oldest
    }

    /// The newest cut-off of all metrics: points from it on are not expired.
    #[must_use]
    pub fn newest(&self) -> u32 {
        self.by_rule.iter().copied().max().unwrap_or_default()
    }

    /// Metrics, by UID, with a later cut-off than the oldest, and their cut-offs.
    #[must_use]
    pub fn later_metrics(&self) -> Vec<(Box<[u8]>, u32)> {
        let metrics = self.metrics.read();
        let mut later = Vec::new();
        if metrics.version != self.version {
            return later;
        }
        for (uid, (_, index)) in &metrics.by_uid {
            let cutoff = self.by_rule.get(*index).copied().unwrap_or(self.oldest);
            if cutoff > self.oldest {
                later.push((uid.clone(), cutoff));
            }
        }
        later.sort_unstable();
        later
    }
}

/// Base time of the first row that is not expired, of a table with rows of `row_secs`.
#[must_use]
pub const fn first_base(cutoff: u32, row_secs: u32) -> u32 {
    cutoff.saturating_sub(row_secs.saturating_sub(BaseTime::SPAN_SECONDS))
}

impl Retention {
    /// The retention of tables with these row keys. Nothing is expired before [`Self::advance`].
    #[must_use]
    pub fn new(schema: &TableSchema, rules: RetentionRules) -> Self {
        let end = schema.base_time_start();
        let has_rules = !rules.rules.is_empty();
        let metrics: Arc<RwLock<KnownMetrics>> = Arc::default();
        let by_rule = vec![0; rules.rules.len() + 1];
        let cutoffs = Cutoffs { by_rule, oldest: 0, version: 0, metrics: Arc::clone(&metrics) };
        Self {
            metric: end.saturating_sub(schema.metric_width())..end,
            state: Mutex::new(RetentionState { rules, ..RetentionState::default() }),
            cutoffs: RwLock::new(Arc::new(cutoffs)),
            metrics,
            tables: RwLock::default(),
            newest: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            asks_for_names: AtomicBool::new(has_rules),
            accepts_clock: AtomicBool::new(false),
            newest_put: AtomicU32::new(0),
            latest_put: AtomicU32::new(0),
            clock_ahead_secs: AtomicI64::new(0),
            dropped_spans: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
        }
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, RetentionState> {
        self.state.lock()
    }

    /// Registers a table with points, and the seconds of its longest row.
    pub fn add_table(&self, table: Table, row_secs: u32) {
        self.tables.write().insert(table, row_secs);
    }

    /// Seconds of a row of a table; `None` if nothing in it expires.
    #[must_use]
    pub fn row_secs(&self, table: &Table) -> Option<u32> {
        self.tables.read().get(table).copied()
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> RetentionRules {
        self.state().rules.clone()
    }

    /// Replaces the rules of single metrics.
    pub fn set_rules(&self, rules: Vec<RetentionRule>) {
        let mut state = self.state();
        state.rules.rules = rules;
        state.version += 1;
        let mut metrics = self.metrics.write();
        // Holders of the former cut-offs use the oldest of them.
        metrics.version = state.version;
        for (name, index) in metrics.by_uid.values_mut() {
            *index = state.rules.index_of(name);
        }
        drop(metrics);
        self.publish(&state);
    }

    /// Sets the time, epoch seconds, and the floor, which never decreases.
    pub fn advance(&self, now_secs: u32, floor: u32) {
        let mut state = self.state();
        state.now_secs = now_secs;
        state.floor = state.floor.max(floor);
        self.publish(&state);
    }

    fn publish(&self, state: &RetentionState) {
        let by_rule = |keep| cutoff(state.now_secs, keep).max(state.floor);
        let by_rule: Vec<u32> = state.rules.all().map(by_rule).collect();
        let oldest = by_rule.iter().copied().min().unwrap_or_default();
        let metrics = Arc::clone(&self.metrics);
        let cutoffs = Cutoffs { by_rule, oldest, version: state.version, metrics };
        self.newest.store(cutoffs.newest(), Ordering::Release);
        let mut former = self.cutoffs.write();
        if (cutoffs.version, &cutoffs.by_rule) != (former.version, &former.by_rule) {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        *former = Arc::new(cutoffs);
    }

    /// Points before this time may have been discarded, epoch seconds.
    #[must_use]
    pub fn floor(&self) -> u32 {
        self.state().floor
    }

    /// The cut-offs now.
    #[must_use]
    pub fn cutoffs(&self) -> Arc<Cutoffs> {
        Arc::clone(&self.cutoffs.read())
    }

    /// The newest of all cut-offs; 0 if nothing expires.
    #[must_use]
    pub fn newest_cutoff(&self) -> u32 {
        self.newest.load(Ordering::Acquire)
    }

    /// A number that changes with the cut-offs and the known names of metrics.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Requests the names of metrics, which current or later rules by metric need.
    pub fn ask_for_names(&self) {
        self.asks_for_names.store(true, Ordering::Release);
    }

    /// True if the retention needs names of metrics by [`Self::learn`].
    #[must_use]
    pub fn asks_for_names(&self) -> bool {
        self.asks_for_names.load(Ordering::Acquire)
    }

    /// Notes the name of a metric. Until then it has the longest retention.
    pub fn learn(&self, uid: &[u8], name: &[u8]) {
        let state = self.state();
        let mut metrics = self.metrics.write();
        if metrics.by_uid.get(uid).is_none_or(|(known, _)| &**known != name) {
            self.changes.fetch_add(1, Ordering::AcqRel);
            metrics.by_uid.insert(uid.into(), (name.into(), state.rules.index_of(name)));
        }
    }

    /// The metric of a row key, and what follows it; `None` if the key is too short.
    fn split_key<'k>(&self, key: &'k [u8]) -> Option<(&'k [u8], u32)> {
        let base = key.get(self.metric.end..)?.first_chunk::<4>()?;
        Some((key.get(self.metric.clone())?, u32::from_be_bytes(*base)))
    }

    /// The metric of a series: of a row key with or without its base time.
    #[must_use]
    pub fn metric_of<'k>(&self, series: &'k [u8]) -> &'k [u8] {
        series.get(self.metric.clone()).unwrap_or_default()
    }

    /// True if the row is expired. `row_secs` belongs to the table of the row.
    #[must_use]
    pub fn is_expired(&self, cutoffs: &Cutoffs, row_secs: u32, key: &[u8]) -> bool {
        let Some((metric, base)) = self.split_key(key) else { return false };
        base < first_base(cutoffs.newest(), row_secs)
            && base < first_base(cutoffs.of_metric(metric), row_secs)
    }

    /// Rejects an expired point of the series with this row key, whatever the base time of the key.
    ///
    /// # Errors
    ///
    /// The cut-off, epoch seconds.
    #[inline]
    pub fn check_put(&self, key: &[u8], time_secs: u32) -> Result<(), u32> {
        if time_secs >= self.newest_cutoff() {
            self.note_put(time_secs);
            return Ok(());
        }
        self.check_old_put(self.metric_of(key), time_secs)
    }

    #[inline]
    fn note_put(&self, time_secs: u32) {
        let newest = self.newest_put.load(Ordering::Relaxed);
        if time_secs > newest && time_secs <= self.latest_put.load(Ordering::Relaxed) {
            self.newest_put.fetch_max(time_secs, Ordering::Relaxed);
        }
    }

    /// Time of the newest put since the start, epoch seconds; 0 before the first. Puts count up to the time of the
    /// clock at the last call, which gets its current time. So a wrong time of a single point does not count.
    #[must_use]
    pub fn newest_put(&self, clock_secs: u32) -> u32 {
        self.latest_put.store(clock_secs, Ordering::Relaxed);
        self.newest_put.load(Ordering::Relaxed)
    }

    /// As [`Self::check_put`], by the name of the metric, which may have no UID yet.
    ///
    /// # Errors
    ///
    /// The cut-off, epoch seconds.
    pub fn check_named_put(&self, name: &[u8], time_secs: u32) -> Result<(), u32> {
        if time_secs >= self.newest_cutoff() {
            return Ok(());
        }
        let state = self.state();
        let cutoff = self.cutoffs().by_rule.get(state.rules.index_of(name)).copied();
        self.compare(time_secs, cutoff.unwrap_or_default())
    }

    #[cold]
    fn check_old_put(&self, metric: &[u8], time_secs: u32) -> Result<(), u32> {
        self.compare(time_secs, self.cutoffs().of_metric(metric))
    }

    fn compare(&self, time_secs: u32, cutoff: u32) -> Result<(), u32> {
        if time_secs >= cutoff {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(cutoff)
    }

    /// Declares the clock correct, however far it is ahead of the newest row of the store.
    pub fn accept_clock(&self) {
        self.accepts_clock.store(true, Ordering::Release);
    }

    /// True after [`Self::accept_clock`].
    #[must_use]
    pub fn accepts_clock(&self) -> bool {
        self.accepts_clock.load(Ordering::Acquire)
    }

    /// Notes how far the clock is ahead of the time that the retention takes as now, seconds.
    pub fn note_clock_ahead(&self, secs: i64) {
        self.clock_ahead_secs.store(secs, Ordering::Relaxed);
    }

    /// Counts spans that were dropped, and the bytes of their sections.
    pub fn note_dropped(&self, spans: u64, bytes: u64) {
        self.dropped_spans.fetch_add(spans, Ordering::Relaxed);
        self.dropped_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Status of the retention; `None` if nothing expires and nothing was dropped.
    #[must_use]
    pub fn status(&self) -> Option<RetentionStatus> {
        let (now_secs, rules) = {
            let state = self.state();
            (state.now_secs, state.rules.clone())
        };
        let cutoffs = self.cutoffs();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let is_used = rules.shortest_secs().is_some() || cutoffs.newest() > 0;
        is_used.then(|| RetentionStatus {
            now_secs,
            default_secs: rules.default_secs,
            rules: rules.rules.len(),
            oldest_cutoff: cutoffs.oldest(),
            newest_cutoff: cutoffs.newest(),
            clock_ahead_secs: self.clock_ahead_secs.load(Ordering::Relaxed),
            dropped_spans: count(&self.dropped_spans),
            dropped_bytes: count(&self.dropped_bytes),
            refused_puts: self.refused(),
        })
    }

    /// Rejected puts.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;

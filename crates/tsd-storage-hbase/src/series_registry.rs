//! The series index of a table that other daemons write too.
//!
//! HBase cannot list the series of a metric, and no daemon sees what another one writes. With
//! [`SeriesIndexMode::Register`] each daemon *registers* a series before it acknowledges its first point: it
//! appends the TSUID to a log that all daemons share, in a separate table. With [`SeriesIndexMode::Complete`] a
//! daemon also relies on the log: a query first reads the new entries, and then the daemon's index has every
//! series with an acknowledged point.
//!
//! * An entry of the log is a row with a sequence number. A daemon puts it only if the row is absent, and only
//!   after it has read the previous entry. So numbers are dense, all daemons see the same order, and a daemon
//!   that has read an entry has read all entries before it. A reader that finds a gap has read two states of
//!   the table, and reads again.
//! * A put whose answer was lost is not repeated. The daemon reads the log, and appends the missing series
//!   again.
//! * One scan of the table's keys finds rows that are older than the log ([`build`]). The entry at its end says
//!   that the index is built.
//! * An entry with a reason closes the log permanently: its series do not fit into the memory of a daemon, or a
//!   daemon has read a row of an unregistered series. Every daemon reads that entry before its next query, and
//!   from then on scans as without an index.
//!
//! [`SeriesIndexMode::Estimate`] uses no log. The index has the series that the daemon writes, that its scans
//! return, and that one scan of keys has found. It is never complete, and decides nothing.
//!
//! This file holds the state and makes no calls: `registration` and `build` do.

pub(crate) mod build;
mod entry;
mod registration;

use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tsd_series_index::SeriesIndex;
use tsd_storage::{StorageError, Table};

use self::entry::{Entry, EntryRows};
use crate::config::{SeriesIndexConfig, SeriesIndexMode};

/// Maximum number of series of other puts that wait for the next entry.
const MAX_QUEUED: usize = 1 << 16;
/// Maximum number of series in one entry.
const MAX_ENTRY_SERIES: usize = 4_096;
/// Number of new series after which the memory of the index is counted again.
const COUNTED_SERIES: u64 = 4_096;

/// Position of a daemon in the log.
#[derive(Debug, Default)]
struct LogPosition {
    /// Number of the next entry.
    next: u64,
    /// True if the log was read since the last append of this daemon with an unknown outcome.
    is_known: bool,
}

/// The series index of a table, and the log that all daemons share.
#[derive(Debug)]
pub(crate) struct SeriesRegistry {
    config: SeriesIndexConfig,
    index: Arc<SeriesIndex>,
    rows: EntryRows,
    /// Locked during a read of the log or an append.
    log: tokio::sync::Mutex<LogPosition>,
    /// Number of the last requested refresh. `answered` is the last completed one.
    asked: AtomicU64,
    answered: AtomicU64,
    is_loaded: AtomicBool,
    is_built: AtomicBool,
    /// Why the log is closed.
    closed: Mutex<Option<Arc<str>>>,
    is_closed: AtomicBool,
    /// Series that wait for the next entry.
    queued: Mutex<Vec<Box<[u8]>>>,
    /// Number of series added since the memory was counted.
    uncounted: AtomicU64,
    registered: AtomicU64,
    entries: AtomicU64,
    conflicts: AtomicU64,
    scanned_rows: AtomicU64,
}

impl SeriesRegistry {
    pub(crate) fn new(config: SeriesIndexConfig) -> Self {
        Self {
            index: Arc::new(SeriesIndex::without_days(config.schema)),
            rows: EntryRows::of_table(config.data.as_str()),
            config,
            log: tokio::sync::Mutex::default(),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            is_loaded: AtomicBool::new(false),
            is_built: AtomicBool::new(false),
            closed: Mutex::default(),
            is_closed: AtomicBool::new(false),
            queued: Mutex::default(),
            uncounted: AtomicU64::new(0),
            registered: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            scanned_rows: AtomicU64::new(0),
        }
    }

    /// The table of points.
    pub(crate) const fn table(&self) -> &Table {
        &self.config.data
    }

    pub(crate) const fn index(&self) -> &Arc<SeriesIndex> {
        &self.index
    }

    /// Returns why the log is closed, if it is.
    pub(crate) fn closed(&self) -> Option<Arc<str>> {
        self.closed.lock().clone()
    }

    /// Names and values of the metrics of the index.
    pub(crate) fn gauges(&self) -> [(&'static str, u64); 8] {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let size = self.index.size();
        [
            ("tsd_hbase_series_index_complete", u64::from(self.index.is_complete())),
            ("tsd_hbase_series_index_closed", u64::from(self.is_closed())),
            ("tsd_hbase_series_index_series", size.series),
            ("tsd_hbase_series_index_memory_bytes", size.memory_bytes as u64),
            ("tsd_hbase_series_index_registered_series_total", count(&self.registered)),
            ("tsd_hbase_series_index_log_entries_total", count(&self.entries)),
            ("tsd_hbase_series_index_log_conflicts_total", count(&self.conflicts)),
            ("tsd_hbase_series_index_scanned_rows_total", count(&self.scanned_rows)),
        ]
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// True if this daemon registers series.
    fn registers(&self) -> bool {
        self.config.mode != SeriesIndexMode::Estimate && !self.is_closed()
    }

    /// Returns the series of the next entry: `new`, and the series of waiting puts.
    fn next_series(&self, new: &[Box<[u8]>]) -> Vec<Box<[u8]>> {
        let mut queued = self.queued.lock();
        let mut series = std::mem::take(&mut *queued);
        drop(queued);
        self.index.retain_unregistered(&mut series);
        // Puts whose series do not fit append them by themselves.
        series.truncate(MAX_ENTRY_SERIES.saturating_sub(new.len()));
        series.extend(new.iter().take(MAX_ENTRY_SERIES).cloned());
        series.sort_unstable();
        series.dedup();
        series
    }

    fn entry_of_full_index(&self) -> Entry {
        Entry::Closed(format!(
            "the series need more memory than a daemon may use for them, {} bytes",
            self.config.max_bytes
        ))
    }

    fn invalid_entry(&self, sequence: u64) -> StorageError {
        self.index.set_complete(false);
        StorageError::Backend(
            format!("entry {sequence} of table {} is of no known kind", self.config.registrations)
                .into(),
        )
    }

    /// Applies an entry of the log.
    fn apply(&self, entry: Entry) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        match entry {
            Entry::Series(series) => {
                self.index.add_registered(series.iter().map(AsRef::as_ref));
                self.count_memory(series.len() as u64);
            }
            Entry::Built => self.is_built.store(true, Ordering::Release),
            Entry::Closed(reason) => {
                tracing::error!(
                    table = %self.config.data,
                    reason,
                    "the series index is closed: queries scan, and no further series are registered"
                );
                *self.closed.lock() = Some(reason.into());
                self.is_closed.store(true, Ordering::Release);
                self.index.set_full();
            }
        }
    }

    /// Decides whether queries may rely on the index, after the log was read to its end.
    fn settle(&self) {
        let is_complete = self.config.mode == SeriesIndexMode::Complete
            && self.is_built.load(Ordering::Acquire)
            && !self.index.is_full();
        if is_complete != self.index.is_complete() {
            self.index.set_complete(is_complete);
        }
    }

    /// Stops adding to the index if it needs too much memory.
    fn count_memory(&self, added: u64) {
        if self.uncounted.fetch_add(added, Ordering::Relaxed) + added < COUNTED_SERIES {
            return;
        }
        self.uncounted.store(0, Ordering::Relaxed);
        let bytes = self.index.size().memory_bytes;
        if bytes > self.config.max_bytes && !self.index.is_full() {
            tracing::warn!(
                table = %self.config.data,
                bytes,
                limit = self.config.max_bytes,
                "the series index has reached its memory limit; no further series are added"
            );
            self.index.set_full();
        }
    }

    /// Adds the series of rows that are written or were read.
    fn note_rows<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.index.is_full() {
            return;
        }
        let new = self.index.unregistered(keys);
        self.index.add_registered(new.iter().map(AsRef::as_ref));
        self.count_memory(new.len() as u64);
    }
}

//! What a daemon knows of the series of a table and of their log; no calls.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tsd_series_index::SeriesIndex;
use tsd_storage::{StorageError, Table};

use super::entry::{Entry, EntryRows};
use crate::config::{SeriesIndexConfig, SeriesIndexMode};

/// Series of other puts that may wait for the next entry.
pub(super) const MAX_QUEUED: usize = 1 << 16;
/// Series of one entry.
const MAX_ENTRY_SERIES: usize = 4_096;
/// Series after which the memory of the index is counted again.
const COUNTED_SERIES: u64 = 4_096;

/// Where a daemon is in the log.
#[derive(Debug, Default)]
pub(super) struct LogPosition {
    /// Number of the next entry.
    pub(super) next: u64,
    /// True if the log was read since the last entry of this daemon whose fate is unknown.
    pub(super) is_known: bool,
}

/// The series index of a table, and the log that all daemons share.
#[derive(Debug)]
pub(crate) struct SeriesRegistry {
    pub(super) config: SeriesIndexConfig,
    pub(super) index: Arc<SeriesIndex>,
    pub(super) rows: EntryRows,
    /// Held by who reads or appends.
    pub(super) log: tokio::sync::Mutex<LogPosition>,
    /// Refreshes that were asked for, and the last of those that are answered.
    pub(super) asked: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) is_loaded: AtomicBool,
    pub(super) is_built: AtomicBool,
    /// Why the log is closed.
    pub(super) closed: Mutex<Option<Arc<str>>>,
    pub(super) is_closed: AtomicBool,
    /// Series that wait for the next entry.
    pub(super) queued: Mutex<Vec<Box<[u8]>>>,
    /// Series that were added since the memory was counted.
    pub(super) uncounted: AtomicU64,
    pub(super) registered: AtomicU64,
    pub(super) entries: AtomicU64,
    pub(super) conflicts: AtomicU64,
    pub(super) refreshes: AtomicU64,
    pub(super) scanned_rows: AtomicU64,
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
            refreshes: AtomicU64::new(0),
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

    /// Why the log is closed, if it is.
    pub(crate) fn closed(&self) -> Option<Arc<str>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Names and values of the metrics of the index.
    pub(crate) fn gauges(&self) -> [(&'static str, u64); 10] {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let size = self.index.size();
        [
            ("tsd_hbase_series_index_complete", u64::from(self.index.is_complete())),
            ("tsd_hbase_series_index_closed", u64::from(self.is_closed())),
            ("tsd_hbase_series_index_metrics", size.metrics as u64),
            ("tsd_hbase_series_index_series", size.series),
            ("tsd_hbase_series_index_memory_bytes", size.memory_bytes as u64),
            ("tsd_hbase_series_index_registered_series_total", count(&self.registered)),
            ("tsd_hbase_series_index_log_entries_total", count(&self.entries)),
            ("tsd_hbase_series_index_log_conflicts_total", count(&self.conflicts)),
            ("tsd_hbase_series_index_log_reads_total", count(&self.refreshes)),
            ("tsd_hbase_series_index_scanned_rows_total", count(&self.scanned_rows)),
        ]
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// True if series are registered.
    pub(super) fn registers(&self) -> bool {
        self.config.mode != SeriesIndexMode::Estimate && !self.is_closed()
    }

    /// The series of the next entry: `new`, and those of puts that wait.
    pub(super) fn next_series(&self, new: &[Box<[u8]>]) -> Vec<Box<[u8]>> {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let mut series = std::mem::take(&mut *queued);
        drop(queued);
        self.index.retain_unregistered(&mut series);
        // Those that do not fit are appended by the puts that wait for them.
        series.truncate(MAX_ENTRY_SERIES.saturating_sub(new.len()));
        series.extend(new.iter().take(MAX_ENTRY_SERIES).cloned());
        series.sort_unstable();
        series.dedup();
        series
    }

    pub(super) fn entry_of_full_index(&self) -> Entry {
        Entry::Closed(format!(
            "the series need more memory than a daemon may use for them, {} bytes",
            self.config.max_bytes
        ))
    }

    pub(super) fn invalid_entry(&self, sequence: u64) -> StorageError {
        self.index.set_complete(false);
        StorageError::Backend(
            format!("entry {sequence} of table {} is of no known kind", self.config.registrations)
                .into(),
        )
    }

    /// Applies an entry of the log.
    pub(super) fn apply(&self, entry: Entry) {
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
                    "the series index is closed: queries scan, and series are not registered any more"
                );
                *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.into());
                self.is_closed.store(true, Ordering::Release);
                self.index.set_full();
            }
        }
    }

    /// Says whether queries may rely on the index, after the log was read to its end.
    pub(super) fn settle(&self) {
        let is_complete = self.config.mode == SeriesIndexMode::Complete
            && self.is_built.load(Ordering::Acquire)
            && !self.index.is_full();
        if is_complete != self.index.is_complete() {
            self.index.set_complete(is_complete);
        }
    }

    /// Stops adding to the index if it needs too much memory.
    pub(super) fn count_memory(&self, added: u64) {
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
                "the series index has reached its size; nothing is added to it any more"
            );
            self.index.set_full();
        }
    }

    /// Adds the series of rows that are written or were read.
    pub(super) fn note_rows<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.index.is_full() {
            return;
        }
        let new = self.index.unregistered(keys);
        self.index.add_registered(new.iter().map(AsRef::as_ref));
        self.count_memory(new.len() as u64);
    }
}

//! The series index of a table that other daemons write too.
//!
//! HBase cannot be asked for the series of a metric, and no daemon sees what another one writes. With
//! [`SeriesIndexMode::Register`] each daemon *registers* a series before it acknowledges its first point: it
//! appends the TSUID to a log that all daemons share, a table of its own. With
//! [`SeriesIndexMode::Complete`] a daemon also relies on that: a query first reads what the log has got since,
//! and then its index has every series that has an acknowledged point.
//!
//! * An entry of the log is a row with a sequence number. It is put only if the row is absent, and only by a
//!   daemon that has read the entry before: numbers are dense, all daemons see the same order, and who has
//!   read an entry has read all before it. A reader that finds a gap has read two states of the table, and
//!   reads again.
//! * A put whose answer was lost is not repeated: the log is read, and what is missing is appended again.
//! * Rows that are older than the log are found by one scan of the table's keys ([`build`]). The entry that
//!   ends it says that the index is built.
//! * The log is closed for good by an entry that says why: its series do not fit into the memory of a daemon,
//!   or a daemon has read a row of a series that nobody has registered. Every daemon reads that before its next
//!   query, and scans again as without an index.
//!
//! With [`SeriesIndexMode::Estimate`] there is no log. The index has what the daemon writes, what its scans
//! return, and what one scan of keys has found; it is never complete, and decides nothing.

pub(crate) mod build;
mod entry;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;
use tsd_model::{Family, TableSchema};
use tsd_series_index::SeriesIndex;
use tsd_storage::{Column, RowScanner, Scan, StorageError, Table};

use self::entry::{Entry, EntryRows};
use crate::{conditional::ConditionalWrite, context::StoreContext, scanner::HBaseScanner};

/// Series of one entry.
const MAX_ENTRY_SERIES: usize = 4_096;
/// Series of other puts that may wait for the next entry.
const MAX_QUEUED: usize = 1 << 16;
/// Rows of the log in one batch.
const BATCH_ENTRIES: usize = 1_024;
/// Reads of the log that may find a gap, one after the other.
const MAX_GAPS: usize = 16;
/// Series after which the memory of the index is counted again.
const COUNTED_SERIES: u64 = 4_096;
/// Qualifier of the cell of an entry.
const QUALIFIER: Bytes = Bytes::from_static(b"entry");
/// Family of the cells: one whose conditional puts need no read before them.
const FAMILY: Family = Family::Name;

/// What the series index of a table in HBase is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesIndexMode {
    /// It has what this daemon has seen. Queries read all rows.
    Estimate,
    /// As `Estimate`, and series are registered before their first point is acknowledged.
    Register,
    /// Queries rely on it: every writer of the table registers series.
    Complete,
}

/// The series index of the table of points.
#[derive(Clone, Debug)]
pub struct SeriesIndexConfig {
    /// What it is used for.
    pub mode: SeriesIndexMode,
    /// The table of points.
    pub data: Table,
    /// Its row keys.
    pub schema: TableSchema,
    /// The table of the registration log.
    pub registrations: Table,
    /// The meta table, if series are tracked there: an estimate is filled from it.
    pub meta: Option<Table>,
    /// Limit on the memory of the index, bytes.
    pub max_bytes: usize,
    /// Limit on the rows per second of the scan that fills the index; 0: no limit.
    pub scan_rows_per_second: u32,
}

/// Counters of a registry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegistryStats {
    pub(crate) is_on: bool,
    pub(crate) is_complete: bool,
    pub(crate) is_closed: bool,
    pub(crate) metrics: usize,
    pub(crate) series: u64,
    pub(crate) memory_bytes: usize,
    pub(crate) registered: u64,
    pub(crate) entries: u64,
    pub(crate) conflicts: u64,
    pub(crate) refreshes: u64,
    pub(crate) scanned_rows: u64,
}

/// Where a daemon is in the log.
#[derive(Debug, Default)]
struct LogPosition {
    /// Number of the next entry.
    next: u64,
    /// True if the log was read since the last entry of this daemon whose fate is unknown.
    is_known: bool,
}

/// The series index of a table, and the log that all daemons share.
#[derive(Debug)]
pub(crate) struct SeriesRegistry {
    config: SeriesIndexConfig,
    index: Arc<SeriesIndex>,
    rows: EntryRows,
    /// Held by who reads or appends.
    log: tokio::sync::Mutex<LogPosition>,
    /// Refreshes that were asked for, and the last of those that are answered.
    asked: AtomicU64,
    answered: AtomicU64,
    is_loaded: AtomicBool,
    is_built: AtomicBool,
    /// Why the log is closed.
    closed: Mutex<Option<Arc<str>>>,
    is_closed: AtomicBool,
    /// Series that wait for the next entry.
    queued: Mutex<Vec<Box<[u8]>>>,
    /// Series that were added since the memory was counted.
    uncounted: AtomicU64,
    registered: AtomicU64,
    entries: AtomicU64,
    conflicts: AtomicU64,
    refreshes: AtomicU64,
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

    pub(crate) fn stats(&self) -> RegistryStats {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let size = self.index.size();
        RegistryStats {
            is_on: true,
            is_complete: self.index.is_complete(),
            is_closed: self.is_closed(),
            metrics: size.metrics,
            series: size.series,
            memory_bytes: size.memory_bytes,
            registered: count(&self.registered),
            entries: count(&self.entries),
            conflicts: count(&self.conflicts),
            refreshes: count(&self.refreshes),
            scanned_rows: count(&self.scanned_rows),
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// True if series are registered.
    fn registers(&self) -> bool {
        self.config.mode != SeriesIndexMode::Estimate && !self.is_closed()
    }

    /// Registers the series of rows that are about to be written. On `Ok` every daemon that relies on the
    /// index finds them from now on.
    pub(crate) async fn register<'k>(
        &self,
        context: &Arc<StoreContext>,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<(), StorageError> {
        if !self.registers() {
            self.note_rows(keys);
            return Ok(());
        }
        self.register_series(context, self.index.unregistered(keys)).await
    }

    async fn register_series(
        &self,
        context: &Arc<StoreContext>,
        mut new: Vec<Box<[u8]>>,
    ) -> Result<(), StorageError> {
        if new.is_empty() {
            return Ok(());
        }
        {
            let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
            if queued.len() + new.len() <= MAX_QUEUED {
                queued.extend(new.iter().cloned());
            }
        }
        let mut log = self.log.lock().await;
        loop {
            self.index.retain_unregistered(&mut new);
            if new.is_empty() || self.is_closed() {
                return Ok(());
            }
            if !log.is_known {
                self.read_log(context, &mut log).await?;
                continue;
            }
            let entry = if self.index.is_full() {
                self.entry_of_full_index()
            } else {
                Entry::Series(self.next_series(&new))
            };
            self.append(context, &mut log, entry).await?;
        }
    }

    /// The series of the next entry: `new`, and those of puts that wait.
    fn next_series(&self, new: &[Box<[u8]>]) -> Vec<Box<[u8]>> {
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

    fn entry_of_full_index(&self) -> Entry {
        Entry::Closed(format!(
            "the series need more memory than a daemon may use for them, {} bytes",
            self.config.max_bytes
        ))
    }

    /// Reads what was registered until now. Calls that wait for the same moment share one read.
    pub(crate) async fn refresh(&self, context: &Arc<StoreContext>) -> Result<(), StorageError> {
        if self.config.mode == SeriesIndexMode::Estimate || self.is_closed() {
            return Ok(());
        }
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut log = self.log.lock().await;
        if self.answered.load(Ordering::SeqCst) >= asked {
            return Ok(());
        }
        let asked = self.asked.load(Ordering::SeqCst);
        self.read_log(context, &mut log).await?;
        self.answered.store(asked, Ordering::SeqCst);
        if self.index.is_full() && !self.is_closed() {
            self.append(context, &mut log, self.entry_of_full_index()).await?;
        }
        Ok(())
    }

    /// As [`Self::refresh`], if the index is loaded. A load takes long; queries scan meanwhile.
    pub(crate) async fn refresh_loaded(
        &self,
        context: &Arc<StoreContext>,
    ) -> Result<(), StorageError> {
        if self.is_loaded.load(Ordering::Acquire) { self.refresh(context).await } else { Ok(()) }
    }

    /// Reads the log from its present position to its end.
    async fn read_log(
        &self,
        context: &Arc<StoreContext>,
        log: &mut LogPosition,
    ) -> Result<(), StorageError> {
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        for _ in 0..MAX_GAPS {
            let scan = Scan {
                start: self.rows.row(log.next),
                stop: self.rows.end(),
                family: Some(FAMILY),
                batch_rows: Some(BATCH_ENTRIES),
                ..Scan::default()
            };
            let mut scanner = HBaseScanner::open(context, &self.config.registrations, scan);
            let mut has_gap = false;
            while let Some(rows) = scanner.next_rows().await? {
                for row in rows {
                    let Some(sequence) = self.rows.sequence(&row.key) else { continue };
                    if sequence != log.next {
                        has_gap = true;
                        break;
                    }
                    let value = row.cells.iter().find(|cell| cell.qualifier == QUALIFIER);
                    let entry = value.and_then(|cell| Entry::decode(&cell.value));
                    let Some(entry) = entry else { return Err(self.invalid_entry(sequence)) };
                    self.apply(entry);
                    log.next += 1;
                }
                if has_gap {
                    break;
                }
            }
            if !has_gap {
                log.is_known = true;
                self.is_loaded.store(true, Ordering::Release);
                self.settle();
                return Ok(());
            }
        }
        Err(StorageError::Unavailable(
            format!("entry {} of the registration log is missing", log.next).into(),
        ))
    }

    fn invalid_entry(&self, sequence: u64) -> StorageError {
        self.index.set_complete(false);
        StorageError::Backend(
            format!("entry {sequence} of table {} is of no known kind", self.config.registrations)
                .into(),
        )
    }

    /// Appends an entry, unless another daemon has appended one: then that is read.
    async fn append(
        &self,
        context: &Arc<StoreContext>,
        log: &mut LogPosition,
        entry: Entry,
    ) -> Result<(), StorageError> {
        let table = self.config.registrations.clone();
        let column = Column { row: self.rows.row(log.next), family: FAMILY, qualifier: QUALIFIER };
        let new = Some(entry.encode());
        let write = ConditionalWrite { column, expected: None, new, timestamp_ms: None };
        let to = context.table(&table)?;
        let timeout = context.config.operation_timeout;
        // Its fate is unknown until it is answered; this future may be dropped.
        log.is_known = false;
        let is_appended =
            context.run(async move { write.execute(&to, &table, timeout).await }).await??;
        if !is_appended {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
            return self.read_log(context, log).await;
        }
        if let Entry::Series(series) = &entry {
            self.registered.fetch_add(series.len() as u64, Ordering::Relaxed);
        }
        self.apply(entry);
        (log.next, log.is_known) = (log.next + 1, true);
        self.settle();
        Ok(())
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
                    "the series index is closed: queries scan, and series are not registered any more"
                );
                *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.into());
                self.is_closed.store(true, Ordering::Release);
                self.index.set_full();
            }
        }
    }

    /// Says whether queries may rely on the index, after the log was read to its end.
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
                "the series index has reached its size; nothing is added to it any more"
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

    /// Checks the rows that a scan has returned: their series must be registered. A series that is not was
    /// written by somebody who does not register, and then no daemon may rely on the index.
    pub(crate) async fn check_read<'k>(
        &self,
        context: &Arc<StoreContext>,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<(), StorageError> {
        if self.config.mode == SeriesIndexMode::Estimate {
            self.note_rows(keys);
            return Ok(());
        }
        if !self.index.is_complete() {
            return Ok(());
        }
        let mut unknown = self.index.unregistered(keys);
        if unknown.is_empty() {
            return Ok(());
        }
        // Registered since the last refresh, most likely.
        self.refresh(context).await?;
        self.index.retain_unregistered(&mut unknown);
        let Some(first) = unknown.first() else { return Ok(()) };
        if !self.index.is_complete() {
            return Ok(());
        }
        let tsuid = tsd_model::to_hex(first);
        let reason = format!(
            "the table has rows of series {tsuid}, which nobody has registered: another writer does not \
             register its series"
        );
        let mut log = self.log.lock().await;
        while !self.is_closed() {
            if log.is_known {
                self.append(context, &mut log, Entry::Closed(reason.clone())).await?;
            } else {
                self.read_log(context, &mut log).await?;
            }
        }
        Ok(())
    }
}

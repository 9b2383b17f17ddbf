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
mod state;

use std::sync::{Arc, PoisonError, atomic::Ordering};

use bytes::Bytes;
use tsd_model::Family;
use tsd_storage::{Column, RowScanner, Scan, StorageError};

use self::{
    entry::Entry,
    state::{LogPosition, MAX_QUEUED},
};
use crate::{
    conditional::ConditionalWrite, config::SeriesIndexMode, context::StoreContext,
    scanner::HBaseScanner,
};

pub(crate) use self::state::SeriesRegistry;

/// Rows of the log in one batch.
const BATCH_ENTRIES: usize = 1_024;
/// Reads of the log that may find a gap, one after the other.
const MAX_GAPS: usize = 16;
/// Qualifier of the cell of an entry.
const QUALIFIER: Bytes = Bytes::from_static(b"entry");
/// Family of the cells: one whose conditional puts need no read before them.
const FAMILY: Family = Family::Name;

impl SeriesRegistry {
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
        let is_appended = context
            .run(async move { write.execute(&to.rows, &to.clock, &table, timeout).await })
            .await??;
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

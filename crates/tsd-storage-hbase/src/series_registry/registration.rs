//! Reads the log of registered series and appends to it.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use tsd_model::Family;
use tsd_storage::{Column, RowScanner, Scan, StorageError, Swap};

use super::{LogPosition, MAX_QUEUED, SeriesRegistry, entry::Entry};
use crate::{
    conditional::execute_swap, config::SeriesIndexMode, context::StoreContext,
    scanner::HBaseScanner,
};

/// Rows of the log in one batch.
const BATCH_ENTRIES: usize = 1_024;
/// Maximum number of consecutive reads of the log that find a gap.
const MAX_GAPS: usize = 16;
/// Qualifier of the cell of an entry.
const QUALIFIER: Bytes = Bytes::from_static(b"entry");
/// Family of the cells. In this family conditional puts need no read before them.
const FAMILY: Family = Family::Name;

impl SeriesRegistry {
    /// Registers the series of rows that are about to be written. After `Ok` every daemon that relies on the
    /// index finds them.
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
            let mut queued = self.queued.lock();
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

    /// Reads all entries up to now. Concurrent calls share one read.
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

    /// As [`Self::refresh`], but only if the index is loaded. A load takes long; meanwhile queries scan.
    pub(crate) async fn refresh_loaded(
        &self,
        context: &Arc<StoreContext>,
    ) -> Result<(), StorageError> {
        if self.is_loaded.load(Ordering::Acquire) { self.refresh(context).await } else { Ok(()) }
    }

    /// Reads the log from its present position to its end.
    pub(super) async fn read_log(
        &self,
        context: &Arc<StoreContext>,
        log: &mut LogPosition,
    ) -> Result<(), StorageError> {
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

    /// Appends an entry. If another daemon has appended one first, reads the log instead.
    pub(super) async fn append(
        &self,
        context: &Arc<StoreContext>,
        log: &mut LogPosition,
        entry: Entry,
    ) -> Result<(), StorageError> {
        let table = self.config.registrations.clone();
        let column = Column { row: self.rows.row(log.next), family: FAMILY, qualifier: QUALIFIER };
        let swap = Swap { column, expected: None, new: Some(entry.encode().into()) };
        let to = context.table(&table)?;
        let timeout = context.config.operation_timeout;
        // The outcome of the put is unknown until its answer, and this future may be dropped.
        log.is_known = false;
        let is_appended = context
            .run(async move { execute_swap(&swap, &to.rows, &to.clock, &table, timeout).await })
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

    /// Checks that the series of rows from a scan are registered. If one is not, another writer does not
    /// register its series, and no daemon may rely on the index.
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
        // Most likely they were registered since the last refresh.
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

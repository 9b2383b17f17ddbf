//! Reads of series that merge the memtables with the backend. This file decides which days are read together and
//! whether the backend is asked for them.

mod block_overlay;
mod memtable_series;
mod merged_days;
mod stored_days;

use std::sync::{Arc, atomic::Ordering};

use tsd_model::DAY_SECS;
use tsd_storage::{
    FlushTarget, SeriesBlock, SeriesRead, SeriesScanner, StorageError, StorageFuture, Table,
};

use self::{
    memtable_series::{MemtableDays, changed_days, first_base, hours_ms},
    merged_days::MergedDays,
    stored_days::StoredDays,
};
use crate::{memtable::TableId, memtable_list::MemtableView, state::WalState};

/// Merges the rows of the memtables with the blocks of the backend, some days at a time.
///
/// Each row is at least as new as the start of the read: the scanner keeps the memtables of its start, which stay
/// readable after their flush. It opens the reads of the backend later.
pub(crate) struct MergedSeriesScanner<B> {
    state: Arc<WalState>,
    backend: Arc<B>,
    table: Table,
    id: TableId,
    view: Arc<MemtableView>,
    read: SeriesRead,
    /// Days for which the backend had rows after the view was taken. Rows that were flushed to other days since
    /// then are in the view.
    stored: StoredDays,
    /// Start of the next segment; `None` after the last.
    next_base: Option<u32>,
    /// Maximum number of days with memtable rows that are read together next. It doubles while these days have
    /// few rows.
    days: u32,
    segment: Option<Segment>,
    error: Option<StorageError>,
}

/// True if a memtable has rows of a read, or of other series with the same salts, metrics and base times.
pub(crate) fn has_rows(view: &MemtableView, id: TableId, read: &SeriesRead) -> bool {
    first_base(view, id, read, read.bases).is_some()
}

/// The rows of a range of base times.
enum Segment {
    /// A range without memtable rows.
    Stored(Box<dyn SeriesScanner>),
    /// Days with memtable rows.
    Merged(Box<MergedDays>),
}

impl<B: FlushTarget> MergedSeriesScanner<B> {
    /// `view` was taken earlier. Returns `None` if the backend does not support reads of series.
    pub(crate) fn try_new(
        state: Arc<WalState>,
        backend: Arc<B>,
        (table, id): (Table, TableId),
        view: Arc<MemtableView>,
        read: &SeriesRead,
    ) -> Option<Self> {
        let stored = StoredDays::new(backend.stored_bases(&table, read));
        let mut scanner = Self {
            state,
            backend,
            table,
            id,
            view,
            stored,
            next_base: (read.bases.0 <= read.bases.1).then_some(read.bases.0),
            read: read.clone(),
            days: 1,
            segment: None,
            error: None,
        };
        if scanner.next_base.is_some() {
            scanner.open_next()?;
        } else {
            scanner.segment =
                Some(Segment::Stored(scanner.backend.series().read_series(&scanner.table, read)?));
        }
        Some(scanner)
    }

    /// Opens the next segment, if there is one; `None` if the backend does not support the read.
    fn open_next(&mut self) -> Option<()> {
        self.segment = None;
        let last = self.read.bases.1;
        while let Some(first) = self.next_base
            && self.segment.is_none()
        {
            let changed = first_base(&self.view, self.id, &self.read, (first, last));
            let day = changed.map(|base| base - base % DAY_SECS);
            let end = if day.is_some_and(|day| day <= first) {
                let (rows, end) = self.changed_rows(first);
                self.segment = Some(self.open_changed(rows)?);
                end
            } else {
                let end = day.map_or(last, |day| day - 1);
                if self.stored.has((first, end)) {
                    let read = SeriesRead { bases: (first, end), ..self.read.clone() };
                    let stored = self.backend.series().read_series(&self.table, &read)?;
                    self.segment = Some(Segment::Stored(stored));
                }
                end
            };
            self.next_base = end.checked_add(1).filter(|next| *next <= last);
        }
        Some(())
    }

    /// The memtable rows of the day of `first` and of some days after it, and the last base time of these days.
    /// Memtables have rows of the first day.
    fn changed_rows(&mut self, first: u32) -> (MemtableDays, u32) {
        let day = first - first % DAY_SECS;
        loop {
            let secs = self.days.saturating_mul(DAY_SECS);
            let end = day.saturating_add(secs - 1).min(self.read.bases.1);
            let end = self.end_of_run((first, end));
            let days = (end - day) / DAY_SECS + 1;
            let read = SeriesRead { bases: (first, end), ..self.read.clone() };
            if let Some(rows) = MemtableDays::try_copied(&self.view, self.id, &read) {
                self.days = if rows.is_small() { days.saturating_mul(2) } else { days };
                return (rows, end);
            }
            if days == 1 {
                self.days = 1;
                return (MemtableDays::of_day(&self.view, self.id, read), end);
            }
            self.days = days / 2;
        }
    }

    /// Last base time of the days that are read together. They end before a day without memtable rows for which
    /// the backend may have summaries.
    fn end_of_run(&self, (first, end): (u32, u32)) -> u32 {
        if self.read.summaries.is_none() || self.days == 1 {
            return end;
        }
        let days = changed_days(&self.view, self.id, &self.read, (first, end));
        let mut next = first;
        for day in days {
            if day > next && self.stored.has((next, day - 1)) {
                return next - 1;
            }
            let Some(after) = day.checked_add(DAY_SECS) else { return end };
            next = after;
        }
        (next - 1).min(end)
    }

    /// Opens a read of days with memtable rows.
    fn open_changed(&self, rows: MemtableDays) -> Option<Segment> {
        let mut read = rows.read().clone();
        if let Some(summaries) = &mut read.summaries {
            // A summary does not cover the rows that memtables change.
            summaries.with_points = true;
            // The summaries of the other hours of a day remain of use.
            summaries.has_days &= hours_ms(rows.read()).is_none();
        }
        let stored = if self.stored.has(read.bases) {
            Some(self.backend.series().read_series(&self.table, &read)?)
        } else {
            None
        };
        Some(Segment::Merged(Box::new(MergedDays::new(rows, stored))))
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<SeriesBlock>>, StorageError> {
        loop {
            if self.state.closed.load(Ordering::Acquire) {
                return Err(StorageError::Closed);
            }
            let batch = match &mut self.segment {
                None => return Ok(None),
                Some(Segment::Stored(stored)) => stored.next_series().await?,
                Some(Segment::Merged(days)) => days.next_batch(&*self.backend, &self.table).await?,
            };
            match batch {
                Some(blocks) if blocks.is_empty() => {}
                Some(blocks) => return Ok(Some(blocks)),
                None => self.open_next().ok_or_else(|| {
                    StorageError::Backend("the backend ended a read of series".into())
                })?,
            }
        }
    }
}

impl<B: FlushTarget> SeriesScanner for MergedSeriesScanner<B> {
    fn next_series(&mut self) -> StorageFuture<'_, Option<Vec<SeriesBlock>>> {
        Box::pin(async move {
            if let Some(error) = &self.error {
                return Err(error.clone());
            }
            // If the caller drops this future, blocks that are being merged are lost.
            self.error = Some(StorageError::Backend("a read of series was interrupted".into()));
            let batch = self.next_batch().await;
            self.error = batch.as_ref().err().cloned();
            batch
        })
    }
}

#[cfg(test)]
mod tests;

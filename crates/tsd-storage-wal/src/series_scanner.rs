//! Reads of series that merge the memtables with the backend.

mod block_overlay;
mod memtable_series;

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use tsd_model::{DAY_SECS, Family};
use tsd_storage::{
    FlushTarget, Get, SeriesBlock, SeriesRead, SeriesScanner, StorageError, StorageFuture, Table,
};

use self::{
    block_overlay::{PendingRow, overlay_block},
    memtable_series::{MemtableDay, first_base},
};
use crate::{memtable::TableId, memtable_list::MemtableView, overlay::overlay, state::WalState};

/// Size of the blocks of a batch at which it ends, bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Blocks of a batch at most.
const BATCH_BLOCKS: usize = 4_096;
/// Rows that are read from the backend by key for a batch.
const BATCH_ROWS: usize = 512;

/// Merges the rows of the memtables with the blocks of the backend, day by day.
///
/// Each row is at least as new as the start of the read: the scanner keeps the memtables of its start,
/// which stay readable after their flush, and opens the backend's reads later.
pub(crate) struct MergedSeriesScanner<B> {
    state: Arc<WalState>,
    backend: Arc<B>,
    table: Table,
    id: TableId,
    view: Arc<MemtableView>,
    read: SeriesRead,
    /// Where the next segment begins; `None` after the last.
    next_base: Option<u32>,
    segment: Option<Segment>,
    error: Option<StorageError>,
}

/// True if a memtable has rows of a read, or of other series with their salts, metrics and base times.
pub(crate) fn has_rows(view: &MemtableView, id: TableId, read: &SeriesRead) -> bool {
    first_base(view, id, read, read.bases).is_some()
}

/// The rows of a range of base times.
enum Segment {
    /// No memtable has rows of it.
    Stored(Box<dyn SeriesScanner>),
    /// Rows of one day.
    Merged(Box<MergedDay>),
}

struct MergedDay {
    rows: MemtableDay,
    stored: Box<dyn SeriesScanner>,
    /// Blocks of the backend that are not merged yet.
    blocks: VecDeque<SeriesBlock>,
    stored_ended: bool,
}

impl<B: FlushTarget> MergedSeriesScanner<B> {
    /// `view` was taken before. `None` if the backend does not answer reads of series.
    pub(crate) fn try_new(
        state: Arc<WalState>,
        backend: Arc<B>,
        (table, id): (Table, TableId),
        view: Arc<MemtableView>,
        read: &SeriesRead,
    ) -> Option<Self> {
        let mut scanner = Self {
            state,
            backend,
            table,
            id,
            view,
            next_base: (read.bases.0 <= read.bases.1).then_some(read.bases.0),
            read: read.clone(),
            segment: None,
            error: None,
        };
        scanner.segment = match scanner.next_base {
            Some(first) => Some(scanner.open(first)?),
            None => Some(Segment::Stored(scanner.backend.read_series(&scanner.table, read)?)),
        };
        Some(scanner)
    }

    /// Opens the segment that begins at a base time; `None` if the backend does not answer.
    fn open(&mut self, first: u32) -> Option<Segment> {
        let last = self.read.bases.1;
        let mut read = self.read.clone();
        let changed = first_base(&self.view, self.id, &read, (first, last));
        let day = changed.map(|base| base - base % DAY_SECS);
        let end = match day {
            None => last,
            Some(day) if day > first => day - 1,
            Some(day) => day.saturating_add(DAY_SECS - 1).min(last),
        };
        self.next_base = end.checked_add(1).filter(|next| *next <= last);
        read.bases = (first, end);
        let is_changed = day.is_some_and(|day| day <= first);
        if is_changed && let Some(summaries) = &mut read.summaries {
            // A summary says nothing of the rows that memtables change.
            summaries.with_points = true;
        }
        let stored = self.backend.read_series(&self.table, &read)?;
        Some(if is_changed {
            Segment::Merged(Box::new(MergedDay {
                rows: MemtableDay::new(&self.view, self.id, read),
                stored,
                blocks: VecDeque::new(),
                stored_ended: false,
            }))
        } else {
            Segment::Stored(stored)
        })
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<SeriesBlock>>, StorageError> {
        loop {
            if self.state.closed.load(Ordering::Acquire) {
                return Err(StorageError::Closed);
            }
            let batch = match &mut self.segment {
                None => return Ok(None),
                Some(Segment::Stored(stored)) => stored.next_series().await?,
                Some(Segment::Merged(day)) => day.next_batch(&*self.backend, &self.table).await?,
            };
            match batch {
                Some(blocks) if blocks.is_empty() => {}
                Some(blocks) => return Ok(Some(blocks)),
                None => {
                    self.segment = match self.next_base {
                        None => None,
                        Some(first) => Some(self.open(first).ok_or_else(|| {
                            StorageError::Backend("the backend ended a read of series".into())
                        })?),
                    };
                }
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
            // Blocks that are being merged are lost if the caller drops this future.
            self.error = Some(StorageError::Backend("a read of series was interrupted".into()));
            let batch = self.next_batch().await;
            self.error = batch.as_ref().err().cloned();
            batch
        })
    }
}

impl MergedDay {
    /// The next blocks, perhaps none; `None` after the last.
    async fn next_batch<B: FlushTarget>(
        &mut self,
        backend: &B,
        table: &Table,
    ) -> Result<Option<Vec<SeriesBlock>>, StorageError> {
        let mut blocks: Vec<SeriesBlock> = Vec::new();
        let mut pending: Vec<(usize, PendingRow)> = Vec::new();
        let (mut bytes, mut ended) = (0, false);
        while bytes < BATCH_BYTES && blocks.len() < BATCH_BLOCKS && pending.len() < BATCH_ROWS {
            if self.blocks.is_empty() && !self.stored_ended {
                if !blocks.is_empty() {
                    break;
                }
                match self.stored.next_series().await? {
                    Some(batch) => self.blocks = batch.into(),
                    None => self.stored_ended = true,
                }
                continue;
            }
            let changed = self.rows.peek().map(|rows| &rows.series);
            let (takes_stored, takes_changed) = match (self.blocks.front(), changed) {
                (None, None) => {
                    ended = true;
                    break;
                }
                (Some(stored), Some(changed)) => {
                    (stored.series <= *changed, *changed <= stored.series)
                }
                (stored, changed) => (stored.is_some(), changed.is_some()),
            };
            let mut block = SeriesBlock::default();
            if takes_stored && let Some(stored) = self.blocks.pop_front() {
                block = stored;
            }
            if takes_changed && let Some(rows) = self.rows.next() {
                block.series = rows.series;
                block.expand_summaries(self.rows.read().bases).map_err(|error| {
                    StorageError::Backend(format!("a block of a series: {error}").into())
                })?;
                for row in overlay_block(&mut block, self.rows.read(), rows.rows) {
                    bytes += row.ops.byte_len();
                    pending.push((blocks.len(), row));
                }
            }
            bytes += block.memory_bytes();
            blocks.push(block);
        }
        let get = |row: &PendingRow| Get {
            row: row.key.clone(),
            family: Some(Family::T),
            qualifiers: Vec::new(),
        };
        let gets: Vec<Get> =
            pending.iter().filter(|(_, row)| row.is_stored).map(|(_, row)| get(row)).collect();
        let stored =
            if gets.is_empty() { Vec::new() } else { backend.multi_get(table, gets).await? };
        let mut stored = stored.into_iter();
        for (index, PendingRow { key, ops, is_stored }) in pending {
            let stored = if is_stored { stored.next().flatten() } else { None };
            let row = overlay(key, stored, &ops, |family, _, _| family == Family::T)?;
            if let (Some(row), Some(block)) = (row, blocks.get_mut(index)) {
                let at = block.rows.partition_point(|other| other.key < row.key);
                block.rows.insert(at, row);
            }
        }
        blocks.retain(|block| !block.is_empty());
        Ok((!ended || !blocks.is_empty()).then_some(blocks))
    }
}

//! Merges the memtable rows of some days with the blocks of the backend.

use std::collections::VecDeque;

use tsd_model::{BaseTime, DAY_SECS, Family};
use tsd_storage::{FlushTarget, Get, SeriesBlock, SeriesScanner, StorageError, Table};

use super::{
    block_overlay::{PendingRow, add_summaries, overlay_block},
    memtable_series::{MemtableDays, MemtableRow, RowForm, hours_ms},
};
use crate::overlay::overlay;

/// Bytes of blocks after which a batch ends.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of blocks in a batch.
const BATCH_BLOCKS: usize = 4_096;
/// Maximum number of rows that are read from the backend by key for a batch.
const BATCH_ROWS: usize = 512;

pub(super) struct MergedDays {
    rows: MemtableDays,
    /// `None` if the backend has no rows of these days, or no more.
    stored: Option<Box<dyn SeriesScanner>>,
    /// Blocks of the backend that are not merged yet.
    blocks: VecDeque<SeriesBlock>,
    /// True if blocks arrive in order of series, each series once.
    is_one_day: bool,
}

impl MergedDays {
    /// `stored` reads the same base times; `None` if the backend has no rows of them. For several days, the rows
    /// must be copied.
    pub(super) fn new(rows: MemtableDays, stored: Option<Box<dyn SeriesScanner>>) -> Self {
        let (first, last) = rows.read().bases;
        let is_one_day = first / DAY_SECS == last / DAY_SECS;
        Self { rows, stored, blocks: VecDeque::new(), is_one_day }
    }

    /// The next blocks, which may be none; `None` after the last.
    pub(super) async fn next_batch<B: FlushTarget>(
        &mut self,
        backend: &B,
        table: &Table,
    ) -> Result<Option<Vec<SeriesBlock>>, StorageError> {
        let mut blocks: Vec<SeriesBlock> = Vec::new();
        let mut pending: Vec<(usize, PendingRow)> = Vec::new();
        let (mut bytes, mut ended) = (0, false);
        while bytes < BATCH_BYTES && blocks.len() < BATCH_BLOCKS && pending.len() < BATCH_ROWS {
            if self.blocks.is_empty()
                && let Some(stored) = &mut self.stored
            {
                if !blocks.is_empty() {
                    break;
                }
                match stored.next_series().await? {
                    Some(batch) => self.blocks = batch.into(),
                    None => self.stored = None,
                }
                continue;
            }
            let Some((mut block, mut rows)) = self.next_block() else {
                ended = true;
                break;
            };
            let hours_ms = hours_ms(self.rows.read());
            let is_merged = rows.is_empty()
                || hours_ms
                    .is_some_and(|hours_ms| add_summaries(&mut block, &rows, &self.rows, hours_ms));
            if !is_merged {
                for row in rows.iter_mut().filter(|row| !matches!(row.form, RowForm::Whole)) {
                    row.ops = self.rows.whole_ops(&block.series, row.base);
                }
                block.expand_summaries(self.rows.read().bases).map_err(|error| {
                    StorageError::Backend(format!("a block of a series: {error}").into())
                })?;
                for row in overlay_block(&mut block, self.rows.read(), rows) {
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
            reads_past_losses: self.rows.read().reads_past_losses,
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

    /// The next block of the backend and the rows to merge into it, or an empty block and rows that the backend
    /// lacks. Must be called while there is a block, or after the last block.
    fn next_block(&mut self) -> Option<(SeriesBlock, VecDeque<MemtableRow>)> {
        if !self.is_one_day
            && let Some(block) = self.blocks.pop_front()
        {
            // Later blocks of the series have later rows only. Rows before a later block are merged into that
            // block; rows after the last block remain until the end.
            let last = last_base(&block, self.rows.read().prefix_len);
            let rows = self.rows.take_until(&block.series, last);
            return Some((block, rows));
        }
        let changed = self.rows.peek().map(|rows| &rows.series);
        let (takes_stored, takes_changed) = match (self.blocks.front(), changed) {
            (Some(stored), Some(changed)) => (stored.series <= *changed, *changed <= stored.series),
            (stored, changed) => (stored.is_some(), changed.is_some()),
        };
        let stored = if takes_stored { self.blocks.pop_front() } else { None };
        let changed = if takes_changed { self.rows.next() } else { None };
        match (stored, changed) {
            (None, None) => None,
            (Some(block), None) => Some((block, VecDeque::new())),
            (stored, Some(changed)) => {
                let block = SeriesBlock { series: changed.series, ..stored.unwrap_or_default() };
                Some((block, changed.rows))
            }
        }
    }
}

/// Base time of the last row of a block.
fn last_base(block: &SeriesBlock, prefix_len: usize) -> u32 {
    let of_points = block.columns.times_ms.last().copied();
    let of_summaries = block.summaries.last().map(|summary| summary.end_ms - 1);
    let hour = of_points.max(of_summaries).map(|time_ms| {
        let secs = u32::try_from(time_ms.div_euclid(1_000)).unwrap_or(u32::MAX);
        secs - secs % BaseTime::SPAN_SECONDS
    });
    let row = block.rows.last().and_then(|row| row.key.get(prefix_len..)?.first_chunk::<4>());
    hour.max(row.map(|base| u32::from_be_bytes(*base))).unwrap_or(0)
}

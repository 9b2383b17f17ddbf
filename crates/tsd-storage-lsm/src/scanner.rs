//! Reads the rows of a scan in batches.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tsd_model::Row;
use tsd_storage::{BatchReader, Scan, StorageError};

use crate::{
    read::{CellSelection, RowCursor},
    table::TableStore,
};

/// Rows per batch of a scan without a preference.
const DEFAULT_BATCH_ROWS: usize = 512;
const MAX_BATCH_ROWS: usize = 8_192;
/// Filtered rows after which a batch ends early, possibly empty.
const MAX_FILTERED_ROWS: usize = 8_192;
/// Size of a batch, in bytes of entries, at which it ends early.
const BATCH_BYTES: usize = 1 << 20;

/// Reads the batches of a scan.
pub(crate) struct ScanJob {
    table: Arc<TableStore>,
    scan: Scan,
    cursor: Option<RowCursor>,
    remaining: usize,
}

impl ScanJob {
    pub(crate) fn new(table: Arc<TableStore>, scan: Scan) -> Self {
        let remaining = scan.limit.unwrap_or(usize::MAX);
        Self { table, scan, cursor: None, remaining }
    }
}

impl BatchReader for ScanJob {
    fn read(&mut self, cancelled: &AtomicBool) -> Result<(Vec<Row>, bool), StorageError> {
        let Self { table, scan, remaining, .. } = self;
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => RowCursor::open(table, &scan.start, &scan.stop)?,
        };
        let selection = CellSelection::of_scan(scan);
        let limit =
            scan.batch_rows.unwrap_or(DEFAULT_BATCH_ROWS).clamp(1, MAX_BATCH_ROWS).min(*remaining);
        let mut rows = Vec::with_capacity(limit.min(DEFAULT_BATCH_ROWS));
        let mut bytes = 0;
        // Accepting any row ends a search that was cancelled or has filtered many rows.
        let (filtered, paused) = (Cell::new(0), Cell::new(false));
        while rows.len() < limit && bytes < BATCH_BYTES && !paused.get() {
            if cancelled.load(Ordering::Relaxed) {
                return Err(StorageError::Closed);
            }
            let keep = |key: &[u8]| {
                if scan.filter.as_ref().is_none_or(|filter| filter.matches(key)) {
                    return true;
                }
                filtered.set(filtered.get() + 1);
                paused
                    .set(filtered.get() >= MAX_FILTERED_ROWS || cancelled.load(Ordering::Relaxed));
                paused.get()
            };
            let Some(row) = cursor.next_row(table, keep)? else {
                *remaining -= rows.len();
                return Ok((rows, false));
            };
            if paused.get() {
                break;
            }
            bytes += row.entries.iter().map(|(_, value)| value.len()).sum::<usize>();
            rows.extend(table.select(row, &selection)?);
        }
        *remaining -= rows.len();
        let more = *remaining > 0;
        self.cursor = Some(cursor);
        Ok((rows, more))
    }
}

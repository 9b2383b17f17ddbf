//! Reads the batches of a scan.

use std::sync::{Arc, atomic::AtomicBool};

use tsd_model::{Family, Row};
use tsd_storage::{BatchReader, Scan, StorageError};

use super::{
    row_scan::{COLLECTED_BYTES, RowScan, ScanStep},
    selected::select_cells,
    table::PartTable,
};

/// Rows per batch if the scan states no number.
const DEFAULT_BATCH_ROWS: usize = 512;
const MAX_BATCH_ROWS: usize = 8_192;
/// Bytes of packed points and cells after which a batch ends early.
const BATCH_BYTES: usize = 1 << 20;

/// Reads the batches of a scan from one snapshot.
pub(crate) struct ScanJob {
    table: Arc<PartTable>,
    scan: Scan,
    rows: Option<RowScan>,
    remaining: usize,
}

impl ScanJob {
    pub(crate) fn new(table: Arc<PartTable>, scan: Scan) -> Self {
        let remaining = scan.limit.unwrap_or(usize::MAX);
        Self { table, scan, rows: None, remaining }
    }

    /// The selected cells of a row; `None` if no cell is selected.
    fn select(&self, mut row: Row) -> Result<Option<Row>, StorageError> {
        let scan = &self.scan;
        match (scan.family, &scan.qualifier, scan.time_range_ms) {
            (None, _, None) => Ok(Some(row)),
            (Some(family), None, None) => {
                row.cells.retain(|cell| cell.family == family);
                if family != Family::T {
                    row.runs.clear();
                }
                Ok((!row.cells.is_empty() || !row.runs.is_empty()).then_some(row))
            }
            _ => select_cells(row, |cell| {
                scan.selects(cell.family, &cell.qualifier, cell.timestamp_ms)
            }),
        }
    }
}

impl BatchReader for ScanJob {
    fn read(&mut self, cancelled: &AtomicBool) -> Result<(Vec<Row>, bool), StorageError> {
        let limit = self.scan.batch_rows.unwrap_or(DEFAULT_BATCH_ROWS);
        let limit = limit.clamp(1, MAX_BATCH_ROWS).min(self.remaining);
        let mut scan = if let Some(scan) = self.rows.take() {
            scan
        } else {
            let Scan { start, stop, filter, reads_past_losses, .. } = self.scan.clone();
            let snapshot = self.table.snapshot(reads_past_losses)?;
            RowScan::new(&snapshot, start, stop, filter, COLLECTED_BYTES)
        };
        let mut rows = Vec::with_capacity(limit.min(DEFAULT_BATCH_ROWS));
        let (mut bytes, mut passed) = (0, 0);
        let mut more = self.remaining > 0;
        while rows.len() < limit && bytes < BATCH_BYTES && passed < MAX_BATCH_ROWS {
            match scan.next(cancelled).map_err(|error| self.table.read_failed(error))? {
                ScanStep::Row(row) => {
                    passed += 1;
                    bytes += row.cells.iter().map(|c| c.value.len() + 16).sum::<usize>();
                    bytes += row.runs.iter().map(|run| run.as_bytes().len()).sum::<usize>();
                    rows.extend(self.select(row)?);
                }
                ScanStep::Paused => break,
                ScanStep::Ended => {
                    more = false;
                    break;
                }
            }
        }
        self.table.record_found();
        self.remaining -= rows.len();
        self.rows = Some(scan);
        Ok((rows, more && self.remaining > 0))
    }
}

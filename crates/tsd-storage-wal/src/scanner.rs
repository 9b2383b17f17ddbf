//! Scans that merge the memtables with the backend.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use tsd_model::{Family, Row};
use tsd_storage::{RowScanner, Scan, StorageError, StorageFuture};

use crate::{
    memtable::{CellPrecedence, Memtable, RowRange, TableId},
    memtable_list::MemtableView,
    overlay::{RowOps, RunPacker, overlay},
    state::WalState,
};

/// Rows per batch if the scan states no number.
const BATCH_ROWS: usize = 256;
/// Maximum number of rows per batch.
const MAX_BATCH_ROWS: usize = 4096;

/// Merges the rows of the memtables with the rows of the backend, both in key order.
///
/// Each row is at least as new as the start of the scan, because the scanner keeps the memtables of its start.
/// They stay readable after their flush.
pub(crate) struct MergedScanner {
    state: Arc<WalState>,
    scan: Scan,
    /// Number of rows up to the limit of the scan.
    remaining: usize,
    memtables: MemtableScan,
    backend: Box<dyn RowScanner>,
    /// Rows that were read from the backend and are not returned yet.
    stored: VecDeque<Row>,
    backend_ended: bool,
    error: Option<StorageError>,
    /// Set if all points of a row are requested.
    packer: Option<RunPacker>,
}

impl MergedScanner {
    pub(crate) fn new(
        state: Arc<WalState>,
        scan: Scan,
        memtables: MemtableScan,
        backend: Box<dyn RowScanner>,
    ) -> Self {
        let all_points = scan.family.is_none_or(|family| family == Family::T)
            && scan.qualifier.is_none()
            && scan.time_range_ms.is_none();
        Self {
            packer: all_points.then(RunPacker::default),
            remaining: scan.limit.unwrap_or(usize::MAX),
            memtables,
            scan,
            backend,
            stored: VecDeque::new(),
            backend_ended: false,
            error: None,
            state,
        }
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        if self.state.closed.load(Ordering::Acquire) {
            return Err(StorageError::Closed);
        }
        let max_rows = batch_rows(&self.scan).min(self.remaining);
        let mut rows = Vec::new();
        while rows.len() < max_rows {
            if self.stored.is_empty() && !self.backend_ended {
                if !rows.is_empty() {
                    break;
                }
                match self.backend.next_rows().await? {
                    Some(batch) => self.stored = batch.into(),
                    None => self.backend_ended = true,
                }
                continue;
            }
            let row = match (self.stored.front(), self.memtables.peek(&self.scan)) {
                (None, None) => break,
                (Some(_), None) => self.stored.pop_front(),
                (Some(stored), Some(key)) if stored.key < key => self.stored.pop_front(),
                (stored, Some(key)) => {
                    let is_same = stored.is_some_and(|stored| stored.key == key);
                    let stored = if is_same { self.stored.pop_front() } else { None };
                    let ops = self.memtables.take(&key);
                    let packed = match &mut self.packer {
                        Some(packer) => packer.pack(&key, stored, &ops),
                        None => Err(stored),
                    };
                    match packed {
                        Ok(row) => Some(row),
                        Err(stored) => {
                            overlay(key, stored, &ops, |f, q, ts| self.scan.selects(f, q, ts))?
                        }
                    }
                }
            };
            rows.extend(row);
        }
        self.remaining -= rows.len();
        Ok((!rows.is_empty()).then_some(rows))
    }
}

impl RowScanner for MergedScanner {
    fn next_rows(&mut self) -> StorageFuture<'_, Option<Vec<Row>>> {
        Box::pin(async move {
            if let Some(error) = &self.error {
                return Err(error.clone());
            }
            let batch = self.next_batch().await;
            self.error = batch.as_ref().err().cloned();
            batch
        })
    }
}

fn batch_rows(scan: &Scan) -> usize {
    scan.batch_rows.unwrap_or(BATCH_ROWS).clamp(1, MAX_BATCH_ROWS)
}

/// Yields the rows of all memtables of a view, in key order.
pub(crate) struct MemtableScan {
    id: TableId,
    /// Oldest memtable first.
    cursors: Vec<MemtableCursor>,
    precedence: CellPrecedence,
}

struct MemtableCursor {
    memtable: Arc<Memtable>,
    rows: std::iter::Peekable<std::vec::IntoIter<(Bytes, Bytes)>>,
    /// First key that is not copied yet; `None` at the end.
    next: Option<Vec<u8>>,
}

impl MemtableScan {
    pub(crate) fn new(
        view: &MemtableView,
        id: TableId,
        scan: &Scan,
        precedence: CellPrecedence,
    ) -> Self {
        let cursor = |memtable: &Arc<Memtable>| MemtableCursor {
            memtable: Arc::clone(memtable),
            rows: Vec::new().into_iter().peekable(),
            next: Some(scan.start.to_vec()),
        };
        Self { id, cursors: view.memtables.iter().map(cursor).collect(), precedence }
    }

    /// Checks some more rows. Returns true once [`Self::peek`] needs no further search.
    pub(crate) fn fill(&mut self, scan: &Scan) -> bool {
        let id = self.id;
        self.cursors.iter_mut().all(|cursor| cursor.fill(id, scan))
    }

    /// Returns the key of the next row.
    pub(crate) fn peek(&mut self, scan: &Scan) -> Option<Bytes> {
        let id = self.id;
        let keys = self.cursors.iter_mut().filter_map(|cursor| cursor.peek(id, scan));
        keys.min().cloned()
    }

    /// Takes the operations of the row whose key [`Self::peek`] returned.
    pub(crate) fn take(&mut self, key: &Bytes) -> RowOps {
        let ops = self.cursors.iter_mut().filter_map(|cursor| {
            let (_, ops) = cursor.rows.next_if(|(found, _)| found == key)?;
            Some((ops, cursor.memtable.base_ms()))
        });
        RowOps::new(ops).precedence(self.precedence)
    }
}

impl MemtableCursor {
    /// If no copied rows are left, checks some of the next rows and copies matching ones. Returns false if there
    /// are more rows to check.
    fn fill(&mut self, id: TableId, scan: &Scan) -> bool {
        if self.rows.peek().is_some() {
            return true;
        }
        let Some(start) = self.next.take() else { return true };
        let (filter, max_rows) = (scan.filter.as_ref(), batch_rows(scan));
        let stop = scan.stop.as_ref();
        let range = RowRange { start: &start, stop, filter, max_rows, with_summaries: false };
        let mut copied = self.memtable.copy_range(id, range);
        self.next = copied.next.take();
        self.rows = copied.into_rows().into_iter().peekable();
        self.rows.peek().is_some() || self.next.is_none()
    }

    fn peek(&mut self, id: TableId, scan: &Scan) -> Option<&Bytes> {
        while !self.fill(id, scan) {}
        self.rows.peek().map(|(key, _)| key)
    }
}

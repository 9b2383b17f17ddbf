//! Scans over the memtable and the backend at once.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use tsd_model::{Family, Row};
use tsd_storage::{BoxFuture, RowScanner, Scan, StorageError};

use crate::{
    memtable::{Generation, RowRange, TableId, View},
    overlay::{HeldPacker, RowLogs, overlay},
    shared::Shared,
};

/// Rows returned at once where the scan does not say.
const ROWS: usize = 256;

/// Merges two sorted streams of rows.
///
/// It keeps the generations of its start. Each row is at least as new as then: a generation that is
/// flushed meanwhile stays readable here, and what is flushed later is in the backend when the
/// backend is asked.
pub(crate) struct MergedScanner {
    shared: Arc<Shared>,
    scan: Scan,
    left: usize,
    held: HeldScan,
    backend: Box<dyn RowScanner>,
    below: VecDeque<Row>,
    backend_ended: bool,
    failed: Option<StorageError>,
    /// Where every cell of a row's points is wanted.
    packer: Option<HeldPacker>,
}

impl MergedScanner {
    pub(crate) fn new(
        shared: Arc<Shared>,
        id: TableId,
        scan: Scan,
        view: &View,
        backend: Box<dyn RowScanner>,
    ) -> Self {
        let all_points = scan.family.is_none_or(|family| family == Family::T)
            && scan.qualifier.is_none()
            && scan.time_range_ms.is_none();
        Self {
            packer: all_points.then(HeldPacker::default),
            left: scan.limit.unwrap_or(usize::MAX),
            held: HeldScan::new(view, id, &scan, shared.config.shared_backend),
            scan,
            backend,
            below: VecDeque::new(),
            backend_ended: false,
            failed: None,
            shared,
        }
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(StorageError::Closed);
        }
        let most = self.scan.batch_rows.unwrap_or(ROWS).clamp(1, 4096).min(self.left);
        let mut rows = Vec::new();
        while rows.len() < most {
            if self.below.is_empty() && !self.backend_ended {
                if !rows.is_empty() {
                    break;
                }
                match self.backend.next_rows().await? {
                    Some(batch) => self.below = batch.into(),
                    None => self.backend_ended = true,
                }
                continue;
            }
            let row = match (self.below.front(), self.held.peek(&self.scan)) {
                (None, None) => break,
                (Some(_), None) => self.below.pop_front(),
                (Some(below), Some(key)) if below.key < key => self.below.pop_front(),
                (below, Some(key)) => {
                    let both = below.is_some_and(|below| below.key == key);
                    let below = if both { self.below.pop_front() } else { None };
                    let logs = self.held.take(&key);
                    let packed = match &mut self.packer {
                        Some(packer) => packer.pack(&key, below, &logs),
                        None => Err(below),
                    };
                    match packed {
                        Ok(row) => Some(row),
                        Err(below) => {
                            overlay(key, below, &logs, |f, q, ts| self.scan.selects(f, q, ts))?
                        }
                    }
                }
            };
            rows.extend(row);
        }
        self.left -= rows.len();
        Ok((!rows.is_empty()).then_some(rows))
    }
}

impl RowScanner for MergedScanner {
    fn next_rows(&mut self) -> BoxFuture<'_, Result<Option<Vec<Row>>, StorageError>> {
        Box::pin(async move {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            let answer = self.next_batch().await;
            self.failed = answer.as_ref().err().cloned();
            answer
        })
    }
}

/// Rows of all generations of a view, in key order.
struct HeldScan {
    id: TableId,
    /// Oldest first.
    cursors: Vec<Cursor>,
    by_time: bool,
}

struct Cursor {
    generation: Arc<Generation>,
    rows: std::iter::Peekable<std::vec::IntoIter<(Bytes, Bytes)>>,
    /// Where the next rows are copied from; `None` at the end.
    next: Option<Vec<u8>>,
}

impl HeldScan {
    fn new(view: &View, id: TableId, scan: &Scan, by_time: bool) -> Self {
        let cursor = |generation: &Arc<Generation>| Cursor {
            generation: Arc::clone(generation),
            rows: Vec::new().into_iter().peekable(),
            next: Some(scan.start.to_vec()),
        };
        Self { id, cursors: view.generations.iter().map(cursor).collect(), by_time }
    }

    /// Key of the next row.
    fn peek(&mut self, scan: &Scan) -> Option<Bytes> {
        let id = self.id;
        let keys = self.cursors.iter_mut().filter_map(|cursor| cursor.peek(id, scan));
        keys.min().cloned()
    }

    /// Logs of the row that [`Self::peek`] told the key of.
    fn take(&mut self, key: &Bytes) -> RowLogs {
        let logs = self.cursors.iter_mut().filter_map(|cursor| {
            let (_, log) = cursor.rows.next_if(|(found, _)| found == key)?;
            Some((log, cursor.generation.base_ms()))
        });
        RowLogs::new(logs.collect()).by_time(self.by_time)
    }
}

impl Cursor {
    fn peek(&mut self, id: TableId, scan: &Scan) -> Option<&Bytes> {
        while self.rows.peek().is_none() {
            let from = self.next.take()?;
            let rows = scan.batch_rows.unwrap_or(ROWS).clamp(1, 4096);
            let range =
                RowRange { from: &from, stop: &scan.stop, filter: scan.filter.as_ref(), rows };
            let mut copied = self.generation.copy_range(id, range);
            self.next = copied.next.take();
            self.rows = copied.into_rows().into_iter().peekable();
        }
        self.rows.peek().map(|(key, _)| key)
    }
}

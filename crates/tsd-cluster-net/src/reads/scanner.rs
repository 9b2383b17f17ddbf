//! Scans that merge the held rows of all nodes with the rows of the store.
//!
//! If the nodes hold more than `chunk_bytes` of rows in the range of a scan, consecutive scans read it. Each takes the
//! held rows of its keys first, with its own proof. So the memory of a scan is bounded, and a row is as new as the
//! start of its scan.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use tsd_model::Row;
use tsd_storage::{KeyRange, RowFilter, RowScanner, Scan, StorageError, StorageFuture, Table};

use super::{
    fetch::{HeldFetch, TakenRows},
    group_rows::GroupRows,
};
use crate::{held_query::HeldQuery, row_merge::overlay};

/// Rows per batch if the scan does not specify it.
const BATCH_ROWS: usize = 256;
/// Maximum number of rows per batch.
const MAX_BATCH_ROWS: usize = 4096;

/// Opens the scan of the store.
type OpenScan = Box<dyn Fn(Scan) -> Box<dyn RowScanner> + Send>;

/// Takes held rows, then opens the scan of the store, and merges both in key order.
pub(super) struct ClusterScanner {
    fetch: Arc<HeldFetch>,
    table: Table,
    scan: Scan,
    open: OpenScan,
    /// Start key of the present or next scan; `None` after the last.
    position: Option<Bytes>,
    merge: Option<RowMerge>,
    /// Remaining rows up to the limit of the scan.
    remaining: usize,
    error: Option<StorageError>,
}

/// Both sides of an open scan.
struct RowMerge {
    held: TakenRows,
    inner: Box<dyn RowScanner>,
    /// Rows read from the store and not returned yet.
    stored: VecDeque<Row>,
    has_ended: bool,
}

impl ClusterScanner {
    pub(super) fn new(fetch: Arc<HeldFetch>, table: Table, scan: Scan, open: OpenScan) -> Self {
        let remaining = scan.limit.unwrap_or(usize::MAX);
        let position = Some(scan.start.clone());
        Self { fetch, table, scan, open, position, merge: None, remaining, error: None }
    }

    /// Opens the scan that begins at a key.
    async fn open_chunk(&mut self, start: Bytes) -> Result<RowMerge, StorageError> {
        let Scan { stop, filter, .. } = self.scan.clone();
        let range = KeyRange { start: start.clone(), stop: stop.clone() };
        let held = match self.group_rows(&range).await? {
            Some(held) => held,
            None => self.held_rows(vec![range], filter).await?,
        };
        // Held rows add and hide rows, so the store cannot apply the limit.
        let limit = self.scan.limit.filter(|_| held.is_empty()).map(|_| self.remaining);
        self.position = held.stopped_at().cloned();
        let stop = self.position.clone().unwrap_or(stop);
        let inner = (self.open)(Scan { start, stop, limit, ..self.scan.clone() });
        Ok(RowMerge { held, inner, stored: VecDeque::new(), has_ended: false })
    }

    async fn held_rows(
        &mut self,
        ranges: Vec<KeyRange>,
        filter: Option<RowFilter>,
    ) -> Result<TakenRows, StorageError> {
        let query = HeldQuery { table: self.table.clone(), ranges, filter };
        self.fetch.fetch_chunk(&query).await
    }

    /// Returns the held rows of a range, if the read has taken them for all its scans.
    async fn group_rows(&mut self, range: &KeyRange) -> Result<Option<TakenRows>, StorageError> {
        let Some(group) = self.scan.group.clone() else { return Ok(None) };
        let Some(at) = group.index_of(range) else { return Ok(None) };
        let taking = async {
            let ranges = group.ranges();
            let taken = self.held_rows(ranges.to_vec(), self.scan.filter.clone()).await?;
            Ok(GroupRows::new(taken, ranges))
        };
        Ok(group.prepared(taking).await?.take(at, range))
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        let rows = self.scan.batch_rows.unwrap_or(BATCH_ROWS).clamp(1, MAX_BATCH_ROWS);
        let max_rows = rows.min(self.remaining);
        if max_rows == 0 {
            return Ok(None);
        }
        loop {
            let mut merge = match (self.merge.take(), self.position.take()) {
                (Some(merge), position) => {
                    self.position = position;
                    merge
                }
                (None, Some(start)) => self.open_chunk(start).await?,
                (None, None) => return Ok(None),
            };
            let rows = merge.next_rows(max_rows, &self.scan).await?;
            if !rows.is_empty() {
                self.remaining -= rows.len();
                self.merge = Some(merge);
                return Ok(Some(rows));
            }
        }
    }
}

impl RowMerge {
    /// Returns the next rows; empty after the last.
    async fn next_rows(&mut self, max_rows: usize, scan: &Scan) -> Result<Vec<Row>, StorageError> {
        let mut rows = Vec::new();
        while rows.len() < max_rows {
            if self.stored.is_empty() && !self.has_ended {
                if !rows.is_empty() {
                    break;
                }
                match self.inner.next_rows().await? {
                    Some(batch) => self.stored = batch.into(),
                    None => self.has_ended = true,
                }
                continue;
            }
            let held_key = self.held.peek();
            let is_stored_next = match (self.stored.front(), held_key) {
                (None, None) => break,
                (Some(stored), Some(key)) => stored.key < *key,
                (stored, None) => stored.is_some(),
                (None, Some(_)) => false,
            };
            if is_stored_next {
                rows.extend(self.stored.pop_front());
                continue;
            }
            let Some(held) = self.held.next_row() else { break };
            let is_same = self.stored.front().is_some_and(|stored| stored.key == held.key);
            let stored = if is_same { self.stored.pop_front() } else { None };
            rows.extend(overlay(&held, stored, |f, q, ts| scan.selects(f, q, ts))?);
        }
        Ok(rows)
    }
}

impl RowScanner for ClusterScanner {
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

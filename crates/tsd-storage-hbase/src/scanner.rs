//! The scanner of the store: streams rows of an HBase scanner, or reads rows by key.

use std::{sync::Arc, vec};

use bytes::Bytes;
use futures_util::FutureExt;
use hbase_rs::{Scan as HBaseScan, Scanner};
use tsd_model::Row;
use tsd_storage::{BoxFuture, Get, RowScanner, Scan, StorageError, Table};

use crate::{
    context::StoreContext,
    error::storage_error,
    filter::{FilterPlan, server_filter},
    request::{selection, time_range},
    row::model_row,
};

/// Approximate size of one response of the server, in bytes.
const RESPONSE_BYTES: u64 = 2 << 20;
/// Size of a batch of rows, in bytes of cells, at which it is returned.
const BATCH_BYTES: usize = 2 << 20;
/// Rows by key in one multi-get.
const KEYS_PER_READ: usize = 256;

/// An open scan.
pub(crate) struct HBaseScanner {
    context: Arc<StoreContext>,
    table: Table,
    scan: Scan,
    batch_rows: usize,
    remaining: usize,
    rows: RowSource,
}

/// The source of the rows.
enum RowSource {
    Scanner(Scanner),
    /// Rows by key, in ascending order.
    Keys(vec::IntoIter<Bytes>),
    Ended,
    Failed(StorageError),
}

impl HBaseScanner {
    pub(crate) fn open(context: &Arc<StoreContext>, table: &Table, scan: Scan) -> Self {
        let batch_rows = scan.batch_rows.unwrap_or(context.config.scanner_rows as usize).max(1);
        let remaining = scan.limit.unwrap_or(usize::MAX);
        let rows = open(context, table, &scan, batch_rows).unwrap_or_else(RowSource::Failed);
        let (context, table) = (Arc::clone(context), table.clone());
        Self { context, table, scan, batch_rows, remaining, rows }
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        let found = match &mut self.rows {
            RowSource::Ended => return Ok(None),
            RowSource::Failed(error) => return Err(error.clone()),
            RowSource::Scanner(_) => self.scan_batch().await,
            RowSource::Keys(_) => self.key_batch().await,
        };
        let found = match (found, self.context.registry_of(&self.table)) {
            (Ok(rows), Some(registry)) => {
                let keys = rows.iter().map(|row| &row.key[..]);
                registry.check_read(&self.context, keys).await.map(|()| rows)
            }
            (found, _) => found,
        };
        match found {
            Ok(rows) if rows.is_empty() => {
                self.rows = RowSource::Ended;
                Ok(None)
            }
            Ok(mut rows) => {
                rows.truncate(self.remaining);
                self.remaining -= rows.len();
                if self.remaining == 0 {
                    // Closes the scanner on the server.
                    self.rows = RowSource::Ended;
                }
                Ok(Some(rows))
            }
            Err(error) => {
                self.rows = RowSource::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Waits for one row, and adds the rows that have arrived already.
    async fn scan_batch(&mut self) -> Result<Vec<Row>, StorageError> {
        let RowSource::Scanner(scanner) = &mut self.rows else { return Ok(Vec::new()) };
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.batch_rows.min(self.remaining) && bytes < BATCH_BYTES {
            let next = if batch.is_empty() {
                scanner.next().await
            } else {
                match scanner.next().now_or_never() {
                    Some(next) => next,
                    None => break,
                }
            };
            let row = match next {
                None => break,
                Some(Ok(row)) => row.row,
                Some(Err(error)) => {
                    let error = storage_error(&self.table, &error);
                    if batch.is_empty() {
                        return Err(error);
                    }
                    // Returns the rows before the failure; the next call returns the error.
                    self.rows = RowSource::Failed(error);
                    return Ok(batch);
                }
            };
            if self.scan.filter.as_ref().is_none_or(|filter| filter.matches(row.key())) {
                bytes += row.encoded().len();
                batch.extend(model_row(&row));
            }
        }
        Ok(batch)
    }

    /// Reads the next rows by key.
    async fn key_batch(&mut self) -> Result<Vec<Row>, StorageError> {
        let limit = KEYS_PER_READ.min(self.batch_rows.max(16));
        while let RowSource::Keys(keys) = &mut self.rows {
            let gets: Vec<Get> = keys
                .take(limit)
                .map(|row| Get {
                    row,
                    family: self.scan.family,
                    qualifiers: self.scan.qualifier.iter().cloned().collect(),
                    reads_past_losses: false,
                })
                .collect();
            if gets.is_empty() {
                break;
            }
            let rows = self.context.get_rows(&self.table, gets, self.scan.time_range_ms).await?;
            let rows: Vec<Row> = rows.into_iter().flatten().collect();
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }
}

fn open(
    context: &Arc<StoreContext>,
    table: &Table,
    scan: &Scan,
    batch_rows: usize,
) -> Result<RowSource, StorageError> {
    context.check_open()?;
    let no_timestamp = scan.time_range_ms.is_some_and(|(from, to)| to <= from.max(0));
    let no_row = !scan.stop.is_empty() && scan.start >= scan.stop;
    if scan.limit == Some(0) || no_timestamp || no_row {
        return Ok(RowSource::Ended);
    }
    let mut selection = selection(scan.family, scan.qualifier.iter().cloned());
    if let Some(range) = time_range(scan.time_range_ms)? {
        selection = selection.time_range(range);
    }
    match FilterPlan::plan(scan) {
        FilterPlan::NoRow => return Ok(RowSource::Ended),
        FilterPlan::Keys(mut keys) => {
            let filter = scan.filter.as_ref();
            keys.retain(|key| {
                *key >= scan.start
                    && (scan.stop.is_empty() || *key < scan.stop)
                    && filter.is_none_or(|filter| filter.matches(key))
            });
            keys.dedup();
            return Ok(RowSource::Keys(keys.into_iter()));
        }
        FilterPlan::NoServerFilter => {}
        FilterPlan::Tests(tests) => {
            if let Some(filter) = server_filter(tests) {
                selection = selection.filter(filter);
            }
        }
    }
    let rows = u32::try_from(batch_rows).unwrap_or(u32::MAX).min(i32::MAX as u32);
    let mut request = HBaseScan::range(scan.start.clone(), scan.stop.clone())
        .select(selection)
        .per_call(rows, RESPONSE_BYTES);
    // With a filter the client may drop rows, so the server must not count them.
    if let (Some(limit), None) = (scan.limit, &scan.filter) {
        request = request.limit(u32::try_from(limit).unwrap_or(u32::MAX));
    }
    let table = context.table(table)?;
    let _guard = context.runtime.enter();
    Ok(RowSource::Scanner(table.rows.scan(request)))
}

impl RowScanner for HBaseScanner {
    fn next_rows(&mut self) -> BoxFuture<'_, Result<Option<Vec<Row>>, StorageError>> {
        Box::pin(self.next_batch())
    }
}

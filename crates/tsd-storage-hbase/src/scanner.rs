//! Scans of rows.

use std::{sync::Arc, vec};

use bytes::Bytes;
use futures_util::FutureExt;
use hbase_rs::{Scan as HBaseScan, Scanner};
use tsd_model::Row;
use tsd_storage::{BoxFuture, Get, RowScanner, Scan, StorageError, Table};

use crate::{
    error::storage_error,
    filter::{PushedDown, server_filter},
    request::{selection, time_range},
    row::model_row,
    shared::Shared,
};

/// Bytes that the server puts into one answer, about.
const ANSWER_BYTES: u64 = 2 << 20;
/// Bytes of cells after which a batch of rows is handed out, however few they are.
const BATCH_BYTES: usize = 2 << 20;
/// Named rows that are read at once.
const KEYS_AT_ONCE: usize = 256;

/// An open scan.
pub(crate) struct HBaseScanner {
    shared: Arc<Shared>,
    table: Table,
    scan: Scan,
    batch_rows: usize,
    left: usize,
    rows: Rows,
}

/// Where the rows come from.
enum Rows {
    Scanner(Scanner),
    /// Rows by their keys, which rise.
    Keys(vec::IntoIter<Bytes>),
    /// Nothing more comes.
    End,
    Failed(StorageError),
}

impl HBaseScanner {
    pub(crate) fn open(shared: &Arc<Shared>, table: &Table, scan: Scan) -> Self {
        let batch_rows = scan.batch_rows.unwrap_or(shared.config.scanner_rows as usize).max(1);
        let left = scan.limit.unwrap_or(usize::MAX);
        let rows = open(shared, table, &scan, batch_rows).unwrap_or_else(Rows::Failed);
        let (shared, table) = (Arc::clone(shared), table.clone());
        Self { shared, table, scan, batch_rows, left, rows }
    }

    async fn next_batch(&mut self) -> Result<Option<Vec<Row>>, StorageError> {
        let found = match &mut self.rows {
            Rows::End => return Ok(None),
            Rows::Failed(error) => return Err(error.clone()),
            Rows::Scanner(_) => self.scanned().await,
            Rows::Keys(_) => self.by_key().await,
        };
        match found {
            Ok(rows) if rows.is_empty() => {
                self.rows = Rows::End;
                Ok(None)
            }
            Ok(mut rows) => {
                rows.truncate(self.left);
                self.left -= rows.len();
                if self.left == 0 {
                    // Frees the scanner at the server.
                    self.rows = Rows::End;
                }
                Ok(Some(rows))
            }
            Err(error) => {
                self.rows = Rows::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Waits for the first row and takes what else has arrived.
    async fn scanned(&mut self) -> Result<Vec<Row>, StorageError> {
        let Rows::Scanner(scanner) = &mut self.rows else { return Ok(Vec::new()) };
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.batch_rows.min(self.left) && bytes < BATCH_BYTES {
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
                    // The rows before it are good; the next call fails.
                    self.rows = Rows::Failed(error);
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

    /// Reads the next rows that are named.
    async fn by_key(&mut self) -> Result<Vec<Row>, StorageError> {
        let want = KEYS_AT_ONCE.min(self.batch_rows.max(16));
        while let Rows::Keys(keys) = &mut self.rows {
            let gets: Vec<Get> = keys
                .take(want)
                .map(|row| Get {
                    row,
                    family: self.scan.family,
                    qualifiers: self.scan.qualifier.iter().cloned().collect(),
                })
                .collect();
            if gets.is_empty() {
                break;
            }
            let rows = self.shared.get_rows(&self.table, gets, self.scan.time_range_ms).await?;
            let rows: Vec<Row> = rows.into_iter().flatten().collect();
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }
}

fn open(
    shared: &Arc<Shared>,
    table: &Table,
    scan: &Scan,
    batch_rows: usize,
) -> Result<Rows, StorageError> {
    shared.check_open()?;
    let no_time = scan.time_range_ms.is_some_and(|(from, to)| to <= from.max(0));
    let no_row = !scan.stop.is_empty() && scan.start >= scan.stop;
    if scan.limit == Some(0) || no_time || no_row {
        return Ok(Rows::End);
    }
    let mut selection = selection(scan.family, scan.qualifier.iter().cloned());
    if let Some(range) = time_range(scan.time_range_ms)? {
        selection = selection.time_range(range);
    }
    match PushedDown::plan(scan) {
        PushedDown::NoRow => return Ok(Rows::End),
        PushedDown::Keys(mut keys) => {
            let filter = scan.filter.as_ref();
            keys.retain(|key| {
                *key >= scan.start
                    && (scan.stop.is_empty() || *key < scan.stop)
                    && filter.is_none_or(|filter| filter.matches(key))
            });
            keys.dedup();
            return Ok(Rows::Keys(keys.into_iter()));
        }
        PushedDown::Nothing => {}
        PushedDown::Tests(tests) => {
            if let Some(filter) = server_filter(tests) {
                selection = selection.filter(filter);
            }
        }
    }
    let rows = u32::try_from(batch_rows).unwrap_or(u32::MAX).min(i32::MAX as u32);
    let mut asked = HBaseScan::range(scan.start.clone(), scan.stop.clone())
        .select(selection)
        .per_call(rows, ANSWER_BYTES);
    // With a filter rows may be left out here.
    if let (Some(limit), None) = (scan.limit, &scan.filter) {
        asked = asked.limit(u32::try_from(limit).unwrap_or(u32::MAX));
    }
    let table = shared.table(table)?;
    let _inside = shared.runtime.enter();
    Ok(Rows::Scanner(table.rows.scan(asked)))
}

impl RowScanner for HBaseScanner {
    fn next_rows(&mut self) -> BoxFuture<'_, Result<Option<Vec<Row>>, StorageError>> {
        Box::pin(self.next_batch())
    }
}

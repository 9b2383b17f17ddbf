//! The trait on the client.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use hbase_rs::{
    BatchError, Client, Delete as HBaseDelete, MutationBatch, RequestError, SERVER_TIME,
};
use tokio::{runtime::Handle, time::sleep};
use tsd_model::Row;
use tsd_storage::{
    BoxFuture, CellBatch, CellRef, Column, Delete, FlushRows, FlushTarget, Get, ReplacedColumn,
    RowRewrite, RowScanner, Scan, Storage, StorageError, Table,
};

use crate::{
    conditional::{self, Change},
    config::HBaseConfig,
    error::{refused, storage_error},
    ingest::ingest,
    metrics,
    mutations::{appends, puts},
    request::timestamp,
    scanner::HBaseScanner,
    shared::{OpenTable, Shared},
};

/// What is put within the server's millisecond of a delete is hidden by it. A timer may be early by
/// less than one of its ticks of a millisecond.
const DELETE_SETTLES: Duration = Duration::from_millis(2);

/// Tables of an HBase cluster.
///
/// It holds no cells: what a call returned `Ok` for, HBase has. So flushing does nothing, and closing
/// only refuses what comes later.
///
/// A compare-and-set that expects no column and one that expects an empty value are told apart in
/// family `t` by a look before the change, so a column that gets an empty value in that moment may be
/// overwritten; in the other families an empty value counts as absent, as it does for OpenTSDB.
/// Appends and increments carry the server's time.
#[derive(Debug)]
pub struct HBaseStorage {
    shared: Arc<Shared>,
}

impl HBaseStorage {
    /// A store on the cluster that the configuration names. Nothing is connected yet.
    ///
    /// Must be called inside a Tokio runtime with I/O and time, which has to live as long as the store;
    /// calls may come from anywhere.
    ///
    /// # Errors
    ///
    /// When there is no such runtime or no quorum is named.
    pub fn connect(config: HBaseConfig) -> Result<Self, StorageError> {
        if config.quorum.trim().is_empty() {
            return Err(StorageError::Backend("no ZooKeeper quorum is named".into()));
        }
        Self::with_client(config.client(), config)
    }

    /// A store on a client; of the configuration only what concerns tables is used.
    ///
    /// # Errors
    ///
    /// When it is not called inside a Tokio runtime.
    pub fn with_client(client: Client, config: HBaseConfig) -> Result<Self, StorageError> {
        metrics::describe_metrics();
        let runtime = Handle::try_current().map_err(|error| refused(&error))?;
        Ok(Self { shared: Arc::new(Shared::new(client, config, runtime)) })
    }

    /// The client it works with.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Runs a change of a table to its end.
    fn change<'a, T, F>(
        &'a self,
        table: &'a Table,
        change: impl FnOnce(Arc<OpenTable>, Table, Duration) -> F + Send + 'a,
    ) -> BoxFuture<'a, Result<T, StorageError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StorageError>> + Send + 'static,
    {
        Box::pin(async move {
            self.shared.check_open()?;
            let opened = self.shared.table(table)?;
            let patience = self.shared.config.operation_timeout;
            self.shared.run(change(opened, table.clone(), patience)).await?
        })
    }
}

impl Storage for HBaseStorage {
    fn get<'a>(
        &'a self,
        table: &'a Table,
        get: Get,
    ) -> BoxFuture<'a, Result<Option<Row>, StorageError>> {
        Box::pin(self.shared.get_row(table, get))
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> BoxFuture<'a, Result<Vec<Option<Row>>, StorageError>> {
        Box::pin(self.shared.get_rows(table, gets, None))
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        Box::new(HBaseScanner::open(&self.shared, table, scan))
    }

    fn put<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        self.change(table, |to, table, _| async move {
            let puts = puts(&batch, |mutations, bytes| to.writer.batch(mutations, bytes))?;
            write(&to, &table, puts).await
        })
    }

    fn append<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        self.change(table, |to, table, _| async move {
            for result in to.rows.batch(appends(&batch)?).await {
                result.map_err(|error| storage_error(&table, &error))?;
            }
            Ok(())
        })
    }

    fn increment<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        amount: i64,
    ) -> BoxFuture<'a, Result<i64, StorageError>> {
        self.change(table, move |to, table, _| async move {
            conditional::increment(&to.rows, &table, &column, amount).await
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        let change = Change { column, expected, new: Some(value), timestamp_ms: None };
        self.change(table, |to, table, patience| async move {
            change.run(&to.rows, &table, patience).await
        })
    }

    fn compare_and_set_at<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
        timestamp_ms: i64,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        let timestamp_ms = Some(timestamp_ms);
        let change = Change { column, expected, new: Some(value), timestamp_ms };
        self.change(table, |to, table, patience| async move {
            change.run(&to.rows, &table, patience).await
        })
    }

    fn compare_and_delete<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Bytes,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        let change = Change { column, expected: Some(expected), new: None, timestamp_ms: None };
        self.change(table, |to, table, patience| async move {
            let done = change.run(&to.rows, &table, patience).await?;
            if done {
                sleep(DELETE_SETTLES).await;
            }
            Ok(done)
        })
    }

    fn delete<'a>(
        &'a self,
        table: &'a Table,
        delete: Delete,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        self.change(table, |to, table, _| async move {
            let delete = match delete {
                Delete::Columns { columns, .. } if columns.is_empty() => return Ok(()),
                Delete::Row(row) => HBaseDelete::try_new(row),
                Delete::Columns { row, columns } => columns.iter().try_fold(
                    HBaseDelete::try_new(row).map_err(|error| refused(&error))?,
                    |delete, (family, qualifier)| {
                        delete.column(family.as_str().as_bytes(), qualifier, SERVER_TIME)
                    },
                ),
            };
            let delete = delete.map_err(|error| refused(&error))?;
            to.rows.mutate(delete).await.map_err(|error| storage_error(&table, &error))?;
            sleep(DELETE_SETTLES).await;
            Ok(())
        })
    }

    fn rewrite_row<'a>(
        &'a self,
        table: &'a Table,
        rewrite: RowRewrite,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let RowRewrite { row, put, delete, .. } = rewrite;
            if let Some((cell, timestamp_ms)) = put {
                let put = |timestamp_ms| {
                    let (qualifier, value) = (&cell.qualifier[..], &cell.value[..]);
                    let cell = CellRef { family: cell.family, qualifier, value, timestamp_ms };
                    CellBatch::single(&row, cell)
                };
                self.put(table, put(timestamp_ms)?).await?;
                // A put at an older time may be hidden, and then nothing must be deleted for its sake.
                if timestamp_ms.is_some() && !delete.is_empty() {
                    let get = Get::column(row.clone(), cell.family, cell.qualifier.clone());
                    let seen = self.get(table, get).await?;
                    let seen =
                        seen.is_some_and(|row| row.cells.iter().any(|c| c.value == cell.value));
                    if !seen {
                        self.put(table, put(None)?).await?;
                    }
                }
            }
            if delete.is_empty() {
                return Ok(());
            }
            self.change(table, |to, table, _| async move {
                let delete = delete_replaced(row, &delete)?;
                to.rows.mutate(delete).await.map_err(|error| storage_error(&table, &error))?;
                Ok(())
            })
            .await
        })
    }

    fn table_exists<'a>(&'a self, table: &'a Table) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let rows = self.shared.table(table)?.rows.clone();
            let regions = self.shared.run_abortable(async move { rows.regions().await }).await?;
            match regions.map_err(|error| storage_error(table, &error)) {
                Ok(regions) => Ok(!regions.is_empty()),
                Err(StorageError::NoSuchTable(_)) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async { self.shared.check_open() })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async {
            self.shared.close();
            let shared = Arc::clone(&self.shared);
            // Puts under way end as they may.
            let flushed = self.shared.runtime.spawn(async move {
                for table in shared.open_tables() {
                    table.writer.flush().await;
                }
            });
            // Without its runtime there is nothing left that could be under way.
            let _ = flushed.await;
            Ok(())
        })
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        metrics::gauges(&self.shared.client.stats())
    }
}

impl FlushTarget for HBaseStorage {
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        self.change(table, |to, table, _| async move { ingest(&to, &table, rows).await })
    }
}

/// Writes a batch and waits until all of it is durable.
pub(crate) async fn write(
    to: &OpenTable,
    table: &Table,
    batch: MutationBatch,
) -> Result<(), StorageError> {
    if batch.is_empty() {
        return Ok(());
    }
    to.writer.write(batch).await.map_err(|error| batch_error(table, &error))
}

pub(crate) fn batch_error(table: &Table, error: &BatchError) -> StorageError {
    match error.first() {
        Some(first) => storage_error(table, first),
        None => StorageError::Unavailable("nobody writes for this store any more".into()),
    }
}

/// Markers up to the times that were read.
fn delete_replaced(row: Bytes, replaced: &[ReplacedColumn]) -> Result<HBaseDelete, StorageError> {
    let failed = |error: RequestError| refused(&error);
    replaced.iter().try_fold(HBaseDelete::try_new(row).map_err(failed)?, |delete, old| {
        let until = timestamp(old.timestamp_ms)?;
        delete.column(old.family.as_str().as_bytes(), &old.qualifier, until).map_err(failed)
    })
}

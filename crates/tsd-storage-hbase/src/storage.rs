//! The storage traits, implemented with the HBase client.

mod rights;
mod row_compaction;

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use hbase_rs::{Client, Delete as HBaseDelete, Get as HBaseGet, OperationError, Selection};
use tokio::{runtime::Handle, time::sleep};
use tsd_model::{ColumnKind, Family, Row};
use tsd_series_index::SeriesIndex;
use tsd_storage::{
    BoxFuture, BytePermit, CellBatch, CellRef, Delete, FlushRows, FlushTarget, Get, HealthImpact,
    HealthProblem, Maintenance, PinnedFiles, ReplacedColumn, RowRewrite, RowScanner, Scan,
    SeriesReads, Storage, StorageError, StorageFuture, StoreComponent, Swap, Table, Write,
    WriteResult,
};

pub use self::rights::Rights;
use crate::{
    conditional::{self, execute_swap},
    config::HBaseConfig,
    context::{OpenTable, StoreContext},
    error::{invalid, storage_error},
    flush, metrics,
    mutations::{appends, puts, write_batch},
    overload::OverloadWatch,
    read_back::{self, UnverifiedRow, restore_superseded},
    read_back_queue::WrittenRows,
    request::{family_name, timestamp},
    scanner::HBaseScanner,
    series_registry::build,
    superseded::WrittenPoint,
    table_watch,
};

/// Pause after a delete. Its marker would hide a put of another daemon in the same millisecond. A timer
/// may fire up to one millisecond early.
const DELETE_PAUSE: Duration = Duration::from_millis(2);

/// Tables of an HBase cluster.
///
/// The store buffers no acknowledged cells: after `Ok` HBase has them. Flushing does nothing, and closing
/// only rejects later calls.
///
/// In family `t` a read before a compare-and-set distinguishes an absent column from an empty value, so a
/// column that gets an empty value in between may be overwritten. In the other families an empty value
/// counts as absent, as in OpenTSDB. Puts and conditional writes have the time of this process's clock;
/// appends and increments have the server's.
#[derive(Debug)]
pub struct HBaseStorage {
    context: Arc<StoreContext>,
    overload: OverloadWatch,
}

impl HBaseStorage {
    /// Creates a store on the configured cluster. It connects with the first call.
    ///
    /// Must be called inside a Tokio runtime with I/O and time that outlives the store; the store
    /// may then be called from any runtime.
    ///
    /// # Errors
    ///
    /// If there is no runtime, if no server of the cluster is configured, or if the client cannot connect in the
    /// configured way.
    pub fn connect(config: HBaseConfig) -> Result<Self, StorageError> {
        if config.discovery.is_empty() {
            return Err(StorageError::Backend("no ZooKeeper quorum is configured".into()));
        }
        let client = config.client().map_err(|error| StorageError::backend(&error))?;
        Self::with_client(client, config)
    }

    /// Creates a store on an existing client. Uses only the settings of tables from the configuration.
    ///
    /// # Errors
    ///
    /// If it is not called inside a Tokio runtime.
    pub fn with_client(client: Client, config: HBaseConfig) -> Result<Self, StorageError> {
        metrics::describe_metrics();
        let runtime = Handle::try_current().map_err(|error| StorageError::backend(&error))?;
        let context = Arc::new(StoreContext::new(client, config, runtime));
        Ok(Self { context, overload: OverloadWatch::default() })
    }

    /// The HBase client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.context.client
    }

    /// Starts a task that calls [`Self::read_back`] several times per [`HBaseConfig::read_back_delay`]. It
    /// ends with the store.
    pub fn start_read_backs(&self) {
        let delay = self.context.config.read_back_delay;
        if !delay.is_zero() {
            self.context.runtime.spawn(read_back::run(Arc::downgrade(&self.context), delay));
        }
    }

    /// Reads back points in rows that OpenTSDB may compact, [`HBaseConfig::read_back_delay`] after their
    /// write. Puts points again that a compaction superseded or hid.
    ///
    /// # Errors
    ///
    /// If HBase is unavailable; the points are read back later.
    pub async fn read_back(&self) -> Result<(), StorageError> {
        let context = Arc::clone(&self.context);
        self.context.run(async move { read_back::read_due(&context).await }).await?
    }

    /// As [`Storage::table_exists`], with a separate timeout. The error has the cause of the last failed
    /// attempt.
    ///
    /// # Errors
    ///
    /// If HBase does not answer in that time.
    pub async fn table_exists_within(
        &self,
        table: &Table,
        timeout: Duration,
    ) -> Result<bool, StorageError> {
        self.has_regions(table, Some(timeout)).await
    }

    async fn has_regions(
        &self,
        table: &Table,
        timeout: Option<Duration>,
    ) -> Result<bool, StorageError> {
        let rows = self.context.table(table)?.rows.clone();
        let rows = if let Some(timeout) = timeout { rows.with_timeout(timeout) } else { rows };
        let regions = self.context.run_abortable(async move { rows.regions().await }).await?;
        match regions.map_err(|error| storage_error(table, &error)) {
            Ok(regions) => Ok(!regions.is_empty()),
            Err(StorageError::NoSuchTable(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Starts a task that looks every few seconds whether these tables are disabled or missing, which is then a
    /// health problem. It ends with the store.
    pub fn start_table_watch(&self, tables: Vec<Table>) {
        self.context.runtime.spawn(table_watch::run(Arc::downgrade(&self.context), tables));
    }

    /// Starts a task that loads the series index and fills it, if the store has an index. It ends with the
    /// store.
    pub fn start_series_index(&self) {
        if self.context.registry.is_some() {
            self.context.runtime.spawn(build::run(Arc::downgrade(&self.context)));
        }
    }

    fn put_cells<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> StorageFuture<'a, WriteResult> {
        let context = Arc::clone(&self.context);
        self.run_write(table, |to, table, _| async move {
            register(&context, &table, batch.rows().map(|row| row.key)).await?;
            let mut written = WrittenRows::default();
            let compactible = to.compactible;
            let now_ms = to.clock.system_ms();
            let puts = puts(
                &batch,
                &to.clock,
                |mutations, bytes| to.writer.batch(mutations, bytes),
                |row, CellRef { family, qualifier, value, .. }, at| {
                    if compactible.is_some_and(|rows| rows.contains(row, now_ms))
                        && let Some(point) = WrittenPoint::new(*family, qualifier, value, at, at)
                    {
                        written.push(row, point);
                    }
                },
            )?;
            write_batch(&to.writer, &table, puts).await?;
            let end_ms = to.clock.system_ms();
            if to.read_backs.is_enabled() {
                to.read_backs.add(written, end_ms);
            } else if context.config.may_be_compacted_after(end_ms.saturating_sub(now_ms)) {
                let rows = written.into_rows().map(|(key, of)| UnverifiedRow::of_points(key, of));
                restore_superseded(&to, &table, rows.collect()).await?;
            }
            Ok(WriteResult::Done)
        })
    }

    fn append_cells<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> StorageFuture<'a, WriteResult> {
        let context = Arc::clone(&self.context);
        self.run_write(table, |to, table, _| async move {
            register(&context, &table, batch.rows().map(|row| row.key)).await?;
            for result in to.rows.batch(appends(&batch)?).await {
                result.map_err(|error| storage_error(&table, &error))?;
            }
            Ok(WriteResult::Done)
        })
    }

    fn swap<'a>(&'a self, table: &'a Table, swap: Swap) -> StorageFuture<'a, WriteResult> {
        let context = Arc::clone(&self.context);
        self.run_write(table, move |to, table, timeout| async move {
            let deletes = swap.new.is_none();
            if !deletes {
                register(&context, &table, std::iter::once(&swap.column.row[..])).await?;
            }
            let done = execute_swap(&swap, &to.rows, &to.clock, &table, timeout).await?;
            if done && deletes {
                sleep(DELETE_PAUSE).await;
            }
            Ok(WriteResult::Swapped(done))
        })
    }

    fn delete_cells<'a>(
        &'a self,
        table: &'a Table,
        delete: Delete,
    ) -> StorageFuture<'a, WriteResult> {
        self.run_write(table, |to, table, _| async move {
            let (row, columns) = match delete {
                Delete::Row(row) => (row, None),
                Delete::Columns { columns, .. } if columns.is_empty() => {
                    return Ok(WriteResult::Done);
                }
                Delete::Columns { row, columns } => (row, Some(columns)),
            };
            let until = delete_read(&to, &table, &row, columns.as_deref(), None).await?;
            if columns.is_none() && until.is_some() {
                // A row compaction may have put a point again between the read and the delete.
                delete_read(&to, &table, &row, None, until).await?;
            }
            if until.is_some() {
                sleep(DELETE_PAUSE).await;
            }
            Ok(WriteResult::Done)
        })
    }

    async fn rewrite(
        &self,
        table: &Table,
        rewrite: RowRewrite,
    ) -> Result<WriteResult, StorageError> {
        let RowRewrite { row, put, superseded_ms, delete, .. } = rewrite;
        if let Some(cell) = put {
            self.check_settled(table, &row, &cell)?;
            self.put_compacted(table, &row, (&cell, superseded_ms), &delete).await?;
        }
        if delete.is_empty() {
            return Ok(WriteResult::Done);
        }
        self.run_write(table, |to, table, _| async move {
            let delete = delete_replaced(row, &delete)?;
            to.rows.mutate(delete).await.map_err(|error| storage_error(&table, &error))?;
            Ok(WriteResult::Done)
        })
        .await
    }

    /// Runs a write to completion, on the store's runtime.
    fn run_write<'a, T, F>(
        &'a self,
        table: &'a Table,
        write: impl FnOnce(Arc<OpenTable>, Table, Duration) -> F + Send + 'a,
    ) -> BoxFuture<'a, Result<T, StorageError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StorageError>> + Send + 'static,
    {
        Box::pin(async move {
            self.context.check_open()?;
            let opened = self.context.table(table)?;
            let timeout = self.context.config.operation_timeout;
            self.context.run(write(opened, table.clone(), timeout)).await?
        })
    }
}

impl Storage for HBaseStorage {
    fn get<'a>(
        &'a self,
        table: &'a Table,
        get: Get,
    ) -> BoxFuture<'a, Result<Option<Row>, StorageError>> {
        Box::pin(self.context.get_row(table, get))
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> BoxFuture<'a, Result<Vec<Option<Row>>, StorageError>> {
        Box::pin(self.context.get_rows(table, gets, None))
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        Box::new(HBaseScanner::open(&self.context, table, scan))
    }

    fn write<'a>(
        &'a self,
        table: &'a Table,
        write: Write,
        _: Option<&'a BytePermit>,
    ) -> StorageFuture<'a, WriteResult> {
        match write {
            Write::Put(batch) => self.put_cells(table, batch),
            Write::Append(batch) => self.append_cells(table, batch),
            Write::Increment { column, amount } => {
                self.run_write(table, move |to, table, _| async move {
                    conditional::increment(&to.rows, &table, &column, amount)
                        .await
                        .map(WriteResult::Sum)
                })
            }
            Write::Swap(swap) => self.swap(table, swap),
            Write::Delete(delete) => self.delete_cells(table, delete),
            Write::Rewrite(rewrite) => Box::pin(self.rewrite(table, rewrite)),
        }
    }

    fn table_exists<'a>(&'a self, table: &'a Table) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(self.has_regions(table, None))
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async { self.context.check_open() })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async {
            self.context.close();
            let shared = Arc::clone(&self.context);
            // Waits for the puts in flight; their results go to their callers.
            let flushed = self.context.runtime.spawn(async move {
                for table in shared.open_tables() {
                    table.writer.flush().await;
                }
            });
            // An error means that the runtime has ended, and no put is in flight.
            let _ = flushed.await;
            Ok(())
        })
    }

    fn series(&self) -> &dyn SeriesReads {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }
}

impl SeriesReads for HBaseStorage {
    fn series_index(&self, table: &Table) -> Option<Arc<SeriesIndex>> {
        Some(Arc::clone(self.context.registry_of(table)?.index()))
    }

    fn refresh_series_index<'a>(
        &'a self,
        table: &'a Table,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async {
            match self.context.registry_of(table) {
                Some(registry) => registry.refresh_loaded(&self.context).await,
                None => Ok(()),
            }
        })
    }
}

impl Maintenance for HBaseStorage {
    fn pin_files(&self) -> BoxFuture<'_, Result<PinnedFiles, StorageError>> {
        let text = "the points are in HBase, which has snapshots of its own: take one of each table \
                    there, such as `snapshot 'tsdb', 'NAME'` in `hbase shell`";
        Box::pin(async move { Err(StorageError::Rejected(text.into())) })
    }

    fn health(&self) -> Vec<HealthProblem> {
        let closed = self.context.registry.as_ref().and_then(|registry| registry.closed());
        let problem = |reason| {
            let text = format!("the series index is closed, queries scan: {reason}");
            HealthProblem::new(StoreComponent::Backend, HealthImpact::Degraded, text)
        };
        let unusable = self.context.unusable_tables();
        let of_tables = unusable.iter().map(|(table, cause)| table_watch::problem(table, cause));
        let overload = self.overload.problems(&self.context.client.stats().retries);
        of_tables.chain(closed.map(problem)).chain(overload).collect()
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let waiting =
            self.context.open_tables().into_iter().map(|table| table.read_backs.waiting());
        let waiting = waiting.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let registry = self.context.registry.iter().flat_map(|registry| registry.gauges());
        metrics::gauges(&self.context.client.stats(), waiting, registry)
    }
}

impl FlushTarget for HBaseStorage {
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        let context = Arc::clone(&self.context);
        self.run_write(table, move |to, table, _| async move {
            let registry = context.registry_of(&table).map(|of| (&context, &**of));
            flush::flush_rows(&to, &table, rows, registry).await
        })
    }
}

/// Registers the series of rows that are about to be written, if the table has a registry.
async fn register<'k>(
    context: &Arc<StoreContext>,
    table: &Table,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<(), StorageError> {
    match context.registry_of(table) {
        Some(registry) => registry.register(context, keys).await,
        None => Ok(()),
    }
}

/// Deletes the cells of a row, in all columns or in `columns`, if one of them is newer than
/// `deleted_until`. Returns the time of the newest cell.
async fn delete_read(
    of: &OpenTable,
    table: &Table,
    row: &Bytes,
    columns: Option<&[(Family, Bytes)]>,
    deleted_until: Option<u64>,
) -> Result<Option<u64>, StorageError> {
    let failed = |error: OperationError| storage_error(table, &error);
    let mut selection = Selection::all();
    for (family, qualifier) in columns.into_iter().flatten() {
        selection = selection.columns(family_name(*family), [qualifier.clone()]);
    }
    let get = HBaseGet::try_new(row.clone()).map_err(invalid)?.select(selection);
    let read = of.rows.get(&get).await.map_err(failed)?;
    // The markers have the times of the cells that they hide, which may come from another clock. So they
    // hide neither a later write with this clock nor one with the server's.
    let mut newest = read.cells().map(|cell| cell.timestamp).max();
    if columns.is_none() && of.may_be_put_again(row) {
        // Without this, points that compactions of OpenTSDB have hidden would be put again.
        let history = read_back::history(of, table, row).await?;
        newest = newest.max(history.newest_write_ms().and_then(|at| u64::try_from(at).ok()));
    }
    let Some(newest) = newest.filter(|newest| deleted_until.is_none_or(|until| until < *newest))
    else {
        return Ok(None);
    };
    // Points of a flushed column may be newer than the column, and are put alone if it is flushed again.
    let is_column = |qualifier| ColumnKind::of(qualifier) == ColumnKind::Compacted;
    let newest = if read.cells().any(|cell| is_column(cell.qualifier)) {
        newest.max(timestamp(of.clock.now_ms())?)
    } else {
        newest
    };
    let delete = HBaseDelete::try_new(row.clone()).map_err(invalid)?;
    let delete = match columns {
        None => delete.up_to(newest),
        Some(_) => read
            .cells()
            .try_fold(delete, |delete, cell| {
                delete.column(cell.family, cell.qualifier, cell.timestamp)
            })
            .map_err(invalid)?,
    };
    of.clock.pass(i64::try_from(newest).unwrap_or(i64::MAX));
    of.read_backs.forget(row);
    of.rows.mutate(delete).await.map_err(failed)?;
    Ok(Some(newest))
}

/// Returns delete markers with the timestamps that were read.
fn delete_replaced(row: Bytes, replaced: &[ReplacedColumn]) -> Result<HBaseDelete, StorageError> {
    replaced.iter().try_fold(HBaseDelete::try_new(row).map_err(invalid)?, |delete, old| {
        let until = timestamp(old.timestamp_ms)?;
        delete.column(old.family.as_str().as_bytes(), &old.qualifier, until).map_err(invalid)
    })
}

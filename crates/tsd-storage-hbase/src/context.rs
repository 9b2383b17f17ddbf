//! State shared by all calls of a store: the client, its runtime and the open tables.

use parking_lot::RwLock;
use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hbase_rs::{BufferConfig, BufferedMutator, Client, Table as HBaseTable, TimeRange};
use tokio::{runtime::Handle, task::AbortHandle};
use tsd_model::Row;
use tsd_storage::{Get, StorageError, Table};

use crate::{
    clock::WriteClock,
    compactible_rows::CompactibleRows,
    config::HBaseConfig,
    error::storage_error,
    read_back_queue::ReadBacks,
    request::{hbase_get, time_range},
    row::model_row,
    series_registry::SeriesRegistry,
};

#[derive(Debug)]
pub(crate) struct StoreContext {
    pub(crate) client: Client,
    pub(crate) config: HBaseConfig,
    /// Runtime of the connections. The runtimes of callers may be short-lived, blocked or without I/O.
    pub(crate) runtime: Handle,
    pub(crate) clock: Arc<WriteClock>,
    /// The series registry of the table of points, if its series are indexed.
    pub(crate) registry: Option<Arc<SeriesRegistry>>,
    tables: RwLock<HashMap<Table, Arc<OpenTable>>>,
    /// Watched tables that are disabled or missing, with the cause as a predicate.
    unusable: RwLock<BTreeMap<Table, &'static str>>,
    closed: AtomicBool,
}

/// A table with its writer.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) rows: HBaseTable,
    pub(crate) writer: BufferedMutator,
    /// The clock of the store.
    pub(crate) clock: Arc<WriteClock>,
    /// The rows that another daemon may compact, if this is the table of points.
    pub(crate) compactible: Option<CompactibleRows>,
    pub(crate) read_backs: ReadBacks,
    /// True once a server before HBase 2.4 was found, which does not check conditions. From then on no server
    /// is asked until the next start.
    pub(crate) has_old_servers: AtomicBool,
}

impl OpenTable {
    /// Returns the time from which on another daemon may compact a row, epoch milliseconds; `i64::MAX` if no
    /// daemon does.
    pub(crate) fn compactible_since_ms(&self, row: &[u8]) -> i64 {
        self.compactible.map_or(i64::MAX, |rows| rows.since_ms(row))
    }

    /// True if a daemon may wait to put points of a row again.
    pub(crate) fn may_be_put_again(&self, row: &[u8]) -> bool {
        let is_compactible = |rows: CompactibleRows| rows.contains(row, self.clock.system_ms());
        self.read_backs.is_enabled() && self.compactible.is_some_and(is_compactible)
    }
}

impl StoreContext {
    pub(crate) fn new(client: Client, config: HBaseConfig, runtime: Handle) -> Self {
        let (tables, closed) = (RwLock::default(), AtomicBool::new(false));
        let clock = Arc::new(WriteClock::new(config.clock));
        let registry = config.series_index.clone().map(|of| Arc::new(SeriesRegistry::new(of)));
        let unusable = RwLock::default();
        Self { client, config, runtime, clock, registry, tables, unusable, closed }
    }

    pub(crate) fn check_open(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Records why a table cannot be used; `None` if it can.
    pub(crate) fn set_unusable(&self, table: &Table, cause: Option<&'static str>) {
        let mut unusable = self.unusable.write();
        match cause {
            Some(cause) => unusable.insert(table.clone(), cause),
            None => unusable.remove(table),
        };
    }

    /// Returns the tables that cannot be used, with the causes.
    pub(crate) fn unusable_tables(&self) -> BTreeMap<Table, &'static str> {
        self.unusable.read().clone()
    }

    /// Returns the series registry of a table, if its series are indexed.
    pub(crate) fn registry_of(&self, table: &Table) -> Option<&Arc<SeriesRegistry>> {
        self.registry.as_ref().filter(|registry| registry.table() == table)
    }

    /// Returns the tables that were used so far.
    pub(crate) fn open_tables(&self) -> Vec<Arc<OpenTable>> {
        self.tables.read().values().cloned().collect()
    }

    pub(crate) fn table(&self, table: &Table) -> Result<Arc<OpenTable>, StorageError> {
        let cached = self.tables.read().get(table).cloned();
        if let Some(table) = cached {
            return Ok(table);
        }
        let name = format!("{}{table}", self.config.table_prefix);
        let rows = self.client.table(name.parse().map_err(|error| StorageError::backend(&error))?);
        let mut buffer = BufferConfig::default();
        buffer.max_bytes = self.config.max_write_bytes;
        let _guard = self.runtime.enter();
        let writer = rows.buffered(buffer);
        let mut tables = self.tables.write();
        let entry = tables.entry(table.clone());
        Ok(Arc::clone(entry.or_insert_with(|| self.open_table(table, rows, writer))))
    }

    fn open_table(
        &self,
        table: &Table,
        rows: HBaseTable,
        writer: BufferedMutator,
    ) -> Arc<OpenTable> {
        let compacted = self.config.compacted_table.as_ref();
        let compactible = compacted
            .filter(|(compacted, _)| compacted == table)
            .map(|(_, schema)| CompactibleRows { schema: *schema });
        let read_backs = ReadBacks::new(self.config.read_back_delay);
        Arc::new(OpenTable {
            rows,
            writer,
            clock: Arc::clone(&self.clock),
            compactible,
            read_backs,
            has_old_servers: AtomicBool::new(false),
        })
    }

    pub(crate) async fn get_row(
        &self,
        table: &Table,
        get: Get,
    ) -> Result<Option<Row>, StorageError> {
        let Some(get) = hbase_get(get, None) else { return Ok(None) };
        let rows = self.table(table)?.rows.clone();
        let error = |error| storage_error(table, &error);
        let row = self.run_abortable(async move { rows.get(&get).await }).await?.map_err(error)?;
        Ok(model_row(&row))
    }

    /// Reads rows. Returns them in the order of `gets`.
    pub(crate) async fn get_rows(
        &self,
        table: &Table,
        gets: Vec<Get>,
        times: Option<(i64, i64)>,
    ) -> Result<Vec<Option<Row>>, StorageError> {
        let times: Option<TimeRange> = time_range(times)?;
        let rows = self.table(table)?.rows.clone();
        let mut valid = Vec::with_capacity(gets.len());
        // Rows with invalid keys are absent.
        let sent: Vec<bool> = gets
            .into_iter()
            .map(|get| hbase_get(get, times).map(|get| valid.push(get)).is_some())
            .collect();
        let error = |error| storage_error(table, &error);
        let found = self.run_abortable(async move { rows.get_many(valid).await }).await?;
        let mut found = found.map_err(error)?.into_iter();
        Ok(sent
            .into_iter()
            .map(|sent| if sent { found.next() } else { None }.as_ref().and_then(model_row))
            .collect())
    }

    /// Runs a call on the store's runtime, to completion even if the caller drops the future.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.check_open()?;
        self.runtime.spawn(call).await.map_err(|_| StorageError::Closed)
    }

    /// Runs a call on the store's runtime and aborts it when the caller drops the future.
    pub(crate) async fn run_abortable<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.check_open()?;
        let task = self.runtime.spawn(call);
        let _abort = AbortOnDrop(task.abort_handle());
        task.await.map_err(|_| StorageError::Closed)
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

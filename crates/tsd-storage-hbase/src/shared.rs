//! What all calls of a store share.

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use hbase_rs::{BufferConfig, BufferedMutator, Client, Table as HBaseTable, TimeRange};
use tokio::{runtime::Handle, task::AbortHandle};
use tsd_model::Row;
use tsd_storage::{Get, StorageError, Table};

use crate::{
    config::HBaseConfig,
    error::{refused, storage_error},
    request::{hbase_get, time_range},
    row::model_row,
};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) config: HBaseConfig,
    /// Where connections live. Callers may come from runtimes that end, or stand still, or have no I/O.
    pub(crate) runtime: Handle,
    tables: RwLock<HashMap<Table, Arc<OpenTable>>>,
    closed: AtomicBool,
}

/// A table that was used.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) rows: HBaseTable,
    pub(crate) writer: BufferedMutator,
}

impl Shared {
    pub(crate) fn new(client: Client, config: HBaseConfig, runtime: Handle) -> Self {
        let (tables, closed) = (RwLock::default(), AtomicBool::new(false));
        Self { client, config, runtime, tables, closed }
    }

    pub(crate) fn check_open(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) { Err(StorageError::Closed) } else { Ok(()) }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The tables that were used so far.
    pub(crate) fn open_tables(&self) -> Vec<Arc<OpenTable>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn table(&self, table: &Table) -> Result<Arc<OpenTable>, StorageError> {
        let known = self.tables.read().unwrap_or_else(PoisonError::into_inner).get(table).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let name = format!("{}{table}", self.config.table_prefix);
        let rows = self.client.table(name.parse().map_err(|error| refused(&error))?);
        let mut buffer = BufferConfig::default();
        buffer.max_bytes = self.config.max_write_bytes;
        let _inside = self.runtime.enter();
        let writer = rows.buffered(buffer);
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let opened = tables.entry(table.clone());
        Ok(Arc::clone(opened.or_insert_with(|| Arc::new(OpenTable { rows, writer }))))
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

    /// Rows in the order asked for.
    pub(crate) async fn get_rows(
        &self,
        table: &Table,
        gets: Vec<Get>,
        times: Option<(i64, i64)>,
    ) -> Result<Vec<Option<Row>>, StorageError> {
        let times: Option<TimeRange> = time_range(times)?;
        let rows = self.table(table)?.rows.clone();
        let mut asked = Vec::with_capacity(gets.len());
        // Keys that no row can have are not asked for.
        let sent: Vec<bool> = gets
            .into_iter()
            .map(|get| hbase_get(get, times).map(|get| asked.push(get)).is_some())
            .collect();
        let error = |error| storage_error(table, &error);
        let found = self.run_abortable(async move { rows.get_many(asked).await }).await?;
        let mut found = found.map_err(error)?.into_iter();
        Ok(sent
            .into_iter()
            .map(|sent| if sent { found.next() } else { None }.as_ref().and_then(model_row))
            .collect())
    }

    /// Runs a call where the connections live, to its end even if the caller goes away.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.check_open()?;
        self.runtime.spawn(call).await.map_err(|_| StorageError::Closed)
    }

    /// Runs a call where the connections live, and gives it up when the caller goes away.
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

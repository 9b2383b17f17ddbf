//! A daemon's store on a log table, which a test can kill.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use hbase_fake::FakeCluster;
use hbase_rs::{Client, ClientConfig, config::Backoff};
use tsd_cluster_log::{ClusterLog, ClusterLogConfig, OpenLogError, OpenedLog};
use tsd_model::Family;
use tsd_storage::{
    CellBatch, CellRef, Delete, Get, MemoryStorage, Storage, StorageError, StorageExt, Table,
};
use tsd_storage_wal::{BackendSharing, CommitLog, OpenError, ReplayReport, WalConfig, WalStorage};

/// A time longer than any call takes.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// HBase with the log, and the store of the rows.
pub(crate) struct World {
    pub(crate) cluster: FakeCluster,
    pub(crate) backend: Arc<MemoryStorage>,
    /// Time after which a call without an answer is repeated.
    call_timeout: Duration,
}

/// A daemon's store. It is killed by dropping it.
pub(crate) struct LogNode {
    pub(crate) store: WalStorage<MemoryStorage>,
    pub(crate) log: Arc<ClusterLog>,
    pub(crate) report: ReplayReport,
}

/// Why a store was not opened.
#[derive(Debug)]
pub(crate) enum NodeError {
    Log(OpenLogError),
    Replay(OpenError),
}

impl std::fmt::Display for NodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log(error) => write!(f, "{error}"),
            Self::Replay(error) => write!(f, "{error}"),
        }
    }
}

pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

pub(crate) fn table() -> Table {
    Table::new("tsdb")
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::repeating_after(Duration::from_mins(1)).await
    }

    /// A world for tests with calls that are not answered. All other tests leave calls enough time, even on a
    /// busy machine.
    pub(crate) async fn repeating_after(call_timeout: Duration) -> Self {
        let backend = Arc::new(MemoryStorage::new([table()]));
        Self { cluster: FakeCluster::start(3).await, backend, call_timeout }
    }

    pub(crate) fn client(&self) -> Client {
        let mut config = ClientConfig::new("test");
        let pause = Duration::from_millis(1);
        config.backoff = Backoff { base: pause, overloaded: pause, max: pause };
        config.call_timeout = self.call_timeout;
        config.connect_timeout = self.call_timeout;
        config.failed_server_pause = pause;
        Client::new(config, self.cluster.discovery())
    }

    /// A configuration with only one heartbeat, in which a former process of the same name counts as dead at
    /// once.
    pub(crate) fn config() -> ClusterLogConfig {
        ClusterLogConfig {
            heartbeat: Duration::from_hours(1),
            suspect_after: Duration::ZERO,
            start_timeout: PATIENCE,
            append_timeout: PATIENCE,
            work_timeout: PATIENCE,
            hedge_after: None,
            ..ClusterLogConfig::new("tsdb-log", "node")
        }
    }

    pub(crate) async fn open(&self) -> LogNode {
        self.try_open().await.unwrap()
    }

    pub(crate) async fn open_at(&self, clock: fn() -> i64) -> LogNode {
        self.open_with(Self::config(), clock).await.unwrap()
    }

    pub(crate) async fn try_open(&self) -> Result<LogNode, NodeError> {
        self.open_with(Self::config(), now_ms).await
    }

    pub(crate) async fn open_with(
        &self,
        config: ClusterLogConfig,
        clock: fn() -> i64,
    ) -> Result<LogNode, NodeError> {
        let node = self.open_unadmitted(config, clock).await?;
        node.log.admit();
        Ok(node)
    }

    /// A node that the others have not admitted yet.
    pub(crate) async fn open_unadmitted(
        &self,
        config: ClusterLogConfig,
        clock: fn() -> i64,
    ) -> Result<LogNode, NodeError> {
        let client = self.client();
        let opened = Box::pin(tsd_cluster_log::open(&client, config)).await;
        let OpenedLog { log, former } = opened.map_err(NodeError::Log)?;
        let wal = WalConfig {
            backend: BackendSharing::MultiWriter,
            max_age: Duration::from_hours(10),
            group_bytes: 88 << 10,
            clock,
            ..WalConfig::new(Path::new(""))
        };
        let commit_log: Arc<dyn CommitLog> = Arc::<ClusterLog>::clone(&log);
        let store = WalStorage::open_on(wal, commit_log, former, Arc::clone(&self.backend));
        let (store, report) = store.await.map_err(NodeError::Replay)?;
        Ok(LogNode { store, log, report })
    }

    /// Waits until the logs of all earlier daemons are removed.
    pub(crate) async fn wait_until_retired(&self, node: &LogNode) {
        wait_until(|| gauge(node, "tsd_cluster_log_former_logs") == 0).await;
    }
}

pub(crate) fn gauge(node: &LogNode, name: &str) -> u64 {
    node.log.gauges().into_iter().find(|(other, _)| *other == name).unwrap().1 as u64
}

pub(crate) async fn wait_until(mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_done() {
        assert!(Instant::now() < deadline, "it does not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn put(
    store: &impl Storage,
    row: &[u8],
    value: &[u8],
) -> Result<(), StorageError> {
    let cell = CellRef { family: Family::T, qualifier: b"q", value, timestamp_ms: None };
    store.put(&table(), CellBatch::single(row, cell).unwrap()).await
}

pub(crate) async fn delete(store: &impl Storage, row: &[u8]) -> Result<(), StorageError> {
    store.delete(&table(), Delete::Row(Bytes::copy_from_slice(row))).await
}

pub(crate) async fn value(store: &impl Storage, row: &[u8]) -> Option<Bytes> {
    let row = store.get(&table(), Get::row(Bytes::copy_from_slice(row))).await.unwrap()?;
    row.into_cells().unwrap().into_iter().next().map(|cell| cell.value)
}

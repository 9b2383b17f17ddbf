//! An HBase cluster in the process: region servers on real sockets that share one memory.
//!
//! It speaks the protocol as the recordings of a real cluster do: hbase:meta, regions that move, split
//! and merge, scanners with leases and sequence numbers, cell blocks both ways. It keeps one version
//! a column, and delete markers for ever. A [`Fault`] makes it misbehave at a chosen call.

mod call;
mod fault;
mod master;
mod meta;
mod namespaces;
mod scan;
mod select;
mod server;
mod state;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hbase_rs::{Discovery, DiscoveryFuture, ServerName, TableName};
use hbase_rs_protobuf as pb;
use prost::Message;

pub use self::fault::{Fault, Misdeed};
use self::{server::Listener, state::State};
use crate::zookeeper::FakeEnsemble;

/// In front of every message in ZooKeeper: who wrote it, and a mark.
const NODE_HEAD: &[u8] = b"\xff\0\0\0\x05mark!PBUF";
/// State of an open region.
const OPEN: i32 = 3;

/// A cluster that runs until it is dropped.
#[derive(Debug)]
pub struct FakeCluster {
    state: Shared,
    listeners: Mutex<Vec<Option<Listener>>>,
}

/// State that all servers share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeCluster {
    /// Starts region servers; the first has hbase:meta.
    pub async fn start(servers: usize) -> Self {
        let state = Shared::default();
        state.lock().has_flush_table = true;
        let mut listeners = Vec::new();
        for index in 0..servers {
            listeners.push(Some(Listener::start(index, 0, &state).await));
        }
        Self { state, listeners: Mutex::new(listeners) }
    }

    /// Tells where hbase:meta is.
    #[must_use]
    pub fn discovery(&self) -> FakeDiscovery {
        FakeDiscovery(self.state.clone())
    }

    /// Writes down in ZooKeeper where hbase:meta and the master are now, as HBase does.
    pub fn publish(&self, ensemble: &FakeEnsemble, root: &str) {
        let state = self.state.lock();
        let meta = pb::MetaRegionServer {
            server: state.servers[state.meta_server].to_message(),
            rpc_version: Some(0),
            state: Some(OPEN),
        };
        let master = pb::Master {
            master: state.servers[state.master].to_message(),
            rpc_version: None,
            info_port: None,
        };
        let id = pb::ClusterId { cluster_id: "fake".to_owned() };
        for (name, message) in [
            ("meta-region-server", meta.encode_to_vec()),
            ("master", master.encode_to_vec()),
            ("hbaseid", id.encode_to_vec()),
        ] {
            ensemble.set(&format!("{root}/{name}"), [NODE_HEAD, &message].concat());
        }
    }

    /// Name of a server in its life of now.
    #[must_use]
    pub fn server(&self, server: usize) -> ServerName {
        self.state.lock().servers[server].clone()
    }

    /// Moves hbase:meta.
    pub fn move_meta(&self, server: usize) {
        self.state.lock().meta_server = server;
    }

    /// Makes another server the active master; each server can be one, the first is at the start.
    pub fn set_master(&self, server: usize) {
        self.state.lock().master = server;
    }

    /// Makes the master one of those that know no `FlushTable`.
    pub fn forget_flush_table(&self) {
        self.state.lock().has_flush_table = false;
    }

    /// Makes a table whose regions begin at its start and at the splits, spread over the servers.
    pub fn create_table(&self, name: &str, splits: &[&str]) -> TableName {
        let table: TableName = name.parse().unwrap();
        let splits: Vec<_> = splits.iter().map(|key| key.as_bytes()).collect();
        self.state.lock().create_table(&table, &splits);
        table
    }

    /// Lets the next calls that fit fail in some way.
    pub fn fault(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Moves the region of a row; its former server then knows where to, unless `silently`.
    pub fn move_region(&self, table: &TableName, row: &str, server: usize, silently: bool) {
        self.state.lock().move_region(table, row.as_bytes(), server, silently);
    }

    /// Splits the region of a row in two, at that row.
    pub fn split_region(&self, table: &TableName, row: &str) {
        self.state.lock().split_region(table, row.as_bytes());
    }

    /// Merges the region of a row with the one behind it.
    pub fn merge_region(&self, table: &TableName, row: &str) {
        self.state.lock().merge_region(table, row.as_bytes());
    }

    /// Splits the region of a row at that row, unless it begins there.
    pub fn split_at(&self, table: &TableName, row: &str) {
        let mut state = self.state.lock();
        if state.start_of(table, row.as_bytes()) != row.as_bytes() {
            state.split_region(table, row.as_bytes());
        }
    }

    /// Merges the region of a row with the one behind it, unless it is the last.
    pub fn merge_at(&self, table: &TableName, row: &str) {
        let mut state = self.state.lock();
        if !state.is_last(table, row.as_bytes()) {
            state.merge_region(table, row.as_bytes());
        }
    }

    /// Opens all regions of a server, and hbase:meta, on another one.
    pub fn evacuate(&self, from: usize, to: usize) {
        self.state.lock().evacuate(from, to);
    }

    /// Puts the table's regions in this state, in hbase:meta and on the servers (`OPEN` serves).
    pub fn set_table(&self, table: &TableName, state: &'static str) {
        self.state.lock().set_table(table, state);
    }

    /// Kills a server: its sockets close. Its regions stay with it until they are moved.
    pub async fn kill(&self, server: usize) {
        let listener = self.listeners.lock().unwrap_or_else(PoisonError::into_inner)[server].take();
        if let Some(listener) = listener {
            listener.stop().await;
        }
        self.state.lock().scanners.retain(|_, scanner| scanner.server != server);
    }

    /// Starts a killed server in a new life, at the same port. It serves nothing before regions move there.
    pub async fn restart(&self, server: usize) {
        let port = self.state.lock().servers[server].port();
        let listener = Listener::start(server, port, &self.state).await;
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)[server] = Some(listener);
    }

    /// Forgets all scanners, as if their leases had ended.
    pub fn end_leases(&self) {
        self.state.lock().scanners.clear();
    }

    /// Scanners that are open.
    #[must_use]
    pub fn open_scanners(&self) -> usize {
        self.state.lock().scanners.len()
    }

    /// Bounds on an answer to a scan: rows, and cells.
    pub fn answer_size(&self, rows: usize, cells: usize) {
        let mut state = self.state.lock();
        state.rows_per_answer = rows;
        state.cells_per_answer = cells;
    }

    /// Lets hbase:meta have so many deleted rows that a scanner gives as many answers without rows before
    /// it comes to one that is left.
    pub fn fill_meta_with_dead_rows(&self, answers: usize) {
        self.state.lock().dead_rows_of_meta = answers;
    }

    /// Calls of a method so far.
    #[must_use]
    pub fn calls(&self, method: &str) -> usize {
        self.state.lock().calls.get(method).copied().unwrap_or(0)
    }

    /// Connections that were accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.lock().connections
    }

    /// Number of cells in a table.
    #[must_use]
    pub fn cells(&self, table: &TableName) -> usize {
        let state = self.state.lock();
        state.rows.iter().filter(|((of, _), _)| of == table).map(|(_, row)| row.len()).sum()
    }

    /// Stored value of a column.
    #[must_use]
    pub fn value(
        &self,
        table: &TableName,
        row: &str,
        family: &str,
        qualifier: &str,
    ) -> Option<Bytes> {
        let state = self.state.lock();
        let columns = state.rows.get(&(table.clone(), Bytes::copy_from_slice(row.as_bytes())))?;
        let key = (
            Bytes::copy_from_slice(family.as_bytes()),
            Bytes::copy_from_slice(qualifier.as_bytes()),
        );
        columns.get(&key).map(|(_, value)| value.clone())
    }
}

/// Discovery of a [`FakeCluster`].
#[derive(Clone, Debug)]
pub struct FakeDiscovery(Shared);

impl Discovery for FakeDiscovery {
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName> {
        let state = self.0.lock();
        let server = state.servers[state.meta_server].clone();
        Box::pin(async { Ok(server) })
    }

    fn master(&self) -> DiscoveryFuture<'_, ServerName> {
        let state = self.0.lock();
        let server = state.servers[state.master].clone();
        Box::pin(async { Ok(server) })
    }

    fn cluster_id(&self) -> DiscoveryFuture<'_, String> {
        Box::pin(async { Ok("fake".to_owned()) })
    }
}

//! An HBase cluster in this process, with region servers on loopback sockets and shared state.
//!
//! It implements the protocol as recorded from a real cluster: hbase:meta, regions that move, split and
//! merge, scanners with leases and sequence numbers, cell blocks in both directions. Reads see one
//! version per column. Raw scans see all versions with their delete markers. Delete markers are dropped
//! only in a major compaction that a test requests. Nothing is persisted. An [`InjectedFault`] makes
//! chosen calls fail.

mod call;
mod call_result;
mod cell_selector;
mod digest;
mod listener;
mod master;
mod memstore;
mod meta;
mod namespace_calls;
mod namespaces;
mod quota;
mod registry;
mod row_calls;
mod sasl;
mod scan;
mod snapshot;
mod state;
mod token_call;

use parking_lot::Mutex;
use std::collections::BTreeMap;

use bytes::Bytes;
use hbase_rs::{
    CellKind, ServerName, TableName,
    admin::TableState,
    discovery::{Discovery, DiscoveryError, DiscoveryFuture},
};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::net::TcpSocket;

pub use self::snapshot::RegionSnapshot;
use self::{
    listener::ServerListener,
    state::{SharedState, flush_history},
};
use crate::{fault::InjectedFault, security::FakeTokens, tls::FakeTls, zookeeper::FakeEnsemble};

/// Header of a znode's data: length and id of the writer, magic of the protobuf message.
const ZNODE_HEADER: &[u8] = b"\xff\0\0\0\x05mark!PBUF";
/// Protobuf number of the region state `OPEN`.
const OPEN: i32 = 3;

/// An HBase cluster; dropping it closes its sockets.
#[derive(Debug)]
pub struct FakeCluster {
    state: SharedState,
    listeners: Mutex<Vec<Option<ServerListener>>>,
    /// Sockets that keep the ports of killed servers, so that no other process gets them.
    kept_ports: Mutex<BTreeMap<usize, TcpSocket>>,
}

impl FakeCluster {
    /// Starts region servers; the first serves hbase:meta and is the active master.
    pub async fn start(servers: usize) -> Self {
        Self::start_with(servers, None).await
    }

    /// As [`Self::start`], with TLS from the first byte of each connection.
    pub async fn start_encrypted(servers: usize, tls: FakeTls) -> Self {
        Self::start_with(servers, Some(tls)).await
    }

    async fn start_with(servers: usize, tls: Option<FakeTls>) -> Self {
        let state = SharedState::default();
        {
            let mut state = state.lock();
            state.has_flush_table = true;
            state.master = Some(0);
            state.tls = tls;
        }
        let mut listeners = Vec::new();
        for index in 0..servers {
            listeners.push(Some(ServerListener::start(index, 0, &state).await));
        }
        Self { state, listeners: Mutex::new(listeners), kept_ports: Mutex::default() }
    }

    /// Returns a discovery of this cluster without ZooKeeper.
    #[must_use]
    pub fn discovery(&self) -> FakeDiscovery {
        FakeDiscovery(self.state.clone())
    }

    /// Writes the current locations of hbase:meta and the master to ZooKeeper, as HBase does. Without a
    /// master there is no znode of it.
    pub fn publish(&self, ensemble: &FakeEnsemble, root: &str) {
        let state = self.state.lock();
        let meta = pb::MetaRegionServer {
            server: state.servers[state.meta_server].to_message(),
            rpc_version: Some(0),
            state: Some(OPEN),
        };
        let master = state.master.map(|master| pb::Master {
            master: state.servers[master].to_message(),
            rpc_version: None,
            info_port: None,
        });
        let id = pb::ClusterId { cluster_id: "fake".to_owned() };
        for (name, message) in [
            ("meta-region-server", Some(meta.encode_to_vec())),
            ("master", master.map(|master| master.encode_to_vec())),
            ("hbaseid", Some(id.encode_to_vec())),
        ] {
            let path = format!("{root}/{name}");
            match message {
                Some(message) => ensemble.set(&path, [ZNODE_HEADER, &message].concat()),
                None => ensemble.remove(&path),
            }
        }
    }

    /// Returns a server's name; the start code changes with each restart.
    #[must_use]
    pub fn server(&self, server: usize) -> ServerName {
        self.state.lock().servers[server].clone()
    }

    /// Moves hbase:meta.
    pub fn move_meta(&self, server: usize) {
        self.state.lock().meta_server = server;
    }

    /// Makes another server the active master.
    pub fn set_master(&self, server: usize) {
        self.state.lock().master = Some(server);
    }

    /// Stops the master; the region servers go on. [`Self::set_master`] starts it again.
    pub fn stop_master(&self) {
        self.state.lock().master = None;
    }

    /// Drops a table, without the master.
    pub fn drop_table(&self, table: &TableName) {
        self.state.lock().drop_table(table);
    }

    /// Removes all rows of a table, as a truncation does.
    pub fn truncate_table(&self, table: &TableName) {
        self.state.lock().forget_rows(table);
    }

    /// Sets an attribute of a table that was created through the master.
    pub fn set_table_attribute(&self, table: &TableName, name: &str, value: &str) {
        let mut state = self.state.lock();
        let attributes = &mut state.schemas.get_mut(table).unwrap().attributes;
        attributes.retain(|one| one.first != name.as_bytes());
        let (first, second) = (name.to_owned().into(), value.to_owned().into());
        attributes.push(pb::BytesBytesPair { first, second });
    }

    /// Makes the master reject `FlushTable`, as older versions of HBase do.
    pub fn remove_flush_table_rpc(&self) {
        self.state.lock().has_flush_table = false;
    }

    /// Changes the TLS of new connections; `None` for plain text.
    pub fn set_tls(&self, tls: Option<FakeTls>) {
        self.state.lock().tls = tls;
    }

    /// Makes only the master answer `ClientMetaService`, without `GetBootstrapNodes`, as HBase 2.4 does.
    pub fn set_old_registry(&self) {
        self.state.lock().registry.is_old = true;
    }

    /// Makes the answers of a server's `ClientMetaService` empty, or full again.
    pub fn set_empty_registry(&self, server: usize, is_empty: bool) {
        let mut state = self.state.lock();
        if is_empty {
            state.registry.empty.insert(server);
        } else {
            state.registry.empty.remove(&server);
        }
    }

    /// Sets the servers that `GetBootstrapNodes` names.
    pub fn set_bootstrap_nodes(&self, servers: &[usize]) {
        self.state.lock().registry.bootstrap_nodes = Some(servers.to_vec());
    }

    /// Creates a table with these split keys; its regions are assigned to the servers in turn.
    pub fn create_table(&self, name: &str, splits: &[&str]) -> TableName {
        let table: TableName = name.parse().unwrap();
        let splits: Vec<_> = splits.iter().map(|key| key.as_bytes()).collect();
        self.state.lock().create_table(&table, &splits);
        table
    }

    /// Requires new connections to authenticate with a token; `None` for no authentication.
    pub fn require_tokens(&self, tokens: Option<FakeTokens>) {
        self.state.lock().tokens = tokens;
    }

    /// Returns the protections of all authenticated connections so far, in the words of DIGEST-MD5.
    #[must_use]
    pub fn protections(&self) -> Vec<String> {
        self.state.lock().protections.clone()
    }

    /// Injects a fault into the next matching calls.
    pub fn inject(&self, fault: InjectedFault) {
        self.state.lock().faults.push(fault);
    }

    /// Removes all faults that were not applied yet.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Moves the region of a row; its former server then responds with `RegionMovedException`, or
    /// with `NotServingRegionException` if `silently`.
    pub fn move_region(
        &self,
        table: &TableName,
        row: impl AsRef<[u8]>,
        server: usize,
        silently: bool,
    ) {
        self.state.lock().move_region(table, row.as_ref(), server, silently);
    }

    /// Splits the region of a row in two, at that row.
    pub fn split_region(&self, table: &TableName, row: &str) {
        self.state.lock().split_region(table, row.as_bytes());
    }

    /// Merges the region of a row with the next one.
    pub fn merge_region(&self, table: &TableName, row: &str) {
        self.state.lock().merge_region(table, row.as_bytes());
    }

    /// Splits the region of a row at that row, unless the region starts there.
    pub fn split_at(&self, table: &TableName, row: &str) {
        let mut state = self.state.lock();
        if state.start_of(table, row.as_bytes()) != row.as_bytes() {
            state.split_region(table, row.as_bytes());
        }
    }

    /// Merges the region of a row with the next one, unless it is the last.
    pub fn merge_at(&self, table: &TableName, row: &str) {
        let mut state = self.state.lock();
        if !state.is_last(table, row.as_bytes()) {
            state.merge_region(table, row.as_bytes());
        }
    }

    /// Assigns all regions of a server, including hbase:meta, to another one.
    pub fn evacuate(&self, from: usize, to: usize) {
        self.state.lock().evacuate(from, to);
    }

    /// Sets the state of all regions of a table, in hbase:meta and on the servers. Only `OPEN` regions
    /// are served.
    pub fn set_region_states(&self, table: &TableName, state: &'static str) {
        self.state.lock().set_region_states(table, state);
    }

    /// Sets the state of the region that has a row.
    pub fn set_region_state(&self, table: &TableName, row: &[u8], state: &'static str) {
        self.state.lock().set_region_state(table, row, state);
    }

    /// Sets the state of a table in hbase:meta, also of a table without regions; `None` removes the
    /// state.
    pub fn set_table_state(&self, table: &TableName, table_state: Option<TableState>) {
        let mut state = self.state.lock();
        match table_state {
            Some(table_state) => state.table_states.insert(table.clone(), table_state.to_message()),
            None => state.table_states.remove(table),
        };
    }

    /// Executes the calls with the fault [`FaultKind::Late`](crate::FaultKind::Late).
    pub fn execute_late_calls(&self) {
        call::execute_late_calls(&mut self.state.lock());
    }

    /// Sets the clocks of the servers ahead.
    pub fn set_clock_ahead(&self, ms: i64) {
        self.state.lock().clock_ahead_ms = ms;
    }

    /// Sets the clock of the servers, epoch milliseconds.
    pub fn set_clock(&self, clock: fn() -> i64) {
        self.state.lock().server_clock = Some(clock);
    }

    /// Sets the version of HBase. Versions before 2.4 ignore the condition of a region's actions.
    pub fn set_version(&self, version: &'static str) {
        self.state.lock().version = Some(version);
    }

    /// Limits the writes of a table that are sent in a `Multi`; `None` removes the limit.
    pub fn set_write_quota(&self, table: &TableName, per_second: Option<u32>) {
        self.state.lock().quotas.set(table, per_second);
    }

    /// Reports this load of the memstore of a row's region, in percent, with every response to a Multi.
    pub fn set_memstore_load(&self, table: &TableName, row: &str, percent: i32) {
        let mut state = self.state.lock();
        let region = state.region_name(table, row.as_bytes());
        state.memstores.set_load(region, percent);
    }

    /// Gives the region of a row a memstore with this flush size in bytes, which flushes `per_second`
    /// bytes a second. Every response to a Multi reports its load. At four times the flush size the
    /// region is too busy.
    pub fn set_memstore(&self, table: &TableName, row: &str, flush_size: usize, per_second: usize) {
        let mut state = self.state.lock();
        let region = state.region_name(table, row.as_bytes());
        state.memstores.set_flushes(region, flush_size, per_second);
    }

    /// Flushes all memstores: drops deleted and replaced cells in them. With `compacts` also drops such
    /// cells of store files.
    pub fn flush_memstores(&self, compacts: bool) {
        for cells in self.state.lock().history.values_mut().flat_map(BTreeMap::values_mut) {
            if compacts {
                for cell in cells.iter_mut() {
                    cell.is_flushed = false;
                }
            }
            flush_history(cells);
        }
    }

    /// Compacts all regions: drops delete markers too, with the cells that they hide.
    pub fn major_compact(&self) {
        self.flush_memstores(true);
        let mut state = self.state.lock();
        state.markers.clear();
        for cells in state.history.values_mut().flat_map(BTreeMap::values_mut) {
            cells.retain(|cell| cell.kind == CellKind::Put);
        }
    }

    /// Returns the start rows of all scanners opened on tables so far.
    #[must_use]
    pub fn scan_starts(&self) -> Vec<Bytes> {
        self.state.lock().scan_starts.clone()
    }

    /// Kills a server: its sockets close. Its regions stay assigned to it until they are moved.
    pub async fn kill(&self, server: usize) {
        let listener = self.listeners.lock()[server].take();
        if let Some(listener) = listener {
            listener.stop().await;
            let port = self.state.lock().servers[server].port();
            if let Some(socket) = keep_port(port) {
                self.kept_ports.lock().insert(server, socket);
            }
        }
        self.state.lock().scanners.retain(|_, scanner| scanner.server != server);
    }

    /// Restarts a killed server on the same port with a new start code.
    pub async fn restart(&self, server: usize) {
        let port = self.state.lock().servers[server].port();
        let listener = ServerListener::start(server, port, &self.state).await;
        self.listeners.lock()[server] = Some(listener);
        self.kept_ports.lock().remove(&server);
    }

    /// Removes all scanners, as if their leases had expired.
    pub fn expire_scanners(&self) {
        self.state.lock().scanners.clear();
    }

    /// Number of open scanners.
    #[must_use]
    pub fn open_scanners(&self) -> usize {
        self.state.lock().scanners.len()
    }

    /// Limits the rows and cells of a scan response; 0 is unlimited.
    pub fn limit_scan_responses(&self, rows: usize, cells: usize) {
        let mut state = self.state.lock();
        state.rows_per_response = rows;
        state.cells_per_response = cells;
    }

    /// Makes a scanner of hbase:meta respond with this many heartbeats before its first row, as when it
    /// skips many deleted rows.
    pub fn set_meta_heartbeats(&self, responses: usize) {
        self.state.lock().meta_heartbeats = responses;
    }

    /// Number of calls of a method so far.
    #[must_use]
    pub fn calls(&self, method: &str) -> usize {
        self.state.lock().calls.get(method).copied().unwrap_or(0)
    }

    /// Number of connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.lock().connections
    }

    /// Number of cells in a table.
    #[must_use]
    pub fn cells(&self, table: &TableName) -> usize {
        let state = self.state.lock();
        state.rows.get(table).map_or(0, |rows| rows.values().map(BTreeMap::len).sum())
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
        let columns = state.row(table, row.as_bytes())?;
        let key = (
            Bytes::copy_from_slice(family.as_bytes()),
            Bytes::copy_from_slice(qualifier.as_bytes()),
        );
        columns.get(&key).map(|(_, value)| value.clone())
    }
}

/// Discovery of a [`FakeCluster`].
#[derive(Clone, Debug)]
pub struct FakeDiscovery(SharedState);

impl Discovery for FakeDiscovery {
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName> {
        let state = self.0.lock();
        let server = state.servers[state.meta_server].clone();
        Box::pin(async { Ok(server) })
    }

    fn master(&self) -> DiscoveryFuture<'_, ServerName> {
        let state = self.0.lock();
        let server = state.master.map(|master| state.servers[master].clone());
        Box::pin(async { server.ok_or(DiscoveryError::Unknown { what: "the active master" }) })
    }
}

/// Binds a socket that does not listen to a port: a listener may bind the port too, but no process gets it as a free
/// one.
fn keep_port(port: u16) -> Option<TcpSocket> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.set_reuseaddr(true).ok()?;
    socket.bind(([127, 0, 0, 1], port).into()).ok()?;
    Some(socket)
}

//! State of the cluster: servers, regions, rows, scanners, procedures.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use hbase_rs::{CellKind, ServerName, TableName, errors::MovedTo, region::Region};
use hbase_rs_protobuf as pb;

use super::{
    call_result::RpcException, memstore::Memstores, namespaces::Namespaces, quota::Quotas,
};
use crate::{
    fault::{FaultKind, InjectedFault},
    security::FakeTokens,
    tls::FakeTls,
};

/// Number of polls before a procedure is complete.
const POLLS: usize = 2;

/// A call of a client.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) server: usize,
    pub(crate) method: String,
    pub(crate) message: Bytes,
    pub(crate) block: Bytes,
}

/// Family and qualifier.
pub(crate) type ColumnKey = (Bytes, Bytes);

/// A put cell, or a delete marker of a column.
#[derive(Clone, Debug)]
pub(crate) struct HistoryCell {
    pub(crate) column: ColumnKey,
    pub(crate) timestamp: u64,
    pub(crate) kind: CellKind,
    pub(crate) value: Bytes,
    /// True if the cell is in a store file, no longer in the memstore.
    pub(crate) is_flushed: bool,
}

/// Removes the cells of a memstore that a flush does not write. These are cells that a delete marker of the
/// memstore hides, and all versions of a column except the newest. Keeps the markers.
pub(crate) fn flush_history(cells: &mut Vec<HistoryCell>) {
    let is_put = |cell: &HistoryCell| cell.kind == CellKind::Put;
    let in_memory: Vec<HistoryCell> =
        cells.iter().filter(|cell| !cell.is_flushed).cloned().collect();
    let is_hidden = |cell: &HistoryCell| {
        in_memory.iter().any(|other| {
            let is_of_column = other.column == cell.column;
            match other.kind {
                CellKind::Put => is_of_column && other.timestamp > cell.timestamp,
                CellKind::DeleteFamily => {
                    other.column.0 == cell.column.0 && other.timestamp >= cell.timestamp
                }
                CellKind::Delete => is_of_column && other.timestamp == cell.timestamp,
                _ => is_of_column && other.timestamp >= cell.timestamp,
            }
        })
    };
    cells.retain(|cell| cell.is_flushed || !is_put(cell) || !is_hidden(cell));
    for cell in cells {
        cell.is_flushed = true;
    }
}

/// A region and its assignment.
#[derive(Debug)]
pub(crate) struct FakeRegion {
    pub(crate) region: Region,
    pub(crate) server: usize,
    pub(crate) seq_num: i64,
    pub(crate) state: &'static str,
}

/// Next row, and the number of its cells that were sent.
pub(crate) type ScanPosition = (Bytes, usize);

/// An open scanner.
#[derive(Debug)]
pub(crate) struct FakeScanner {
    pub(crate) server: usize,
    pub(crate) region: Bytes,
    pub(crate) scan: pb::Scan,
    pub(crate) next_call: u64,
    pub(crate) at: Option<ScanPosition>,
    /// Number of heartbeats before the first row.
    pub(crate) heartbeats: usize,
}

/// Delete markers of a row: the highest deleted timestamp per row, family and column. They also hide later
/// puts with a timestamp up to it.
#[derive(Debug, Default)]
pub(crate) struct DeleteMarkers {
    pub(crate) row: Option<u64>,
    pub(crate) families: HashMap<Bytes, u64>,
    pub(crate) columns: HashMap<ColumnKey, u64>,
}

impl DeleteMarkers {
    pub(crate) fn hides(&self, column: &ColumnKey, timestamp: u64) -> bool {
        self.row
            .iter()
            .chain(self.families.get(&column.0))
            .chain(self.columns.get(column))
            .any(|until| timestamp <= *until)
    }
}

/// A procedure that completes after a number of polls.
#[derive(Debug)]
pub(crate) struct Procedure {
    pub(crate) polls: usize,
    pub(crate) failure: Option<RpcException>,
}

/// Family, qualifier, timestamp, kind and value of each cell.
pub(crate) type Columns = Vec<(Bytes, Bytes, u64, CellKind, Bytes)>;

/// The newest time and value of each column of a row.
pub(crate) type StoredColumns = BTreeMap<ColumnKey, (u64, Bytes)>;

/// Row key and cells.
pub(crate) type StoredRow = (Bytes, Columns);

/// A value for each row, by table.
pub(crate) type TableRows<T> = BTreeMap<TableName, BTreeMap<Bytes, T>>;

/// Cluster state shared by all servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedState(Arc<Mutex<ClusterState>>);

impl SharedState {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.0.lock()
    }
}

#[derive(Debug, Default)]
pub(crate) struct ClusterState {
    pub(crate) servers: Vec<ServerName>,
    pub(crate) meta_server: usize,
    pub(crate) regions: Vec<FakeRegion>,
    /// New locations of moved regions, by former server and region name.
    pub(crate) moved: HashMap<(usize, Bytes), MovedTo>,
    pub(crate) rows: TableRows<StoredColumns>,
    pub(crate) markers: TableRows<DeleteMarkers>,
    /// Result of raw scans: put cells and delete markers of columns, unless a flush dropped them.
    pub(crate) history: TableRows<Vec<HistoryCell>>,
    pub(crate) scanners: HashMap<u64, FakeScanner>,
    /// Results of increments and appends by nonce group and nonce, returned to a repeated call.
    pub(crate) nonces: HashMap<(u64, u64), (i32, Bytes)>,
    pub(crate) faults: Vec<InjectedFault>,
    pub(crate) calls: HashMap<String, usize>,
    pub(crate) connections: usize,
    /// Tokens that new connections must authenticate with; `None` without authentication.
    pub(crate) tokens: Option<FakeTokens>,
    /// Protections of the authenticated connections, in the words of DIGEST-MD5.
    pub(crate) protections: Vec<String>,
    /// The server that is the active master; `None` if the master is down.
    pub(crate) master: Option<usize>,
    pub(crate) has_flush_table: bool,
    /// Schemas of the tables created through the master.
    pub(crate) schemas: BTreeMap<TableName, pb::TableSchema>,
    pub(crate) namespaces: Namespaces,
    pub(crate) procedures: HashMap<u64, Procedure>,
    /// Ids of procedures by the nonce of the call that started them.
    pub(crate) procedure_ids: HashMap<u64, u64>,
    pub(crate) rows_per_response: usize,
    pub(crate) cells_per_response: usize,
    /// Number of heartbeats of a scanner of hbase:meta before its first row.
    pub(crate) meta_heartbeats: usize,
    /// States of tables that differ from the states of their regions.
    pub(crate) table_states: HashMap<TableName, pb::table_state::State>,
    /// Version of HBase; `None` is a recent one.
    pub(crate) version: Option<&'static str>,
    /// Server, method, message and cell block of calls that are executed late.
    pub(crate) late_calls: Vec<Call>,
    /// Difference of the servers' clock from the real time, milliseconds.
    pub(crate) clock_ahead_ms: i64,
    /// The servers' clock, epoch milliseconds; `None` is the real time.
    pub(crate) server_clock: Option<fn() -> i64>,
    /// Start rows of the scanners opened on tables, in order.
    pub(crate) scan_starts: Vec<Bytes>,
    pub(crate) memstores: Memstores,
    pub(crate) quotas: Quotas,
    pub(crate) registry: FakeRegistry,
    /// TLS of new connections.
    pub(crate) tls: Option<FakeTls>,
    clock: u64,
}

fn region(table: &TableName, start: &[u8], end: &[u8], id: u64) -> Region {
    let key = Bytes::copy_from_slice;
    Region::new(table.clone(), key(start), key(end), id)
}

impl ClusterState {
    /// Returns a row, unless no cell was ever put to it.
    pub(crate) fn row(&self, table: &TableName, row: &[u8]) -> Option<&StoredColumns> {
        self.rows.get(table)?.get(row)
    }

    /// Removes a table with its regions and rows.
    pub(crate) fn drop_table(&mut self, table: &TableName) {
        self.schemas.remove(table);
        self.regions.retain(|one| one.region.table() != table);
        self.forget_rows(table);
    }

    /// Removes all rows of a table.
    pub(crate) fn forget_rows(&mut self, table: &TableName) {
        self.rows.remove(table);
        self.markers.remove(table);
        self.history.remove(table);
    }

    /// Returns the next number of a growing sequence, for region ids, sequence numbers, start codes and
    /// scanner ids.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Starts a procedure, unless one was started with this nonce, and returns its id.
    pub(crate) fn start_procedure(
        &mut self,
        nonce: Option<u64>,
        failure: Option<RpcException>,
    ) -> u64 {
        let new_id = self.tick();
        let id = *self.procedure_ids.entry(nonce.unwrap()).or_insert(new_id);
        self.procedures.entry(id).or_insert(Procedure { polls: POLLS, failure });
        id
    }

    pub(crate) fn create_table(&mut self, table: &TableName, splits: &[&[u8]]) {
        let id = self.tick();
        let mut starts = vec![&b""[..]];
        starts.extend(splits);
        for (at, start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or_default();
            let server = at % self.servers.len();
            self.open_region(region(table, start, end, id), server);
        }
    }

    /// Removes the regions of a table with their scanners.
    pub(crate) fn drop_regions(&mut self, table: &TableName) {
        let is_of_table = |one: &FakeRegion| one.region.table() == table;
        let dropped: Vec<_> = self.regions.extract_if(.., |one| is_of_table(one)).collect();
        self.scanners
            .retain(|_, scanner| !dropped.iter().any(|one| *one.region.name() == scanner.region));
    }

    pub(crate) fn open_region(&mut self, region: Region, server: usize) {
        let seq_num = self.tick() as i64;
        self.regions.push(FakeRegion { region, server, seq_num, state: "OPEN" });
    }

    fn index(&self, table: &TableName, row: &[u8]) -> usize {
        self.regions
            .iter()
            .position(|one| one.region.table() == table && one.region.contains(row))
            .unwrap()
    }

    pub(crate) fn move_region(
        &mut self,
        table: &TableName,
        row: &[u8],
        server: usize,
        silently: bool,
    ) {
        let at = self.index(table, row);
        let seq_num = self.tick() as i64;
        let to = MovedTo { server: self.servers[server].clone(), seq_num };
        let from = (self.regions[at].server, self.regions[at].region.name().clone());
        if !silently {
            self.moved.insert(from, to);
        }
        self.moved.remove(&(server, self.regions[at].region.name().clone()));
        let seq_num = self.tick() as i64;
        self.regions[at].server = server;
        self.regions[at].seq_num = seq_num;
        self.end_scanners(at);
    }

    pub(crate) fn region_name(&self, table: &TableName, row: &[u8]) -> Bytes {
        self.regions[self.index(table, row)].region.name().clone()
    }

    pub(crate) fn start_of(&self, table: &TableName, row: &[u8]) -> Bytes {
        self.regions[self.index(table, row)].region.start_key().clone()
    }

    pub(crate) fn is_last(&self, table: &TableName, row: &[u8]) -> bool {
        self.regions[self.index(table, row)].region.end_key().is_empty()
    }

    pub(crate) fn evacuate(&mut self, from: usize, to: usize) {
        if self.meta_server == from {
            self.meta_server = to;
        }
        for at in 0..self.regions.len() {
            if self.regions[at].server == from {
                let seq_num = self.tick() as i64;
                self.regions[at].server = to;
                self.regions[at].seq_num = seq_num;
                self.end_scanners(at);
            }
        }
        self.moved.retain(|(server, _), _| *server != from);
    }

    /// Removes the scanners of a region.
    fn end_scanners(&mut self, at: usize) {
        let name = self.regions[at].region.name().clone();
        self.scanners.retain(|_, scanner| scanner.region != name);
    }

    pub(crate) fn split_region(&mut self, table: &TableName, row: &[u8]) {
        let at = self.index(table, row);
        self.end_scanners(at);
        let parent = self.regions.remove(at);
        let id = self.tick();
        self.open_region(region(table, parent.region.start_key(), row, id), parent.server);
        self.open_region(region(table, row, parent.region.end_key(), id), parent.server);
    }

    pub(crate) fn merge_region(&mut self, table: &TableName, row: &[u8]) {
        let at = self.index(table, row);
        self.end_scanners(at);
        let left = self.regions.remove(at);
        let at = self.index(table, left.region.end_key());
        self.end_scanners(at);
        let right = self.regions.remove(at);
        let id = self.tick();
        let (start, end) = (left.region.start_key(), right.region.end_key());
        self.open_region(region(table, start, end, id), left.server);
    }

    pub(crate) fn set_region_states(&mut self, table: &TableName, state: &'static str) {
        for one in self.regions.iter_mut().filter(|one| one.region.table() == table) {
            one.state = state;
        }
    }

    pub(crate) fn set_region_state(&mut self, table: &TableName, row: &[u8], state: &'static str) {
        let has_row = |region: &Region| region.table() == table && region.contains(row);
        for one in self.regions.iter_mut().filter(|one| has_row(&one.region)) {
            one.state = state;
        }
    }

    /// Returns the fault to apply to this call.
    pub(crate) fn take_fault(
        &mut self,
        method: &str,
        server: usize,
        meta: bool,
    ) -> Option<FaultKind> {
        let matches = |fault: &InjectedFault| {
            fault.method == method
                && fault.meta == meta
                && fault.server.is_none_or(|one| one == server)
        };
        let fault = self.faults.iter_mut().find(|fault| matches(fault) && fault.times > 0)?;
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.times -= 1;
        Some(fault.kind.clone())
    }

    /// Returns the region if this server serves it.
    pub(crate) fn served_region(
        &self,
        server: usize,
        name: &Bytes,
    ) -> Result<&Region, (&'static str, String)> {
        let region_state = self.regions.iter().find(|one| one.region.name() == name);
        match region_state {
            Some(one) if one.server == server && one.state == "OPEN" => Ok(&one.region),
            Some(one) if one.server == server && one.state == "OPENING" => {
                Err(("exceptions.RegionOpeningException", "Region is opening".to_owned()))
            }
            _ => match self.moved.get(&(server, name.clone())) {
                Some(MovedTo { server: to, seq_num }) => Err((
                    "exceptions.RegionMovedException",
                    format!(
                        "Region moved to: hostname={} port={} startCode={}. As of locationSeqNum={seq_num}.",
                        to.host(),
                        to.port(),
                        to.start_code()
                    ),
                )),
                None => Err(("NotServingRegionException", "region is not online".to_owned())),
            },
        }
    }
}

/// Which servers answer `ClientMetaService`, and what.
#[derive(Debug, Default)]
pub(crate) struct FakeRegistry {
    /// As in HBase 2.4: only the master has the service, without `GetBootstrapNodes`.
    pub(crate) is_old: bool,
    /// Servers whose answers are empty.
    pub(crate) empty: HashSet<usize>,
    /// Servers that `GetBootstrapNodes` names; `None`: all.
    pub(crate) bootstrap_nodes: Option<Vec<usize>>,
}

//! What the cluster knows: servers, regions, rows, scanners.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use hbase_rs::{MovedTo, Region, ServerName, TableName};
use hbase_rs_protobuf as pb;

use super::{
    fault::{Fault, Misdeed},
    master::Procedure,
    namespaces::Namespaces,
};

/// Family and qualifier.
pub(crate) type Column = (Bytes, Bytes);

/// One region.
#[derive(Debug)]
pub(crate) struct FakeRegion {
    pub(crate) region: Region,
    pub(crate) server: usize,
    pub(crate) seq_num: i64,
    pub(crate) state: &'static str,
}

/// One open scanner.
#[derive(Debug)]
pub(crate) struct FakeScanner {
    pub(crate) server: usize,
    pub(crate) region: Bytes,
    pub(crate) scan: pb::Scan,
    pub(crate) next_call: u64,
    /// Row to go on with, and cells of it that were sent.
    pub(crate) at: Option<(Bytes, usize)>,
    /// Answers without rows that come first.
    pub(crate) heartbeats: usize,
}

/// Up to which time what of a row is deleted. What is put later with such a time is not seen either.
#[derive(Debug, Default)]
pub(crate) struct Markers {
    pub(crate) row: Option<u64>,
    pub(crate) families: HashMap<Bytes, u64>,
    pub(crate) columns: HashMap<Column, u64>,
}

impl Markers {
    pub(crate) fn hide(&self, column: &Column, timestamp: u64) -> bool {
        self.row
            .iter()
            .chain(self.families.get(&column.0))
            .chain(self.columns.get(column))
            .any(|until| timestamp <= *until)
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) servers: Vec<ServerName>,
    pub(crate) meta_server: usize,
    pub(crate) regions: Vec<FakeRegion>,
    /// Where regions went, as their former servers know.
    pub(crate) moved: HashMap<(usize, Bytes), MovedTo>,
    pub(crate) rows: BTreeMap<(TableName, Bytes), BTreeMap<Column, (u64, Bytes)>>,
    pub(crate) markers: HashMap<(TableName, Bytes), Markers>,
    pub(crate) scanners: HashMap<u64, FakeScanner>,
    /// What increments and appends brought, by their nonces: told again when they are repeated.
    pub(crate) nonces: HashMap<(u64, u64), (i32, Bytes)>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) calls: HashMap<String, usize>,
    pub(crate) connections: usize,
    pub(crate) master: usize,
    pub(crate) has_flush_table: bool,
    /// Tables that the master made.
    pub(crate) schemas: BTreeMap<TableName, pb::TableSchema>,
    pub(crate) namespaces: Namespaces,
    pub(crate) procedures: HashMap<u64, Procedure>,
    /// Procedures by the nonces of their orders.
    pub(crate) orders: HashMap<u64, u64>,
    pub(crate) rows_per_answer: usize,
    pub(crate) cells_per_answer: usize,
    /// How many answers without rows it takes a scanner of hbase:meta to get past what was deleted.
    pub(crate) dead_rows_of_meta: usize,
    clock: u64,
}

impl State {
    /// A number larger than all before: region ids, sequence numbers, times, scanner ids.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(crate) fn create_table(&mut self, table: &TableName, splits: &[&[u8]]) {
        let id = self.tick();
        let mut starts = vec![&b""[..]];
        starts.extend(splits);
        for (at, start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or_default();
            let server = at % self.servers.len();
            self.open(table, start, end, id, server);
        }
    }

    fn open(&mut self, table: &TableName, start: &[u8], end: &[u8], id: u64, server: usize) {
        let key = Bytes::copy_from_slice;
        let region = Region::new(table.clone(), key(start), key(end), id);
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

    /// A region that changes takes its scanners along.
    fn end_scanners(&mut self, at: usize) {
        let name = self.regions[at].region.name().clone();
        self.scanners.retain(|_, scanner| scanner.region != name);
    }

    pub(crate) fn split_region(&mut self, table: &TableName, row: &[u8]) {
        let at = self.index(table, row);
        self.end_scanners(at);
        let parent = self.regions.remove(at);
        let id = self.tick();
        self.open(table, parent.region.start_key(), row, id, parent.server);
        self.open(table, row, parent.region.end_key(), id, parent.server);
    }

    pub(crate) fn merge_region(&mut self, table: &TableName, row: &[u8]) {
        let at = self.index(table, row);
        self.end_scanners(at);
        let left = self.regions.remove(at);
        let at = self.index(table, left.region.end_key());
        self.end_scanners(at);
        let right = self.regions.remove(at);
        let id = self.tick();
        self.open(table, left.region.start_key(), right.region.end_key(), id, left.server);
    }

    pub(crate) fn set_table(&mut self, table: &TableName, state: &'static str) {
        for one in self.regions.iter_mut().filter(|one| one.region.table() == table) {
            one.state = state;
        }
    }

    /// The misdeed that this call meets.
    pub(crate) fn misdeed(&mut self, method: &str, server: usize, meta: bool) -> Option<Misdeed> {
        let fits = |fault: &Fault| {
            fault.method == method
                && fault.meta == meta
                && fault.server.is_none_or(|one| one == server)
        };
        let fault = self.faults.iter_mut().find(|fault| fits(fault) && fault.times > 0)?;
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.times -= 1;
        Some(fault.misdeed.clone())
    }

    /// The region if this server serves it.
    pub(crate) fn served(
        &self,
        server: usize,
        name: &Bytes,
    ) -> Result<&Region, (&'static str, String)> {
        let found = self.regions.iter().find(|one| one.region.name() == name);
        match found {
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

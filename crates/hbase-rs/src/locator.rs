//! Finds the server of a region: from the cache, or from hbase:meta.
//!
//! A table's lookups share a few permits, and each looks into the cache again once it has one: after
//! a server's death a thousand calls need a few lookups, not a thousand. An answer brings the
//! neighbours along. What hbase:meta cannot say now (a region opening, a split half done) is asked
//! again after a pause, until the operation's time is up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use crate::{
    attempts::Attempts,
    config::ClientConfig,
    connection::{CallError, CallSpec},
    discovery::{Discovery, DiscoveryError},
    error::{Failure, OperationError},
    exception::{MovedTo, Recovery},
    handshake::Service,
    metrics::Metrics,
    pool::{Lane, Pool},
    region::{
        cache::RegionCache,
        info::{Region, RegionLocation},
        meta::{self, Locate, Lookup, MetaRow, read_lookup},
        name::{end_meta_key, first_meta_key},
    },
    request::{
        scan::{ReadType, Scan},
        selection::Selection,
    },
    row::Row,
    scan::calls::{ScanAnswer, scan_once},
    server_name::ServerName,
    table_name::TableName,
};

/// Priority of calls about hbase:meta.
pub(crate) const META_PRIORITY: u32 = 300;

/// Rows of one lookup: the region and neighbours for the cache.
const LOOKUP_ROWS: u32 = 10;

/// Rows of one call that reads a table's regions.
const PREFETCH_ROWS: u32 = 1000;

/// Tables whose lookups are remembered when there are none under way.
const IDLE_TABLES: usize = 1024;

/// A region that was not found.
#[derive(Debug)]
pub(crate) enum Unlocated {
    /// Asking again may help.
    ForNow(Failure),
    /// It does not.
    ForGood(OperationError),
}

/// Knows where regions are.
#[derive(Debug)]
pub(crate) struct Locator {
    config: Arc<ClientConfig>,
    metrics: Arc<Metrics>,
    discovery: Arc<dyn Discovery>,
    pool: Arc<Pool>,
    cache: RwLock<RegionCache>,
    meta_server: Mutex<Option<ServerName>>,
    /// One question to discovery at a time.
    asking: tokio::sync::Mutex<()>,
    lookups: Mutex<HashMap<TableName, Arc<Semaphore>>>,
    meta: Arc<Region>,
}

impl Locator {
    pub(crate) fn new(
        config: Arc<ClientConfig>,
        discovery: Arc<dyn Discovery>,
        pool: Arc<Pool>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            metrics,
            cache: RwLock::new(RegionCache::new(config.max_regions)),
            config,
            discovery,
            pool,
            meta_server: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            lookups: Mutex::default(),
            meta: Arc::new(Region::meta()),
        }
    }

    /// Where the region is, asked for until the attempts are used up.
    pub(crate) async fn locate(
        &self,
        table: &TableName,
        locate: &Locate,
        attempts: &mut Attempts,
    ) -> Result<RegionLocation, OperationError> {
        let mut unsettled = 0;
        loop {
            let cause = match self.locate_once(table, locate, attempts).await {
                Ok(location) => return Ok(location),
                Err(Unlocated::ForGood(error)) => return Err(error),
                Err(Unlocated::ForNow(cause)) => cause,
            };
            if matches!(cause, Failure::InTransition(_)) {
                unsettled += 1;
                if unsettled >= 2 && self.is_disabled(table, attempts).await {
                    return Err(attempts.fail(Failure::TableDisabled(table.clone()), false));
                }
            }
            attempts.pause(cause, false).await?;
        }
    }

    /// Where the region is, asked for once.
    pub(crate) async fn locate_once(
        &self,
        table: &TableName,
        locate: &Locate,
        attempts: &Attempts,
    ) -> Result<RegionLocation, Unlocated> {
        let found = if *table == TableName::meta() {
            self.meta_location(attempts.deadline()).await.map(Lookup::Found)
        } else if let Some(known) = self.cached(table, locate) {
            return Ok(known);
        } else {
            self.look_up(table, locate, attempts).await
        };
        let cause = match found {
            Ok(Lookup::Found(location)) => return Ok(location),
            Ok(Lookup::NoTable) => {
                let cause = Failure::NoTable(table.clone());
                return Err(Unlocated::ForGood(attempts.fail(cause, false)));
            }
            Ok(Lookup::InTransition(why)) => Failure::InTransition(why),
            Err(cause) => cause,
        };
        self.settle_meta(&cause, attempts).map_err(Unlocated::ForGood)?;
        Err(Unlocated::ForNow(cause))
    }

    /// Number of regions whose server is known.
    pub(crate) fn regions_known(&self) -> u64 {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// What is known, without a call.
    pub(crate) fn cached(&self, table: &TableName, locate: &Locate) -> Option<RegionLocation> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        match locate {
            Locate::Holding(row) => cache.holding(table, row).cloned(),
            Locate::Before(_) => cache.find(table, locate).cloned(),
        }
    }

    /// A call to this location did not find the region.
    pub(crate) fn failed(&self, location: &RegionLocation) {
        if *location.region.table() == TableName::meta() {
            self.forget_meta(&location.server);
        } else {
            self.change(|cache| cache.failed(location));
        }
    }

    /// A call to this location was sent elsewhere. Returns whether that is news.
    pub(crate) fn moved(&self, location: &RegionLocation, to: &MovedTo) -> bool {
        if *location.region.table() == TableName::meta() {
            self.forget_meta(&location.server);
            return false;
        }
        self.change(|cache| cache.moved(location, to)).is_some()
    }

    /// The server is gone with all that it had.
    pub(crate) fn server_gone(&self, server: &ServerName, error: &CallError) {
        let regions = self.change(|cache| cache.server_gone(server));
        self.forget_meta(server);
        // That it could not be connected to may have reasons here: open connections speak for themselves.
        if matches!(error, CallError::Connect { .. }) {
            self.pool.forget_closed();
        } else {
            self.pool.server_gone(server);
        }
        tracing::warn!(%server, regions, %error, "server gone");
    }

    /// The table is gone.
    pub(crate) fn table_gone(&self, table: &TableName) {
        self.change(|cache| cache.table_gone(table));
    }

    /// Regions of a table in order, open or not, read from hbase:meta; locations go to the cache.
    pub(crate) async fn regions(
        &self,
        table: &TableName,
        attempts: &mut Attempts,
    ) -> Result<Vec<MetaRow>, OperationError> {
        let mut found: Vec<MetaRow> = Vec::new();
        let mut start = first_meta_key(table);
        let mut include_start = true;
        loop {
            let scan = Scan::range(start.clone(), end_meta_key(table))
                .inclusive(include_start, false)
                .select(Selection::all().family(meta::FAMILY));
            let rows = match self.scan_meta(&scan, PREFETCH_ROWS, attempts).await {
                Ok(rows) => rows,
                Err(cause) => {
                    self.settle_meta(&cause, attempts)?;
                    attempts.pause(cause, false).await?;
                    continue;
                }
            };
            let Some(last) = rows.last() else { return Ok(found) };
            start = last.key_bytes();
            include_start = false;
            let rows =
                rows.iter().filter_map(MetaRow::decode).filter(|row| row.region.table() == table);
            for row in rows {
                if let Some(location) = row.location() {
                    self.change(|cache| cache.insert(location));
                }
                found.push(row);
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut RegionCache) -> T) -> T {
        change(&mut self.cache.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn meta_server(&self) -> MutexGuard<'_, Option<ServerName>> {
        self.meta_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_meta(&self, server: &ServerName) {
        let mut known = self.meta_server();
        if known.as_ref() == Some(server) {
            *known = None;
        }
    }

    async fn meta_location(&self, deadline: Instant) -> Result<RegionLocation, Failure> {
        let location =
            |server| RegionLocation { region: Arc::clone(&self.meta), server, seq_num: -1 };
        if let Some(server) = self.meta_server().clone() {
            return Ok(location(server));
        }
        let deadline = deadline.min(Instant::now() + self.config.call_timeout);
        let asked = async {
            let _asking = self.asking.lock().await;
            if let Some(server) = self.meta_server().clone() {
                return Ok(server);
            }
            self.discovery.meta_server().await
        };
        let server = match timeout_at(deadline, asked).await {
            Ok(server) => server?,
            Err(_) => {
                return Err(DiscoveryError::Unknown { what: "the server of hbase:meta" }.into());
            }
        };
        *self.meta_server() = Some(server.clone());
        Ok(location(server))
    }

    /// One lookup, if nobody else's made it needless.
    async fn look_up(
        &self,
        table: &TableName,
        locate: &Locate,
        attempts: &Attempts,
    ) -> Result<Lookup, Failure> {
        let permits = {
            let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
            let max = self.config.max_lookups.max(1);
            if lookups.len() >= IDLE_TABLES {
                lookups.retain(|_, permits| Arc::strong_count(permits) > 1);
            }
            Arc::clone(
                lookups.entry(table.clone()).or_insert_with(|| Arc::new(Semaphore::new(max))),
            )
        };
        let _permit =
            timeout_at(attempts.deadline(), permits.acquire()).await.map_err(|_| Failure::Time)?;
        if let Some(known) = self.cached(table, locate) {
            return Ok(Lookup::Found(known));
        }
        let scan = Scan::range(locate.search_key(table), first_meta_key(table))
            .inclusive(true, true)
            .reversed()
            .read_type(ReadType::Pread)
            .select(Selection::all().family(meta::FAMILY));
        let rows = self.scan_meta(&scan, LOOKUP_ROWS, attempts).await?;
        let (lookup, others) = read_lookup(table, locate, &rows);
        self.change(|cache| {
            for location in others {
                cache.insert(location);
            }
        });
        Ok(lookup)
    }

    /// First rows of a scan of hbase:meta.
    async fn scan_meta(
        &self,
        scan: &Scan,
        rows: u32,
        attempts: &Attempts,
    ) -> Result<Vec<Row>, Failure> {
        let location = self.meta_location(attempts.deadline()).await?;
        let request = scan_once(scan, location.region.name(), rows);
        let answer = self.call_meta(&location, &request, attempts).await?;
        // A server out of time or patience says nothing about what there is.
        if answer.heartbeat && answer.results.is_empty() {
            return Err(Failure::InTransition("hbase:meta is slow".to_owned()));
        }
        Ok(answer.results.into_iter().map(|(row, _)| row).collect())
    }

    async fn call_meta(
        &self,
        location: &RegionLocation,
        request: &pb::ScanRequest,
        attempts: &Attempts,
    ) -> Result<ScanAnswer, Failure> {
        let deadline = attempts.call_deadline(self.config.call_timeout);
        let spec = CallSpec { method: "Scan", priority: Some(META_PRIORITY), deadline };
        let server = &location.server;
        let unreadable =
            |source| CallError::Answer { server: server.clone(), source: Arc::new(source) };
        let connection =
            self.pool.connection(server, Service::Client, Lane::Meta, deadline).await?;
        let answer = connection.call(&spec, request, Bytes::new()).await?;
        let response: pb::ScanResponse = answer.message().map_err(unreadable)?;
        let block =
            answer.block(self.config.compressor, self.config.max_frame).map_err(unreadable)?;
        Ok(ScanAnswer::decode(&response, block)?)
    }

    /// What a failure about hbase:meta says of its server; errs if no attempt helps.
    fn settle_meta(&self, cause: &Failure, attempts: &Attempts) -> Result<(), OperationError> {
        match cause {
            Failure::Call(error) => {
                let known = self.meta_server().clone();
                match (error.recovery(), known) {
                    (Recovery::Fail, _) => return Err(attempts.fail(cause.clone(), false)),
                    (Recovery::ServerGone, Some(server)) => self.server_gone(&server, error),
                    (Recovery::SamePlace | Recovery::Overloaded | Recovery::Wait(_), _)
                    | (_, None) => {}
                    (_, Some(server)) => self.forget_meta(&server),
                }
            }
            Failure::Discovery(error) if error.is_permanent() => {
                return Err(attempts.fail(cause.clone(), false));
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether hbase:meta says that the table is disabled; no when it cannot be told.
    async fn is_disabled(&self, table: &TableName, attempts: &Attempts) -> bool {
        let row = table.as_bytes().clone();
        let scan = Scan::range(row.clone(), row)
            .inclusive(true, true)
            .select(Selection::all().columns("table", [Bytes::from_static(b"state")]));
        let Ok(rows) = self.scan_meta(&scan, 1, attempts).await else { return false };
        let state = rows.first().and_then(|row| row.value(b"table", b"state"));
        let state = state.and_then(|state| <pb::TableState as prost::Message>::decode(state).ok());
        state.is_some_and(|state| state.state() != pb::table_state::State::Enabled)
    }
}

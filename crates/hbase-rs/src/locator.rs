//! Locates regions: from the cache, or by a lookup in hbase:meta.
//!
//! Callers whose rows are in one region share one lookup: after the crash of a server a thousand
//! calls need one lookup for each region. Lookups of a table are bounded in number, and a response
//! also brings the neighbouring regions. A region in transition is looked up again after a backoff,
//! until the deadline of the operation.

mod meta_table;
mod recovery;
mod single_flight;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

pub(crate) use self::meta_table::META_PRIORITY;
use self::{
    meta_table::MetaTable,
    single_flight::{LookupOutcome, LookupReceiver, LookupRole, LookupScope, PendingLookups},
};
use crate::{
    attempts::Attempts,
    config::ClientConfig,
    connection::CallError,
    discovery::Discovery,
    exception::MovedTo,
    metrics::Metrics,
    operation_error::{Failure, OperationError},
    pool::ConnectionPool,
    region::{
        cache::RegionCache,
        info::{Region, RegionLocation},
        meta::{self, Lookup, MetaRow, RegionTarget, read_lookup},
        name::{end_meta_key, first_meta_key},
    },
    request::{
        scan::{ReadType, Scan},
        selection::Selection,
    },
    retry::Retry,
    server_name::ServerName,
    table_name::TableName,
    table_state::TableState,
};

/// Rows of one lookup: the region, and neighbours for the cache.
const LOOKUP_ROWS: u32 = 10;

/// Rows of one call that reads all regions of a table.
const PREFETCH_ROWS: u32 = 1000;

/// Number of tables above which tables without lookups are removed.
const IDLE_TABLES: usize = 1024;

/// How long a caller waits for a lookup that may find another region.
const SHARED_LOOKUP_WAIT: Duration = Duration::from_millis(20);

/// A region that was not found.
#[derive(Debug)]
pub(crate) enum Unlocated {
    /// Another lookup may find it.
    Transient {
        /// Cause of the failed lookup.
        cause: Failure,
        /// The region, if its boundaries are known.
        region: Option<Region>,
    },
    /// No lookup will find it.
    Permanent(OperationError),
}

/// Locates regions.
#[derive(Debug)]
pub(crate) struct Locator {
    shared: Arc<LocatorShared>,
    pending: Arc<PendingLookups>,
    /// Servers whose regions were invalidated recently.
    gone: Mutex<HashMap<ServerName, Instant>>,
}

/// State shared with lookups, which outlive their callers.
#[derive(Debug)]
struct LocatorShared {
    config: Arc<ClientConfig>,
    metrics: Arc<Metrics>,
    pool: Arc<ConnectionPool>,
    cache: RwLock<RegionCache>,
    meta: Arc<MetaTable>,
    /// Permits for lookups, by table.
    permits: Mutex<HashMap<TableName, Arc<Semaphore>>>,
}

impl Locator {
    pub(crate) fn new(
        config: Arc<ClientConfig>,
        discovery: Arc<dyn Discovery>,
        pool: Arc<ConnectionPool>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let shared = LocatorShared {
            cache: RwLock::new(RegionCache::new(config.max_regions)),
            meta: Arc::new(MetaTable::new(Arc::clone(&config), discovery, Arc::clone(&pool))),
            config,
            metrics,
            pool,
            permits: Mutex::default(),
        };
        Self { shared: Arc::new(shared), pending: Arc::default(), gone: Mutex::default() }
    }

    /// Locates the region, with as many lookups as the attempts allow.
    pub(crate) async fn locate(
        &self,
        table: &TableName,
        target: &RegionTarget,
        attempts: &mut Attempts,
    ) -> Result<RegionLocation, OperationError> {
        let mut in_transition = 0;
        loop {
            let cause = match self.locate_once(table, target, attempts).await {
                Ok(location) => return Ok(location),
                Err(Unlocated::Permanent(error)) => return Err(error),
                Err(Unlocated::Transient { cause, .. }) => cause,
            };
            if matches!(cause, Failure::InTransition(_)) {
                in_transition += 1;
                if in_transition >= 2
                    && self.shared.meta.is_disabled(table, attempts.deadline()).await
                {
                    return Err(attempts.fail(Failure::TableDisabled(table.clone()), false));
                }
            }
            attempts.pause(cause, false).await?;
        }
    }

    /// Locates the region, with at most one lookup.
    pub(crate) async fn locate_once(
        &self,
        table: &TableName,
        target: &RegionTarget,
        attempts: &Attempts,
    ) -> Result<RegionLocation, Unlocated> {
        let shared = &self.shared;
        let found = if *table == TableName::meta() {
            shared.meta.location(attempts.deadline()).await.map(Lookup::Found)
        } else if let Some(location) = shared.cached(table, target) {
            shared.metrics.region_hits.one();
            return Ok(location);
        } else {
            shared.metrics.region_misses.one();
            self.look_up(table, target, attempts.deadline()).await
        };
        let (cause, region) = match found {
            Ok(Lookup::Found(location)) => return Ok(location),
            // The procedure that creates or truncates a table has not written its regions yet.
            Ok(Lookup::NoTable) if shared.meta.is_enabling(table, attempts.deadline()).await => {
                (Failure::InTransition(format!("table {table} is being enabled")), None)
            }
            Ok(Lookup::NoTable) => {
                let cause = Failure::NoTable(table.clone());
                return Err(Unlocated::Permanent(attempts.fail(cause, false)));
            }
            Ok(Lookup::InTransition(why, region)) => (Failure::InTransition(why), region),
            Err(cause) => (cause, None),
        };
        self.recover_meta(&cause, attempts).map_err(Unlocated::Permanent)?;
        Err(Unlocated::Transient { cause, region })
    }

    /// Makes the failure permanent if the region is in transition because its table is disabled.
    pub(crate) async fn fail_if_disabled(
        &self,
        table: &TableName,
        found: Result<RegionLocation, Unlocated>,
        attempts: &Attempts,
    ) -> Result<RegionLocation, Unlocated> {
        let in_transition =
            matches!(&found, Err(Unlocated::Transient { cause: Failure::InTransition(_), .. }));
        if in_transition && self.shared.meta.is_disabled(table, attempts.deadline()).await {
            let cause = Failure::TableDisabled(table.clone());
            return Err(Unlocated::Permanent(attempts.fail(cause, false)));
        }
        found
    }

    /// Returns the cached location of the region.
    pub(crate) fn cached(
        &self,
        table: &TableName,
        target: &RegionTarget,
    ) -> Option<RegionLocation> {
        let found = self.shared.cached(table, target);
        if found.is_some() {
            self.shared.metrics.region_hits.one();
        }
        found
    }

    /// Returns the cached location of the region that holds the row.
    pub(crate) fn cached_for_row(&self, table: &TableName, row: &[u8]) -> Option<RegionLocation> {
        self.shared.cache().holding(table, row).cloned()
    }

    /// Number of cached locations.
    pub(crate) fn cached_regions(&self) -> u64 {
        self.shared.cache().len() as u64
    }

    /// Invalidates a location after a call to it failed.
    pub(crate) fn invalidate(&self, location: &RegionLocation) {
        if *location.region.table() == TableName::meta() {
            self.shared.meta.invalidate(&location.server);
        } else {
            self.shared.change(|cache| cache.invalidate(location));
        }
    }

    /// Caches the location to which a call was redirected. Returns true if it is newer than the
    /// cached one.
    fn region_moved(&self, location: &RegionLocation, to: &MovedTo) -> bool {
        if *location.region.table() == TableName::meta() {
            self.shared.meta.invalidate(&location.server);
            return false;
        }
        self.shared.change(|cache| cache.moved(location, to)).is_some()
    }

    /// Invalidates all locations on the server of `location`, and closes the connections to it.
    fn server_gone(&self, location: &RegionLocation, error: &CallError) {
        let server = &location.server;
        self.shared.meta.invalidate(server);
        // A failed connect may have a local cause; keep open connections then.
        if !matches!(error, CallError::Connect { .. }) {
            self.shared.pool.server_gone(server);
        }
        // A thousand callers report the failure at the same time. One pass over all regions
        // suffices, because it removes the location of each of them. A location that is cached
        // again belongs to the next failure of the server.
        let cached_again = self.shared.cache().has(location);
        if !self.is_newly_gone(server) && !cached_again {
            return;
        }
        let regions = self.shared.change(|cache| cache.server_gone(server));
        tracing::warn!(%server, regions, %error, "server gone");
    }

    /// True if this server was not reported gone recently.
    fn is_newly_gone(&self, server: &ServerName) -> bool {
        let pause = self.shared.config.failed_server_pause;
        let mut gone = self.gone.lock();
        gone.retain(|_, when| when.elapsed() < pause);
        if gone.contains_key(server) {
            return false;
        }
        gone.insert(server.clone(), Instant::now());
        true
    }

    /// Removes a table from the cache.
    pub(crate) fn table_gone(&self, table: &TableName) {
        self.shared.change(|cache| cache.table_gone(table));
    }

    /// Reads the regions of a table from hbase:meta, in order, and caches the locations of open
    /// regions.
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
            let rows = match self.shared.meta.scan(scan, PREFETCH_ROWS, attempts.deadline()).await {
                Ok(rows) => rows,
                Err(cause) => {
                    self.recover_meta(&cause, attempts)?;
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
                    self.shared.change(|cache| cache.insert(location));
                }
                found.push(row);
            }
        }
    }

    /// Reads the state of a table from hbase:meta; `None` if the table does not exist.
    pub(crate) async fn table_state(
        &self,
        table: &TableName,
        attempts: &mut Attempts,
    ) -> Result<Option<TableState>, OperationError> {
        loop {
            match self.shared.meta.table_state(table, attempts.deadline()).await {
                Ok(Some(state)) => return Ok(Some(state)),
                Ok(None) => {
                    let regions = self.regions(table, attempts).await?;
                    return Ok((!regions.is_empty()).then_some(TableState::Enabled));
                }
                Err(cause) => {
                    self.recover_meta(&cause, attempts)?;
                    attempts.pause(cause, false).await?;
                }
            }
        }
    }

    /// Starts a lookup, or waits for a pending one that covers the region.
    async fn look_up(
        &self,
        table: &TableName,
        target: &RegionTarget,
        deadline: Instant,
    ) -> Result<Lookup, Failure> {
        let shared = &self.shared;
        let wait_end = deadline.min(Instant::now() + SHARED_LOOKUP_WAIT);
        loop {
            let scope = || match target {
                RegionTarget::Holding(row) => {
                    LookupScope::Rows(shared.cache().lookup_range(table, row))
                }
                RegionTarget::Before(_) => LookupScope::Before(target.clone()),
            };
            let (mut outcome, own, exact) = match self.pending.join(table, target, scope) {
                LookupRole::Leader(leader) => {
                    let outcome = leader.receiver.clone();
                    let (shared, table) = (Arc::clone(shared), table.clone());
                    let target = target.clone();
                    tokio::spawn(async move {
                        let deadline = Instant::now() + shared.config.call_timeout;
                        leader.complete(shared.query_meta(&table, &target, deadline).await);
                    });
                    (outcome, true, true)
                }
                LookupRole::Waiter { outcome, exact } => {
                    shared.metrics.lookups_shared.one();
                    (outcome, false, exact)
                }
            };
            let end = if exact { deadline } else { wait_end };
            match outcome_of(&mut outcome, end).await {
                // The region may have been split during the lookup.
                Some(outcome) if own || is_for(&outcome, target) => return outcome,
                None if exact => return Err(Failure::Time),
                // The lookup found another region, or was cancelled.
                Some(_) if Instant::now() < wait_end => {}
                _ => return shared.query_meta(table, target, deadline).await,
            }
            if let Some(location) = shared.cached(table, target) {
                return Ok(Lookup::Found(location));
            }
        }
    }

    /// Recovers from a failed lookup; returns an error if another one cannot succeed.
    fn recover_meta(&self, cause: &Failure, attempts: &Attempts) -> Result<(), OperationError> {
        let permanent = match cause {
            Failure::Call(error) => {
                let location = self.shared.meta.location_at(error.server());
                self.classify_failure(&location, error, attempts.is_first(), 1) == Retry::Never
            }
            Failure::Discovery(error) => error.is_permanent(),
            _ => false,
        };
        if permanent { Err(attempts.fail(cause.clone(), false)) } else { Ok(()) }
    }
}

/// Waits for the outcome of a lookup; `None` if the lookup was cancelled or the time is up.
async fn outcome_of(outcome: &mut LookupReceiver, end: Instant) -> Option<LookupOutcome> {
    let waited = timeout_at(end, outcome.wait_for(Option::is_some)).await;
    waited.ok()?.ok()?.clone()
}

/// True if the outcome of a shared lookup applies to this target.
fn is_for(outcome: &LookupOutcome, target: &RegionTarget) -> bool {
    match outcome {
        Ok(Lookup::Found(location)) => target.is_met_by(&location.region),
        Ok(Lookup::InTransition(_, Some(region))) => target.is_met_by(region),
        Ok(Lookup::InTransition(_, None) | Lookup::NoTable) | Err(_) => true,
    }
}

impl LocatorShared {
    fn cached(&self, table: &TableName, target: &RegionTarget) -> Option<RegionLocation> {
        self.cache().find(table, target).cloned()
    }

    fn cache(&self) -> RwLockReadGuard<'_, RegionCache> {
        self.cache.read()
    }

    fn change<T>(&self, change: impl FnOnce(&mut RegionCache) -> T) -> T {
        change(&mut self.cache.write())
    }

    /// Queries hbase:meta when a permit is available, unless the region is cached by then.
    async fn query_meta(
        &self,
        table: &TableName,
        target: &RegionTarget,
        deadline: Instant,
    ) -> Result<Lookup, Failure> {
        let permits = {
            let mut permits = self.permits.lock();
            let max = self.config.max_lookups.max(1);
            if permits.len() >= IDLE_TABLES {
                permits.retain(|_, permits| Arc::strong_count(permits) > 1);
            }
            Arc::clone(
                permits.entry(table.clone()).or_insert_with(|| Arc::new(Semaphore::new(max))),
            )
        };
        let _permit = timeout_at(deadline, permits.acquire()).await.map_err(|_| Failure::Time)?;
        if let Some(cached) = self.cached(table, target) {
            return Ok(Lookup::Found(cached));
        }
        self.metrics.lookups.one();
        let scan = Scan::range(target.search_key(table), first_meta_key(table))
            .inclusive(true, true)
            .reversed()
            .read_type(ReadType::Pread)
            .select(Selection::all().family(meta::FAMILY));
        let rows = self.meta.scan(scan, LOOKUP_ROWS, deadline).await.inspect_err(|_| {
            self.metrics.lookups_failed.one();
        })?;
        let (lookup, others) = read_lookup(table, target, &rows);
        if !matches!(lookup, Lookup::Found(_)) {
            self.metrics.lookups_failed.one();
        }
        self.change(|cache| {
            for location in others {
                cache.insert(location);
            }
        });
        Ok(lookup)
    }
}

//! Finds the server of a region: from the cache, or from hbase:meta.
//!
//! Callers whose rows are of one region make one lookup: after a server's death a thousand calls need a
//! lookup for each region, not a thousand. Lookups of a table are few at a time, and an answer brings the
//! neighbours along. What hbase:meta cannot say now (a region opening, a split half done) is asked
//! again after a pause, until the operation's time is up.

mod meta_table;
mod single_flight;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use self::{
    meta_table::MetaTable,
    single_flight::{Flights, Lead, Of, Outcome, Part, Watch},
};
use crate::{
    attempts::Attempts,
    config::ClientConfig,
    connection::CallError,
    discovery::Discovery,
    error::{Failure, OperationError},
    exception::MovedTo,
    metrics::Metrics,
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

/// So long a caller waits for a lookup that may be of another region.
const SHARING: Duration = Duration::from_millis(20);

/// A region that was not found.
#[derive(Debug)]
pub(crate) enum Unlocated {
    /// Asking again may help.
    ForNow {
        /// Why it was not found.
        cause: Failure,
        /// The region, if that much is known.
        region: Option<Region>,
    },
    /// It does not.
    ForGood(OperationError),
}

/// Knows where regions are.
#[derive(Debug)]
pub(crate) struct Locator {
    known: Arc<Known>,
    flights: Arc<Flights>,
    /// Servers whose regions were forgotten a short while ago.
    gone: Mutex<HashMap<ServerName, Instant>>,
}

/// What lookups need that go on without their callers.
#[derive(Debug)]
struct Known {
    config: Arc<ClientConfig>,
    metrics: Arc<Metrics>,
    pool: Arc<ConnectionPool>,
    cache: RwLock<RegionCache>,
    meta: MetaTable,
    /// Lookups of a table that may be under way.
    turns: Mutex<HashMap<TableName, Arc<Semaphore>>>,
}

impl Locator {
    pub(crate) fn new(
        config: Arc<ClientConfig>,
        discovery: Arc<dyn Discovery>,
        pool: Arc<ConnectionPool>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let known = Known {
            cache: RwLock::new(RegionCache::new(config.max_regions)),
            meta: MetaTable::new(Arc::clone(&config), discovery, Arc::clone(&pool)),
            config,
            metrics,
            pool,
            turns: Mutex::default(),
        };
        Self { known: Arc::new(known), flights: Arc::default(), gone: Mutex::default() }
    }

    /// Where the region is, asked for until the attempts are used up.
    pub(crate) async fn locate(
        &self,
        table: &TableName,
        locate: &RegionTarget,
        attempts: &mut Attempts,
    ) -> Result<RegionLocation, OperationError> {
        let mut unsettled = 0;
        loop {
            let cause = match self.locate_once(table, locate, attempts).await {
                Ok(location) => return Ok(location),
                Err(Unlocated::ForGood(error)) => return Err(error),
                Err(Unlocated::ForNow { cause, .. }) => cause,
            };
            if matches!(cause, Failure::InTransition(_)) {
                unsettled += 1;
                if unsettled >= 2 && self.known.meta.is_disabled(table, attempts.deadline()).await {
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
        locate: &RegionTarget,
        attempts: &Attempts,
    ) -> Result<RegionLocation, Unlocated> {
        let known = &self.known;
        let found = if *table == TableName::meta() {
            known.meta.location(attempts.deadline()).await.map(Lookup::Found)
        } else if let Some(location) = known.cached(table, locate) {
            known.metrics.region_hits.one();
            return Ok(location);
        } else {
            known.metrics.region_misses.one();
            self.look_up(table, locate, attempts.deadline()).await
        };
        let (cause, region) = match found {
            Ok(Lookup::Found(location)) => return Ok(location),
            Ok(Lookup::NoTable) => {
                let cause = Failure::NoTable(table.clone());
                return Err(Unlocated::ForGood(attempts.fail(cause, false)));
            }
            Ok(Lookup::InTransition(why, region)) => (Failure::InTransition(why), region),
            Err(cause) => (cause, None),
        };
        self.settle_meta(&cause, attempts).map_err(Unlocated::ForGood)?;
        Err(Unlocated::ForNow { cause, region })
    }

    /// Sees to it that a region in transition is not waited for if its table is disabled.
    pub(crate) async fn unless_disabled(
        &self,
        table: &TableName,
        found: Result<RegionLocation, Unlocated>,
        attempts: &Attempts,
    ) -> Result<RegionLocation, Unlocated> {
        let in_transition =
            matches!(&found, Err(Unlocated::ForNow { cause: Failure::InTransition(_), .. }));
        if in_transition && self.known.meta.is_disabled(table, attempts.deadline()).await {
            let cause = Failure::TableDisabled(table.clone());
            return Err(Unlocated::ForGood(attempts.fail(cause, false)));
        }
        found
    }

    /// What is known, without a call.
    pub(crate) fn cached(
        &self,
        table: &TableName,
        locate: &RegionTarget,
    ) -> Option<RegionLocation> {
        let found = self.known.cached(table, locate);
        if found.is_some() {
            self.known.metrics.region_hits.one();
        }
        found
    }

    /// Where a row is, as far as is known, without a call.
    pub(crate) fn holding(&self, table: &TableName, row: &[u8]) -> Option<RegionLocation> {
        let cache = self.known.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.holding(table, row).cloned()
    }

    /// Number of regions whose server is known.
    pub(crate) fn cached_regions(&self) -> u64 {
        self.known.cache.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// A call to this location did not find the region.
    pub(crate) fn failed(&self, location: &RegionLocation) {
        if *location.region.table() == TableName::meta() {
            self.known.meta.forget(&location.server);
        } else {
            self.known.change(|cache| cache.failed(location));
        }
    }

    /// A call to this location was sent elsewhere. Returns whether that is news.
    pub(crate) fn moved(&self, location: &RegionLocation, to: &MovedTo) -> bool {
        if *location.region.table() == TableName::meta() {
            self.known.meta.forget(&location.server);
            return false;
        }
        self.known.change(|cache| cache.moved(location, to)).is_some()
    }

    /// The server is gone with all that it had.
    pub(crate) fn server_gone(&self, server: &ServerName, error: &CallError) {
        self.known.meta.forget(server);
        // That it could not be connected to may have reasons here: open connections speak for themselves.
        if !matches!(error, CallError::Connect { .. }) {
            self.known.pool.server_gone(server);
        }
        // A thousand callers say so at once: going through all regions once is enough. Who meets a
        // location that was learned since then has it forgotten alone.
        if !self.is_news(server) {
            return;
        }
        let regions = self.known.change(|cache| cache.server_gone(server));
        tracing::warn!(%server, regions, %error, "server gone");
    }

    /// Whether nobody said for a while that this server is gone.
    fn is_news(&self, server: &ServerName) -> bool {
        let pause = self.known.config.failed_server_pause;
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.retain(|_, when| when.elapsed() < pause);
        if gone.contains_key(server) {
            return false;
        }
        gone.insert(server.clone(), Instant::now());
        true
    }

    /// The table is gone.
    pub(crate) fn table_gone(&self, table: &TableName) {
        self.known.change(|cache| cache.table_gone(table));
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
            let rows = match self.known.meta.scan(scan, PREFETCH_ROWS, attempts.deadline()).await {
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
                    self.known.change(|cache| cache.insert(location));
                }
                found.push(row);
            }
        }
    }

    /// One lookup, which may be somebody else's.
    async fn look_up(
        &self,
        table: &TableName,
        locate: &RegionTarget,
        deadline: Instant,
    ) -> Result<Lookup, Failure> {
        let known = &self.known;
        let patience = deadline.min(Instant::now() + SHARING);
        loop {
            let of = || match locate {
                RegionTarget::Holding(row) => {
                    let cache = known.cache.read().unwrap_or_else(PoisonError::into_inner);
                    Of::Rows(cache.span(table, row))
                }
                RegionTarget::Before(_) => Of::Before(locate.clone()),
            };
            let (mut outcome, own, exact) = match self.flights.join(table, locate, of) {
                Part::Lead(lead) => {
                    let watch = lead.watch.clone();
                    tokio::spawn(known.clone().fly(lead, table.clone(), locate.clone()));
                    (watch, true, true)
                }
                Part::Follow { outcome, exact } => {
                    known.metrics.lookups_shared.one();
                    (outcome, false, exact)
                }
            };
            let end = if exact { deadline } else { patience };
            match outcome_of(&mut outcome, end).await {
                // A region that was one when the lookup began may be two by its end.
                Some(outcome) if own || is_for(&outcome, locate) => return outcome,
                None if exact => return Err(Failure::Time),
                // Of another region, or whoever made it is gone.
                Some(_) if Instant::now() < patience => {}
                _ => return known.clone().ask(table, locate, deadline).await,
            }
            if let Some(location) = known.cached(table, locate) {
                return Ok(Lookup::Found(location));
            }
        }
    }

    /// What a failure about hbase:meta says of its server; errs if no attempt helps.
    fn settle_meta(&self, cause: &Failure, attempts: &Attempts) -> Result<(), OperationError> {
        if let Some(server) = self.known.meta.settle(cause, attempts)?
            && let Failure::Call(error) = cause
        {
            self.server_gone(&server, error);
        }
        Ok(())
    }
}

/// The outcome that is watched, if it comes in time.
async fn outcome_of(outcome: &mut Watch, end: Instant) -> Option<Outcome> {
    let waited = timeout_at(end, outcome.wait_for(Option::is_some)).await;
    waited.ok()?.ok()?.clone()
}

/// Whether the outcome of another's lookup says something about this region.
fn is_for(outcome: &Outcome, locate: &RegionTarget) -> bool {
    match outcome {
        Ok(Lookup::Found(location)) => locate.is_met_by(&location.region),
        Ok(Lookup::InTransition(_, Some(region))) => locate.is_met_by(region),
        Ok(Lookup::InTransition(_, None) | Lookup::NoTable) | Err(_) => true,
    }
}

impl Known {
    fn cached(&self, table: &TableName, locate: &RegionTarget) -> Option<RegionLocation> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        match locate {
            RegionTarget::Holding(row) => cache.holding(table, row).cloned(),
            RegionTarget::Before(_) => cache.find(table, locate).cloned(),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut RegionCache) -> T) -> T {
        change(&mut self.cache.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a lookup for all who wait for it.
    async fn fly(self: Arc<Self>, lead: Lead, table: TableName, locate: RegionTarget) {
        let deadline = Instant::now() + self.config.call_timeout;
        let outcome = self.ask(&table, &locate, deadline).await;
        lead.end(outcome);
    }

    /// Makes a lookup when its turn comes, if nobody else's made it needless.
    async fn ask(
        self: Arc<Self>,
        table: &TableName,
        locate: &RegionTarget,
        deadline: Instant,
    ) -> Result<Lookup, Failure> {
        let turns = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            let max = self.config.max_lookups.max(1);
            if turns.len() >= IDLE_TABLES {
                turns.retain(|_, turns| Arc::strong_count(turns) > 1);
            }
            Arc::clone(turns.entry(table.clone()).or_insert_with(|| Arc::new(Semaphore::new(max))))
        };
        let _turn = timeout_at(deadline, turns.acquire()).await.map_err(|_| Failure::Time)?;
        if let Some(known) = self.cached(table, locate) {
            return Ok(Lookup::Found(known));
        }
        self.metrics.lookups.one();
        let scan = Scan::range(locate.search_key(table), first_meta_key(table))
            .inclusive(true, true)
            .reversed()
            .read_type(ReadType::Pread)
            .select(Selection::all().family(meta::FAMILY));
        let rows = self.meta.scan(scan, LOOKUP_ROWS, deadline).await.inspect_err(|_| {
            self.metrics.lookups_failed.one();
        })?;
        let (lookup, others) = read_lookup(table, locate, &rows);
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

//! Memory budget of a query: tracks how much of its grant it has reserved.
//!
//! Everything that grows with the data (spans, decoded columns, results) is reserved before or just after its
//! allocation, and released after the response was written. A query that exceeds its own limit is rejected as too
//! large. If a query outgrows its grant while others have the rest of the memory, its actor lets it begin again behind
//! a larger claim ([`MemoryBudget::take_larger_claim`]).

use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tsd_query::{LimitError, QueryError};

use super::admission::{Admission, Claim, Grant, QueryClass, Shortage};
use crate::query::failure::QueryFailure;

const MB: u64 = 1 << 20;

/// Most restarts of a query. Its claim reaches its limit after fewer, unless the memory of the process varies
/// meanwhile.
const MAX_RESTARTS: u32 = 12;

/// Least factor by which the claim of a query grows when it begins again.
const CLAIM_GROWTH: u64 = 4;

/// Bytes of one point: value and time.
pub(crate) const BYTES_PER_POINT: u64 = 16;

/// Memory budget of one query. Dropping it releases everything it reserved.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    admission: Arc<Admission>,
    /// Most bytes granted beyond a reservation.
    margin: u64,
    /// Limit in bytes; 0 means unlimited.
    limit: u64,
    /// Configuration key of `limit`.
    key: &'static str,
    reserved: AtomicU64,
    peak: AtomicU64,
    /// Bytes that the plans of the query are expected to need.
    expected: AtomicU64,
    /// Bytes granted.
    granted: AtomicU64,
    is_wide: AtomicBool,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    /// Place in line.
    order: u64,
    grant: Option<Grant>,
    /// The claim with which the query begins again.
    larger_claim: Option<Claim>,
    restarts: u32,
    /// True if the query may not begin again.
    has_effects: bool,
}

impl MemoryBudget {
    /// A budget of `limit` bytes (0 means unlimited), set by `key`, with nothing granted. It asks for at most `margin`
    /// bytes more than it needs.
    pub(crate) fn new(
        admission: Arc<Admission>,
        margin: u64,
        limit: u64,
        key: &'static str,
    ) -> Self {
        Self {
            admission,
            margin,
            limit,
            key,
            reserved: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            is_wide: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Sets the place of the query in line, once it has a number.
    pub(crate) fn set_order(&self, order: u64) {
        self.state.lock().order = order;
    }

    /// The claim of a query that needs this many bytes.
    pub(crate) fn claim_of(&self, bytes: u64) -> Claim {
        self.admission.claim(bytes)
    }

    /// Waits for a grant. Releases the present grant first.
    pub(crate) async fn admit(&self, claim: Claim) -> Result<(), QueryFailure> {
        let bytes = claim.bytes.min(self.most(claim.class));
        self.is_wide.store(claim.class == QueryClass::Wide, Ordering::Relaxed);
        let order = self.state.lock().order;
        let grant = self.admission.admit(order, Claim { bytes, ..claim }).await;
        match grant {
            Ok(grant) => {
                self.set_grant(&mut self.state.lock(), Some(grant));
                Ok(())
            }
            Err(Shortage::Full) => Err(QueryFailure::Busy),
            Err(shortage) => Err(self.no_memory(shortage)),
        }
    }

    /// Reserves memory, or fails without reserving any if that would exceed the limit or the possible grant.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), QueryFailure> {
        let bytes = bytes as u64;
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_granted = self.check_limit(reserved).and_then(|()| {
            if reserved <= self.granted.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.grow(reserved)
        });
        match is_granted {
            Ok(()) => {
                self.peak.fetch_max(reserved, Ordering::Relaxed);
            }
            Err(_) => {
                self.reserved.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
        is_granted
    }

    /// Grows the grant by memory that the query is expected to need, on top of earlier estimates. An estimate never
    /// makes a query too large.
    pub(crate) fn expect(&self, bytes: u64) -> Result<(), QueryFailure> {
        let before = self.expected.fetch_add(bytes, Ordering::Relaxed);
        let expected = before.saturating_add(bytes).min(self.most(QueryClass::Wide));
        if expected <= self.granted.load(Ordering::Relaxed) { Ok(()) } else { self.grow(expected) }
    }

    /// Makes a small query wide. Called when it takes more time than small queries do.
    pub(crate) fn make_wide(&self) -> Result<(), QueryFailure> {
        if self.is_wide.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut state = self.state.lock();
        if !state.grant.as_ref().is_some_and(Grant::is_running) {
            return Ok(());
        }
        let bytes = state.grant.as_ref().map_or(0, Grant::bytes);
        self.change(&mut state, (Claim { class: QueryClass::Wide, bytes }, 0))
    }

    /// Releases some of the reserved memory.
    pub(crate) fn release(&self, bytes: usize) {
        self.reserved.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Ends the run of the query, with or without a result, so that others may run. Reserved memory stays granted.
    pub(crate) fn end_run(&self) {
        let mut state = self.state.lock();
        if let Some(grant) = &mut state.grant {
            grant.end_run(self.reserved());
            self.granted.store(grant.bytes(), Ordering::Relaxed);
        }
    }

    /// If the query has outgrown its grant, takes the claim with which it begins again. Releases all reserved memory,
    /// so all work of the query must have stopped.
    pub(crate) fn take_larger_claim(&self) -> Option<Claim> {
        let mut state = self.state.lock();
        let claim = state.larger_claim.take()?;
        state.restarts += 1;
        self.set_grant(&mut state, None);
        drop(state);
        self.reserved.store(0, Ordering::Relaxed);
        self.expected.store(0, Ordering::Relaxed);
        Some(claim)
    }

    /// True if the query has outgrown its grant and may begin again.
    pub(crate) fn has_larger_claim(&self) -> bool {
        self.state.lock().larger_claim.is_some()
    }

    /// Forbids restarts, because the query has effects from now on. It fails instead.
    pub(crate) fn forbid_restart(&self) {
        self.state.lock().has_effects = true;
    }

    fn check_limit(&self, reserved: u64) -> Result<(), QueryFailure> {
        if self.limit > 0 && reserved > self.limit {
            let (limit_mb, key) = (self.limit / MB, self.key);
            return Err(QueryError::from(LimitError::Memory { limit_mb, key }).into());
        }
        Ok(())
    }

    /// Grows the grant to at least `bytes`.
    fn grow(&self, bytes: u64) -> Result<(), QueryFailure> {
        let mut state = self.state.lock();
        let granted = state.grant.as_ref().map_or(0, Grant::bytes);
        if granted >= bytes {
            return Ok(());
        }
        let margin = self.margin.min(self.most(QueryClass::Wide).saturating_sub(bytes));
        self.change(&mut state, (self.admission.claim(bytes), margin))
    }

    fn change(
        &self,
        state: &mut BudgetState,
        (claim, margin): (Claim, u64),
    ) -> Result<(), QueryFailure> {
        let order = state.order;
        let grown = self.admission.grow(&mut state.grant, order, (claim, margin));
        match grown {
            Ok(()) => {
                let grant = state.grant.take();
                self.set_grant(state, grant);
                Ok(())
            }
            Err(Shortage::Queries) if state.restarts < MAX_RESTARTS && !state.has_effects => {
                self.claim_more(state, claim);
                let (limit, key) = self.admission.limit_of(Shortage::Queries);
                Err(QueryFailure::NoMemory { limit_mb: limit / MB, key })
            }
            Err(shortage) => Err(self.no_memory(shortage)),
        }
    }

    /// Notes the claim with which the query begins again.
    fn claim_more(&self, state: &mut BudgetState, needed: Claim) {
        let granted = state.grant.as_ref().map_or(0, Grant::bytes);
        let bytes = needed.bytes.max(granted.saturating_mul(CLAIM_GROWTH));
        let is_wide = self.is_wide.load(Ordering::Relaxed) || needed.class == QueryClass::Wide;
        let class = if is_wide { QueryClass::Wide } else { QueryClass::Small };
        let bytes = bytes.min(self.most(class));
        let before = state.larger_claim.map_or(0, |claim| claim.bytes);
        state.larger_claim = Some(Claim { class, bytes: bytes.max(before) });
    }

    /// Most bytes that the query can get in a class.
    fn most(&self, class: QueryClass) -> u64 {
        let most = match class {
            QueryClass::Small => self.admission.small_query(),
            QueryClass::Wide => self.admission.most(),
        };
        if self.limit == 0 { most } else { most.min(self.limit) }
    }

    fn set_grant(&self, state: &mut BudgetState, grant: Option<Grant>) {
        let (bytes, class) =
            grant.as_ref().map_or_else(Default::default, |it| (it.bytes(), it.class()));
        self.granted.store(bytes, Ordering::Relaxed);
        self.is_wide.store(class == QueryClass::Wide, Ordering::Relaxed);
        state.grant = grant;
    }

    fn no_memory(&self, shortage: Shortage) -> QueryFailure {
        let (limit, key) = self.admission.limit_of(shortage);
        self.admission.record_refusal(key);
        QueryFailure::NoMemory { limit_mb: limit / MB, key }
    }

    /// The query's own limit in bytes; 0 means unlimited.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes reserved.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes granted.
    pub(crate) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// The class in which the query runs.
    pub(crate) fn class(&self) -> QueryClass {
        if self.is_wide.load(Ordering::Relaxed) { QueryClass::Wide } else { QueryClass::Small }
    }

    /// Number of restarts.
    pub(crate) fn restarts(&self) -> u32 {
        self.state.lock().restarts
    }

    /// Most bytes reserved at once so far.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

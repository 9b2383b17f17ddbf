//! The memory that connections, request bodies and queries share.
//!
//! The process has one memory limit (`tsd.memory.limit`). Memtables and caches have fixed shares, which are allocated
//! once. The rest is reserved here, before or during its allocation; dropping the permit releases it. Each consumer
//! has a minimum that the others cannot take, so that queries do not starve connections, nor connections queries.

use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

/// Configuration key of the limit, for messages.
pub const MEMORY_LIMIT_KEY: &str = "tsd.memory.limit";
/// How long a rejected reservation counts as a problem.
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);
/// More bytes than any process has.
const UNLIMITED: u64 = u64::MAX >> 1;
/// Number of waiting requests from which abandoned ones are removed.
const PRUNE_AT: usize = 64;

/// A consumer of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryConsumer {
    /// The minimum of each connection.
    Connections,
    /// Reads of telnet connections, until their points are accepted.
    Reads,
    /// Request bodies, as sent and decompressed.
    Bodies,
    /// Queries, until their responses are written.
    Queries,
}

impl MemoryConsumer {
    /// All consumers.
    pub const ALL: [Self; 4] = [Self::Connections, Self::Reads, Self::Bodies, Self::Queries];

    /// Value of the label `part`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Reads => "reads",
            Self::Bodies => "bodies",
            Self::Queries => "queries",
        }
    }

    /// Minimum of this consumer, as a divisor of the shared memory.
    const fn minimum_divisor(self) -> u64 {
        match self {
            Self::Connections | Self::Queries => 4,
            Self::Reads | Self::Bodies => 8,
        }
    }
}

/// Memory of fixed size: its name as a metric label, and its bytes.
pub type FixedShare = (&'static str, u64);

/// The memory budget of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct ProcessMemory(Arc<BudgetData>);

#[derive(Debug)]
struct BudgetData {
    /// Limit of the whole process, in bytes.
    limit: u64,
    fixed: Vec<FixedShare>,
    /// Bytes that the consumers share.
    shared: u64,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    consumers: [ConsumerState; 4],
    last_refusal: Option<(Instant, MemoryConsumer)>,
}

#[derive(Debug, Default)]
struct ConsumerState {
    reserved: u64,
    waits: u64,
    refusals: u64,
    /// Waiters in the order of arrival.
    waiting: VecDeque<Waiter>,
    /// Waiters that leave memory for smaller requests, in the order of arrival. Smaller requests do not wait behind
    /// them.
    waiting_large: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    /// Bytes that must stay free for other requests.
    kept: u64,
    granted: oneshot::Sender<MemoryPermit>,
}

/// Reserved memory. Dropping it releases the memory.
#[derive(Debug)]
pub struct MemoryPermit {
    memory: ProcessMemory,
    consumer: MemoryConsumer,
    bytes: u64,
}

impl Default for ProcessMemory {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl ProcessMemory {
    /// A budget of `limit` bytes. Connections, bodies and queries share what the `fixed` shares leave.
    #[must_use]
    pub fn new(limit: u64, fixed: Vec<FixedShare>) -> Self {
        let shared = limit.saturating_sub(fixed.iter().map(|(_, bytes)| bytes).sum());
        Self(Arc::new(BudgetData { limit, fixed, shared, state: Mutex::default() }))
    }

    /// A budget without a limit.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(UNLIMITED, Vec::new())
    }

    /// True for a budget without a limit.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.0.limit >= UNLIMITED
    }

    /// The limit of the process, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// The fixed shares.
    #[must_use]
    pub fn fixed(&self) -> &[FixedShare] {
        &self.0.fixed
    }

    /// Most bytes that a consumer can reserve, if the others have only their minimum.
    #[must_use]
    pub fn most(&self, consumer: MemoryConsumer) -> u64 {
        let others = MemoryConsumer::ALL.iter().filter(|other| **other != consumer);
        let shared = self.0.shared;
        others.fold(shared, |left, other| left - shared / other.minimum_divisor())
    }

    /// Bytes that a consumer has reserved.
    #[must_use]
    pub fn reserved(&self, consumer: MemoryConsumer) -> u64 {
        self.0.state.lock().consumer(consumer).reserved
    }

    /// Number of waits for memory, and of rejected requests, of a consumer.
    #[must_use]
    pub fn waits_and_refusals(&self, consumer: MemoryConsumer) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.consumer(consumer).waits, state.consumer(consumer).refusals)
    }

    /// Reserves `bytes` now, or nothing. Requests of the same consumer that wait already come first.
    #[must_use]
    pub fn try_reserve(&self, consumer: MemoryConsumer, bytes: usize) -> Option<MemoryPermit> {
        let bytes = bytes as u64;
        self.try_add(consumer, bytes).then(|| self.permit(consumer, bytes))
    }

    /// Like [`Self::try_reserve`], but requires that `kept` more bytes would fit too.
    #[must_use]
    pub fn try_reserve_beside(
        &self,
        consumer: MemoryConsumer,
        bytes: usize,
        kept: u64,
    ) -> Option<MemoryPermit> {
        let bytes = bytes as u64;
        self.try_add_beside(consumer, bytes, kept).then(|| self.permit(consumer, bytes))
    }

    /// Reserves `bytes`, behind requests of the same consumer that wait already. Dropping the future ends the wait.
    /// `None` if the consumer can never reserve this many bytes.
    pub async fn reserve(&self, consumer: MemoryConsumer, bytes: usize) -> Option<MemoryPermit> {
        self.reserve_beside(consumer, bytes, 0).await
    }

    /// Like [`Self::reserve`], but waits until `kept` more bytes would fit too. Large requests leave these bytes to
    /// small requests of their consumer, which do not wait behind them.
    pub async fn reserve_beside(
        &self,
        consumer: MemoryConsumer,
        bytes: usize,
        kept: u64,
    ) -> Option<MemoryPermit> {
        let needed = bytes as u64;
        let mut wait = {
            let mut state = self.0.state.lock();
            if self.fits_now(&state, consumer, (needed, kept)) {
                state.consumer_mut(consumer).reserved += needed;
                return Some(self.permit(consumer, needed));
            }
            if needed.saturating_add(kept) > self.most(consumer) {
                return None;
            }
            let (sender, granted) = oneshot::channel();
            let waiting = state.consumer_mut(consumer).line(kept > 0);
            if waiting.len() >= PRUNE_AT && waiting.len().is_power_of_two() {
                waiting.retain(|waiter| !waiter.granted.is_closed());
            }
            waiting.push_back(Waiter { bytes: needed, kept, granted: sender });
            state.consumer_mut(consumer).waits += 1;
            Wait { granted, _end: EndOfWait { memory: self, consumer } }
        };
        // The sender is dropped only with the budget.
        (&mut wait.granted).await.ok()
    }

    /// Counts a request that was rejected for lack of memory.
    pub fn record_refusal(&self, consumer: MemoryConsumer) {
        let mut state = self.0.state.lock();
        state.consumer_mut(consumer).refusals += 1;
        state.last_refusal = Some((Instant::now(), consumer));
    }

    /// The consumer that was recently refused memory.
    #[must_use]
    pub fn refused_recently(&self) -> Option<MemoryConsumer> {
        let (at, consumer) = self.0.state.lock().last_refusal?;
        (at.elapsed() < REFUSAL_PERIOD).then_some(consumer)
    }

    /// Adds to the reservation of a consumer, if that fits and no request waits before it. The caller must release it.
    #[must_use]
    pub fn try_add(&self, consumer: MemoryConsumer, bytes: u64) -> bool {
        self.try_add_beside(consumer, bytes, 0)
    }

    /// Like [`Self::try_add`], but requires that `kept` more bytes would fit too.
    #[must_use]
    pub fn try_add_beside(&self, consumer: MemoryConsumer, bytes: u64, kept: u64) -> bool {
        let mut state = self.0.state.lock();
        let fits = bytes == 0 || self.fits_now(&state, consumer, (bytes, kept));
        if fits {
            state.consumer_mut(consumer).reserved += bytes;
        }
        fits
    }

    /// Reduces the reservation of a consumer, and grants waiting requests that then fit.
    pub fn release(&self, consumer: MemoryConsumer, bytes: u64) {
        let mut state = self.0.state.lock();
        let reserved = &mut state.consumer_mut(consumer).reserved;
        *reserved = reserved.saturating_sub(bytes);
        let granted = self.grant(&mut state);
        drop(state);
        for (consumer, Waiter { bytes, granted, .. }) in granted {
            // If the waiter is gone, the send returns the permit, which releases the memory.
            let _ = granted.send(self.permit(consumer, bytes));
        }
    }

    /// Reserves memory for all waiters that fit, in the order of each consumer.
    fn grant(&self, state: &mut BudgetState) -> Vec<(MemoryConsumer, Waiter)> {
        let mut granted = Vec::new();
        for (consumer, is_large) in
            MemoryConsumer::ALL.into_iter().flat_map(|it| [(it, false), (it, true)])
        {
            while let Some(first) = state.consumer_mut(consumer).line(is_large).front() {
                let (bytes, is_closed) = (first.bytes, first.granted.is_closed());
                let needed = bytes.saturating_add(first.kept);
                if !is_closed && !self.fits(state, consumer, needed) {
                    break;
                }
                let of_consumer = state.consumer_mut(consumer);
                let Some(waiter) = of_consumer.line(is_large).pop_front() else { break };
                if !is_closed {
                    of_consumer.reserved += bytes;
                    granted.push((consumer, waiter));
                }
            }
        }
        granted
    }

    /// True if a consumer can reserve the bytes now and leave `kept`, and no other request comes first.
    fn fits_now(
        &self,
        state: &BudgetState,
        consumer: MemoryConsumer,
        (bytes, kept): (u64, u64),
    ) -> bool {
        let ConsumerState { waiting, waiting_large, .. } = state.consumer(consumer);
        let is_first = waiting.is_empty() && (kept == 0 || waiting_large.is_empty());
        is_first && self.fits(state, consumer, bytes.saturating_add(kept))
    }

    /// True if a consumer can reserve `bytes` more while each other consumer can still get its minimum.
    fn fits(&self, state: &BudgetState, consumer: MemoryConsumer, bytes: u64) -> bool {
        let shared = self.0.shared;
        let kept = |other: MemoryConsumer| {
            let reserved = state.consumer(other).reserved;
            if other == consumer {
                reserved
            } else {
                reserved.max(shared / other.minimum_divisor())
            }
        };
        let taken =
            MemoryConsumer::ALL.into_iter().fold(bytes, |sum, it| sum.saturating_add(kept(it)));
        taken <= shared
    }

    fn permit(&self, consumer: MemoryConsumer, bytes: u64) -> MemoryPermit {
        MemoryPermit { memory: self.clone(), consumer, bytes }
    }
}

/// A wait for memory. The receiver is dropped first, because requests behind a wait that ended may then fit.
struct Wait<'a> {
    granted: oneshot::Receiver<MemoryPermit>,
    _end: EndOfWait<'a>,
}

/// Serves the requests behind a wait that ended.
struct EndOfWait<'a> {
    memory: &'a ProcessMemory,
    consumer: MemoryConsumer,
}

impl Drop for EndOfWait<'_> {
    fn drop(&mut self) {
        self.memory.release(self.consumer, 0);
    }
}

impl ConsumerState {
    const fn line(&mut self, is_large: bool) -> &mut VecDeque<Waiter> {
        if is_large { &mut self.waiting_large } else { &mut self.waiting }
    }
}

impl BudgetState {
    const fn consumer(&self, consumer: MemoryConsumer) -> &ConsumerState {
        let [connections, reads, bodies, queries] = &self.consumers;
        match consumer {
            MemoryConsumer::Connections => connections,
            MemoryConsumer::Reads => reads,
            MemoryConsumer::Bodies => bodies,
            MemoryConsumer::Queries => queries,
        }
    }

    const fn consumer_mut(&mut self, consumer: MemoryConsumer) -> &mut ConsumerState {
        let [connections, reads, bodies, queries] = &mut self.consumers;
        match consumer {
            MemoryConsumer::Connections => connections,
            MemoryConsumer::Reads => reads,
            MemoryConsumer::Bodies => bodies,
            MemoryConsumer::Queries => queries,
        }
    }
}

impl MemoryPermit {
    /// Bytes reserved.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Grows the permit to `bytes` in all. False if that does not fit now.
    #[must_use]
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let more = (bytes as u64).saturating_sub(self.bytes);
        let fits = more == 0 || self.memory.try_add(self.consumer, more);
        if fits {
            self.bytes += more;
        }
        fits
    }

    /// Splits off `bytes`, or all that the permit has, as a permit of its own.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = self.bytes.min(bytes as u64);
        self.bytes -= bytes;
        self.memory.permit(self.consumer, bytes)
    }

    /// Merges another permit of the same consumer into this one.
    pub fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Releases all but `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes as u64);
        if less > 0 {
            self.bytes -= less;
            self.memory.release(self.consumer, less);
        }
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{future::Future, pin::pin, task::Context};

    use super::*;
    use MemoryConsumer::{Bodies, Connections, Queries, Reads};

    const SHARED: u64 = 800;

    fn memory() -> ProcessMemory {
        ProcessMemory::new(1_000, vec![("memtables", 150), ("block_cache", 50)])
    }

    #[test]
    fn each_consumer_leaves_the_minimum_of_the_others() {
        for (consumer, most) in [(Connections, 400), (Reads, 300), (Bodies, 300), (Queries, 400)] {
            let memory = memory();
            assert_eq!(memory.most(consumer), most);
            let all = memory.try_reserve(consumer, most as usize).unwrap();
            assert!(memory.try_reserve(consumer, 1).is_none(), "{consumer:?}");
            for other in MemoryConsumer::ALL.into_iter().filter(|other| *other != consumer) {
                let minimum = (SHARED / other.minimum_divisor()) as usize;
                let permit = memory.try_reserve(other, minimum).unwrap();
                assert!(memory.try_reserve(other, 1).is_none(), "{consumer:?} {other:?}");
                drop(permit);
            }
            drop(all);
            assert_eq!(memory.reserved(consumer), 0);
            assert!(memory.try_reserve(consumer, most as usize).is_some());
        }
    }

    #[test]
    fn permits_grow_shrink_and_merge() {
        let memory = memory();
        let mut permit = memory.try_reserve(Bodies, 100).unwrap();
        assert!(permit.try_grow(300));
        assert!(!permit.try_grow(301));
        permit.shrink(50);
        assert_eq!((permit.bytes(), memory.reserved(Bodies)), (50, 50));
        permit.merge(memory.try_reserve(Bodies, 25).unwrap());
        assert_eq!((permit.bytes(), memory.reserved(Bodies)), (75, 75));
        let split = permit.split(30);
        assert_eq!((permit.bytes(), split.bytes(), memory.reserved(Bodies)), (45, 30, 75));
        drop(split);
        assert_eq!(memory.reserved(Bodies), 45);
        drop(permit);
        assert_eq!(memory.reserved(Bodies), 0);
    }

    #[tokio::test]
    async fn waiters_of_a_consumer_are_served_in_order() {
        let memory = memory();
        let held = memory.try_reserve(Connections, 400).unwrap();
        let mut large = pin!(memory.reserve(Connections, 250));
        let mut small = pin!(memory.reserve(Connections, 10));
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(large.as_mut().poll(&mut context).is_pending());
        assert!(small.as_mut().poll(&mut context).is_pending());
        let mut held = held;
        held.shrink(350);
        assert!(small.as_mut().poll(&mut context).is_pending(), "the large one is first");
        assert!(memory.try_reserve(Connections, 1).is_none(), "nor do others overtake it");
        assert!(memory.try_reserve(Queries, 200).is_some(), "other parts do not wait");
        held.shrink(100);
        let large = large.await.unwrap();
        let small = small.await.unwrap();
        assert_eq!((large.bytes(), small.bytes()), (250, 10));
        drop((held, large, small));
        assert_eq!(memory.reserved(Connections), 0);
    }

    /// Issue 37.
    #[tokio::test]
    async fn small_requests_do_not_wait_behind_large_ones_which_leave_them_a_share() {
        let memory = memory();
        let mut context = Context::from_waker(std::task::Waker::noop());
        // The consumer can reserve at most 300.
        let held = memory.reserve_beside(Bodies, 200, 50).await.unwrap();
        assert!(memory.try_reserve_beside(Bodies, 51, 50).is_none());
        let mut large = pin!(memory.reserve_beside(Bodies, 100, 50));
        let mut next = pin!(memory.reserve_beside(Bodies, 10, 50));
        assert!(large.as_mut().poll(&mut context).is_pending());
        assert!(next.as_mut().poll(&mut context).is_pending());
        let small = memory.reserve(Bodies, 90).await.unwrap();
        drop(small);
        assert!(next.as_mut().poll(&mut context).is_pending(), "the large ones have their order");
        drop(held);
        assert_eq!(large.await.unwrap().bytes(), 100);
        assert_eq!(next.await.unwrap().bytes(), 10);
        assert!(memory.reserve_beside(Bodies, 251, 50).await.is_none(), "it can never fit");
        assert_eq!(memory.reserved(Bodies), 0);
    }

    #[tokio::test]
    async fn a_wait_that_ends_takes_nothing_and_blocks_nobody() {
        let memory = memory();
        let held = memory.try_reserve(Bodies, 300).unwrap();
        for _ in 0..200 {
            let mut wait = Box::pin(memory.reserve(Bodies, 300));
            let mut context = Context::from_waker(std::task::Waker::noop());
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
        assert!(memory.0.state.lock().consumer(Bodies).waiting.len() <= 2 * PRUNE_AT);
        drop(held);
        assert_eq!(memory.reserved(Bodies), 0);
        assert_eq!(memory.reserve(Bodies, 300).await.unwrap().bytes(), 300);
        assert!(memory.reserve(Bodies, 301).await.is_none(), "it would wait forever");
    }

    #[test]
    fn a_refusal_is_a_problem_for_a_while() {
        let memory = memory();
        assert_eq!(memory.refused_recently(), None);
        memory.record_refusal(Queries);
        assert_eq!(memory.refused_recently(), Some(Queries));
        assert_eq!(memory.waits_and_refusals(Queries), (0, 1));
        let long_ago = Instant::now().checked_sub(REFUSAL_PERIOD).unwrap();
        memory.0.state.lock().last_refusal = Some((long_ago, Queries));
        assert_eq!(memory.refused_recently(), None);
    }
}

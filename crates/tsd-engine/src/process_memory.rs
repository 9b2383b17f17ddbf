//! The memory that connections, request bodies and queries share.
//!
//! The process has one memory limit (`tsd.memory.limit`). Memtables and caches have fixed shares of
//! it, which are allocated once. The rest is reserved here, before or while it is allocated, and
//! released by dropping the permit. Each part has a minimum that the other parts cannot take, so
//! that queries do not starve connections, nor connections queries.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

/// Key of the limit, for messages.
pub const MEMORY_LIMIT_KEY: &str = "tsd.memory.limit";
/// How long a refusal counts as a problem.
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);
/// Bytes that no process has.
const UNLIMITED: u64 = u64::MAX >> 1;
/// Waiting requests at which those that no longer wait are looked for.
const PRUNE_AT: usize = 64;

/// Who reserves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPart {
    /// The minimum of each connection.
    Connections,
    /// Reads of telnet connections, until their points are accepted.
    Reads,
    /// Request bodies, as sent and decompressed.
    Bodies,
    /// Queries, until their responses are written.
    Queries,
}

impl MemoryPart {
    /// All parts.
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

    /// The minimum of this part, as a divisor of the shared memory.
    const fn minimum_divisor(self) -> u64 {
        match self {
            Self::Connections | Self::Queries => 4,
            Self::Reads | Self::Bodies => 8,
        }
    }
}

/// Memory of the process with a fixed size: its name as a metric label, and bytes.
pub type FixedShare = (&'static str, u64);

/// The memory budget of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct ProcessMemory(Arc<BudgetData>);

#[derive(Debug)]
struct BudgetData {
    /// Bytes of the whole process.
    limit: u64,
    fixed: Vec<FixedShare>,
    /// Bytes that the parts share.
    shared: u64,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    parts: [PartState; 4],
    last_refusal: Option<(Instant, MemoryPart)>,
}

#[derive(Debug, Default)]
struct PartState {
    reserved: u64,
    waits: u64,
    refusals: u64,
    /// In the order of arrival.
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<MemoryPermit>,
}

/// Reserved memory; dropping it releases it.
#[derive(Debug)]
pub struct MemoryPermit {
    memory: ProcessMemory,
    part: MemoryPart,
    bytes: u64,
}

impl Default for ProcessMemory {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl ProcessMemory {
    /// A budget of `limit` bytes, of which connections, bodies and queries share what `fixed`
    /// leaves.
    #[must_use]
    pub fn new(limit: u64, fixed: Vec<FixedShare>) -> Self {
        let shared = limit.saturating_sub(fixed.iter().map(|(_, bytes)| bytes).sum());
        Self(Arc::new(BudgetData { limit, fixed, shared, state: Mutex::default() }))
    }

    /// A budget that is never used up.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(UNLIMITED, Vec::new())
    }

    /// True for a budget that is never used up.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.0.limit >= UNLIMITED
    }

    /// The limit of the process, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// The parts with a fixed size.
    #[must_use]
    pub fn fixed(&self) -> &[FixedShare] {
        &self.0.fixed
    }

    /// Most bytes that a part can reserve, if the others have only their minimum.
    #[must_use]
    pub fn most(&self, part: MemoryPart) -> u64 {
        let others = MemoryPart::ALL.iter().filter(|other| **other != part);
        let shared = self.0.shared;
        others.fold(shared, |left, other| left - shared / other.minimum_divisor())
    }

    /// Bytes reserved by a part.
    #[must_use]
    pub fn reserved(&self, part: MemoryPart) -> u64 {
        self.lock().part(part).reserved
    }

    /// Waits for memory and refusals of a part so far.
    #[must_use]
    pub fn waits_and_refusals(&self, part: MemoryPart) -> (u64, u64) {
        let state = self.lock();
        (state.part(part).waits, state.part(part).refusals)
    }

    /// Reserves `bytes` now, or nothing. Those that wait for their part come first.
    #[must_use]
    pub fn try_reserve(&self, part: MemoryPart, bytes: usize) -> Option<MemoryPermit> {
        let bytes = bytes as u64;
        self.try_add(part, bytes).then(|| self.permit(part, bytes))
    }

    /// Reserves `bytes`, after those that wait for the same part already. Dropping the future ends
    /// the wait. `None`: the part can never reserve so much.
    pub async fn reserve(&self, part: MemoryPart, bytes: usize) -> Option<MemoryPermit> {
        let needed = bytes as u64;
        let mut wait = {
            let mut state = self.lock();
            if state.part(part).waiting.is_empty() && self.fits(&state, part, needed) {
                state.part_mut(part).reserved += needed;
                return Some(self.permit(part, needed));
            }
            if needed > self.most(part) {
                return None;
            }
            let (sender, granted) = oneshot::channel();
            let waiting = &mut state.part_mut(part).waiting;
            if waiting.len() >= PRUNE_AT && waiting.len().is_power_of_two() {
                waiting.retain(|waiter| !waiter.granted.is_closed());
            }
            waiting.push_back(Waiter { bytes: needed, granted: sender });
            state.part_mut(part).waits += 1;
            Wait { granted, _end: EndOfWait { memory: self, part } }
        };
        // A sender is dropped only with the budget.
        (&mut wait.granted).await.ok()
    }

    /// Counts a request that was refused because no memory was left.
    pub fn record_refusal(&self, part: MemoryPart) {
        let mut state = self.lock();
        state.part_mut(part).refusals += 1;
        state.last_refusal = Some((Instant::now(), part));
    }

    /// The part that was refused memory a moment ago.
    #[must_use]
    pub(crate) fn refused_recently(&self) -> Option<MemoryPart> {
        let (at, part) = self.lock().last_refusal?;
        (at.elapsed() < REFUSAL_PERIOD).then_some(part)
    }

    /// Adds to the reservation of a part if that fits and nobody waits. The caller releases it.
    pub(crate) fn try_add(&self, part: MemoryPart, bytes: u64) -> bool {
        let mut state = self.lock();
        let fits =
            bytes == 0 || state.part(part).waiting.is_empty() && self.fits(&state, part, bytes);
        if fits {
            state.part_mut(part).reserved += bytes;
        }
        fits
    }

    /// Takes from the reservation of a part, and grants what fits then.
    pub(crate) fn release(&self, part: MemoryPart, bytes: u64) {
        let mut state = self.lock();
        let reserved = &mut state.part_mut(part).reserved;
        *reserved = reserved.saturating_sub(bytes);
        let granted = self.grant(&mut state);
        drop(state);
        for (part, Waiter { bytes, granted }) in granted {
            // A wait that ended meanwhile returns the permit, which releases it.
            let _ = granted.send(self.permit(part, bytes));
        }
    }

    /// Reserves for all waiters that fit, each part in its order.
    fn grant(&self, state: &mut BudgetState) -> Vec<(MemoryPart, Waiter)> {
        let mut granted = Vec::new();
        for part in MemoryPart::ALL {
            while let Some(first) = state.part(part).waiting.front() {
                let (bytes, is_closed) = (first.bytes, first.granted.is_closed());
                if !is_closed && !self.fits(state, part, bytes) {
                    break;
                }
                let of_part = state.part_mut(part);
                let Some(waiter) = of_part.waiting.pop_front() else { break };
                if !is_closed {
                    of_part.reserved += bytes;
                    granted.push((part, waiter));
                }
            }
        }
        granted
    }

    /// True if a part can reserve `bytes` more and each other part can still get its minimum.
    fn fits(&self, state: &BudgetState, part: MemoryPart, bytes: u64) -> bool {
        let shared = self.0.shared;
        let kept = |other: MemoryPart| {
            let reserved = state.part(other).reserved;
            if other == part { reserved } else { reserved.max(shared / other.minimum_divisor()) }
        };
        let taken = MemoryPart::ALL.into_iter().fold(bytes, |sum, it| sum.saturating_add(kept(it)));
        taken <= shared
    }

    fn permit(&self, part: MemoryPart, bytes: u64) -> MemoryPermit {
        MemoryPermit { memory: self.clone(), part, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait for memory. The receiver is dropped first: those behind a wait that ended may fit then.
struct Wait<'a> {
    granted: oneshot::Receiver<MemoryPermit>,
    _end: EndOfWait<'a>,
}

/// Serves the waiters behind one that ended its wait.
struct EndOfWait<'a> {
    memory: &'a ProcessMemory,
    part: MemoryPart,
}

impl Drop for EndOfWait<'_> {
    fn drop(&mut self) {
        self.memory.release(self.part, 0);
    }
}

impl BudgetState {
    const fn part(&self, part: MemoryPart) -> &PartState {
        let [connections, reads, bodies, queries] = &self.parts;
        match part {
            MemoryPart::Connections => connections,
            MemoryPart::Reads => reads,
            MemoryPart::Bodies => bodies,
            MemoryPart::Queries => queries,
        }
    }

    const fn part_mut(&mut self, part: MemoryPart) -> &mut PartState {
        let [connections, reads, bodies, queries] = &mut self.parts;
        match part {
            MemoryPart::Connections => connections,
            MemoryPart::Reads => reads,
            MemoryPart::Bodies => bodies,
            MemoryPart::Queries => queries,
        }
    }
}

impl MemoryPermit {
    /// Bytes reserved.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Reserves up to `bytes` in all; false if that does not fit now.
    #[must_use]
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let more = (bytes as u64).saturating_sub(self.bytes);
        let fits = more == 0 || self.memory.try_add(self.part, more);
        if fits {
            self.bytes += more;
        }
        fits
    }

    /// Takes `bytes` of it, or all it has, as a permit of their own.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = self.bytes.min(bytes as u64);
        self.bytes -= bytes;
        self.memory.permit(self.part, bytes)
    }

    /// Adds another permit of the same part to this one.
    pub fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Releases all but `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes as u64);
        if less > 0 {
            self.bytes -= less;
            self.memory.release(self.part, less);
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
    use MemoryPart::{Bodies, Connections, Queries, Reads};

    const SHARED: u64 = 800;

    fn memory() -> ProcessMemory {
        ProcessMemory::new(1_000, vec![("memtables", 150), ("block_cache", 50)])
    }

    #[test]
    fn each_part_leaves_the_minimum_of_the_others() {
        for (part, most) in [(Connections, 400), (Reads, 300), (Bodies, 300), (Queries, 400)] {
            let memory = memory();
            assert_eq!(memory.most(part), most);
            let all = memory.try_reserve(part, most as usize).unwrap();
            assert!(memory.try_reserve(part, 1).is_none(), "{part:?}");
            for other in MemoryPart::ALL.into_iter().filter(|other| *other != part) {
                let minimum = (SHARED / other.minimum_divisor()) as usize;
                let permit = memory.try_reserve(other, minimum).unwrap();
                assert!(memory.try_reserve(other, 1).is_none(), "{part:?} {other:?}");
                drop(permit);
            }
            drop(all);
            assert_eq!(memory.reserved(part), 0);
            assert!(memory.try_reserve(part, most as usize).is_some());
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
        let part = permit.split(30);
        assert_eq!((permit.bytes(), part.bytes(), memory.reserved(Bodies)), (45, 30, 75));
        drop(part);
        assert_eq!(memory.reserved(Bodies), 45);
        drop(permit);
        assert_eq!(memory.reserved(Bodies), 0);
    }

    #[tokio::test]
    async fn waiters_of_a_part_are_served_in_order() {
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

    #[tokio::test]
    async fn a_wait_that_ends_takes_nothing_and_blocks_nobody() {
        let memory = memory();
        let held = memory.try_reserve(Bodies, 300).unwrap();
        for _ in 0..200 {
            let mut wait = Box::pin(memory.reserve(Bodies, 300));
            let mut context = Context::from_waker(std::task::Waker::noop());
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
        assert!(memory.lock().part(Bodies).waiting.len() <= 2 * PRUNE_AT);
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
        memory.lock().last_refusal = Some((long_ago, Queries));
        assert_eq!(memory.refused_recently(), None);
    }
}

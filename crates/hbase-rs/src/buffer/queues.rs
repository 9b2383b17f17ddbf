//! Queues of mutations by region and by server.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    batch::prefix, config::BufferConfig, pending_batch::MutationRange, pressure,
    share::MutationShare,
};
use crate::{
    multi::{CallLimits, RegionLoad},
    operation_error::Failure,
    region::{
        cache::RowRange,
        info::{Region, RegionLocation},
        map::{HasRegion, RegionMap},
    },
    server_name::ServerName,
};

/// Mutations for one region.
#[derive(Debug)]
pub(super) struct RegionQueue {
    pub(super) region: Arc<Region>,
    /// Location of the region; `None` while it is unavailable or being looked up.
    pub(super) location: Option<RegionLocation>,
    pub(super) ranges: VecDeque<MutationRange>,
    mutations: usize,
    bytes: usize,
    /// When an unavailable region is looked up again.
    retry_at: Option<Instant>,
    /// Maximum number of mutations in one call. Lower after a quota has throttled a larger call.
    share_limit: usize,
    /// Consecutive failed attempts.
    pub(super) failed_attempts: usize,
    /// Cause of the last one.
    pub(super) cause: Option<Failure>,
    /// Last pause because of the region's load; zero if the load requires no pause.
    pause: Duration,
    /// End of that pause.
    paused_until: Option<Instant>,
    /// True if the region is in the ready list of its server.
    ready: bool,
}

/// Regions of one server that have mutations to send.
#[derive(Debug, Default)]
struct ServerQueue {
    ready: VecDeque<Bytes>,
    mutations: usize,
    bytes: usize,
    /// When the oldest mutation was queued.
    since: Option<Instant>,
    calls_in_flight: usize,
    /// End of the pause of an overloaded server: it gets no call before.
    paused_until: Option<Instant>,
}

/// All mutations that are not in a call.
#[derive(Debug, Default)]
pub(super) struct Queues {
    regions: RegionMap<RegionQueue>,
    servers: HashMap<ServerName, ServerQueue>,
    /// Times of the next lookups of unavailable regions.
    unavailable: RegionTimers,
    /// Ends of the pauses of regions.
    paused: RegionTimers,
    /// True if [`Self::held`] has changed since it was published.
    pub(super) held_changed: bool,
}

/// Times of regions, at most one for each region. The queue of a region has its time, too.
#[derive(Debug, Default)]
struct RegionTimers(BTreeSet<(Instant, Bytes)>);

impl RegionTimers {
    /// Replaces the time of a region. `of_region` is the copy in its queue.
    fn set(&mut self, key: &Bytes, of_region: &mut Option<Instant>, new: Option<Instant>) {
        if let Some(before) = std::mem::replace(of_region, new) {
            self.0.remove(&(before, key.clone()));
        }
        self.0.extend(new.map(|at| (at, key.clone())));
    }

    /// Removes the first time that has passed. Returns its region.
    fn take_due(&mut self, now: Instant) -> Option<Bytes> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop_first().map(|(_, key)| key)
    }

    fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }
}

/// Regions whose mutations have to wait, and these mutations.
#[derive(Debug, Default)]
pub(super) struct HeldRegions {
    /// Bytes of the mutations, and the rows of the regions.
    pub(super) bytes: usize,
    pub(super) ranges: Vec<RowRange>,
    pub(super) gauges: RegionGauges,
}

/// Numbers of the regions whose mutations have to wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RegionGauges {
    pub(super) unavailable_bytes: u64,
    pub(super) unavailable_regions: u64,
    /// Regions that are paused now, or were paused before their last call.
    pub(super) regions_under_pressure: u64,
}

impl HasRegion for RegionQueue {
    fn region(&self) -> &Region {
        &self.region
    }
}

impl RegionQueue {
    fn new(region: Arc<Region>, location: Option<RegionLocation>) -> Self {
        Self {
            region,
            location,
            ranges: VecDeque::new(),
            mutations: 0,
            bytes: 0,
            retry_at: None,
            share_limit: usize::MAX,
            failed_attempts: 0,
            cause: None,
            pause: Duration::ZERO,
            paused_until: None,
            ready: false,
        }
    }

    fn push(&mut self, range: MutationRange, front: bool) {
        self.mutations += range.len();
        self.bytes += range.cells().len();
        if front {
            self.ranges.push_front(range);
        } else if !self.ranges.back_mut().is_some_and(|last| last.join(&range)) {
            self.ranges.push_back(range);
        }
    }

    fn subtract(&mut self, range: &MutationRange) {
        self.mutations = self.mutations.saturating_sub(range.len());
        self.bytes = self.bytes.saturating_sub(range.cells().len());
    }

    /// Bounds the next calls to half of the mutations that a quota has throttled in one call. A quota
    /// never admits more mutations at once than it admits in its unit of time.
    pub(super) fn throttled(&mut self, mutations: usize) {
        self.share_limit = self.share_limit.min(mutations / 2).max(1);
    }

    /// Records that all mutations of a call were written.
    pub(super) fn written(&mut self) {
        (self.failed_attempts, self.cause) = (0, None);
        self.share_limit = self.share_limit.saturating_mul(2);
    }

    /// Removes the mutations whose deadline has passed.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Vec<MutationRange> {
        let overdue = take_overdue(&mut self.ranges, now);
        for range in &overdue {
            self.subtract(range);
        }
        overdue
    }

    /// True if the region's mutations have to wait, or had to wait before its last call. Writers stay
    /// bounded between two pauses, because otherwise they could fill the buffer.
    const fn is_held(&self) -> bool {
        self.location.is_none() || !self.pause.is_zero()
    }

    /// Returns the row prefixes that certainly belong to this region.
    fn prefixes(&self) -> Range<u64> {
        let (start, end) = (self.region.start_key(), self.region.end_key());
        let end = if end.is_empty() { u64::MAX } else { u64::from_be_bytes(prefix(end)) };
        u64::from_be_bytes(prefix(start)).saturating_add(1)..end
    }

    /// True if the row belongs to this region. The prefixes usually save two comparisons.
    fn contains(&self, row: &[u8], prefixes: &Range<u64>) -> bool {
        prefixes.contains(&u64::from_be_bytes(prefix(row))) || self.region.contains(row)
    }
}

impl Queues {
    /// Adds an available region. Returns the mutations of the regions that it replaces.
    pub(super) fn add_region(&mut self, location: RegionLocation) -> Vec<MutationRange> {
        let ranges = self.remove_inside(&location.region);
        self.regions.insert(RegionQueue::new(Arc::clone(&location.region), Some(location)));
        ranges
    }

    /// Adds an unavailable region. Returns the mutations of the regions that it replaces.
    pub(super) fn add_unavailable(
        &mut self,
        region: &Arc<Region>,
        retry_at: Instant,
        cause: Failure,
    ) -> Vec<MutationRange> {
        let ranges = self.remove_inside(region);
        self.regions.insert(RegionQueue::new(Arc::clone(region), None));
        self.set_unavailable(region.start_key(), retry_at, cause);
        ranges
    }

    /// Removes all regions that start in this one. Returns their mutations.
    fn remove_inside(&mut self, region: &Region) -> Vec<MutationRange> {
        let inside = self.regions.starts_inside(region);
        inside.iter().flat_map(|start| self.remove(start)).collect()
    }

    /// Removes a region. Returns its mutations.
    pub(super) fn remove(&mut self, key: &Bytes) -> VecDeque<MutationRange> {
        self.remove_from_ready(key);
        let Some(mut queue) = self.regions.remove(key) else { return VecDeque::new() };
        self.unavailable.set(key, &mut queue.retry_at, None);
        self.paused.set(key, &mut queue.paused_until, None);
        self.held_changed = true;
        queue.ranges
    }

    /// Returns the queue of the region with this start key.
    pub(super) fn region(&self, key: &Bytes) -> Option<&RegionQueue> {
        self.regions.get(key)
    }

    /// As [`Self::region`].
    pub(super) fn region_mut(&mut self, key: &Bytes) -> Option<&mut RegionQueue> {
        self.regions.get_mut(key)
    }

    /// Returns the number of consecutive failed attempts at a region.
    pub(super) fn failed_attempts(&self, key: &Bytes) -> usize {
        self.regions.get(key).map_or(0, |queue| queue.failed_attempts)
    }

    /// Queues the leading mutations of the range that belong to one region. Returns the index of the
    /// first mutation that is not queued: the start of the range if no known region holds its first
    /// row.
    pub(super) fn push(&mut self, range: &MutationRange, front: bool, now: Instant) -> u32 {
        let batch = &range.pending.batch;
        let Some(queue) = self.regions.holding_mut(range.first_row()) else { return range.from };
        let mut end = range.from + 1;
        let prefixes = queue.prefixes();
        while end < range.to && queue.contains(batch.row(end as usize), &prefixes) {
            end += 1;
        }
        let part = range.part(range.from, end);
        let (mutations, bytes) = (part.len(), part.cells().len());
        queue.push(part, front);
        self.held_changed |= queue.is_held();
        add_to_ready(&mut self.servers, queue, (mutations, bytes), now);
        end
    }

    /// Applies the load of a region. Returns by how much that extends its pause.
    pub(super) fn set_load(
        &mut self,
        region: &Region,
        load: RegionLoad,
        maximum: Duration,
        now: Instant,
    ) -> Duration {
        let key = region.start_key();
        let queue = self.regions.get_mut(key).filter(|queue| queue.region.name() == region.name());
        let Some(queue) = queue else { return Duration::ZERO };
        let pause = pressure::pause(load, queue.pause, maximum);
        self.held_changed |= queue.pause != pause;
        queue.pause = pause;
        let until = now + pause;
        let before = queue.paused_until.unwrap_or(now);
        // An unavailable region has a longer pause.
        if until <= before || queue.location.is_none() || queue.retry_at.is_some() {
            return Duration::ZERO;
        }
        self.remove_from_ready(key);
        if let Some(queue) = self.regions.get_mut(key) {
            self.paused.set(key, &mut queue.paused_until, Some(until));
        }
        until - before
    }

    /// Ends the pauses that are over.
    pub(super) fn resume_regions(&mut self, now: Instant) {
        while let Some(key) = self.paused.take_due(now) {
            let Some(queue) = self.regions.get_mut(&key) else { continue };
            queue.paused_until = None;
            self.held_changed = true;
            if queue.ranges.is_empty() {
                // No call will report the load of this region.
                queue.pause = Duration::ZERO;
            } else {
                let queued = (queue.mutations, queue.bytes);
                add_to_ready(&mut self.servers, queue, queued, now);
            }
        }
    }

    /// Removes a region from the ready list of its server.
    fn remove_from_ready(&mut self, key: &Bytes) {
        let Some(queue) = self.regions.get_mut(key) else { return };
        if !std::mem::take(&mut queue.ready) {
            return;
        }
        let server = queue.location.as_ref().and_then(|one| self.servers.get_mut(&one.server));
        if let Some(server) = server {
            server.ready.retain(|ready| ready != key);
            server.mutations = server.mutations.saturating_sub(queue.mutations);
            server.bytes = server.bytes.saturating_sub(queue.bytes);
            if server.ready.is_empty() {
                server.since = None;
            }
        }
    }

    /// Marks a region as unavailable until its next lookup.
    pub(super) fn set_unavailable(&mut self, key: &Bytes, retry_at: Instant, cause: Failure) {
        self.remove_from_ready(key);
        let Some(queue) = self.regions.get_mut(key) else { return };
        self.paused.set(key, &mut queue.paused_until, None);
        self.unavailable.set(key, &mut queue.retry_at, Some(retry_at));
        queue.location = None;
        // The load of the region on its next server is unknown, and may not be reported there.
        queue.pause = Duration::ZERO;
        queue.failed_attempts += 1;
        queue.cause = Some(cause);
        self.held_changed = true;
    }

    /// Returns the unavailable regions whose lookup is due, once each.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Bytes> {
        let mut due = Vec::new();
        while let Some(key) = self.unavailable.take_due(now) {
            if let Some(queue) = self.regions.get_mut(&key) {
                queue.retry_at = None;
            }
            due.push(key);
        }
        due
    }

    /// Marks a region as available at this location.
    pub(super) fn set_available(&mut self, location: RegionLocation, now: Instant) {
        let key = location.region.start_key().clone();
        self.remove_from_ready(&key);
        let Some(queue) = self.regions.get_mut(&key) else { return };
        self.paused.set(&key, &mut queue.paused_until, None);
        self.unavailable.set(&key, &mut queue.retry_at, None);
        self.held_changed = true;
        queue.location = Some(location);
        queue.pause = Duration::ZERO;
        let ranges = std::mem::take(&mut queue.ranges);
        (queue.mutations, queue.bytes) = (0, 0);
        for range in ranges {
            // All of them belong to this region.
            self.push(&range, false, now);
        }
    }

    /// Returns the unavailable regions and those under memstore pressure.
    pub(super) fn held(&self) -> HeldRegions {
        let mut held = HeldRegions::default();
        for queue in self.regions.values().filter(|queue| queue.is_held()) {
            if queue.location.is_none() {
                held.gauges.unavailable_bytes += queue.bytes as u64;
                held.gauges.unavailable_regions += 1;
            } else {
                held.gauges.regions_under_pressure += 1;
            }
            held.bytes += queue.bytes;
            held.ranges.push(RowRange::of(&queue.region));
        }
        held
    }

    /// Sends no call to an overloaded server before `until`.
    pub(super) fn pause_server(&mut self, server: &ServerName, until: Instant) {
        if let Some(server) = self.servers.get_mut(server) {
            server.paused_until = Some(until);
        }
    }

    /// Records the end of a call to the server.
    pub(super) fn call_ended(&mut self, server: &ServerName) {
        if let Some(queue) = self.servers.get_mut(server) {
            queue.calls_in_flight = queue.calls_in_flight.saturating_sub(1);
            if queue.calls_in_flight == 0 && queue.ready.is_empty() {
                self.servers.remove(server);
            }
        }
    }

    /// Returns the servers to which a call is due.
    pub(super) fn ready(
        &self,
        config: &BufferConfig,
        flushing: bool,
        now: Instant,
    ) -> Vec<ServerName> {
        let is_ready = |server: &&ServerQueue| server.is_ready(config, flushing, now);
        self.servers.iter().filter(|(_, one)| is_ready(one)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the mutations of one call. Those whose deadline has passed are added to `overdue`.
    pub(super) fn next_call(
        &mut self,
        server: &ServerName,
        mut left: CallLimits,
        now: Instant,
        overdue: &mut Vec<(MutationRange, Option<Failure>)>,
    ) -> Vec<MutationShare> {
        let mut shares = Vec::new();
        let Some(queue) = self.servers.get_mut(server) else { return shares };
        for _ in 0..queue.ready.len() {
            if left.is_exhausted() {
                break;
            }
            let Some(key) = queue.ready.pop_front() else { break };
            let Some(region) = self.regions.get_mut(&key) else { continue };
            let Some(location) = region.location.clone() else { continue };
            let mut share = MutationShare::new(location);
            while share.mutations < region.share_limit
                && let Some(range) = region.ranges.pop_front()
            {
                let room = left.actions.min(region.share_limit - share.mutations);
                let force = shares.is_empty() && share.ranges.is_empty();
                let expired = range.pending.deadline <= now;
                let end = if expired { range.to } else { range.fitting(room, left.bytes, force) };
                let part = range.part(range.from, end);
                let (count, size) = (part.len(), part.cells().len());
                region.subtract(&part);
                self.held_changed |= region.is_held();
                queue.mutations = queue.mutations.saturating_sub(count);
                queue.bytes = queue.bytes.saturating_sub(size);
                if expired {
                    overdue.push((part, region.cause.clone()));
                    continue;
                }
                left.subtract(count, size);
                let split = end < range.to;
                if split {
                    region.ranges.push_front(range.part(end, range.to));
                }
                if count > 0 {
                    share.mutations += count;
                    share.ranges.push(part);
                }
                if split || left.is_exhausted() {
                    break;
                }
            }
            region.ready = !region.ranges.is_empty();
            if region.ready {
                queue.ready.push_back(key);
            }
            if share.mutations > 0 {
                shares.push(share);
            }
        }
        queue.since = (!queue.ready.is_empty()).then_some(now);
        queue.calls_in_flight += usize::from(!shares.is_empty());
        shares
    }

    /// Returns when the next lookup or call is due by time alone.
    pub(super) fn next_wake(&self, config: &BufferConfig) -> Option<Instant> {
        let linger = self.servers.values().filter_map(|server| server.wake(config)).min();
        [self.unavailable.next(), self.paused.next(), linger].into_iter().flatten().min()
    }
}

impl ServerQueue {
    fn is_ready(&self, config: &BufferConfig, flushing: bool, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        if self.calls_in_flight >= config.calls_per_server.max(1)
            || self.paused_until.is_some_and(|until| until > now)
        {
            return false;
        }
        flushing
            || self.calls_in_flight == 0
            || self.mutations >= config.batch_actions
            || self.bytes >= config.batch_bytes
            || since + config.linger <= now
    }

    /// Returns when the next call to this server is due by time alone.
    fn wake(&self, config: &BufferConfig) -> Option<Instant> {
        let limit = config.calls_per_server.max(1);
        let since = self.since.filter(|_| self.calls_in_flight < limit)?;
        let linger = if self.calls_in_flight == 0 { Duration::ZERO } else { config.linger };
        Some((since + linger).max(self.paused_until.unwrap_or(since)))
    }
}

/// Adds a region that may be sent to the ready list of its server, with its queued mutations and
/// bytes.
fn add_to_ready(
    servers: &mut HashMap<ServerName, ServerQueue>,
    queue: &mut RegionQueue,
    (mutations, bytes): (usize, usize),
    now: Instant,
) {
    let Some(location) = queue.location.as_ref() else { return };
    if queue.retry_at.is_some() || queue.paused_until.is_some() {
        return;
    }
    if !servers.contains_key(&location.server) {
        servers.insert(location.server.clone(), ServerQueue::default());
    }
    if let Some(server) = servers.get_mut(&location.server) {
        server.mutations += mutations;
        server.bytes += bytes;
        server.since.get_or_insert(now);
        if !std::mem::replace(&mut queue.ready, true) {
            server.ready.push_back(queue.region.start_key().clone());
        }
    }
}

/// Removes the mutations whose deadline has passed.
pub(super) fn take_overdue(
    ranges: &mut VecDeque<MutationRange>,
    now: Instant,
) -> Vec<MutationRange> {
    let is_overdue = |range: &MutationRange| range.pending.deadline <= now;
    if !ranges.iter().any(is_overdue) {
        return Vec::new();
    }
    let (overdue, left): (Vec<_>, _) = std::mem::take(ranges).into_iter().partition(is_overdue);
    *ranges = VecDeque::from(left);
    overdue
}

//! Mutations that wait, by region and by server.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::{Bound, Range},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{BufferConfig, batch::prefix, call::Share, chunk::Run};
use crate::{
    error::Failure,
    region::{
        cache::RowRange,
        info::{Region, RegionLocation},
    },
    server_name::ServerName,
};

/// Mutations for one region.
#[derive(Debug)]
pub(super) struct RegionQueue {
    pub(super) region: Arc<Region>,
    /// Where it is; not known while it is parked or looked for.
    pub(super) location: Option<RegionLocation>,
    pub(super) runs: VecDeque<Run>,
    mutations: usize,
    bytes: usize,
    /// When it is asked for again.
    parked: Option<Instant>,
    /// Failures in a row.
    pub(super) attempt: usize,
    /// The last of them.
    pub(super) cause: Option<Failure>,
    /// Whether its server's list has it.
    listed: bool,
}

/// Regions of one server that have something to send.
#[derive(Debug, Default)]
struct ServerQueue {
    ready: VecDeque<Bytes>,
    mutations: usize,
    bytes: usize,
    /// When the oldest of them came.
    since: Option<Instant>,
    calls: usize,
    /// Too much to do: nothing more until then.
    paused: Option<Instant>,
}

/// All that waits to be sent.
#[derive(Debug, Default)]
pub(super) struct Queues {
    regions: BTreeMap<Bytes, RegionQueue>,
    servers: HashMap<ServerName, ServerQueue>,
    /// Parked regions by the time when they are asked for.
    parked: BTreeSet<(Instant, Bytes)>,
    /// Whether what is parked has changed since it was last told.
    pub(super) parking_changed: bool,
}

impl RegionQueue {
    fn push(&mut self, run: Run, front: bool) {
        self.mutations += run.len();
        self.bytes += run.cells().len();
        if front {
            self.runs.push_front(run);
            return;
        }
        match self.runs.back_mut() {
            Some(last) if last.is_followed_by(&run) => last.to = run.to,
            _ => self.runs.push_back(run),
        }
    }

    /// Takes out what has no time left.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Vec<Run> {
        let late = take_overdue(&mut self.runs, now);
        for run in &late {
            self.mutations -= run.len().min(self.mutations);
            self.bytes -= run.cells().len().min(self.bytes);
        }
        late
    }

    fn contains(&self, row: &[u8]) -> bool {
        self.region.contains(row)
    }

    /// How rows begin that can only be of this region.
    fn prefixes(&self) -> Range<u64> {
        let (start, end) = (self.region.start_key(), self.region.end_key());
        let end = if end.is_empty() { u64::MAX } else { u64::from_be_bytes(prefix(end)) };
        u64::from_be_bytes(prefix(start)).saturating_add(1)..end
    }

    /// As [`Self::contains`], with [`Self::prefixes`]: as a rule that pool two comparisons.
    fn has(&self, row: &[u8], prefixes: &Range<u64>) -> bool {
        prefixes.contains(&u64::from_be_bytes(prefix(row))) || self.contains(row)
    }
}

impl Queues {
    /// Learns where a region is. Runs that waited for regions in its place are returned, to be sorted
    /// anew.
    pub(super) fn learn(&mut self, location: RegionLocation) -> Vec<Run> {
        let runs = self.replace(&location.region);
        self.regions.insert(
            location.region.start_key().clone(),
            RegionQueue::new(location.region.clone(), Some(location)),
        );
        runs
    }

    /// Learns that there is a region that cannot be found now.
    pub(super) fn learn_unavailable(
        &mut self,
        region: &Arc<Region>,
        until: Instant,
        cause: Failure,
    ) -> Vec<Run> {
        let runs = self.replace(region);
        let key = region.start_key().clone();
        self.regions.insert(key.clone(), RegionQueue::new(Arc::clone(region), None));
        self.park(&key, until, cause);
        runs
    }

    /// Takes out all regions that begin in this one, with what waits for them.
    fn replace(&mut self, region: &Region) -> Vec<Run> {
        let inside = region.starts_inside(&self.regions);
        inside.iter().flat_map(|start| self.remove(start)).collect()
    }

    /// Forgets a region; what waits for it is returned.
    pub(super) fn remove(&mut self, key: &Bytes) -> VecDeque<Run> {
        self.unlist(key);
        let Some(queue) = self.regions.remove(key) else { return VecDeque::new() };
        if let Some(until) = queue.parked {
            self.parked.remove(&(until, key.clone()));
            self.parking_changed = true;
        }
        queue.runs
    }

    pub(super) fn region(&mut self, key: &Bytes) -> Option<&mut RegionQueue> {
        self.regions.get_mut(key)
    }

    /// Puts as many mutations from the front of the run as are of one known region where they belong.
    /// Returns the first that is left; the one it began with if no known region has it.
    pub(super) fn place(&mut self, run: &Run, front: bool, now: Instant) -> u32 {
        let batch = &run.chunk.batch;
        let range = (Bound::Unbounded, Bound::Included(run.first_row()));
        let found = self.regions.range_mut::<[u8], _>(range).next_back();
        let Some((key, queue)) = found.filter(|(_, queue)| queue.contains(run.first_row())) else {
            return run.from;
        };
        let mut end = run.from + 1;
        let range = queue.prefixes();
        while end < run.to && queue.has(batch.row(end as usize), &range) {
            end += 1;
        }
        let part = run.part(run.from, end);
        let (mutations, bytes) = (part.len(), part.cells().len());
        queue.push(part, front);
        if queue.parked.is_some() || queue.location.is_none() {
            self.parking_changed = true;
        } else if let Some(location) = &queue.location {
            if !self.servers.contains_key(&location.server) {
                self.servers.insert(location.server.clone(), ServerQueue::default());
            }
            if let Some(server) = self.servers.get_mut(&location.server) {
                server.mutations += mutations;
                server.bytes += bytes;
                server.since.get_or_insert(now);
                if !std::mem::replace(&mut queue.listed, true) {
                    server.ready.push_back(key.clone());
                }
            }
        }
        end
    }

    /// Takes a region off the list of its server.
    fn unlist(&mut self, key: &Bytes) {
        let Some(queue) = self.regions.get_mut(key) else { return };
        if !std::mem::take(&mut queue.listed) {
            return;
        }
        let server = queue.location.as_ref().and_then(|one| self.servers.get_mut(&one.server));
        if let Some(server) = server {
            server.ready.retain(|ready| ready != key);
            server.mutations -= queue.mutations.min(server.mutations);
            server.bytes -= queue.bytes.min(server.bytes);
            if server.ready.is_empty() {
                server.since = None;
            }
        }
    }

    /// The region cannot be written now.
    pub(super) fn park(&mut self, key: &Bytes, until: Instant, cause: Failure) {
        self.unlist(key);
        let Some(queue) = self.regions.get_mut(key) else { return };
        if let Some(before) = queue.parked.replace(until) {
            self.parked.remove(&(before, key.clone()));
        }
        queue.location = None;
        queue.attempt += 1;
        queue.cause = Some(cause);
        self.parked.insert((until, key.clone()));
        self.parking_changed = true;
    }

    /// Regions whose pause is over. They are still parked, but not asked for again by time.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Bytes> {
        let mut due = Vec::new();
        while let Some((until, key)) =
            self.parked.first().filter(|(until, _)| *until <= now).cloned()
        {
            self.parked.remove(&(until, key.clone()));
            if let Some(queue) = self.regions.get_mut(&key) {
                queue.parked = None;
            }
            due.push(key);
        }
        due
    }

    /// The region is back.
    pub(super) fn unpark(&mut self, location: RegionLocation, now: Instant) {
        let key = location.region.start_key().clone();
        self.unlist(&key);
        let Some(queue) = self.regions.get_mut(&key) else { return };
        if let Some(until) = queue.parked.take() {
            self.parked.remove(&(until, key.clone()));
        }
        self.parking_changed = true;
        queue.location = Some(location);
        let runs = std::mem::take(&mut queue.runs);
        (queue.mutations, queue.bytes) = (0, 0);
        for run in runs {
            // All of them are of this region.
            self.place(&run, false, now);
        }
    }

    /// What is parked: bytes, and the regions.
    pub(super) fn parking(&self) -> (usize, Vec<RowRange>) {
        let parked = self.regions.values().filter(|queue| queue.location.is_none());
        let (mut bytes, mut spans) = (0, Vec::new());
        for queue in parked {
            bytes += queue.bytes;
            let (start, end) = (queue.region.start_key().clone(), queue.region.end_key().clone());
            spans.push(RowRange { start, end, exact: true });
        }
        (bytes, spans)
    }

    /// Lets a server rest.
    pub(super) fn pause_server(&mut self, server: &ServerName, until: Instant) {
        if let Some(server) = self.servers.get_mut(server) {
            server.paused = Some(until);
        }
    }

    /// A call to the server has ended.
    pub(super) fn call_ended(&mut self, server: &ServerName) {
        if let Some(queue) = self.servers.get_mut(server) {
            queue.calls -= usize::from(queue.calls > 0);
            if queue.calls == 0 && queue.ready.is_empty() {
                self.servers.remove(server);
            }
        }
    }

    /// Servers to which something is to be sent now.
    pub(super) fn ready(
        &self,
        config: &BufferConfig,
        hurry: bool,
        now: Instant,
    ) -> Vec<ServerName> {
        let is_ready = |server: &&ServerQueue| server.is_ready(config, hurry, now);
        self.servers.iter().filter(|(_, one)| is_ready(one)).map(|(name, _)| name.clone()).collect()
    }

    /// Mutations for one call. What has no time left is added to `overdue`.
    pub(super) fn gather(
        &mut self,
        server: &ServerName,
        max: (usize, usize),
        now: Instant,
        overdue: &mut Vec<(Run, Option<Failure>)>,
    ) -> Vec<Share> {
        let (mut mutations, mut bytes) = max;
        let mut shares = Vec::new();
        let Some(queue) = self.servers.get_mut(server) else { return shares };
        for _ in 0..queue.ready.len() {
            if mutations == 0 || bytes == 0 {
                break;
            }
            let Some(key) = queue.ready.pop_front() else { break };
            let Some(region) = self.regions.get_mut(&key) else { continue };
            let Some(location) = region.location.clone() else { continue };
            let mut share = Share { location, runs: Vec::new(), mutations: 0 };
            while let Some(run) = region.runs.pop_front() {
                let force = shares.is_empty() && share.runs.is_empty();
                let expired = run.chunk.deadline <= now;
                let end = if expired { run.to } else { run.fitting(mutations, bytes, force) };
                let part = run.part(run.from, end);
                let (count, size) = (part.len(), part.cells().len());
                region.mutations -= count.min(region.mutations);
                region.bytes -= size.min(region.bytes);
                queue.mutations -= count.min(queue.mutations);
                queue.bytes -= size.min(queue.bytes);
                if expired {
                    overdue.push((part, region.cause.clone()));
                    continue;
                }
                mutations -= count;
                bytes = bytes.saturating_sub(size);
                let cut = end < run.to;
                if cut {
                    region.runs.push_front(run.part(end, run.to));
                }
                if count > 0 {
                    share.mutations += count;
                    share.runs.push(part);
                }
                if cut || mutations == 0 || bytes == 0 {
                    break;
                }
            }
            region.listed = !region.runs.is_empty();
            if region.listed {
                queue.ready.push_back(key);
            }
            if share.mutations > 0 {
                shares.push(share);
            }
        }
        queue.since = (!queue.ready.is_empty()).then_some(now);
        queue.calls += usize::from(!shares.is_empty());
        shares
    }

    /// When something is to be done next without anything happening before.
    pub(super) fn next_wake(&self, config: &BufferConfig) -> Option<Instant> {
        let parked = self.parked.first().map(|(until, _)| *until);
        let lingering = self.servers.values().filter_map(|server| server.wakes(config)).min();
        [parked, lingering].into_iter().flatten().min()
    }
}

impl RegionQueue {
    fn new(region: Arc<Region>, location: Option<RegionLocation>) -> Self {
        Self {
            region,
            location,
            runs: VecDeque::new(),
            mutations: 0,
            bytes: 0,
            parked: None,
            attempt: 0,
            cause: None,
            listed: false,
        }
    }
}

impl ServerQueue {
    fn is_ready(&self, config: &BufferConfig, hurry: bool, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        if self.calls >= config.calls_per_server.max(1)
            || self.paused.is_some_and(|until| until > now)
        {
            return false;
        }
        hurry
            || self.calls == 0
            || self.mutations >= config.batch_actions
            || self.bytes >= config.batch_bytes
            || since + config.linger <= now
    }

    /// When it is ready by time alone.
    fn wakes(&self, config: &BufferConfig) -> Option<Instant> {
        let since = self.since.filter(|_| self.calls < config.calls_per_server.max(1))?;
        let linger = if self.calls == 0 { Duration::ZERO } else { config.linger };
        Some((since + linger).max(self.paused.unwrap_or(since)))
    }
}

/// Takes out what has no time left.
pub(super) fn take_overdue(runs: &mut VecDeque<Run>, now: Instant) -> Vec<Run> {
    let overdue = |run: &Run| run.chunk.deadline <= now;
    if !runs.iter().any(overdue) {
        return Vec::new();
    }
    let (late, left): (Vec<_>, _) = std::mem::take(runs).into_iter().partition(overdue);
    *runs = VecDeque::from(left);
    late
}

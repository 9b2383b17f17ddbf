//! The writer task: queues mutations by region and server, sends calls, and completes batches.

mod results;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

use super::{
    buffer_pool::BufferPool,
    config::BufferConfig,
    pending_batch::{MutationRange, PendingBatch},
    queues::{Queues, RegionGauges, take_overdue},
    share::MutationShare,
    unavailable::{HeldBytes, UnavailableRegions},
};
use crate::{
    locator::Unlocated,
    multi::{self, CallLimits, CallOptions, MultiResult, RegionLoad},
    operation_error::Failure,
    region::{info::RegionLocation, meta::RegionTarget},
    server_name::ServerName,
    table::Table,
    trace::Attempt,
};

/// Commands received together before anything is sent.
const COMMAND_BATCH: usize = 64;

/// Longest time between two checks of the queues.
const IDLE_INTERVAL: Duration = Duration::from_hours(1);

/// Command of a caller.
#[derive(Debug)]
pub(super) enum WriterCommand {
    /// Writes a batch.
    Write(Box<PendingBatch>, HeldBytes),
    /// Sends without lingering, and notifies when all earlier batches are complete.
    Flush(oneshot::Sender<()>),
}

/// Completion of a background task.
#[derive(Debug)]
enum WriterEvent {
    /// A call has ended.
    Called { server: ServerName, shares: Vec<MutationShare>, answer: MultiResult },
    /// A lookup has ended: of the region with this key, or of unlocated mutations.
    Located { key: Option<Bytes>, outcome: Result<RegionLocation, Unlocated> },
}

/// Batches submitted between two flushes.
#[derive(Debug, Default)]
struct FlushEpoch {
    open: usize,
    waiters: Vec<oneshot::Sender<()>>,
}

/// Mutations whose region is unknown. One lookup at a time finds the region of the first.
#[derive(Debug, Default)]
struct UnlocatedMutations {
    ranges: VecDeque<MutationRange>,
    /// When the next lookup starts, after a failed one.
    retry_at: Option<Instant>,
    lookup_in_flight: bool,
    failed_lookups: usize,
    cause: Option<Failure>,
}

/// State of the writer task.
#[derive(Debug)]
pub(super) struct Writer {
    table: Table,
    config: BufferConfig,
    unavailable: Arc<UnavailableRegions>,
    pool: Arc<BufferPool>,
    queues: Queues,
    unlocated: UnlocatedMutations,
    epochs: VecDeque<FlushEpoch>,
    /// Number of the first epoch.
    first_epoch: u64,
    /// Bounds of a call, reduced after a server rejected a call as too large.
    limits: CallLimits,
    events: mpsc::UnboundedSender<WriterEvent>,
    /// What this task has added to the gauges.
    gauges: RegionGauges,
    /// Bytes of the batches that were queued after the held regions were published.
    received: Vec<HeldBytes>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.set_gauges(RegionGauges::default());
    }
}

impl Writer {
    /// Runs until the buffer is dropped and every batch is complete.
    pub(super) async fn run(
        table: Table,
        config: BufferConfig,
        unavailable: Arc<UnavailableRegions>,
        pool: Arc<BufferPool>,
        mut commands: mpsc::Receiver<WriterCommand>,
    ) {
        // Bounded by the number of calls and lookups in flight.
        let (events, mut completed) = mpsc::unbounded_channel();
        let limits = CallLimits::new(config.batch_actions, config.batch_bytes);
        let mut writer = Self {
            table,
            config,
            unavailable,
            pool,
            queues: Queues::default(),
            unlocated: UnlocatedMutations::default(),
            epochs: VecDeque::from([FlushEpoch::default()]),
            first_epoch: 0,
            limits,
            events,
            gauges: RegionGauges::default(),
            received: Vec::new(),
        };
        let mut open = true;
        let mut received = Vec::with_capacity(COMMAND_BATCH);
        while open || writer.is_busy() {
            let wake = writer.next_wake();
            tokio::select! {
                count = commands.recv_many(&mut received, COMMAND_BATCH), if open => {
                    open = count > 0;
                    for command in received.drain(..) {
                        writer.handle_command(command);
                    }
                }
                Some(event) = completed.recv() => {
                    writer.handle_event(event);
                    while let Ok(event) = completed.try_recv() {
                        writer.handle_event(event);
                    }
                }
                () = sleep_until(wake) => {}
            }
            writer.send_due();
        }
    }

    fn is_busy(&self) -> bool {
        self.epochs.iter().any(|epoch| epoch.open > 0)
    }

    /// True if a caller waits for a flush.
    fn is_flushing(&self) -> bool {
        self.epochs.iter().any(|epoch| !epoch.waiters.is_empty())
    }

    fn next_wake(&self) -> Instant {
        let unlocated = self.unlocated.retry_at.filter(|_| !self.unlocated.ranges.is_empty());
        let wake = [self.queues.next_wake(&self.config), unlocated].into_iter().flatten().min();
        wake.unwrap_or_else(|| Instant::now() + IDLE_INTERVAL)
    }

    fn handle_command(&mut self, command: WriterCommand) {
        match command {
            WriterCommand::Write(mut batch, held) => {
                self.received.push(held);
                batch.epoch = self.first_epoch + self.epochs.len() as u64 - 1;
                if let Some(epoch) = self.epochs.back_mut() {
                    epoch.open += 1;
                }
                self.enqueue(MutationRange::whole(Arc::from(batch)), false, Instant::now());
            }
            WriterCommand::Flush(done) => {
                if let Some(epoch) = self.epochs.back_mut() {
                    epoch.waiters.push(done);
                }
                self.epochs.push_back(FlushEpoch::default());
                self.end_epochs();
            }
        }
    }

    fn handle_event(&mut self, event: WriterEvent) {
        let now = Instant::now();
        match event {
            WriterEvent::Called { server, shares, answer } => {
                let loads = loads_of(&shares, answer.loads);
                self.handle_outcome(&server, shares, answer.outcome, now);
                self.apply_loads(&loads, now);
                self.queues.call_ended(&server);
            }
            WriterEvent::Located { key: Some(key), outcome } => match outcome {
                Ok(location) => self.region_located(Some(&key), location, now),
                Err(Unlocated::Transient { cause, .. }) => {
                    let failed = self.queues.failed_attempts(&key);
                    let retry_at = now + self.backoff(failed, false);
                    self.table.client().metrics().retried(cause.retry_reason());
                    self.queues.set_unavailable(&key, retry_at, cause);
                }
                Err(Unlocated::Permanent(error)) => {
                    for range in self.queues.remove(&key) {
                        self.fail(&range, error.attempts, false, (*error.cause).clone());
                    }
                }
            },
            WriterEvent::Located { key: None, outcome } => self.unlocated_found(outcome, now),
        }
    }

    /// Queues mutations by region.
    fn enqueue(&mut self, mut range: MutationRange, front: bool, now: Instant) {
        while range.from < range.to {
            let end = self.queues.push(&range, front, now);
            if end > range.from {
                range.from = end;
                continue;
            }
            let locator = self.table.client().locator();
            if let Some(location) = locator.cached_for_row(self.table.name(), range.first_row()) {
                self.add_region(location, now);
                continue;
            }
            // Only this mutation is unlocated: the region of the next one may be known.
            self.unlocated.ranges.push_back(range.part(range.from, range.from + 1));
            range.from += 1;
        }
    }

    fn add_region(&mut self, location: RegionLocation, now: Instant) {
        for range in self.queues.add_region(location) {
            self.enqueue(range, false, now);
        }
    }

    /// Starts the calls and lookups that are due.
    fn send_due(&mut self) {
        let now = Instant::now();
        self.queues.resume_regions(now);
        for key in self.queues.take_due(now) {
            self.look_up_region(&key, now);
        }
        self.look_up_unlocated(now);
        let flushing = self.is_flushing();
        let mut ready = self.queues.ready(&self.config, flushing, now);
        while !ready.is_empty() {
            for server in ready {
                self.send(&server, now);
            }
            ready = self.queues.ready(&self.config, flushing, now);
        }
        if std::mem::take(&mut self.queues.held_changed) {
            let held = self.queues.held();
            self.set_gauges(held.gauges);
            self.unavailable.set(held.bytes, held.ranges);
        }
        self.received.clear();
    }

    /// Adds the difference to the gauges, which all buffers of a client share.
    fn set_gauges(&mut self, new: RegionGauges) {
        let old = std::mem::replace(&mut self.gauges, new);
        let gauges = &self.table.client().metrics().buffers;
        gauges.unavailable_bytes.add(new.unavailable_bytes);
        gauges.unavailable_bytes.sub(old.unavailable_bytes);
        gauges.unavailable_regions.add(new.unavailable_regions);
        gauges.unavailable_regions.sub(old.unavailable_regions);
        gauges.regions_under_pressure.add(new.regions_under_pressure);
        gauges.regions_under_pressure.sub(old.regions_under_pressure);
    }

    /// Pauses the regions whose memstores are too full.
    fn apply_loads(&mut self, loads: &[(RegionLocation, RegionLoad)], now: Instant) {
        let maximum = self.config.max_pressure_pause;
        let mut paused = Duration::ZERO;
        for (location, load) in loads {
            paused += self.queues.set_load(&location.region, *load, maximum, now);
        }
        let micros = u64::try_from(paused.as_micros()).unwrap_or(u64::MAX);
        self.table.client().metrics().buffers.pressure_pause_micros.add(micros);
    }

    fn send(&mut self, server: &ServerName, now: Instant) {
        let mut overdue = Vec::new();
        let shares = self.queues.next_call(server, self.limits, now, &mut overdue);
        for (range, cause) in overdue {
            self.fail(&range, 0, false, cause.unwrap_or(Failure::Time));
        }
        let ranges = || shares.iter().flat_map(|share| &share.ranges);
        let Some(end) = ranges().map(|range| range.pending.deadline).max() else { return };
        let client = self.table.client().clone();
        // The latest deadline of the mutations. Mutations with an earlier deadline are late by at
        // most one call, whereas a shorter call could fail all of them.
        let deadline = end.min(now + client.config().call_timeout);
        let failed = shares
            .iter()
            .map(|share| self.queues.failed_attempts(share.location.region.start_key()));
        let number = failed.max().unwrap_or_default() + 1;
        let attempt = Attempt { number, ..Attempt::default() };
        let (server, events, pool) = (server.clone(), self.events.clone(), Arc::clone(&self.pool));
        tokio::spawn(async move {
            let mut encoder = pool.encoder();
            let options = CallOptions { deadline, attempt, discard_results: true };
            let answer = multi::call(&client, &shares, &mut encoder, options).await;
            pool.recycle_encoder(encoder);
            // Without the writer task the batches fail when they are dropped.
            let _ = events.send(WriterEvent::Called { server, shares, answer });
        });
    }

    /// Looks up an unavailable region.
    fn look_up_region(&mut self, key: &Bytes, now: Instant) {
        let Some(queue) = self.queues.region_mut(key) else { return };
        let (failed, cause) = (queue.failed_attempts, queue.cause.clone().unwrap_or(Failure::Time));
        let overdue = queue.take_overdue(now);
        let first = queue.ranges.front();
        let row = first.map(|range| range.pending.batch.row_bytes(range.from as usize));
        for range in overdue {
            self.fail(&range, failed, false, cause.clone());
        }
        let Some(row) = row else {
            // Without mutations the location is not needed.
            self.queues.remove(key);
            return;
        };
        match self.table.client().locator().cached_for_row(self.table.name(), &row) {
            Some(location) => self.region_located(Some(key), location, now),
            None => self.look_up(Some(key.clone()), row, failed),
        }
    }

    /// Looks up the region of the first unlocated mutation.
    fn look_up_unlocated(&mut self, now: Instant) {
        if self.unlocated.lookup_in_flight || self.unlocated.retry_at.is_some_and(|at| at > now) {
            return;
        }
        let cause = self.unlocated.cause.clone().unwrap_or(Failure::Time);
        let failed = self.unlocated.failed_lookups;
        for range in take_overdue(&mut self.unlocated.ranges, now) {
            self.fail(&range, failed, false, cause.clone());
        }
        let Some(first) = self.unlocated.ranges.front() else { return };
        let row = first.pending.batch.row_bytes(first.from as usize);
        self.unlocated.lookup_in_flight = true;
        self.look_up(None, row, failed);
    }

    fn look_up(&self, key: Option<Bytes>, row: Bytes, failed: usize) {
        let (table, events) = (self.table.clone(), self.events.clone());
        tokio::spawn(async move {
            let attempts = table.attempts("locate").reading();
            let locator = table.client().locator();
            let target = RegionTarget::Holding(row);
            let mut outcome = locator.locate_once(table.name(), &target, &attempts).await;
            if failed >= 2 && matches!(&outcome, Err(Unlocated::Transient { .. })) {
                outcome = locator.fail_if_disabled(table.name(), outcome, &attempts).await;
            }
            let _ = events.send(WriterEvent::Located { key, outcome });
        });
    }

    /// Handles the location of a region, usually of the one that was looked up.
    fn region_located(&mut self, key: Option<&Bytes>, location: RegionLocation, now: Instant) {
        let same = key
            .and_then(|key| self.queues.region(key))
            .is_some_and(|queue| queue.region.name() == location.region.name());
        if same {
            self.queues.set_available(location, now);
            return;
        }
        // The region was split or merged: its mutations are queued again.
        let ranges = key.map(|key| self.queues.remove(key)).unwrap_or_default();
        self.add_region(location, now);
        for range in ranges {
            self.enqueue(range, false, now);
        }
    }

    fn unlocated_found(&mut self, outcome: Result<RegionLocation, Unlocated>, now: Instant) {
        let ranges = std::mem::take(&mut self.unlocated.ranges);
        let failed = self.unlocated.failed_lookups;
        match outcome {
            Ok(location) => {
                self.unlocated = UnlocatedMutations::default();
                self.add_region(location, now);
            }
            Err(Unlocated::Transient { cause, region: Some(region) }) => {
                self.unlocated.lookup_in_flight = false;
                self.unlocated.retry_at = None;
                let retry_at = now + self.backoff(0, false);
                self.table.client().metrics().retried(cause.retry_reason());
                let region = Arc::new(region);
                for range in self.queues.add_unavailable(&region, retry_at, cause) {
                    self.enqueue(range, false, now);
                }
            }
            Err(Unlocated::Transient { cause, region: None }) => {
                self.table.client().metrics().retried(cause.retry_reason());
                let retry_at = Some(now + self.backoff(failed, false));
                self.unlocated = UnlocatedMutations {
                    ranges,
                    retry_at,
                    lookup_in_flight: false,
                    failed_lookups: failed + 1,
                    cause: Some(cause),
                };
                return;
            }
            Err(Unlocated::Permanent(error)) => {
                // The table does not exist or hbase:meta rejects lookups, so all unlocated mutations
                // fail.
                self.unlocated.lookup_in_flight = false;
                for range in ranges {
                    self.fail(&range, error.attempts, false, (*error.cause).clone());
                }
                return;
            }
        }
        for range in ranges {
            self.enqueue(range, false, now);
        }
    }

    /// Counts a complete batch in its epoch, which may complete a flush.
    fn batch_complete(&mut self, epoch: Option<u64>) {
        let Some(epoch) = epoch else { return };
        let at = usize::try_from(epoch.saturating_sub(self.first_epoch)).unwrap_or(usize::MAX);
        if let Some(epoch) = self.epochs.get_mut(at) {
            epoch.open = epoch.open.saturating_sub(1);
            self.end_epochs();
        }
    }

    fn end_epochs(&mut self) {
        while self.epochs.len() > 1
            && let Some(first) = self.epochs.pop_front_if(|first| first.open == 0)
        {
            self.first_epoch += 1;
            for waiter in first.waiters {
                let _ = waiter.send(());
            }
        }
    }
}

/// Returns the regions of a call whose load was reported.
fn loads_of(
    shares: &[MutationShare],
    loads: Vec<(Bytes, RegionLoad)>,
) -> Vec<(RegionLocation, RegionLoad)> {
    if loads.is_empty() {
        return Vec::new();
    }
    let loads: HashMap<_, _> = loads.into_iter().collect();
    let load = |share: &MutationShare| {
        let load = loads.get(share.location.region.name())?;
        Some((share.location.clone(), *load))
    };
    shares.iter().filter_map(load).collect()
}

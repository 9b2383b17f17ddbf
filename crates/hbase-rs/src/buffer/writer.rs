//! The task that sorts mutations by region and server, sends them, and settles what became of them.

mod outcomes;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

use super::{
    BufferConfig,
    buffer_pool::BufferPool,
    call::{self, CallOutcome, Share},
    chunk::{Chunk, Run},
    queues::{Queues, take_overdue},
    unavailable::UnavailableRegions,
};
use crate::{
    error::Failure,
    locator::Unlocated,
    region::{info::RegionLocation, meta::RegionTarget},
    server_name::ServerName,
    table::Table,
};

/// Orders that are taken in one go before anything is sent.
const BURST: usize = 64;

/// Longest time that nothing is looked at.
const IDLE: Duration = Duration::from_hours(1);

/// What callers ask for.
#[derive(Debug)]
pub(super) enum Order {
    /// Writes a batch.
    Write(Box<Chunk>),
    /// Hurries, and says when all that came before is settled.
    Flush(oneshot::Sender<()>),
}

/// What happened meanwhile.
#[derive(Debug)]
enum Event {
    /// A call has ended.
    Called { server: ServerName, shares: Vec<Share>, outcome: CallOutcome },
    /// A region was looked for; without a key it is one that was not known before.
    Located { key: Option<Bytes>, outcome: Result<RegionLocation, Unlocated> },
}

/// Batches that came between two flushes.
#[derive(Debug, Default)]
struct Epoch {
    open: usize,
    waiting: Vec<oneshot::Sender<()>>,
}

/// The state of a buffer.
#[derive(Debug)]
pub(super) struct Writer {
    table: Table,
    config: BufferConfig,
    parking: Arc<UnavailableRegions>,
    pool: Arc<BufferPool>,
    queues: Queues,
    /// Mutations of regions that are not known.
    strays: VecDeque<Run>,
    /// When these are looked for again; `None` while they are.
    strays_due: Option<Instant>,
    strays_looked_for: bool,
    strays_attempt: usize,
    strays_cause: Option<Failure>,
    epochs: VecDeque<Epoch>,
    /// Number of the first of them.
    first_epoch: u64,
    /// Bounds of a call; smaller when a server found one too big.
    max: (usize, usize),
    events: mpsc::UnboundedSender<Event>,
    /// Bytes and regions that are counted as parked.
    parked: (u64, u64),
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.count_parked((0, 0));
    }
}

impl Writer {
    /// Runs until there is nobody to write for and nothing left to write.
    pub(super) async fn run(
        table: Table,
        config: BufferConfig,
        parking: Arc<UnavailableRegions>,
        pool: Arc<BufferPool>,
        mut orders: mpsc::Receiver<Order>,
    ) {
        // Bounded by the calls and lookups that may be under way.
        let (events, mut happened) = mpsc::unbounded_channel();
        let max = (config.batch_actions.max(1), config.batch_bytes.max(1));
        let mut writer = Self {
            table,
            config,
            parking,
            pool,
            queues: Queues::default(),
            strays: VecDeque::new(),
            strays_due: None,
            strays_looked_for: false,
            strays_attempt: 0,
            strays_cause: None,
            epochs: VecDeque::from([Epoch::default()]),
            first_epoch: 0,
            max,
            events,
            parked: (0, 0),
        };
        let mut open = true;
        let mut burst = Vec::with_capacity(BURST);
        while open || writer.is_busy() {
            let wake = writer.next_wake();
            tokio::select! {
                count = orders.recv_many(&mut burst, BURST), if open => {
                    open = count > 0;
                    for order in burst.drain(..) {
                        writer.take(order);
                    }
                }
                Some(event) = happened.recv() => {
                    writer.happened(event);
                    while let Ok(event) = happened.try_recv() {
                        writer.happened(event);
                    }
                }
                () = sleep_until(wake) => {}
            }
            writer.go_on();
        }
    }

    fn is_busy(&self) -> bool {
        self.epochs.iter().any(|epoch| epoch.open > 0)
    }

    /// Whether somebody waits for all to be written.
    fn hurries(&self) -> bool {
        self.epochs.iter().any(|epoch| !epoch.waiting.is_empty())
    }

    fn next_wake(&self) -> Instant {
        let strays = self.strays_due.filter(|_| !self.strays.is_empty());
        let wake = [self.queues.next_wake(&self.config), strays].into_iter().flatten().min();
        wake.unwrap_or_else(|| Instant::now() + IDLE)
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Write(mut chunk) => {
                chunk.epoch = self.first_epoch + self.epochs.len() as u64 - 1;
                if let Some(epoch) = self.epochs.back_mut() {
                    epoch.open += 1;
                }
                self.route(Run::whole(Arc::from(chunk)), false, Instant::now());
            }
            Order::Flush(done) => {
                if let Some(epoch) = self.epochs.back_mut() {
                    epoch.waiting.push(done);
                }
                self.epochs.push_back(Epoch::default());
                self.end_epochs();
            }
        }
    }

    /// Puts mutations where they belong.
    fn route(&mut self, mut run: Run, front: bool, now: Instant) {
        while run.from < run.to {
            let end = self.queues.place(&run, front, now);
            if end > run.from {
                run.from = end;
                continue;
            }
            let known = self.table.client().locator().holding(self.table.name(), run.first_row());
            if let Some(location) = known {
                self.learn(location, now);
                continue;
            }
            // This one alone: the next may be of a region that is known.
            self.strays.push_back(run.part(run.from, run.from + 1));
            run.from += 1;
        }
    }

    fn learn(&mut self, location: RegionLocation, now: Instant) {
        for run in self.queues.learn(location) {
            self.route(run, false, now);
        }
    }

    /// Sends what is to be sent, and looks for what is to be looked for.
    fn go_on(&mut self) {
        let now = Instant::now();
        for key in self.queues.due(now) {
            self.seek(&key, now);
        }
        self.seek_strays(now);
        let hurry = self.hurries();
        let mut ready = self.queues.ready(&self.config, hurry, now);
        while !ready.is_empty() {
            for server in ready {
                self.send(&server, now);
            }
            ready = self.queues.ready(&self.config, hurry, now);
        }
        if std::mem::take(&mut self.queues.parking_changed) {
            let (bytes, regions) = self.queues.parking();
            self.count_parked((bytes as u64, regions.len() as u64));
            self.parking.set(bytes, regions);
        }
    }

    /// Corrects the gauges by what has changed.
    fn count_parked(&mut self, now: (u64, u64)) {
        let (bytes, regions) = std::mem::replace(&mut self.parked, now);
        let counts = &self.table.client().metrics().buffers;
        counts.unavailable_bytes.add(now.0);
        counts.unavailable_bytes.sub(bytes);
        counts.unavailable_regions.add(now.1);
        counts.unavailable_regions.sub(regions);
    }

    fn send(&mut self, server: &ServerName, now: Instant) {
        let mut overdue = Vec::new();
        let shares = self.queues.gather(server, self.max, now, &mut overdue);
        for (run, cause) in overdue {
            self.fail(&run, 0, false, cause.unwrap_or(Failure::Time));
        }
        let runs = || shares.iter().flat_map(|share| &share.runs);
        let Some(end) = runs().map(|run| run.chunk.deadline).max() else { return };
        let client = self.table.client().clone();
        // Those with less time are late by a call at most; a call cut short would be of no use to all.
        let deadline = end.min(now + client.config().call_timeout);
        let (server, events, pool) = (server.clone(), self.events.clone(), Arc::clone(&self.pool));
        tokio::spawn(async move {
            let outcome = call::call(&client, &shares, deadline, &pool).await;
            // A writer that is gone has lost its runtime.
            let _ = events.send(Event::Called { server, shares, outcome });
        });
    }

    /// Looks for a parked region whose pause is over.
    fn seek(&mut self, key: &Bytes, now: Instant) {
        let Some(queue) = self.queues.region(key) else { return };
        let (attempt, cause) = (queue.attempt, queue.cause.clone().unwrap_or(Failure::Time));
        let overdue = queue.take_overdue(now);
        let row = queue.runs.front().map(|run| run.chunk.batch.row_bytes(run.from as usize));
        for run in overdue {
            self.fail(&run, attempt, false, cause.clone());
        }
        let Some(row) = row else {
            // Nobody wants it any more.
            self.queues.remove(key);
            return;
        };
        match self.table.client().locator().holding(self.table.name(), &row) {
            Some(location) => self.found(Some(key), location, now),
            None => self.look_up(Some(key.clone()), row, attempt),
        }
    }

    fn seek_strays(&mut self, now: Instant) {
        if self.strays_looked_for || self.strays_due.is_some_and(|due| due > now) {
            return;
        }
        let cause = self.strays_cause.clone().unwrap_or(Failure::Time);
        for run in take_overdue(&mut self.strays, now) {
            self.fail(&run, self.strays_attempt, false, cause.clone());
        }
        let Some(first) = self.strays.front() else { return };
        let row = first.chunk.batch.row_bytes(first.from as usize);
        self.strays_looked_for = true;
        self.look_up(None, row, self.strays_attempt);
    }

    fn look_up(&self, key: Option<Bytes>, row: Bytes, attempt: usize) {
        let (table, events) = (self.table.clone(), self.events.clone());
        tokio::spawn(async move {
            let attempts = table.attempts("locate").reading();
            let locator = table.client().locator();
            let locate = RegionTarget::Holding(row);
            let mut outcome = locator.locate_once(table.name(), &locate, &attempts).await;
            if attempt >= 2 && matches!(&outcome, Err(Unlocated::ForNow { .. })) {
                outcome = locator.unless_disabled(table.name(), outcome, &attempts).await;
            }
            let _ = events.send(Event::Located { key, outcome });
        });
    }

    fn happened(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Called { server, shares, outcome } => {
                self.called(&server, shares, outcome, now);
                self.queues.call_ended(&server);
            }
            Event::Located { key: Some(key), outcome } => match outcome {
                Ok(location) => self.found(Some(&key), location, now),
                Err(Unlocated::ForNow { cause, .. }) => {
                    let until = self.pause_of(&key, false, now);
                    self.table.client().metrics().retried(cause.retry_reason());
                    self.queues.park(&key, until, cause);
                }
                Err(Unlocated::ForGood(error)) => {
                    for run in self.queues.remove(&key) {
                        self.fail(&run, error.attempts, false, (*error.cause).clone());
                    }
                }
            },
            Event::Located { key: None, outcome } => self.stray_located(outcome, now),
        }
    }

    /// A region was found, most likely the one that was looked for.
    fn found(&mut self, key: Option<&Bytes>, location: RegionLocation, now: Instant) {
        let same = key
            .and_then(|key| self.queues.region(key))
            .is_some_and(|queue| queue.region.name() == location.region.name());
        if same {
            self.queues.unpark(location, now);
            return;
        }
        // It was split or merged: what waited is sorted anew.
        let runs = key.map(|key| self.queues.remove(key)).unwrap_or_default();
        self.learn(location, now);
        for run in runs {
            self.route(run, false, now);
        }
    }

    fn stray_located(&mut self, outcome: Result<RegionLocation, Unlocated>, now: Instant) {
        self.strays_looked_for = false;
        match outcome {
            Ok(location) => {
                (self.strays_due, self.strays_attempt, self.strays_cause) = (None, 0, None);
                self.learn(location, now);
            }
            Err(Unlocated::ForNow { cause, region: Some(region) }) => {
                self.strays_due = None;
                let until = now + self.backoff(0, false);
                self.table.client().metrics().retried(cause.retry_reason());
                let region = Arc::new(region);
                for run in self.queues.learn_unavailable(&region, until, cause) {
                    self.route(run, false, now);
                }
            }
            Err(Unlocated::ForNow { cause, region: None }) => {
                self.table.client().metrics().retried(cause.retry_reason());
                self.strays_due = Some(now + self.backoff(self.strays_attempt, false));
                self.strays_attempt += 1;
                self.strays_cause = Some(cause);
                return;
            }
            Err(Unlocated::ForGood(error)) => {
                // No table, or no use in asking: the same for all of them.
                for run in std::mem::take(&mut self.strays) {
                    self.fail(&run, error.attempts, false, (*error.cause).clone());
                }
            }
        }
        for run in std::mem::take(&mut self.strays) {
            self.route(run, false, now);
        }
    }

    /// A batch may be settled with that, and with it all that a flush waits for.
    fn settled(&mut self, epoch: Option<u64>) {
        let Some(epoch) = epoch else { return };
        let at = usize::try_from(epoch.saturating_sub(self.first_epoch)).unwrap_or(usize::MAX);
        if let Some(epoch) = self.epochs.get_mut(at) {
            epoch.open -= usize::from(epoch.open > 0);
            self.end_epochs();
        }
    }

    fn end_epochs(&mut self) {
        while self.epochs.len() > 1
            && let Some(first) = self.epochs.pop_front_if(|first| first.open == 0)
        {
            self.first_epoch += 1;
            for waiting in first.waiting {
                let _ = waiting.send(());
            }
        }
    }
}

//! Write actors: one per salt bucket, each with at most a few calls of the store in flight.
//!
//! An idle actor writes what it gets at once. While as many calls are in flight as may be it collects, so
//! batches grow with the load and nothing waits on a timer. Chunks of pipelined sessions are written one
//! call after the other, so that points for one cell land in their order; whoever waits for an answer
//! before sending more needs no such thing. Every contributor is answered when its points are
//! durable. What an actor holds is bounded by its [`Gate`]: senders take room for their bytes
//! before they send and give it back when they are answered, so a full actor stops its senders,
//! and they their sockets.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tsd_storage::{CellBatch, Storage, StorageError};

use crate::{
    actor::{Desk, Doer, DoerRef, Reply},
    compaction::{CompactionStats, RowCompactor},
    ingest::{Ticket, WriteTarget},
    metrics::WriteMetrics,
    put_error::PutError,
};

/// Bytes of one permit of a gate.
const ROOM_UNIT: usize = 64;

/// What one sender gives to one write actor.
pub(crate) struct Contribution {
    /// How it is written.
    pub(crate) target: usize,
    /// Cells, in order.
    pub(crate) batch: CellBatch,
    /// Who is answered.
    pub(crate) ticket: Ticket,
    /// Rows that row compaction should know of once they are stored.
    pub(crate) touched: Vec<TouchedRow>,
    /// Room taken in the actor's gate.
    pub(crate) room: OwnedSemaphorePermit,
}

/// A row that got its first point, or one after it was due.
#[derive(Debug)]
pub(crate) struct TouchedRow {
    /// Whose row compactor is told.
    pub(crate) lane: usize,
    /// Row key.
    pub(crate) key: Bytes,
}

/// Orders to a write actor.
pub(crate) enum WriteOrder {
    /// Put these cells.
    Write(Contribution),
    /// Answer when everything taken before is stored or has failed.
    Drain(Reply<()>),
    /// Fail inside the handler.
    #[cfg(test)]
    Panic,
}

/// A write actor and the room it has.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// The actor.
    pub(crate) writer: DoerRef<Writer>,
    /// Room for cells.
    pub(crate) gate: Gate,
}

/// Bytes of cells that may be held at once.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    room: Arc<Semaphore>,
    units: u32,
}

impl Gate {
    /// Room for `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        let units = u32::try_from((bytes / ROOM_UNIT).max(1))
            .unwrap_or(u32::MAX)
            .min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self { room: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Orders that can hold room at once: a mailbox of this size never fills.
    pub(crate) const fn orders(&self) -> usize {
        self.units as usize
    }

    /// Waits for room. More than the whole is granted when everything is free. `None`: closed.
    pub(crate) async fn enter(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes / ROOM_UNIT + 1).unwrap_or(u32::MAX).min(self.units);
        Arc::clone(&self.room).acquire_many_owned(units).await.ok()
    }

    /// Bytes held now.
    pub(crate) fn held_bytes(&self) -> usize {
        (self.units as usize).saturating_sub(self.room.available_permits()) * ROOM_UNIT
    }

    /// Lets nobody in any more.
    pub(crate) fn close(&self) {
        self.room.close();
    }
}

/// Settings of a write actor.
#[derive(Clone, Debug)]
pub(crate) struct WriterSettings {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) targets: Arc<[WriteTarget]>,
    pub(crate) max_write_bytes: usize,
    pub(crate) max_in_flight: usize,
    pub(crate) compactors: Arc<[DoerRef<RowCompactor>]>,
    pub(crate) compaction_stats: Arc<CompactionStats>,
    pub(crate) metrics: WriteMetrics,
}

/// State of a write actor.
pub(crate) struct Writer {
    settings: WriterSettings,
    /// For each target two ways: of pipelined chunks, and of others.
    ways: Vec<Way>,
    /// Whose turn it is.
    turn: usize,
    in_flight: usize,
    drains: Vec<Reply<()>>,
}

/// What is written in the same manner.
#[derive(Default)]
struct Way {
    waiting: VecDeque<Contribution>,
    is_ordered: bool,
    in_flight: usize,
}

impl Writer {
    pub(crate) fn new(settings: WriterSettings) -> Self {
        let way = |is_ordered| Way { is_ordered, ..Way::default() };
        let ways = settings.targets.iter().flat_map(|_| [way(false), way(true)]).collect();
        Self { settings, ways, turn: 0, in_flight: 0, drains: Vec::new() }
    }

    /// The next call and its way: each has its turn.
    fn load(&mut self) -> Option<(usize, Flight)> {
        for _ in 0..self.ways.len() {
            let at = self.turn;
            self.turn = (at + 1) % self.ways.len();
            let way = self.ways.get_mut(at)?;
            if let Some(flight) = way.load(self.settings.max_write_bytes) {
                return Some((at, flight));
            }
        }
        None
    }

    /// Starts calls of the store while there is something to write and a call is free.
    fn pump(&mut self, desk: &mut Desk<'_, Self>) {
        while self.in_flight < self.settings.max_in_flight.max(1) {
            let Some((at, flight)) = self.load() else { break };
            self.in_flight += 1;
            let settings = self.settings.clone();
            desk.spawn(flight.fly(settings), move |writer, (), desk| {
                writer.in_flight -= 1;
                if let Some(way) = writer.ways.get_mut(at) {
                    way.in_flight -= 1;
                }
                writer.pump(desk);
            });
        }
        if self.in_flight == 0 && self.ways.iter().all(|way| way.waiting.is_empty()) {
            for drain in self.drains.drain(..) {
                // An asker that went away needs no answer.
                let _ = drain.send(());
            }
        }
    }
}

impl Way {
    fn load(&mut self, max_bytes: usize) -> Option<Flight> {
        if self.is_ordered && self.in_flight > 0 {
            return None;
        }
        let flight = Flight::load(&mut self.waiting, max_bytes)?;
        self.in_flight += 1;
        Some(flight)
    }
}

impl Doer for Writer {
    type Order = WriteOrder;

    fn handle(&mut self, order: WriteOrder, desk: &mut Desk<'_, Self>) {
        match order {
            WriteOrder::Write(contribution) => {
                let at = contribution.target * 2 + usize::from(contribution.ticket.is_pipelined());
                // Dropped, it would answer for itself; every target there is has its ways.
                if let Some(way) = self.ways.get_mut(at) {
                    way.waiting.push_back(contribution);
                }
            }
            WriteOrder::Drain(reply) => self.drains.push(reply),
            #[cfg(test)]
            WriteOrder::Panic => panic!("told to"),
        }
        self.pump(desk);
    }
}

/// One call of the store and who waits for it.
struct Flight {
    target: usize,
    batch: CellBatch,
    contributors: Vec<(Ticket, OwnedSemaphorePermit)>,
    touched: Vec<TouchedRow>,
}

impl Flight {
    fn load(waiting: &mut VecDeque<Contribution>, max_bytes: usize) -> Option<Self> {
        let first = waiting.pop_front()?;
        let mut flight = Self {
            target: first.target,
            batch: first.batch,
            contributors: vec![(first.ticket, first.room)],
            touched: first.touched,
        };
        while let Some(next) = waiting.front()
            && flight.batch.byte_len() + next.batch.byte_len() <= max_bytes
            && let Some(next) = waiting.pop_front()
        {
            flight.batch.extend(&next.batch);
            flight.contributors.push((next.ticket, next.room));
            flight.touched.extend(next.touched);
        }
        Some(flight)
    }

    async fn fly(self, settings: WriterSettings) {
        let started = Instant::now();
        let points: usize = self.contributors.iter().map(|(ticket, _)| ticket.points()).sum();
        settings.metrics.points_per_write.record(points as f64);
        let result = match settings.targets.get(self.target) {
            Some(to) if to.appends => settings.storage.append(&to.table, self.batch).await,
            Some(to) => settings.storage.put(&to.table, self.batch).await,
            // Not reached: what waits has a target.
            None => Err(StorageError::Backend("no such way to write".into())),
        };
        settings.metrics.write_seconds.record(started.elapsed());
        match &result {
            Ok(()) => settings.metrics.stored.increment(points as u64),
            Err(error) => {
                settings.metrics.failed.increment(points as u64);
                tracing::warn!(%error, points, "a write failed");
            }
        }
        // Before anyone is answered, so that a pass asked for after that finds the rows.
        note_touched(&settings, self.touched);
        let result = result.map_err(PutError::from);
        for (ticket, room) in self.contributors {
            ticket.finish(result.clone());
            drop(room);
        }
    }
}

/// Tells each row compactor of its rows.
fn note_touched(settings: &WriterSettings, mut touched: Vec<TouchedRow>) {
    touched.sort_by_key(|row| row.lane);
    let mut rows = touched.into_iter().peekable();
    while let Some(TouchedRow { lane, key }) = rows.next() {
        let mut keys = vec![key];
        while let Some(row) = rows.next_if(|row| row.lane == lane) {
            keys.push(row.key);
        }
        if let Some(compactor) = settings.compactors.get(lane) {
            RowCompactor::note_touched(compactor, &settings.compaction_stats, keys);
        }
    }
}

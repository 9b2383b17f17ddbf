//! The UID actor: batched, single-flight look-ups and assignments of names.
//!
//! A name that is being looked up or assigned is requested once; further callers wait for the same result. Names that
//! arrive while the batches of their kind are in flight are queued and form the next batch: one read, or one
//! increment, serves all of them. Errors are not cached.
//!
//! If another node of the cluster owns a name, this actor asks that node, also in batches. If the node does not
//! answer, the name is assigned here. A name that is assigned here for another node never waits for a third node.
//!
//! The rate of assignments may be limited; names wait for it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use tsd_meta::UidError;
use tsd_model::{PerKind, Uid, UidKind};
use tsd_runtime::{Actor, ActorContext, Clock, Reply};

use super::{
    LossCheck, NamePeers, UidCaches, UidTable,
    assign::{AssignedBatch, UidAllocation, assign, create_meta_objects},
    assign_rate::AssignRate,
    pending_names::{NamesRequest, PendingNames},
};

/// Result of a look-up. A name without a UID is not an error.
pub(crate) type UidLookup = Result<Option<Uid>, UidError>;
/// Result of an assignment.
pub(crate) type UidAssignment = Result<Uid, UidError>;

/// Most look-up batches of one kind in flight.
const MAX_LOOKUP_BATCHES: usize = 2;
/// Most assignment batches of one kind in flight.
const MAX_ASSIGNMENT_BATCHES: usize = 1;
/// Most batches of one kind that other nodes are asked for at the same time.
const MAX_ASKED_BATCHES: usize = 2;

/// Node that assigns the UIDs of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UidAssigning {
    /// The node that owns each name.
    Owner,
    /// This node, because another node asked it.
    Here,
}

/// Messages to the UID actor.
pub(crate) enum UidMessage {
    /// Look names up.
    Lookup { kind: UidKind, names: Vec<Bytes>, reply: Reply<Vec<UidLookup>> },
    /// Assign UIDs to names that had none when they were looked up.
    Assign { by: UidAssigning, kind: UidKind, names: Vec<Bytes>, reply: Reply<Vec<UidAssignment>> },
    /// Panic inside the handler, for tests.
    #[cfg(test)]
    Panic,
}

/// Counters of UID assignment.
#[derive(Debug, Default)]
pub(crate) struct AssignerStats {
    /// UIDs assigned, by kind.
    pub(crate) assigned: PerKind<AtomicU64>,
    /// Random UIDs that were already taken.
    pub(crate) random_collisions: AtomicU64,
    /// New names of metrics that points may not create.
    pub(crate) uncreated_metrics: AtomicU64,
    /// Highest number seen in the counter of a kind, plus 1; 0 if no number was seen.
    highest: PerKind<AtomicU64>,
    /// Names that the filter allowed, by kind.
    pub(crate) allowed: PerKind<AtomicU64>,
    /// Names rejected by the filter, by kind.
    pub(crate) filtered: PerKind<AtomicU64>,
    /// Names that wait for a UID now.
    pub(crate) pending: AtomicUsize,
    /// Names rejected because too many were pending.
    pub(crate) rejected: AtomicU64,
    /// Names that waited because of the rate limit.
    pub(crate) delayed: AtomicU64,
}

impl AssignerStats {
    /// Records a number of a kind's counter, which only grows.
    pub(crate) fn saw(&self, kind: UidKind, number: i64) {
        let seen = u64::try_from(number).unwrap_or(0).saturating_add(1);
        self.highest[kind].fetch_max(seen, Ordering::Relaxed);
    }

    /// The highest number seen in a kind's counter.
    pub(crate) fn highest(&self, kind: UidKind) -> Option<u64> {
        self.highest[kind].load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Settings of the UID actor.
#[derive(Clone, Debug)]
pub(crate) struct AssignerSettings {
    pub(crate) table: UidTable,
    pub(crate) caches: Arc<UidCaches>,
    pub(crate) random_metrics: bool,
    /// Clock for the creation time of meta objects; `None` disables meta objects of new names.
    pub(crate) realtime_meta: Option<Arc<dyn Clock>>,
    pub(crate) max_pending: usize,
    pub(crate) max_batch: usize,
    /// Most assignments per second; 0 means no limit.
    pub(crate) max_per_second: u32,
    pub(crate) stats: Arc<AssignerStats>,
    /// Check that runs before assignments after a loss of names.
    pub(crate) loss_check: Arc<LossCheck>,
    /// The other nodes of the cluster, if there is one.
    pub(crate) peers: Option<Arc<dyn NamePeers>>,
}

/// State of the UID actor.
pub(crate) struct UidAssigner {
    settings: AssignerSettings,
    lookups: PerKind<PendingNames<UidLookup>>,
    assignments: PerKind<PendingNames<UidAssignment>>,
    /// Names that are requested from other nodes.
    asked: PerKind<PendingNames<UidAssignment>>,
    rate: AssignRate,
}

impl UidAssigner {
    pub(crate) fn new(settings: AssignerSettings) -> Self {
        settings.stats.pending.store(0, Ordering::Relaxed);
        Self {
            rate: AssignRate::new(settings.max_per_second),
            settings,
            lookups: PerKind::default(),
            assignments: PerKind::default(),
            asked: PerKind::default(),
        }
    }

    /// True if one more name may wait. Otherwise counts a rejection.
    fn admits_name(&self) -> bool {
        let stats = &self.settings.stats;
        if stats.pending.load(Ordering::Relaxed) < self.settings.max_pending {
            return true;
        }
        stats.rejected.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn look_up(
        &mut self,
        kind: UidKind,
        names: Vec<Bytes>,
        reply: Reply<Vec<UidLookup>>,
        ctx: &mut ActorContext<'_, Self>,
    ) {
        let request = NamesRequest::new(names.len(), reply);
        for (i, name) in names.into_iter().enumerate() {
            if let Some(uid) = self.settings.caches.uid(kind, &name) {
                request.set(i, Ok(Some(uid)));
            } else if self.lookups[kind].contains(&name) || self.admits_name() {
                let new = self.lookups[kind].wait(name, &request, i);
                self.settings.stats.pending.fetch_add(usize::from(new), Ordering::Relaxed);
            } else {
                request.set(i, Err(UidError::Throttled));
            }
        }
        self.start_lookups(kind, ctx);
    }

    fn start_lookups(&mut self, kind: UidKind, ctx: &mut ActorContext<'_, Self>) {
        let max = self.settings.max_batch;
        while let Some(names) = self.lookups[kind].next_batch(MAX_LOOKUP_BATCHES, max) {
            let table = self.settings.table.clone();
            let epoch = self.settings.caches.epoch();
            let work = async move {
                let results = table.uids(kind, &names).await;
                (names, results)
            };
            ctx.spawn(work, move |assigner, (names, results), ctx| {
                let caches = Arc::clone(&assigner.settings.caches);
                let pending = &mut assigner.lookups[kind];
                pending.in_flight -= 1;
                if caches.epoch() == epoch {
                    let mut results = match results {
                        Ok(results) => results,
                        Err(error) => vec![Err(UidError::Storage(error)); names.len()],
                    }
                    .into_iter();
                    for name in &names {
                        let result = results.next().unwrap_or(Err(UidError::Lost));
                        if let Ok(Some(uid)) = result {
                            caches.insert_at(epoch, kind, name, uid);
                        }
                        pending.complete(name, &result);
                    }
                    assigner.settings.stats.pending.fetch_sub(names.len(), Ordering::Relaxed);
                } else {
                    // A name was renamed or deleted meanwhile, so the results may be stale: try again.
                    pending.queue_again(names);
                }
                assigner.start_lookups(kind, ctx);
            });
        }
    }

    /// The list in which a name must wait for its UID.
    fn waiting_with(
        &mut self,
        by: UidAssigning,
        kind: UidKind,
        name: &Bytes,
    ) -> &mut PendingNames<UidAssignment> {
        let has_other_owner = || {
            let peers = self.settings.peers.as_ref();
            peers.is_some_and(|peers| peers.has_other_owner(kind, name))
        };
        let is_asked = by == UidAssigning::Owner
            && !self.assignments[kind].contains(name)
            && (self.asked[kind].contains(name) || has_other_owner());
        if is_asked { &mut self.asked[kind] } else { &mut self.assignments[kind] }
    }

    /// Queues the names that have no UID yet.
    fn queue(
        &mut self,
        by: UidAssigning,
        kind: UidKind,
        names: Vec<Bytes>,
        reply: Reply<Vec<UidAssignment>>,
    ) {
        let request = NamesRequest::new(names.len(), reply);
        for (i, name) in names.into_iter().enumerate() {
            // An assignment for another caller may have ended since this caller's look-up.
            if let Some(uid) = self.settings.caches.uid(kind, &name) {
                request.set(i, Ok(uid));
            } else if self.waiting_with(by, kind, &name).contains(&name) || self.admits_name() {
                let new = self.waiting_with(by, kind, &name).wait(name, &request, i);
                self.settings.stats.pending.fetch_add(usize::from(new), Ordering::Relaxed);
            } else {
                request.set(i, Err(UidError::Throttled));
            }
        }
    }

    /// Asks other nodes for the UIDs of their names.
    fn start_asking(&mut self, kind: UidKind, ctx: &mut ActorContext<'_, Self>) {
        let Some(peers) = self.settings.peers.clone() else { return };
        let max = self.settings.max_batch;
        while let Some(names) = self.asked[kind].next_batch(MAX_ASKED_BATCHES, max) {
            let peers = Arc::clone(&peers);
            let epoch = self.settings.caches.epoch();
            let work = async move {
                let uids = peers.assign(kind, names.clone()).await;
                (names, uids)
            };
            ctx.spawn(work, move |assigner, (names, uids), ctx| {
                assigner.asked[kind].in_flight -= 1;
                let mut uids = uids.into_iter();
                for name in names {
                    assigner.end_asking(kind, name, uids.next().flatten(), epoch);
                }
                assigner.start_assignments(kind, ctx);
                assigner.start_asking(kind, ctx);
            });
        }
    }

    /// Stores the UID that the owner of a name assigned. Without a UID, the name is assigned here.
    fn end_asking(&mut self, kind: UidKind, name: Bytes, uid: Option<Uid>, epoch: u64) {
        let AssignerSettings { table, caches, stats, .. } = &self.settings;
        let width = kind.width(&table.schema);
        let asked = &mut self.asked[kind];
        let has_ended = match uid.filter(|uid| uid.as_bytes().len() == width) {
            Some(uid) => {
                caches.insert_at(epoch, kind, &name, uid);
                asked.complete(&name, &Ok(uid));
                true
            }
            None => !self.assignments[kind].take_over(name, asked),
        };
        stats.pending.fetch_sub(usize::from(has_ended), Ordering::Relaxed);
    }

    fn start_assignments(&mut self, kind: UidKind, ctx: &mut ActorContext<'_, Self>) {
        let max = self.rate.largest_batch(self.settings.max_batch);
        while let Some(names) = self.assignments[kind].next_batch(MAX_ASSIGNMENT_BATCHES, max) {
            let table = self.settings.table.clone();
            let epoch = self.settings.caches.epoch();
            let random = self.settings.random_metrics && kind == UidKind::Metric;
            let allocation = if random { UidAllocation::Random } else { UidAllocation::Counter };
            let clock = self.settings.realtime_meta.clone();
            let loss_check = Arc::clone(&self.settings.loss_check);
            let begin = self.rate.reserve(names.len(), Instant::now());
            if begin.is_some() {
                let delayed = &self.settings.stats.delayed;
                delayed.fetch_add(names.len() as u64, Ordering::Relaxed);
            }
            let work = async move {
                if let Some(begin) = begin {
                    sleep_until(begin).await;
                }
                let assigned = match loss_check.run(&table).await {
                    Ok(()) => assign(&table, kind, &names, allocation).await,
                    Err(error) => AssignedBatch::failed(names.len(), &error),
                };
                if let Some(clock) = clock {
                    create_meta_objects(&table, kind, &assigned, clock.now_secs()).await;
                }
                (names, assigned)
            };
            ctx.spawn(work, move |assigner, (names, assigned), ctx| {
                let AssignerSettings { caches, stats, .. } = &assigner.settings;
                stats.random_collisions.fetch_add(assigned.collisions, Ordering::Relaxed);
                if let Some(number) = assigned.highest {
                    stats.saw(kind, number);
                }
                let pending = &mut assigner.assignments[kind];
                pending.in_flight -= 1;
                for (name, result) in names.iter().zip(&assigned.results) {
                    if let Ok(uid) = result {
                        caches.insert_at(epoch, kind, name, *uid);
                        stats.assigned[kind].fetch_add(1, Ordering::Relaxed);
                    }
                    pending.complete(name, result);
                }
                stats.pending.fetch_sub(names.len(), Ordering::Relaxed);
                assigner.start_assignments(kind, ctx);
            });
        }
    }
}

impl Actor for UidAssigner {
    type Message = UidMessage;

    fn handle(&mut self, message: UidMessage, ctx: &mut ActorContext<'_, Self>) {
        match message {
            UidMessage::Lookup { kind, names, reply } => self.look_up(kind, names, reply, ctx),
            UidMessage::Assign { by, kind, names, reply } => {
                self.queue(by, kind, names, reply);
                self.start_assignments(kind, ctx);
                self.start_asking(kind, ctx);
            }
            #[cfg(test)]
            UidMessage::Panic => panic!("requested by the test"),
        }
    }
}

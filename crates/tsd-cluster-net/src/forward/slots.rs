//! The slots of this node: what it takes by the present assignment, and the keeper that changes it.
//!
//! A write that is made here keeps a [`SlotView`] until its end. A release of slots publishes a view without them,
//! then waits until no older view is in use: from then on nothing of these slots is written by this node.

mod keeper;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use tsd_cluster::{
    Assignment, Membership, ProofError, SeriesKeyLayout, Slot, SlotHolder, SlotRoute, SlotSet,
    SlotTable,
};

use super::{SlotLog, metrics::ForwardMetrics, route_table::RouteTable, slot_write::SlotWrite};

/// Least time between two reads of the assignment that writes ask for.
const READ_PAUSE: Duration = Duration::from_millis(20);
/// After this time a problem of the assignment is one of the node's health.
const LASTING: Duration = Duration::from_secs(5);
/// Pause before a write without an owner looks again.
const WAIT_PAUSE: Duration = Duration::from_millis(50);

/// The slots of this node.
#[derive(Debug)]
pub struct ClusterSlots {
    this: u64,
    table: Arc<dyn SlotTable>,
    membership: Arc<dyn Membership>,
    log: Arc<dyn SlotLog>,
    holder: Mutex<SlotHolder>,
    view: RwLock<Arc<SlotView>>,
    /// Views that were replaced, and may be in use.
    older: Mutex<Vec<Weak<SlotView>>>,
    /// Notified when a view is not in use any more.
    view_ended: Arc<Notify>,
    /// Counts the views.
    changed: watch::Sender<u64>,
    /// Begin of the last read of the assignment that succeeded. Owned by who reads it.
    read: tokio::sync::Mutex<Option<Instant>>,
    /// Owned by who changes the assignment.
    changing: tokio::sync::Mutex<()>,
    /// Owned by who gives slots away.
    releasing: Arc<tokio::sync::Mutex<()>>,
    drain_state: watch::Sender<DrainState>,
    /// Why the assignment cannot be read or changed, and since when.
    problem: Mutex<Option<(Instant, String)>>,
    keeper: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// What the node takes, as of one assignment.
#[derive(Debug)]
pub(super) struct SlotView {
    holder: SlotHolder,
    is_sole: bool,
    routes: RouteTable,
    ended: Arc<Notify>,
}

/// Whether a node gives its slots away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainState {
    /// It takes its share.
    Off,
    /// It gives all away, or has done so.
    Draining,
    /// As that, and it will stop.
    Stopping,
}

/// Numbers of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Generation of the assignment.
    pub generation: u64,
    /// Slots that this node takes writes of.
    pub owned: usize,
    /// Slots that are to be given to another node, of all nodes.
    pub moving: usize,
}

impl SlotView {
    fn new(holder: SlotHolder, ended: Arc<Notify>) -> Self {
        let is_sole = *holder.taken() == SlotSet::FULL;
        let routes = RouteTable::new(&holder);
        Self { holder, is_sole, routes, ended }
    }

    /// True if this node takes the writes of all slots.
    pub(super) const fn is_sole(&self) -> bool {
        self.is_sole
    }

    pub(super) fn route(&self, slot: Slot) -> SlotRoute {
        self.routes.of_slot(slot)
    }

    pub(super) const fn routes(&self) -> &RouteTable {
        &self.routes
    }

    /// True if a node gives all its slots away.
    fn is_leaving(&self, incarnation: u64) -> bool {
        self.holder.adopted().leaving.contains(&incarnation)
    }

    /// True if this node takes the write, whoever sends it.
    pub(super) fn accepts(&self, write: &SlotWrite, layout: &SeriesKeyLayout) -> bool {
        let accepts = |key| self.route(layout.slot_of(key)) == SlotRoute::Own;
        self.is_sole || write.keys().all(accepts)
    }

    pub(super) fn generation(&self) -> u64 {
        self.holder.adopted().generation
    }
}

impl Drop for SlotView {
    fn drop(&mut self) {
        self.ended.notify_waiters();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClusterSlots {
    /// The slots of a node that has just joined, whose own and former rows are in `log`. Its keeper runs until
    /// the end of this value, or [`Self::stop`].
    #[must_use]
    pub fn start(
        table: Arc<dyn SlotTable>,
        membership: Arc<dyn Membership>,
        log: Arc<dyn SlotLog>,
    ) -> Arc<Self> {
        let slots = Arc::new(Self::new(table, membership, log));
        let keeper = tokio::spawn(keeper::keep(Arc::downgrade(&slots)));
        *lock(&slots.keeper) = Some(AbortOnDropHandle::new(keeper));
        slots
    }

    fn new(
        table: Arc<dyn SlotTable>,
        membership: Arc<dyn Membership>,
        log: Arc<dyn SlotLog>,
    ) -> Self {
        let this = membership.this();
        let (holder, view_ended) = (SlotHolder::new(this), Arc::<Notify>::default());
        let view = SlotView::new(holder.clone(), Arc::clone(&view_ended));
        Self {
            this,
            table,
            membership,
            log,
            holder: Mutex::new(holder),
            view: RwLock::new(Arc::new(view)),
            older: Mutex::default(),
            view_ended,
            changed: watch::Sender::new(0),
            read: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            releasing: Arc::default(),
            drain_state: watch::Sender::new(DrainState::Off),
            problem: Mutex::default(),
            keeper: Mutex::default(),
        }
    }

    /// Ends the keeper. The slots stay those of this node until its log has ended.
    pub fn stop(&self) {
        drop(lock(&self.keeper).take());
    }

    /// How many slots this node has.
    #[must_use]
    pub fn counts(&self) -> SlotCounts {
        let holder = lock(&self.holder);
        SlotCounts {
            generation: holder.adopted().generation,
            owned: holder.taken().len(),
            moving: holder.adopted().moving_count(),
        }
    }

    /// The assignment that this node goes by.
    #[must_use]
    pub fn assignment(&self) -> Arc<Assignment> {
        Arc::clone(lock(&self.holder).adopted())
    }

    /// True from the begin of a drain on, unless that ends in vain.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.drain_state.borrow() != DrainState::Off
    }

    /// Why the assignment cannot be read or changed now.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        lock(&self.problem).as_ref().map(|(_, text)| text.clone())
    }

    /// Why writes of some slots have no owner, if that lasts.
    pub(super) fn unsettled(&self) -> Option<String> {
        let (since, problem) = lock(&self.problem).clone()?;
        let is_lasting = since.elapsed() >= LASTING && !self.view().routes.is_settled();
        is_lasting.then(|| format!("slots of the cluster have no owner: {problem}"))
    }

    /// The other node that owns a slot, unless it leaves; `None` also while nobody is known to own it.
    pub(crate) fn other_owner(&self, slot: Slot) -> Option<u64> {
        let view = self.view();
        if view.is_sole() {
            return None;
        }
        match view.route(slot) {
            SlotRoute::Peer(owner) => (!view.is_leaving(owner)).then_some(owner),
            SlotRoute::Own | SlotRoute::Unsettled => None,
        }
    }

    pub(super) fn membership(&self) -> &Arc<dyn Membership> {
        &self.membership
    }

    /// What the node takes now. A write that is made here keeps it until its end.
    pub(super) fn view(&self) -> Arc<SlotView> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the state of the holder visible to writes.
    fn publish(&self, holder: &SlotHolder) {
        let new = Arc::new(SlotView::new(holder.clone(), Arc::clone(&self.view_ended)));
        let old = {
            let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *view, new)
        };
        let mut older = lock(&self.older);
        older.retain(|view| view.strong_count() > 0);
        older.push(Arc::downgrade(&old));
        drop(older);
        // If no write uses it, its end is noticed here.
        drop(old);
        self.changed.send_modify(|count| *count += 1);
        let metrics = ForwardMetrics::of_process();
        metrics.owned.set(holder.taken().len() as f64);
        metrics.moving.set(holder.adopted().moving_count() as f64);
        metrics.generation.set(holder.adopted().generation as f64);
    }

    /// Waits until no write is made by a view that was replaced.
    async fn older_views_ended(&self) {
        loop {
            let ended = self.view_ended.notified();
            {
                let mut older = lock(&self.older);
                older.retain(|view| view.strong_count() > 0);
                if older.is_empty() {
                    return;
                }
            }
            ended.await;
        }
    }

    /// Goes by an assignment from now on, if it is newer.
    pub(crate) fn adopt(&self, assignment: Assignment) {
        if assignment.generation <= lock(&self.holder).adopted().generation {
            return;
        }
        if assignment.floor_ms > i64::MIN {
            // Before a write of a slot that another node had.
            self.table.raise_commit_time(assignment.floor_ms);
        }
        let mut holder = lock(&self.holder);
        if holder.adopt(Arc::new(assignment)) {
            self.publish(&holder);
        }
    }

    /// Reads the assignment, and goes by it.
    async fn read_now(&self) -> Result<Option<Assignment>, ProofError> {
        let found = self.table.assignment().await?;
        if let Some(found) = &found {
            self.adopt(found.clone());
        }
        Ok(found)
    }

    /// Reads the assignment. One read serves all who ask while it waits, or just after.
    pub(super) async fn refresh(&self) -> Result<(), ProofError> {
        let asked = Instant::now();
        let mut read = self.read.lock().await;
        if let Some(read) = *read {
            if read >= asked {
                return Ok(());
            }
            sleep(READ_PAUSE.saturating_sub(read.elapsed())).await;
        }
        let begun = Instant::now();
        self.read_now().await?;
        *read = Some(begun);
        Ok(())
    }

    /// Waits for a later generation, or a short time.
    pub(super) async fn await_change(&self, generation: u64, deadline: Instant) {
        let mut changed = self.changed.subscribe();
        let until = deadline.min(Instant::now() + WAIT_PAUSE);
        // A failure is one of HBase; the caller's deadline bounds it.
        let _ = timeout_at(deadline, self.refresh()).await;
        if self.view().generation() == generation {
            let _ = timeout_at(until, changed.changed()).await;
        }
    }

    fn set_problem(&self, problem: Option<String>) {
        ForwardMetrics::of_process().problem.set(f64::from(u8::from(problem.is_some())));
        let mut known = lock(&self.problem);
        if let Some(problem) = &problem
            && known.is_none()
        {
            tracing::warn!(problem, "the slots of the cluster cannot be assigned");
        }
        let since = known.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *known = problem.map(|problem| (since, problem));
    }

    fn former(&self) -> BTreeSet<u64> {
        self.table.former()
    }
}

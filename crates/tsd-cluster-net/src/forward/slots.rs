//! The slots of this node: which writes it takes by the present assignment, and the keeper that changes it.
//!
//! Each write on this node keeps a [`SlotView`] until its end. A release of slots publishes a view without them,
//! then waits until no older view is in use. From then on this node writes no cell of these slots.

mod keeper;
mod planned_for;

use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use tsd_cluster::{
    Assignment, Membership, MembershipFuture, ProofError, Slot, SlotHolder, SlotRoute, SlotSet,
    SlotTable,
};
use tsd_storage::{BoxFuture, StorageError};

pub use self::keeper::DrainError;
use self::planned_for::PlannedFor;
use super::{metrics::ForwardMetrics, route_table::RouteTable, slot_loads::SlotLoads};
use crate::{node_report::HotSlot, read_slots::ReadSlots};

/// Minimum time between two reads of the assignment on behalf of writes.
const READ_PAUSE: Duration = Duration::from_millis(20);
/// Time after which a problem of the assignment shows in the node's health.
const LASTING: Duration = Duration::from_secs(5);
/// Pause before a write looks for an owner again.
const WAIT_PAUSE: Duration = Duration::from_millis(50);

/// The log of this node, for the moves of slots.
pub trait SlotLog: std::fmt::Debug + Send + Sync + 'static {
    /// Flushes all rows that were acknowledged before the call.
    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>>;

    /// Returns a time that is not before any commit until now, epoch milliseconds.
    fn last_commit_ms(&self) -> i64;
}

/// The slots of this node.
#[derive(Debug)]
pub struct ClusterSlots {
    this: u64,
    table: Arc<dyn SlotTable>,
    membership: Arc<dyn Membership>,
    log: Arc<dyn SlotLog>,
    holder: Mutex<SlotHolder>,
    view: RwLock<Arc<SlotView>>,
    /// Replaced views that may be in use.
    older: Mutex<Vec<Weak<SlotView>>>,
    /// Notified when a view is no longer in use.
    view_ended: Arc<Notify>,
    /// Counts the views.
    changed: watch::Sender<u64>,
    /// Start of the last successful read of the assignment. Locked during a read.
    read: tokio::sync::Mutex<Option<Instant>>,
    /// Locked during a change of the assignment.
    changing: tokio::sync::Mutex<()>,
    /// Locked during a release.
    releasing: Arc<tokio::sync::Mutex<()>>,
    drain_state: watch::Sender<DrainState>,
    /// Since when and why the assignment cannot be read or changed.
    problem: Mutex<Option<(Instant, String)>>,
    keeper: Mutex<Option<AbortOnDropHandle<()>>>,
    loads: SlotLoads,
    /// What the last plan without a change has seen.
    settled: Mutex<Option<PlannedFor>>,
}

/// The writes that the node takes by one assignment.
#[derive(Debug)]
pub(super) struct SlotView {
    holder: SlotHolder,
    is_sole: bool,
    routes: RouteTable,
    /// How many times the node has got slots.
    gains: u64,
    ended: Arc<Notify>,
}

/// Whether a node gives its slots away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainState {
    /// The node takes its share.
    Off,
    /// The node gives all slots away, or has given them away.
    Draining,
    /// As `Draining`, and the node stops afterwards.
    Stopping,
}

/// Numbers of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Generation of the assignment.
    pub generation: u64,
    /// Slots whose writes this node takes.
    pub owned: usize,
    /// Slots of all nodes that have to be given to another node.
    pub moving: usize,
}

impl SlotView {
    fn new(holder: SlotHolder, gains: u64, ended: Arc<Notify>) -> Self {
        let is_sole = holder.taken().is_full();
        let routes = RouteTable::new(&holder);
        Self { holder, is_sole, routes, gains, ended }
    }

    /// Returns the view that replaces this one.
    fn next(&self, holder: SlotHolder) -> Self {
        let has_gained = !holder.taken().without(self.holder.taken()).is_empty();
        let gains = self.gains + u64::from(has_gained);
        Self::new(holder, gains, Arc::clone(&self.ended))
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

    /// How many times the node has got slots. While this is unchanged, the node has had each slot that it owns now.
    pub(super) const fn gains(&self) -> u64 {
        self.gains
    }

    /// True if a node gives all its slots away.
    fn is_leaving(&self, incarnation: u64) -> bool {
        self.holder.adopted().leaving.contains(&incarnation)
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

impl ReadSlots for ClusterSlots {
    fn assignment(&self) -> Arc<Assignment> {
        Self::assignment(self)
    }

    fn refresh(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        Box::pin(Self::refresh(self))
    }

    fn changed(&self, generation: u64) -> MembershipFuture<'_, ()> {
        let mut changed = self.changed.subscribe();
        Box::pin(async move {
            while self.view().generation() <= generation {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    fn owned(&self) -> SlotSet {
        self.holder.lock().owned()
    }
}

impl ClusterSlots {
    fn new(
        table: Arc<dyn SlotTable>,
        membership: Arc<dyn Membership>,
        log: Arc<dyn SlotLog>,
    ) -> Self {
        let this = membership.this();
        let (holder, view_ended) = (SlotHolder::new(this), Arc::<Notify>::default());
        let view = SlotView::new(holder.clone(), 0, Arc::clone(&view_ended));
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
            loads: SlotLoads::new(),
            settled: Mutex::default(),
        }
    }

    /// Stops the keeper. The node keeps its slots until its log has ended.
    pub fn stop(&self) {
        drop(self.keeper.lock().take());
    }

    /// Returns the numbers of slots.
    #[must_use]
    pub fn counts(&self) -> SlotCounts {
        let holder = self.holder.lock();
        SlotCounts {
            generation: holder.adopted().generation,
            owned: holder.taken().len(),
            moving: holder.adopted().moving_count(),
        }
    }

    /// Returns the assignment that this node has adopted.
    #[must_use]
    pub fn assignment(&self) -> Arc<Assignment> {
        Arc::clone(self.holder.lock().adopted())
    }

    /// Returns the slots of this node that had many more points than others in the last minute. A node that owns all
    /// slots does not count.
    #[must_use]
    pub fn hot_slots(&self) -> Vec<HotSlot> {
        self.loads.hot()
    }

    pub(super) const fn loads(&self) -> &SlotLoads {
        &self.loads
    }

    /// True from the start of a drain on, unless the drain fails.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.drain_state.borrow() != DrainState::Off
    }

    /// Returns why the assignment cannot be read or changed now.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().as_ref().map(|(_, text)| text.clone())
    }

    /// Returns why some slots have had no owner for a while.
    pub(super) fn unsettled(&self) -> Option<String> {
        let (since, problem) = self.problem.lock().clone()?;
        let is_lasting = since.elapsed() >= LASTING && !self.view().routes.is_settled();
        is_lasting.then(|| format!("slots of the cluster have no owner: {problem}"))
    }

    /// Returns the other node that owns a slot, unless it leaves; `None` for an own slot, and while the owner is
    /// unknown.
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

    /// Returns the present view. A write on this node keeps it until its end.
    pub(super) fn view(&self) -> Arc<SlotView> {
        Arc::clone(&self.view.read())
    }

    /// Makes the state of the holder visible to writes.
    fn publish(&self, holder: &SlotHolder) {
        // The lock of the holder orders the views.
        let new = Arc::new(self.view().next(holder.clone()));
        let old = {
            let mut view = self.view.write();
            std::mem::replace(&mut *view, new)
        };
        let mut older = self.older.lock();
        older.retain(|view| view.strong_count() > 0);
        older.push(Arc::downgrade(&old));
        drop(older);
        // If no write uses the old view, it ends here.
        drop(old);
        self.changed.send_modify(|count| *count += 1);
        let metrics = ForwardMetrics::of_process();
        metrics.owned.set(holder.taken().len() as f64);
        metrics.moving.set(holder.adopted().moving_count() as f64);
    }

    /// Waits until no write uses a replaced view.
    async fn older_views_ended(&self) {
        loop {
            let ended = self.view_ended.notified();
            {
                let mut older = self.older.lock();
                older.retain(|view| view.strong_count() > 0);
                if older.is_empty() {
                    return;
                }
            }
            ended.await;
        }
    }

    /// Adopts an assignment if it is newer.
    pub(crate) fn adopt(&self, assignment: Arc<Assignment>) {
        if assignment.generation <= self.holder.lock().adopted().generation {
            return;
        }
        if assignment.floor_ms > i64::MIN {
            // Must come before the first write of a slot that another node had.
            self.table.raise_commit_time(assignment.floor_ms);
        }
        let mut holder = self.holder.lock();
        if holder.adopt(assignment) {
            self.publish(&holder);
        }
    }

    /// Reads and adopts the assignment.
    async fn read_now(&self) -> Result<Option<Arc<Assignment>>, ProofError> {
        let found = self.table.assignment(self.assignment()).await?;
        if let Some(found) = &found {
            self.adopt(Arc::clone(found));
        }
        Ok(found)
    }

    /// Reads and adopts the assignment. Callers that ask during a read, or just after it, share it.
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

    /// Waits for a later generation, but at most a short time.
    pub(super) async fn await_change(&self, generation: u64, deadline: Instant) {
        let mut changed = self.changed.subscribe();
        let until = deadline.min(Instant::now() + WAIT_PAUSE);
        // A failure comes from HBase; the caller's deadline bounds it.
        let _ = timeout_at(deadline, self.refresh()).await;
        if self.view().generation() == generation {
            let _ = timeout_at(until, changed.changed()).await;
        }
    }

    fn set_problem(&self, problem: Option<String>) {
        ForwardMetrics::of_process().problem.set(f64::from(u8::from(problem.is_some())));
        let mut known = self.problem.lock();
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

//! Keeps the assignment: proposes changes, gives slots away, takes the slots of former runs.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tsd_cluster::{Assignment, Member, Membership, ProofError, SlotPlan, SlotTable};
use tsd_storage::StorageError;

use super::{ClusterSlots, DrainState, SlotLog, planned_for::PlannedFor};
use crate::forward::metrics::ForwardMetrics;

/// Time between two looks at the assignment.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Pause before a change without a response is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Maximum time in which a release blocks writes of its slots while their rows are flushed.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// Pause after a release whose flush has failed.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// Why the rows of a node that gives its slots away are not flushed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// Another node has fenced this one. The text is the reason.
    #[error("{0}")]
    Fenced(String),
    /// The store has rejected the flush.
    #[error(transparent)]
    Flush(#[from] StorageError),
    /// The time limit passed during the flush.
    #[error("the rows are not flushed in time")]
    Late,
}

/// A drain, which is taken back if it fails.
struct DrainAttempt<'a> {
    slots: &'a ClusterSlots,
    /// True if the end of the attempt leaves the drain state unchanged.
    keeps_state: bool,
}

impl<'a> DrainAttempt<'a> {
    fn begin(slots: &'a ClusterSlots) -> Self {
        let has_begun = change_state(slots, DrainState::Off, DrainState::Draining);
        // A second attempt does not take back the first one.
        Self { slots, keeps_state: !has_begun }
    }
}

impl Drop for DrainAttempt<'_> {
    fn drop(&mut self) {
        if !self.keeps_state {
            change_state(self.slots, DrainState::Draining, DrainState::Off);
        }
    }
}

/// Returns false and changes nothing if the present state is not `from`.
fn change_state(slots: &ClusterSlots, from: DrainState, to: DrainState) -> bool {
    slots.drain_state.send_if_modified(|state| {
        let is_found = *state == from;
        if is_found {
            *state = to;
        }
        is_found
    })
}

/// Runs until the slots are dropped.
async fn keep(slots: Weak<ClusterSlots>) {
    loop {
        let Some(slots_now) = slots.upgrade() else { return };
        let settled = slots_now.settle().await;
        slots_now.set_problem(settled.err().map(|error| error.to_string()));
        slots_now.begin_release();
        slots_now.loads.end_period();
        let mut draining = slots_now.drain_state.subscribe();
        drop(slots_now);
        let state = *draining.borrow_and_update();
        if state == DrainState::Off {
            let _ = timeout(LOOK_INTERVAL, draining.changed()).await;
        } else {
            sleep(LOOK_INTERVAL).await;
        }
    }
}

impl ClusterSlots {
    /// Starts the slots of a node that has just joined. `log` has its own rows and the rows of its former
    /// incarnations. The keeper runs until this value is dropped, or until [`Self::stop`].
    #[must_use]
    pub fn start(
        table: Arc<dyn SlotTable>,
        membership: Arc<dyn Membership>,
        log: Arc<dyn SlotLog>,
    ) -> Arc<Self> {
        let slots = Arc::new(Self::new(table, membership, log));
        let keeper = tokio::spawn(keep(Arc::downgrade(&slots)));
        *slots.keeper.lock() = Some(AbortOnDropHandle::new(keeper));
        slots
    }

    /// Reads the assignment if it has changed, or seems to have to change, and makes the changes that this node has to
    /// make.
    async fn settle(&self) -> Result<(), ProofError> {
        let _changing = self.changing.lock().await;
        let adopted = self.assignment();
        let newest = self.table.revision();
        let is_newest = newest.is_some_and(|newest| newest.number <= adopted.generation);
        let current = if is_newest { Some(adopted) } else { self.read_now().await? };
        let current = current.as_deref();
        let seen = self.seen(current);
        if self.settled.lock().as_ref() == Some(&seen) {
            return Ok(());
        }
        if self.planned(current, seen.members()).is_none() {
            *self.settled.lock() = Some(seen);
            return Ok(());
        }
        let current = self.read_now().await?;
        let current = current.as_deref();
        // This look began after the assignment was read: an owner that it does not list has left.
        let members = self.membership.current().await?;
        match self.planned(current, &members) {
            Some(next) => self.swap(current, next).await,
            None => Ok(()),
        }
    }

    fn seen(&self, current: Option<&Assignment>) -> PlannedFor {
        PlannedFor::new(
            current.map(Assignment::revision).unwrap_or_default(),
            self.membership.members(),
            self.former(),
            self.is_draining(),
        )
    }

    fn planned(&self, current: Option<&Assignment>, members: &[Member]) -> Option<Assignment> {
        let (former, empty) = (self.former(), Assignment::default());
        let plan = SlotPlan {
            this: self.this,
            members,
            former: &former,
            last_commit_ms: self.table.last_commit_ms(),
        };
        let current = current.unwrap_or(&empty);
        plan.take_over(current)
            .or_else(|| if self.is_draining() { plan.leave(current) } else { plan.stay(current) })
            .or_else(|| if plan.is_coordinator() { plan.propose(current) } else { None })
    }

    /// Replaces an assignment and adopts the new one. If another node was first, or HBase does not respond, the next
    /// look decides.
    async fn swap(&self, current: Option<&Assignment>, next: Assignment) -> Result<(), ProofError> {
        let expected = current.map(Assignment::revision);
        if self.table.swap_assignment(expected, &next).await? {
            tracing::info!(
                generation = next.generation,
                owners = next.owners().len(),
                moving = next.moving_count(),
                "assigned the slots"
            );
            self.adopt(Arc::new(next));
        }
        Ok(())
    }

    /// Begins a release if slots have to be given away and no release is in progress.
    fn begin_release(self: &Arc<Self>) {
        if !self.holder.lock().wants_release() {
            return;
        }
        let Ok(release_lock) = Arc::clone(&self.releasing).try_lock_owned() else { return };
        let slots = Arc::clone(self);
        tokio::spawn(async move {
            let _release_lock = release_lock;
            if let Err(error) = slots.release().await {
                let error = error.to_string();
                tracing::warn!(error, retry_in = ?FAILED_PAUSE, "slots cannot be given away");
                sleep(FAILED_PAUSE).await;
            }
        });
    }

    /// Gives away the slots that have to be moved.
    async fn release(&self) -> Result<(), StorageError> {
        // Flushes most rows while the node still takes writes of the slots, so that the second flush is short.
        self.log.flush().await?;
        let begun = Instant::now();
        let count = {
            let mut holder = self.holder.lock();
            let count = holder.begin_release().len();
            self.publish(&holder);
            count
        };
        let flushing = async {
            self.older_views_ended().await;
            self.log.flush().await?;
            let trimmed = self.table.trim().await;
            trimmed.map_err(|error| StorageError::Unavailable(error.to_string().into()))
        };
        let late = Err(StorageError::Timeout("not all rows are flushed"));
        if let Err(error) = timeout(RELEASE_LIMIT, flushing).await.unwrap_or(late) {
            let mut holder = self.holder.lock();
            holder.cancel_release();
            self.publish(&holder);
            return Err(error);
        }
        let last_commit_ms = self.log.last_commit_ms();
        let given = self.hand_over(last_commit_ms).await;
        ForwardMetrics::of_process().moves.increment(given as u64);
        tracing::info!(slots = count, given, took = ?begun.elapsed(), "gave slots away");
        Ok(())
    }

    /// Puts the assignment in which other nodes own the slots. Retries until the change is made or this node is
    /// fenced, because a request without a response may be executed late. Returns the number of slots given away.
    async fn hand_over(&self, last_commit_ms: i64) -> usize {
        let mut given = 0;
        loop {
            let changing = self.changing.lock().await;
            let offer = {
                let mut holder = self.holder.lock();
                let offer = holder.offer(last_commit_ms);
                let current = Arc::clone(holder.adopted());
                self.publish(&holder);
                offer.map(|offer| (current, offer))
            };
            let Some((current, offer)) = offer else { return given };
            let count = current.slots_of(self.this).len();
            let swapped = match self.table.swap_assignment(Some(current.revision()), &offer).await {
                Ok(true) => {
                    self.adopt(Arc::new(offer));
                    true
                }
                // Another change came first, or the response was lost.
                Ok(false) => self.read_now().await.is_ok(),
                Err(ProofError::Fenced(_)) => return given,
                Err(_) => false,
            };
            let left = self.holder.lock().adopted().slots_of(self.this).len();
            given += count.saturating_sub(left);
            drop(changing);
            if !swapped {
                let _ = self.read_now().await;
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Gives all slots away, and flushes all rows. Afterwards the node forwards all writes. Returns false if no
    /// other node takes the slots in time. In that case, after an error, and if the call is dropped, the node keeps
    /// the remaining slots, and gets its share again.
    ///
    /// # Errors
    ///
    /// If the rows cannot be flushed.
    pub async fn drain(&self, limit: Duration) -> Result<bool, DrainError> {
        let mut attempt = DrainAttempt::begin(self);
        let drained = self.give_all(limit).await;
        attempt.keeps_state |= matches!(drained, Ok(true));
        drained
    }

    /// As [`Self::drain`], before the node stops: it takes no slots again, whatever the result is.
    ///
    /// # Errors
    ///
    /// If the rows cannot be flushed.
    pub async fn drain_to_stop(&self, limit: Duration) -> Result<bool, DrainError> {
        self.drain_state.send_replace(DrainState::Stopping);
        self.give_all(limit).await
    }

    async fn give_all(&self, limit: Duration) -> Result<bool, DrainError> {
        let deadline = Instant::now() + limit;
        if let Err(ProofError::Fenced(reason)) = self.refresh().await {
            return Err(DrainError::Fenced(reason));
        }
        let mut changed = self.changed.subscribe();
        let is_given = async {
            loop {
                let is_empty = {
                    let holder = self.holder.lock();
                    let adopted = holder.adopted();
                    holder.taken().is_empty() && adopted.slots_of(self.this).is_empty()
                        || adopted.leaving.contains(&self.this)
                            && adopted.moving_from(self.this).is_empty()
                };
                if is_empty || changed.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout_at(deadline, is_given).await;
        let flushed = timeout_at(deadline, self.log.flush()).await;
        match flushed {
            Ok(Ok(())) => Ok(self.holder.lock().adopted().slots_of(self.this).is_empty()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(DrainError::Late),
        }
    }
}

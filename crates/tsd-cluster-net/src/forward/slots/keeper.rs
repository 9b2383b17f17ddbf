//! Keeps the assignment: proposes changes, gives slots away, takes those of former runs.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tsd_cluster::{Assignment, Member, ProofError, SlotPlan};
use tsd_storage::StorageError;

use super::{ClusterSlots, DrainState, lock};
use crate::forward::metrics::ForwardMetrics;

/// Time between two looks at the assignment.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Pause before a change that had no answer is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long the slots of a release are not written while their rows are flushed.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// Pause after a release whose flush has failed.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// A drain. One that ends in vain is taken back.
struct DrainAttempt<'a> {
    slots: &'a ClusterSlots,
    /// The node goes on as it is when the attempt ends.
    keeps_state: bool,
}

impl<'a> DrainAttempt<'a> {
    fn begin(slots: &'a ClusterSlots) -> Self {
        let has_begun = change_state(slots, DrainState::Off, DrainState::Draining);
        // A second attempt does not take back what the first one has done, or does.
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

/// Returns false if the state was another one, which stays.
fn change_state(slots: &ClusterSlots, from: DrainState, to: DrainState) -> bool {
    slots.drain_state.send_if_modified(|state| {
        let is_found = *state == from;
        if is_found {
            *state = to;
        }
        is_found
    })
}

/// Runs until the end of the slots.
pub(super) async fn keep(slots: Weak<ClusterSlots>) {
    loop {
        let Some(slots_now) = slots.upgrade() else { return };
        let settled = slots_now.settle().await;
        slots_now.set_problem(settled.err().map(|error| error.to_string()));
        slots_now.begin_release();
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
    /// Reads the assignment, and makes the changes that are this node's to make.
    async fn settle(&self) -> Result<(), ProofError> {
        let _changing = self.changing.lock().await;
        let current = self.read_now().await?;
        if self.planned(current.as_ref(), &self.membership.members()).is_none() {
            return Ok(());
        }
        // By a look that began after the assignment was read: an owner that it does not list has left.
        let members = self.membership.current().await?;
        match self.planned(current.as_ref(), &members) {
            Some(next) => self.swap(current.as_ref(), next).await,
            None => Ok(()),
        }
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

    /// Puts an assignment in place of another one, and goes by it. If another node was first, or there is no
    /// answer, the next look decides.
    async fn swap(&self, current: Option<&Assignment>, next: Assignment) -> Result<(), ProofError> {
        if self.table.swap_assignment(current, &next).await? {
            tracing::info!(
                generation = next.generation,
                owners = next.owners().len(),
                moving = next.moving_count(),
                "assigned the slots"
            );
            self.adopt(next);
        }
        Ok(())
    }

    /// Begins to give slots away, if some are to be and none are now.
    fn begin_release(self: &Arc<Self>) {
        if !lock(&self.holder).wants_release() {
            return;
        }
        let Ok(turn) = Arc::clone(&self.releasing).try_lock_owned() else { return };
        let slots = Arc::clone(self);
        tokio::spawn(async move {
            let _turn = turn;
            if let Err(error) = slots.release().await {
                tracing::warn!(error, retry_in = ?FAILED_PAUSE, "slots cannot be given away");
                sleep(FAILED_PAUSE).await;
            }
        });
    }

    /// Gives away the slots that are to be moved.
    async fn release(&self) -> Result<(), String> {
        // Most rows while the slots are still taken, so that the second flush is short.
        self.log.flush().await.map_err(|error| error.to_string())?;
        let begun = Instant::now();
        let count = {
            let mut holder = lock(&self.holder);
            let count = holder.begin_release().len();
            self.publish(&holder);
            count
        };
        let flushing = async {
            self.older_views_ended().await;
            self.log.flush().await
        };
        let late = Err(StorageError::Timeout("not all rows are flushed"));
        if let Err(error) = timeout(RELEASE_LIMIT, flushing).await.unwrap_or(late) {
            let mut holder = lock(&self.holder);
            holder.cancel_release();
            self.publish(&holder);
            return Err(error.to_string());
        }
        let last_commit_ms = self.log.last_commit_ms();
        let given = self.hand_over(last_commit_ms).await;
        let metrics = ForwardMetrics::of_process();
        metrics.release_seconds.record(begun.elapsed());
        metrics.moves.increment(given as u64);
        tracing::info!(slots = count, given, took = ?begun.elapsed(), "gave slots away");
        Ok(())
    }

    /// Puts the assignment in which others own the slots. It goes on until that is made, or this node is fenced:
    /// a request without an answer may be executed late. Returns the number of slots.
    async fn hand_over(&self, last_commit_ms: i64) -> usize {
        let mut given = 0;
        loop {
            let changing = self.changing.lock().await;
            let offer = {
                let mut holder = lock(&self.holder);
                let offer = holder.offer(last_commit_ms);
                let current = Arc::clone(holder.adopted());
                self.publish(&holder);
                offer.map(|offer| (current, offer))
            };
            let Some((current, offer)) = offer else { return given };
            let count = current.slots_of(self.this).len();
            let swapped = match self.table.swap_assignment(Some(&*current), &offer).await {
                Ok(true) => {
                    self.adopt(offer);
                    true
                }
                // Another change was first, or there is no answer.
                Ok(false) => self.read_now().await.is_ok(),
                Err(ProofError::Fenced(_)) => return given,
                Err(_) => false,
            };
            let left = lock(&self.holder).adopted().slots_of(self.this).len();
            given += count.saturating_sub(left);
            drop(changing);
            if !swapped {
                let _ = self.read_now().await;
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Gives all slots away, and flushes all rows. The node forwards all writes afterwards. Returns false if there
    /// is no other node that takes the slots, or not in time. Then, after an error, and if the call is dropped, the
    /// node keeps those that are left, and gets its share again.
    ///
    /// # Errors
    ///
    /// If the rows are not flushed.
    pub async fn drain(&self, limit: Duration) -> Result<bool, String> {
        let mut attempt = DrainAttempt::begin(self);
        let drained = self.give_all(limit).await;
        attempt.keeps_state |= drained == Ok(true);
        drained
    }

    /// As [`Self::drain`], before the node stops: whatever the end is, it takes no slots again.
    ///
    /// # Errors
    ///
    /// If the rows are not flushed.
    pub async fn drain_to_stop(&self, limit: Duration) -> Result<bool, String> {
        self.drain_state.send_replace(DrainState::Stopping);
        self.give_all(limit).await
    }

    async fn give_all(&self, limit: Duration) -> Result<bool, String> {
        let deadline = Instant::now() + limit;
        if let Err(ProofError::Fenced(reason)) = self.refresh().await {
            return Err(reason);
        }
        let mut changed = self.changed.subscribe();
        let is_given = async {
            loop {
                let is_empty = {
                    let holder = lock(&self.holder);
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
            Ok(Ok(())) => Ok(lock(&self.holder).adopted().slots_of(self.this).is_empty()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the rows are not flushed in time".to_owned()),
        }
    }
}

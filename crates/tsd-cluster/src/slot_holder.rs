//! The slots of one node: routes writes, and gives slots away.
//!
//! Only the owner moves a slot, in these steps:
//!
//! 1. [`SlotHolder::begin_release`]: the node takes no more writes of the slots. Writes in progress end.
//! 2. It flushes its held rows.
//! 3. [`SlotHolder::offer`] returns the assignment in which the next owners have the slots, with the node's last
//!    commit time as floor. The node puts it by compare-and-set. If the answer is lost, the node reads the
//!    assignment again.
//! 4. [`SlotHolder::adopt`]: the next owner reads that assignment, raises its commit time above the floor, and
//!    takes writes.
//!
//! After an offer, the node takes writes of the slots again only when it has seen a later assignment: HBase may
//! execute the offer late.

use std::sync::Arc;

use crate::{
    assignment::{Assignment, SlotOwner},
    slot::{Slot, SlotSet},
};

/// Where a write of a slot goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotRoute {
    /// Into the log of this node.
    Own,
    /// To the node with this incarnation.
    Peer(u64),
    /// No node takes the write now: the slot is being moved, or is not assigned yet.
    Unsettled,
}

/// The slots of one node.
#[derive(Clone, Debug)]
pub struct SlotHolder {
    this: u64,
    adopted: Arc<Assignment>,
    /// The slots whose writes this node takes.
    taken: SlotSet,
    release: Option<SlotRelease>,
}

#[derive(Clone, Debug)]
struct SlotRelease {
    slots: SlotSet,
    /// Generation of the assignment that the last offer replaces.
    offered: Option<u64>,
}

impl SlotHolder {
    /// Returns a node that owns no slot yet.
    #[must_use]
    pub fn new(this: u64) -> Self {
        Self { this, adopted: Arc::default(), taken: SlotSet::empty(), release: None }
    }

    /// The adopted assignment; generation 0 before the first one.
    #[must_use]
    pub const fn adopted(&self) -> &Arc<Assignment> {
        &self.adopted
    }

    /// The slots whose writes this node takes.
    #[must_use]
    pub const fn taken(&self) -> &SlotSet {
        &self.taken
    }

    /// Adopts an assignment if it is newer. The commit times of the node must be above its floor before the
    /// call. Returns true if it was newer.
    pub fn adopt(&mut self, assignment: Arc<Assignment>) -> bool {
        if assignment.generation <= self.adopted.generation {
            return false;
        }
        self.adopted = assignment;
        let owned = self.adopted.slots_of(self.this);
        if let Some(release) = &mut self.release {
            release.slots = release.slots.intersection(&owned);
        }
        self.take(owned);
        true
    }

    fn take(&mut self, owned: SlotSet) {
        if self.release.as_ref().is_some_and(|release| release.slots.is_empty()) {
            self.release = None;
        }
        self.taken = match &self.release {
            Some(release) => owned.without(&release.slots),
            None => owned,
        };
    }

    /// The slots whose cells no other node writes: this node owns them, and has not offered them to another node. A
    /// fenced node does not know that it owns nothing.
    #[must_use]
    pub fn owned(&self) -> SlotSet {
        let mut owned = self.taken.clone();
        if let Some(release) = &self.release
            // The offer of another generation is void.
            && release.offered != Some(self.adopted.generation)
        {
            release.slots.iter().for_each(|slot| owned.insert(slot));
        }
        owned
    }

    /// Where a write of a slot goes.
    #[must_use]
    pub fn route(&self, slot: Slot) -> SlotRoute {
        if self.taken.contains(slot) {
            return SlotRoute::Own;
        }
        match self.adopted.slot(slot).owner {
            Some(owner) if owner != self.this => SlotRoute::Peer(owner),
            _ => SlotRoute::Unsettled,
        }
    }

    /// True if slots have to be given away, and no release is in progress.
    #[must_use]
    pub fn wants_release(&self) -> bool {
        self.release.is_none() && !self.adopted.moving_from(self.this).is_empty()
    }

    /// Stops taking writes of the slots that have to be given away. Returns these slots.
    pub fn begin_release(&mut self) -> SlotSet {
        let slots = self.adopted.moving_from(self.this);
        self.release = Some(SlotRelease { slots: slots.clone(), offered: None });
        self.take(self.adopted.slots_of(self.this));
        slots
    }

    /// Cancels a release whose flush has failed, and takes writes again. Returns false if that is impossible,
    /// because an offer may still be executed.
    pub fn cancel_release(&mut self) -> bool {
        let is_offered = |of: &SlotRelease| of.offered == Some(self.adopted.generation);
        if self.release.as_ref().is_some_and(is_offered) {
            return false;
        }
        self.release = None;
        self.take(self.adopted.slots_of(self.this));
        true
    }

    /// Returns the assignment that gives the slots away, which replaces the adopted one; `None` after the end of
    /// the release. `last_commit_ms` is the node's last commit time after the last write of these slots.
    pub fn offer(&mut self, last_commit_ms: i64) -> Option<Assignment> {
        let release = self.release.as_mut()?;
        let generation = self.adopted.generation;
        let mut next = self.adopted.next_generation(self.this, last_commit_ms);
        let mut given = SlotSet::empty();
        for slot in release.slots.iter() {
            if let SlotOwner { next: Some(to), .. } = self.adopted.slot(slot) {
                next.set(slot, SlotOwner { owner: Some(to), next: None });
                given.insert(slot);
            }
        }
        // The target of the other slots is dead. Their offer was made in another generation, so it is void.
        let is_given = !given.is_empty();
        release.slots = given;
        if is_given {
            release.offered = Some(generation);
        }
        self.take(self.adopted.slots_of(self.this));
        is_given.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn slot(number: usize) -> Slot {
        Slot::try_new(number).unwrap()
    }

    /// Node 1 owns slots 0 and 1 and has to give the slots of `moving` to node 2, which owns all other slots.
    fn assignment(generation: u64, moving: &[usize]) -> Arc<Assignment> {
        let mut of = Assignment::default();
        of.generation = generation;
        for slot in Slot::all() {
            of.set(slot, SlotOwner { owner: Some(2), next: None });
        }
        for number in 0..2 {
            let next = moving.contains(&number).then_some(2);
            of.set(slot(number), SlotOwner { owner: Some(1), next });
        }
        Arc::new(of)
    }

    fn routes(of: &SlotHolder) -> [SlotRoute; 3] {
        [0, 1, 2].map(|number| of.route(slot(number)))
    }

    fn owned(of: &SlotHolder) -> [bool; 3] {
        [0, 1, 2].map(|number| of.owned().contains(slot(number)))
    }

    const OWN: SlotRoute = SlotRoute::Own;
    const PEER: SlotRoute = SlotRoute::Peer(2);
    const UNSETTLED: SlotRoute = SlotRoute::Unsettled;

    #[test]
    fn a_slot_is_released_in_steps() {
        let mut holder = SlotHolder::new(1);
        assert_eq!(routes(&holder), [UNSETTLED; 3]);
        assert!(holder.adopt(assignment(3, &[])) && !holder.adopt(assignment(3, &[0])));
        assert_eq!((routes(&holder), holder.wants_release()), ([OWN, OWN, PEER], false));
        assert!(holder.adopt(assignment(4, &[0])) && holder.wants_release());
        assert_eq!(holder.begin_release().len(), 1);
        assert_eq!((routes(&holder), holder.wants_release()), ([UNSETTLED, OWN, PEER], false));
        assert_eq!(owned(&holder), [true, true, false], "it is not offered yet");
        let offer = holder.offer(77).unwrap();
        assert_eq!(owned(&holder), [false, true, false], "the other node may own it now");
        assert_eq!((offer.generation, offer.floor_ms), (5, 77));
        assert_eq!(offer.slot(slot(0)), SlotOwner { owner: Some(2), next: None });
        assert!(!holder.cancel_release(), "the offer may be executed late");
        assert!(holder.adopt(Arc::new(offer)));
        assert_eq!((routes(&holder), holder.offer(77)), ([PEER, OWN, PEER], None));
    }

    #[test]
    fn a_release_whose_flush_fails_is_given_up() {
        let mut holder = SlotHolder::new(1);
        holder.adopt(assignment(1, &[0, 1]));
        holder.begin_release();
        assert!(holder.cancel_release());
        assert_eq!((routes(&holder), holder.wants_release()), ([OWN, OWN, PEER], true));
    }

    #[test]
    fn a_slot_whose_target_is_gone_is_taken_again_in_a_later_generation() {
        let mut holder = SlotHolder::new(1);
        holder.adopt(assignment(1, &[0, 1]));
        holder.begin_release();
        assert!(holder.offer(5).is_some());
        // Another change came first: the offer can no longer be executed.
        holder.adopt(assignment(2, &[1]));
        assert_eq!(routes(&holder), [UNSETTLED, UNSETTLED, PEER]);
        assert_eq!(owned(&holder), [true, true, false]);
        let offer = holder.offer(6).unwrap();
        assert_eq!(offer.slot(slot(0)), SlotOwner { owner: Some(1), next: None });
        assert_eq!(routes(&holder), [OWN, UNSETTLED, PEER]);
        holder.adopt(assignment(4, &[]));
        assert_eq!((holder.offer(6), routes(&holder)), (None, [OWN, OWN, PEER]));
    }
}

//! The slots of one node: what it takes, where it forwards, and how it gives slots away.
//!
//! A move, step by step; only the owner makes it:
//!
//! 1. [`SlotHolder::begin_release`]: the node takes no more writes of the slots. Those in progress end.
//! 2. It flushes what it holds.
//! 3. [`SlotHolder::offer`] is the assignment in which the next owners have the slots, with the node's last commit
//!    time as floor. It is put by compare-and-set. If the answer is lost the node reads the assignment again.
//! 4. [`SlotHolder::adopt`]: the next owner reads that, raises its commit time above the floor, and takes writes.
//!
//! Once an offer was made the node does not take the slots again before it has seen a later assignment: the
//! request may be executed late.

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
    /// To the node of this incarnation.
    Peer(u64),
    /// Nobody takes it now: it is being moved, or not assigned yet.
    Unsettled,
}

/// The slots of one node.
#[derive(Clone, Debug)]
pub struct SlotHolder {
    this: u64,
    adopted: Arc<Assignment>,
    /// The slots that writes are taken of.
    taken: SlotSet,
    release: Option<SlotRelease>,
}

#[derive(Clone, Copy, Debug)]
struct SlotRelease {
    slots: SlotSet,
    /// Generation of the assignment that the last offer replaces.
    offered: Option<u64>,
}

impl SlotHolder {
    /// A node that owns nothing yet.
    #[must_use]
    pub fn new(this: u64) -> Self {
        Self { this, adopted: Arc::default(), taken: SlotSet::EMPTY, release: None }
    }

    /// The assignment that it goes by; of generation 0 before the first one.
    #[must_use]
    pub const fn adopted(&self) -> &Arc<Assignment> {
        &self.adopted
    }

    /// The slots that writes are taken of.
    #[must_use]
    pub const fn taken(&self) -> &SlotSet {
        &self.taken
    }

    /// Goes by an assignment from now on, if it is newer. The commit times of the node must be later than its
    /// floor before. Returns true if it was newer.
    pub fn adopt(&mut self, assignment: Arc<Assignment>) -> bool {
        if assignment.generation <= self.adopted.generation {
            return false;
        }
        self.adopted = assignment;
        let owned = self.adopted.slots_of(self.this);
        if let Some(release) = &mut self.release {
            release.slots = release.slots.without(&SlotSet::FULL.without(&owned));
        }
        self.take(owned);
        true
    }

    fn take(&mut self, owned: SlotSet) {
        if self.release.is_some_and(|release| release.slots.is_empty()) {
            self.release = None;
        }
        self.taken = match &self.release {
            Some(release) => owned.without(&release.slots),
            None => owned,
        };
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

    /// True if slots are to be given away, and none are now.
    #[must_use]
    pub fn wants_release(&self) -> bool {
        self.release.is_none() && !self.adopted.moving_from(self.this).is_empty()
    }

    /// Takes no more writes of the slots that are to be given away.
    pub fn begin_release(&mut self) -> SlotSet {
        let slots = self.adopted.moving_from(self.this);
        self.release = Some(SlotRelease { slots, offered: None });
        self.take(self.adopted.slots_of(self.this));
        slots
    }

    /// Gives up a release whose flush has failed, and takes writes again. Returns false if it cannot: an offer
    /// may still be executed.
    pub fn cancel_release(&mut self) -> bool {
        let is_offered = |of: &SlotRelease| of.offered == Some(self.adopted.generation);
        if self.release.as_ref().is_some_and(is_offered) {
            return false;
        }
        self.release = None;
        self.take(self.adopted.slots_of(self.this));
        true
    }

    /// The assignment that gives the slots away, to be put in place of the adopted one; `None` after the end of
    /// the release. `last_commit_ms` is that of this node after the last write of these slots.
    pub fn offer(&mut self, last_commit_ms: i64) -> Option<Assignment> {
        let release = self.release.as_mut()?;
        let generation = self.adopted.generation;
        let mut next = self.adopted.next_generation(last_commit_ms);
        let mut given = SlotSet::EMPTY;
        for slot in release.slots.iter() {
            if let SlotOwner { next: Some(to), .. } = self.adopted.slot(slot) {
                next.set(slot, SlotOwner { owner: Some(to), next: None });
                given.insert(slot);
            }
        }
        // The target of the others is gone. An offer of them was made in another generation, so it is void.
        release.slots = given;
        if !given.is_empty() {
            release.offered = Some(generation);
        }
        self.take(self.adopted.slots_of(self.this));
        (!given.is_empty()).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn slot(number: usize) -> Slot {
        Slot::try_new(number).unwrap()
    }

    /// Slots 0 and 1 are of node 1, which is to give the slots of `moving` to node 2; all others are of node 2.
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
        let offer = holder.offer(77).unwrap();
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
        // Another change was first: the offer cannot be executed any more.
        holder.adopt(assignment(2, &[1]));
        assert_eq!(routes(&holder), [UNSETTLED, UNSETTLED, PEER]);
        let offer = holder.offer(6).unwrap();
        assert_eq!(offer.slot(slot(0)), SlotOwner { owner: Some(1), next: None });
        assert_eq!(routes(&holder), [OWN, UNSETTLED, PEER]);
        holder.adopt(assignment(4, &[]));
        assert_eq!((holder.offer(6), routes(&holder)), (None, [OWN, OWN, PEER]));
    }
}

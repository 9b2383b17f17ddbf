//! Proposes the next assignment: which node should own which slot, and which changes lead there.
//!
//! Rendezvous hashing by the names of the nodes: each slot goes to the live node with the highest hash of name
//! and slot. So a node that joins takes only its share. When a node leaves, only its slots move. A restarted
//! node gets the same slots again.
//!
//! A proposal follows from an assignment and from a look at the members that began after the assignment was
//! read. An owner that such a look does not list has left. The proposal replaces that assignment by
//! compare-and-set.

use std::collections::BTreeSet;

use crate::{
    assignment::{Assignment, SlotOwner},
    membership::{Member, MemberState},
    slot::{SLOTS, Slot, finish, hash_bytes, mix},
};

/// Input of a proposal, in addition to the present assignment.
#[derive(Clone, Copy, Debug)]
pub struct SlotPlan<'a> {
    /// The incarnation of this node.
    pub this: u64,
    /// All members.
    pub members: &'a [Member],
    /// Former incarnations whose rows this node has in its memtables.
    pub former: &'a BTreeSet<u64>,
    /// The last commit time in all manifests.
    pub last_commit_ms: i64,
}

impl SlotPlan<'_> {
    /// Returns the next assignment; `None` if nothing has to change.
    #[must_use]
    pub fn propose(&self, current: &Assignment) -> Option<Assignment> {
        let known = KnownMembers::new(self);
        let mut next = current.next_generation(self.last_commit_ms);
        next.leaving.retain(|node| !known.is_gone(*node));
        let targets = self.targets(&next.leaving);
        for (slot, target) in Slot::all().zip(targets) {
            next.set(slot, self.next_owner(&known, current.slot(slot), target));
        }
        has_changed(current, next)
    }

    /// Returns the assignment in which this node gives all its slots away; `None` if the present one already
    /// does.
    #[must_use]
    pub fn leave(&self, current: &Assignment) -> Option<Assignment> {
        let mut next = current.next_generation(i64::MIN);
        next.leaving.insert(self.this);
        let targets = self.targets(&next.leaving);
        for (slot, target) in Slot::all().zip(targets) {
            let SlotOwner { owner, .. } = current.slot(slot);
            if owner == Some(self.this) {
                next.set(slot, SlotOwner { owner, next: target });
            }
        }
        has_changed(current, next)
    }

    /// Returns the assignment in which this node keeps its slots after a cancelled drain; `None` if it does
    /// not leave in the present one. The next proposal gives the node its share again.
    #[must_use]
    pub fn stay(&self, current: &Assignment) -> Option<Assignment> {
        if !current.leaving.contains(&self.this) {
            return None;
        }
        let mut next = current.next_generation(i64::MIN);
        next.leaving.remove(&self.this);
        for slot in current.slots_of(self.this).iter() {
            next.set(slot, SlotOwner { owner: Some(self.this), next: None });
        }
        Some(next)
    }

    /// True if this node makes the proposals, because it has the lowest incarnation of the live nodes.
    #[must_use]
    pub fn is_coordinator(&self) -> bool {
        let live = self.members.iter().filter(|member| is_live(member));
        live.map(|member| member.incarnation).min() == Some(self.this)
    }

    /// Gives this node the slots of its former incarnations. Returns `None` if they own no slot.
    #[must_use]
    pub fn take_over(&self, current: &Assignment) -> Option<Assignment> {
        let mut next = current.next_generation(self.last_commit_ms);
        for slot in Slot::all() {
            if current.slot(slot).owner.is_some_and(|owner| self.former.contains(&owner)) {
                next.set(slot, SlotOwner { owner: Some(self.this), next: None });
            }
        }
        has_changed(current, next)
    }

    fn next_owner(
        &self,
        known: &KnownMembers,
        current: SlotOwner,
        target: Option<u64>,
    ) -> SlotOwner {
        match current.owner {
            Some(owner) if self.former.contains(&owner) => {
                SlotOwner { owner: Some(self.this), next: None }
            }
            Some(owner) if !known.is_gone(owner) => {
                let can_give = known.live.contains(&owner);
                let next = target.filter(|target| can_give && *target != owner);
                SlotOwner { owner: Some(owner), next }
            }
            // A slot keeps its dead owner until a live node can take it.
            owner => SlotOwner { owner: target.or(owner), next: None },
        }
    }

    /// The node that should own each slot.
    fn targets(&self, leaving: &BTreeSet<u64>) -> Vec<Option<u64>> {
        let live = self.members.iter().filter(|member| is_live(member));
        let nodes: Vec<(u64, u64)> = live
            .filter(|member| !leaving.contains(&member.incarnation))
            .map(|member| (hash_bytes(1, member.name.as_bytes()), member.incarnation))
            .collect();
        let target = |slot: usize| {
            let hash = |of: &&(u64, u64)| (finish(mix(of.0, slot as u64)), of.1);
            nodes.iter().max_by_key(hash).map(|(_, incarnation)| *incarnation)
        };
        (0..SLOTS).map(target).collect()
    }
}

/// Members by their state.
struct KnownMembers {
    /// Nodes that take slots, and give them away.
    live: BTreeSet<u64>,
    /// Nodes whose rows are not all stored.
    present: BTreeSet<u64>,
}

impl KnownMembers {
    fn new(plan: &SlotPlan<'_>) -> Self {
        let ids = |of: &Member| of.incarnation;
        let live = plan.members.iter().filter(|member| is_live(member)).map(ids).collect();
        let there = plan.members.iter().filter(|member| member.state != MemberState::Left);
        let mut present: BTreeSet<u64> = there.map(ids).collect();
        present.extend(plan.former);
        // Rows that a node has taken over from another one may be in its memtables only.
        present.extend(plan.members.iter().filter_map(|member| match member.state {
            MemberState::Recovering { by } => Some(by),
            _ => None,
        }));
        Self { live, present }
    }

    /// True if all rows of a node are stored, and it acknowledges nothing more.
    fn is_gone(&self, incarnation: u64) -> bool {
        !self.present.contains(&incarnation)
    }
}

/// True for a node that takes slots, and gives them away.
fn is_live(member: &Member) -> bool {
    member.state == MemberState::Serving && member.address.is_some()
}

fn has_changed(current: &Assignment, next: Assignment) -> Option<Assignment> {
    let is_same = next.leaving == current.leaving
        && Slot::all().all(|slot| next.slot(slot) == current.slot(slot));
    (!is_same).then_some(next)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::time::Duration;

    use super::*;

    fn member(incarnation: u64, state: MemberState) -> Member {
        Member {
            name: format!("node{incarnation}"),
            incarnation,
            address: Some(String::from("a:1")),
            state,
            heartbeat_age: Duration::ZERO,
            log_bytes: 0,
        }
    }

    fn serving(incarnations: impl IntoIterator<Item = u64>) -> Vec<Member> {
        incarnations.into_iter().map(|of| member(of, MemberState::Serving)).collect()
    }

    fn propose(current: &Assignment, members: &[Member]) -> Option<Assignment> {
        let former = BTreeSet::new();
        SlotPlan { this: 1, members, former: &former, last_commit_ms: 9 }.propose(current)
    }

    /// Returns the assignment after all moves.
    fn moved(mut of: Assignment) -> Assignment {
        for slot in Slot::all() {
            let SlotOwner { owner, next } = of.slot(slot);
            of.set(slot, SlotOwner { owner: next.or(owner), next: None });
        }
        of.generation += 1;
        of
    }

    #[test]
    fn all_slots_are_shared_at_first() {
        let first = propose(&Assignment::default(), &serving(1..=4)).unwrap();
        assert_eq!((first.generation, first.floor_ms, first.moving_count()), (1, 9, 0));
        for node in 1..=4 {
            let share = first.slots_of(node).len();
            assert!((200..320).contains(&share), "{node} owns {share}");
        }
        assert_eq!(propose(&first, &serving(1..=4)), None);
    }

    #[test]
    fn who_joins_takes_its_share_and_nothing_else_moves() {
        let first = propose(&Assignment::default(), &serving(1..=4)).unwrap();
        let joined = propose(&first, &serving(1..=5)).unwrap();
        for slot in Slot::all() {
            assert_eq!(joined.slot(slot).owner, first.slot(slot).owner, "its owner gives it away");
            assert!(matches!(joined.slot(slot).next, None | Some(5)));
        }
        assert!((150..260).contains(&joined.moving_count()), "{}", joined.moving_count());
        let joined = moved(joined);
        assert_eq!(propose(&joined, &serving(1..=5)), None);
        let mut members = serving(1..=5);
        members.last_mut().unwrap().state = MemberState::Left;
        let left = propose(&joined, &members).unwrap();
        for slot in Slot::all() {
            assert_eq!(left.slot(slot).owner, first.slot(slot).owner);
        }
    }

    #[test]
    fn a_dead_owner_keeps_its_slots_until_its_rows_are_stored() {
        let first = propose(&Assignment::default(), &serving(1..=3)).unwrap();
        let with = |state: MemberState| {
            let mut members = serving(1..=3);
            members.last_mut().unwrap().state = state;
            members
        };
        assert_eq!(propose(&first, &with(MemberState::Suspected)), None);
        assert_eq!(propose(&first, &with(MemberState::Recovering { by: 1 })), None);
        let left = propose(&first, &with(MemberState::Left)).unwrap();
        assert_eq!((left.slots_of(3).len(), left.moving_count()), (0, 0));
        assert_eq!(left.slots_of(1).len() + left.slots_of(2).len(), SLOTS);
        assert_eq!(propose(&first, &serving(1..=2)), Some(left), "its manifest was removed");
    }

    #[test]
    fn a_target_that_dies_is_replaced() {
        let first = propose(&Assignment::default(), &serving(1..=2)).unwrap();
        let joined = propose(&first, &serving(1..=3)).unwrap();
        let mut members = serving(1..=3);
        members.last_mut().unwrap().state = MemberState::Suspected;
        let without = propose(&joined, &members).unwrap();
        assert_eq!(without.moving_count(), 0);
        assert!(Slot::all().all(|slot| without.slot(slot) == first.slot(slot)));
    }

    #[test]
    fn who_leaves_gives_all_its_slots_and_gets_none() {
        let first = propose(&Assignment::default(), &serving(1..=3)).unwrap();
        let (members, former) = (serving(1..=3), BTreeSet::new());
        let plan = SlotPlan { this: 2, members: &members, former: &former, last_commit_ms: 9 };
        let leaving = plan.leave(&first).unwrap();
        assert_eq!(leaving.moving_from(2), first.slots_of(2));
        assert_eq!(plan.leave(&leaving), None);
        let left = moved(leaving);
        assert_eq!((left.slots_of(2).len(), propose(&left, &members)), (0, None));
        let gone = propose(&left, &[members[0].clone(), members[2].clone()]).unwrap();
        assert!(gone.leaving.is_empty());
        // The last node has no other node to give its slots to.
        let alone = serving([2]);
        let plan = SlotPlan { members: &alone, ..plan };
        let alone = propose(&Assignment::default(), &alone).unwrap();
        assert_eq!(plan.leave(&alone).unwrap().moving_count(), 0);
    }

    #[test]
    fn who_gives_up_to_leave_keeps_its_slots_and_gets_its_share_again() {
        let first = propose(&Assignment::default(), &serving(1..=3)).unwrap();
        let (members, former) = (serving(1..=3), BTreeSet::new());
        let plan = SlotPlan { this: 2, members: &members, former: &former, last_commit_ms: 9 };
        assert_eq!(plan.stay(&first), None);
        let leaving = plan.leave(&first).unwrap();
        let stays = plan.stay(&leaving).unwrap();
        assert_eq!((stays.generation, stays.moving_count()), (leaving.generation + 1, 0));
        assert!(stays.leaving.is_empty());
        assert_eq!(propose(&stays, &members), None, "it has its share");
        let given = plan.stay(&moved(leaving)).unwrap();
        let again = propose(&given, &members).unwrap();
        assert_eq!(again.moving_to(2), first.slots_of(2));
    }

    #[test]
    fn a_restarted_node_takes_the_slots_of_its_former_run_at_once() {
        let first = propose(&Assignment::default(), &serving(1..=3)).unwrap();
        // It does not list its former run.
        let (members, former) = (serving([1, 2, 4]), BTreeSet::from([3]));
        let plan = SlotPlan { this: 4, members: &members, former: &former, last_commit_ms: 12 };
        let taken = plan.take_over(&first).unwrap();
        assert_eq!((taken.slots_of(4), taken.floor_ms), (first.slots_of(3), 12));
        assert_eq!(plan.take_over(&taken), None);
        // Other nodes see it in recovery. If its recoverer dies too, both have to be recovered.
        let mut members = serving([1, 2]);
        members.push(member(3, MemberState::Recovering { by: 4 }));
        assert_eq!(propose(&taken, &members).map(|of| of.slots_of(4)), None);
        members.pop();
        assert_eq!(propose(&taken, &members).unwrap().slots_of(4).len(), 0);
    }

    #[test]
    fn the_lowest_live_node_proposes() {
        let mut members = serving([3, 5, 7]);
        members[0].state = MemberState::Suspected;
        let former = BTreeSet::new();
        let is_coordinator = |this| {
            SlotPlan { this, members: &members, former: &former, last_commit_ms: 0 }
                .is_coordinator()
        };
        assert_eq!([3, 5, 7].map(is_coordinator), [false, true, false]);
    }
}

//! Proposes the next assignment: which node should own which slot, and which changes lead there.
//!
//! Rendezvous hashing by the names of the nodes: each slot prefers the live node with the highest hash of name and
//! slot. No node gets more than its [`limit`]: a slot that a full node does not take goes to the node with the next
//! lower hash. Slots stay where they are, with two exceptions:
//!
//! - A node over its limit gives away the slots with its lowest hashes.
//! - A node with less than nine tenths of its share gets the slots that prefer it. So a node that joins takes its
//!   share, and a restarted node gets the same slots again.
//!
//! A proposal follows from an assignment and from a look at the members that began after the assignment was
//! read. An owner that such a look does not list has left. The proposal replaces that assignment by
//! compare-and-set.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

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
        let mut next = current.next_generation(self.this, self.last_commit_ms);
        next.leaving.retain(|node| !known.is_gone(*node));
        let targets = self.targets(current, &next.leaving);
        for (slot, target) in Slot::all().zip(targets) {
            next.set(slot, self.next_owner(&known, current.slot(slot), target));
        }
        has_changed(current, next)
    }

    /// Returns the assignment in which this node gives all its slots away; `None` if the present one already
    /// does.
    #[must_use]
    pub fn leave(&self, current: &Assignment) -> Option<Assignment> {
        let mut next = current.next_generation(self.this, i64::MIN);
        next.leaving.insert(self.this);
        let targets = self.targets(current, &next.leaving);
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
        let mut next = current.next_generation(self.this, i64::MIN);
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
        let mut next = current.next_generation(self.this, self.last_commit_ms);
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
                let can_give = known.live.contains(&owner) || known.removed.contains(&owner);
                let next = target.filter(|target| can_give && *target != owner);
                SlotOwner { owner: Some(owner), next }
            }
            // A slot keeps its dead owner until a live node can take it.
            owner => SlotOwner { owner: target.or(owner), next: None },
        }
    }

    /// The node that should own each slot; no node if none takes slots.
    fn targets(&self, current: &Assignment, leaving: &BTreeSet<u64>) -> Vec<Option<u64>> {
        let live = self.members.iter().filter(|member| is_live(member));
        let takes = live.filter(|member| !leaving.contains(&member.incarnation));
        let nodes: Vec<TargetNode> = takes
            .map(|member| TargetNode {
                hash: hash_bytes(1, member.name.as_bytes()),
                incarnation: member.incarnation,
            })
            .collect();
        if nodes.is_empty() {
            return vec![None; SLOTS];
        }
        let places = nodes.iter().zip(0..).map(|(node, place)| (node.incarnation, place));
        let places: BTreeMap<u64, u16> = places.collect();
        let place = |node: Option<u64>| node.and_then(|node| places.get(&node).copied());
        let holder = |slot| {
            let SlotOwner { owner, next } = current.slot(slot);
            place(next).or(place(owner))
        };
        let holders: Vec<Option<u16>> = Slot::all().map(holder).collect();
        let placed = SlotMatching::new(&nodes, &holders).run();
        let incarnation = |place: u16| nodes.get(usize::from(place)).map(|node| node.incarnation);
        placed.into_iter().map(incarnation).collect()
    }
}

/// Most slots of one of `nodes` nodes: 1.1 times its share, or the share if it has less than ten slots.
const fn limit(nodes: usize) -> usize {
    let (bound, share) = (SLOTS * 11 / (nodes * 10), SLOTS.div_ceil(nodes));
    if bound > share { bound } else { share }
}

/// A node that takes slots.
#[derive(Clone, Copy, Debug)]
struct TargetNode {
    /// Hash of the name.
    hash: u64,
    incarnation: u64,
}

/// A node's rank for a slot. A slot prefers the highest rank, and so does a node.
type Rank = (u64, u16);

/// Matches slots and nodes: slots ask the nodes in the order of their preference, and a full node keeps the slots that
/// it prefers. The result does not depend on the order in which slots ask.
struct SlotMatching<'a> {
    nodes: &'a [TargetNode],
    /// The present node of each slot, if it takes slots.
    holders: &'a [Option<u16>],
    /// The highest rank for each slot.
    firsts: Vec<Rank>,
    /// Most slots of a node.
    limit: usize,
    /// Nodes that get the slots that prefer them.
    is_poor: Vec<bool>,
    /// The slots of each node. A node gives up the least first: slots that it does not hold, then those of low ranks.
    taken: Vec<BinaryHeap<Reverse<(bool, u64, u16)>>>,
}

impl<'a> SlotMatching<'a> {
    fn new(nodes: &'a [TargetNode], holders: &'a [Option<u16>]) -> Self {
        let mut held = vec![0_usize; nodes.len()];
        for holder in holders.iter().flatten() {
            if let Some(held) = held.get_mut(usize::from(*holder)) {
                *held += 1;
            }
        }
        let is_poor = |held: usize| held * nodes.len() * 10 < SLOTS * 9;
        Self {
            nodes,
            holders,
            firsts: (0..SLOTS as u16).map(|slot| best(nodes, slot, |_| true)).collect(),
            limit: limit(nodes.len()),
            is_poor: held.into_iter().map(is_poor).collect(),
            taken: nodes.iter().map(|_| BinaryHeap::new()).collect(),
        }
    }

    /// Returns the node of each slot.
    fn run(mut self) -> Vec<u16> {
        for slot in 0..SLOTS as u16 {
            let mut open = Some((slot, None));
            // All nodes together take at least all slots, so each slot finds a node.
            while let Some((slot, refused)) = open {
                let asked = self.preferred(slot, refused);
                open = self.ask(slot, asked).map(|(slot, rank)| (slot, Some(rank)));
            }
        }
        let mut placed = vec![0; SLOTS];
        for (node, taken) in (0..).zip(&self.taken) {
            for Reverse((_, _, slot)) in taken {
                if let Some(placed) = placed.get_mut(usize::from(*slot)) {
                    *placed = node;
                }
            }
        }
        placed
    }

    /// The node that a slot asks after the node of the rank `refused`: the first one if it is poor, the present one,
    /// then all others by their ranks.
    fn preferred(&self, slot: u16, refused: Option<Rank>) -> Rank {
        let first = self.firsts.get(usize::from(slot)).copied().unwrap_or_default();
        let below = |bound: Rank, holder: Option<u16>| {
            best(self.nodes, slot, |rank| *rank < bound && Some(rank.1) != holder)
        };
        let Some(holder) = self.holder(slot) else {
            return refused.map_or(first, |refused| below(refused, None));
        };
        let held = rank_of(self.nodes, slot, holder);
        let is_poor = |node: u16| self.is_poor.get(usize::from(node)).copied().unwrap_or_default();
        let begins_with_first = first == held || is_poor(first.1);
        match refused {
            None if begins_with_first => first,
            None => held,
            Some(refused) if refused == held && begins_with_first => below(first, Some(holder)),
            Some(refused) if refused == held => first,
            Some(refused) if refused == first && begins_with_first => held,
            Some(refused) => below(refused, Some(holder)),
        }
    }

    /// Lets a slot ask the node of this rank. Returns the slot that the node does not keep, with the node's rank for it.
    fn ask(&mut self, slot: u16, asked: Rank) -> Option<(u16, Rank)> {
        let (hash, node) = asked;
        let is_held = self.holder(slot) == Some(node);
        let taken = self.taken.get_mut(usize::from(node))?;
        taken.push(Reverse((is_held, hash, slot)));
        if taken.len() <= self.limit {
            return None;
        }
        let Reverse((_, hash, slot)) = taken.pop()?;
        Some((slot, (hash, node)))
    }

    fn holder(&self, slot: u16) -> Option<u16> {
        self.holders.get(usize::from(slot)).copied().flatten()
    }
}

fn rank_of(nodes: &[TargetNode], slot: u16, node: u16) -> Rank {
    let hash = nodes.get(usize::from(node)).map_or(0, |of| of.hash);
    (finish(mix(hash, u64::from(slot))), node)
}

/// The highest of the ranks for a slot that `is_left`.
fn best(nodes: &[TargetNode], slot: u16, is_left: impl Fn(&Rank) -> bool) -> Rank {
    let rank = |(node, of): (u16, &TargetNode)| (finish(mix(of.hash, u64::from(slot))), node);
    (0..).zip(nodes).map(rank).filter(is_left).max().unwrap_or_default()
}

/// Members by their state.
struct KnownMembers {
    /// Nodes that take slots, and give them away.
    live: BTreeSet<u64>,
    /// Nodes that leave: they only give slots away.
    removed: BTreeSet<u64>,
    /// Nodes whose rows are not all stored.
    present: BTreeSet<u64>,
}

impl KnownMembers {
    fn new(plan: &SlotPlan<'_>) -> Self {
        let ids = |of: &Member| of.incarnation;
        let live = plan.members.iter().filter(|member| is_live(member)).map(ids).collect();
        let removed =
            plan.members.iter().filter(|member| member.state == MemberState::Removed).map(ids);
        let there = plan.members.iter().filter(|member| member.state != MemberState::Left);
        let mut present: BTreeSet<u64> = there.map(ids).collect();
        present.extend(plan.former);
        // Rows that a node has taken over from another one may be in its memtables only.
        present.extend(plan.members.iter().filter_map(|member| match member.state {
            MemberState::Recovering { by } => Some(by),
            _ => None,
        }));
        Self { live, removed: removed.collect(), present }
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
            unreached: BTreeSet::new(),
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
            assert!((3_900..4_300).contains(&share), "{node} owns {share}");
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
        assert!((3_000..3_500).contains(&joined.moving_count()), "{}", joined.moving_count());
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

    /// Numbers of slots after all moves, and how many slots moved.
    fn balanced(current: &Assignment, nodes: &[u64]) -> (Assignment, usize) {
        let mut of = current.clone();
        let mut moves = 0;
        for _ in 0..4 {
            let Some(next) = propose(&of, &serving(nodes.iter().copied())) else { break };
            let next = moved(next);
            moves +=
                Slot::all().filter(|slot| next.slot(*slot).owner != of.slot(*slot).owner).count();
            of = next;
        }
        assert_eq!(propose(&of, &serving(nodes.iter().copied())), None, "it settles");
        let most = nodes.iter().map(|node| of.slots_of(*node).len()).max().unwrap_or(0);
        let bound = 1.1 * SLOTS as f64 / nodes.len() as f64;
        assert!(most as f64 <= bound, "{most} of at most {bound}");
        (of, moves)
    }

    #[test]
    fn no_node_owns_more_than_its_limit_and_only_what_must_move_moves() {
        for count in [3, 4, 7, 16, 50, 100, 300, 1_000_u64] {
            let all: Vec<u64> = (1..=count).collect();
            let share = SLOTS / (count + 1) as usize;
            let (first, _) = balanced(&Assignment::default(), &all);
            let with_one_more: Vec<u64> = (1..=count + 1).collect();
            let (joined, moves) = balanced(&first, &with_one_more);
            // Nodes at their limits give something up, because the limit is lower.
            assert!(
                moves <= share + share / 10 + count as usize / 2 + 2,
                "{count} nodes: {moves} moved"
            );
            assert!(joined.slots_of(count + 1).len() * 10 >= share * 8, "{count} nodes");
            let (left, moves) = balanced(&joined, &all);
            let given = joined.slots_of(count + 1).len();
            assert_eq!(moves, given, "{count} nodes: only slots of the node that left move");
            let (again, _) = balanced(&left, &with_one_more);
            let both = again.slots_of(count + 1).intersection(&joined.slots_of(count + 1)).len();
            assert!(both * 10 >= given * 9, "{count} nodes: {both} of {given} slots are the same");
        }
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

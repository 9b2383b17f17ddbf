//! The assignment: which node owns which slot. It is a row of the log table and changes by compare-and-set.
//!
//! ```text
//! assignment = version u8 = 1 | generation u64 | floor i64, ms | nodes u16 | incarnation u64...
//!            | leaving u16 | incarnation u64... | slot: owner u16, next u16 ... | CRC32C       (big-endian)
//! ```
//!
//! `owner` and `next` are indices in the list of nodes; 0xffff means no node.
//!
//! The owner of a slot is the only node that writes its cells. No other node takes a slot from a live owner.
//! Instead `next` asks the owner to give the slot away, and the owner makes that change itself after it has
//! flushed its held rows. If the owner is dead, the slot gets another owner after the recovery of the log. The
//! floor is the last commit time of all owners that have given slots away: a new owner's commits are later.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{
    sealed_cell::{field, seal, unseal},
    slot::{SLOTS, Slot, SlotSet},
};

const VERSION: u8 = 1;
const NOBODY: u16 = u16::MAX;

/// The owner of a slot and its successor, as incarnations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotOwner {
    /// The node that writes the slot's cells; `None` before the first assignment.
    pub owner: Option<u64>,
    /// The node to which the owner has to give the slot.
    pub next: Option<u64>,
}

/// Which node owns which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Counts the changes, from 1.
    pub generation: u64,
    /// New owners commit later than this, epoch milliseconds.
    pub floor_ms: i64,
    /// Nodes that give all their slots away, and get no slots.
    pub leaving: BTreeSet<u64>,
    slots: Vec<SlotOwner>,
}

impl Default for Assignment {
    fn default() -> Self {
        let slots = vec![SlotOwner::default(); SLOTS];
        Self { generation: 0, floor_ms: i64::MIN, leaving: BTreeSet::new(), slots }
    }
}

impl Assignment {
    /// Returns the owner of a slot.
    #[must_use]
    pub fn slot(&self, slot: Slot) -> SlotOwner {
        self.slots.get(slot.number()).copied().unwrap_or_default()
    }

    /// Sets the owner of a slot.
    pub fn set(&mut self, slot: Slot, to: SlotOwner) {
        if let Some(found) = self.slots.get_mut(slot.number()) {
            *found = to;
        }
    }

    /// The next generation, with a floor that is at least this one.
    #[must_use]
    pub fn next_generation(&self, floor_ms: i64) -> Self {
        let floor_ms = self.floor_ms.max(floor_ms);
        Self { generation: self.generation + 1, floor_ms, ..self.clone() }
    }

    /// The slots that a node owns.
    #[must_use]
    pub fn slots_of(&self, incarnation: u64) -> SlotSet {
        Slot::all().filter(|slot| self.slot(*slot).owner == Some(incarnation)).collect()
    }

    /// The slots that a node has to give away.
    #[must_use]
    pub fn moving_from(&self, incarnation: u64) -> SlotSet {
        let is_moving = |slot: &Slot| {
            let SlotOwner { owner, next } = self.slot(*slot);
            owner == Some(incarnation) && next.is_some()
        };
        Slot::all().filter(is_moving).collect()
    }

    /// The slots that other nodes have to give to a node.
    #[must_use]
    pub fn moving_to(&self, incarnation: u64) -> SlotSet {
        Slot::all().filter(|slot| self.slot(*slot).next == Some(incarnation)).collect()
    }

    /// Number of slots that their owners have to give away.
    #[must_use]
    pub fn moving_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.next.is_some()).count()
    }

    /// All owners.
    #[must_use]
    pub fn owners(&self) -> BTreeSet<u64> {
        self.slots.iter().filter_map(|slot| slot.owner).collect()
    }

    /// Encodes the assignment as a cell.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let nodes: BTreeSet<u64> =
            self.slots.iter().flat_map(|slot| [slot.owner, slot.next]).flatten().collect();
        let places: BTreeMap<u64, u16> = nodes.iter().copied().zip(0..NOBODY).collect();
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.extend_from_slice(&self.floor_ms.to_be_bytes());
        push_list(&mut out, &nodes);
        push_list(&mut out, &self.leaving);
        for slot in &self.slots {
            for node in [slot.owner, slot.next] {
                let place = node.and_then(|node| places.get(&node).copied());
                out.extend_from_slice(&place.unwrap_or(NOBODY).to_be_bytes());
            }
        }
        seal(out)
    }

    /// Decodes a cell, or returns `None` if this version does not know its format.
    #[must_use]
    pub fn decode(cell: &[u8]) -> Option<Self> {
        let mut rest = unseal(cell)?.strip_prefix(&[VERSION])?;
        let generation = u64::from_be_bytes(field(&mut rest)?);
        let floor_ms = i64::from_be_bytes(field(&mut rest)?);
        let nodes = list(&mut rest)?;
        let leaving = list(&mut rest)?.into_iter().collect();
        let mut slots = Vec::with_capacity(SLOTS);
        for _ in 0..SLOTS {
            let owner = node(&mut rest, &nodes)?;
            slots.push(SlotOwner { owner, next: node(&mut rest, &nodes)? });
        }
        rest.is_empty().then_some(Self { generation, floor_ms, leaving, slots })
    }
}

fn push_list(out: &mut Vec<u8>, nodes: &BTreeSet<u64>) {
    out.extend_from_slice(&(nodes.len() as u16).to_be_bytes());
    for node in nodes {
        out.extend_from_slice(&node.to_be_bytes());
    }
}

fn list(rest: &mut &[u8]) -> Option<Vec<u64>> {
    let length = u16::from_be_bytes(field(rest)?);
    (0..length).map(|_| Some(u64::from_be_bytes(field(rest)?))).collect()
}

/// Reads the next index and returns its node; the inner `None` means no node. The outer `None` is an error.
#[expect(clippy::option_option, reason = "an error, and nobody")]
fn node(rest: &mut &[u8], nodes: &[u64]) -> Option<Option<u64>> {
    match u16::from_be_bytes(field(rest)?) {
        NOBODY => Some(None),
        place => nodes.get(usize::from(place)).map(|node| Some(*node)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::keys::hex;

    fn assignment() -> Assignment {
        let mut of = Assignment { generation: 7, floor_ms: 258, ..Assignment::default() };
        of.leaving.insert(3);
        for slot in Slot::all().skip(1) {
            of.set(slot, SlotOwner { owner: Some(5), next: None });
        }
        of.set(Slot::try_new(1).unwrap(), SlotOwner { owner: Some(3), next: Some(5) });
        of
    }

    #[test]
    fn cells_are_as_documented() {
        let cell = assignment().encode();
        let begin = "01000000000000000700000000000001020002000000000000000300000000000000050001\
                     0000000000000003ffffffff000000010001ffff";
        assert!(hex(&cell).starts_with(begin), "{}", hex(&cell));
        assert_eq!(cell.len(), 1 + 8 + 8 + 2 + 16 + 2 + 8 + 4 * SLOTS + 4);
    }

    #[test]
    fn decoding_undoes_encoding_and_damage_is_found() {
        let cell = assignment().encode();
        assert_eq!(Assignment::decode(&cell), Some(assignment()));
        for at in (0..cell.len()).step_by(7) {
            let mut cell = cell.to_vec();
            *cell.get_mut(at).unwrap() ^= 1;
            assert_eq!(Assignment::decode(&cell), None, "byte {at}");
        }
    }

    #[test]
    fn slots_are_found_by_owner() {
        let of = assignment();
        assert_eq!((of.slots_of(5).len(), of.slots_of(3).len()), (SLOTS - 2, 1));
        assert_eq!((of.moving_from(3).len(), of.moving_from(5).len()), (1, 0));
        assert_eq!((of.moving_to(3).len(), of.moving_to(5).len()), (0, 1));
        assert_eq!((of.moving_count(), of.owners().len()), (1, 2));
        assert_eq!(of.slot(Slot::try_new(0).unwrap()), SlotOwner::default());
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_does_not_panic(mut cell: Vec<u8>) {
            cell.splice(..0, [VERSION]);
            let checksum = crc32c::crc32c(&cell);
            cell.extend_from_slice(&checksum.to_be_bytes());
            let _ = Assignment::decode(&cell);
        }
    }
}

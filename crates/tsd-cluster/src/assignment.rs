//! The assignment: which node owns which slot. It is a row of the log table and changes by compare-and-set.
//!
//! ```text
//! revision   = generation u64 | writer u64
//! assignment = version u8 = 1 | generation u64 | writer u64 | floor i64, ms | nodes u16 | incarnation u64...
//!            | leaving u16 | incarnation u64... | owner of each slot | moving u8 | next of each slot
//!            | CRC32C                                                                          (big-endian)
//! ```
//!
//! `owner` and `next` are places in the list of nodes, from 1; 0 means no node. They are packed into as few bits as the
//! last place needs. If no slot moves, `moving` is 0 and no `next` follows. The revision is a cell of its own: changes
//! compare it, and nodes read it to see whether they know the assignment.
//!
//! The owner of a slot is the only node that writes its cells. No other node takes a slot from a live owner.
//! Instead `next` asks the owner to give the slot away, and the owner makes that change itself after it has
//! flushed its held rows. If the owner is dead, the slot gets another owner after the recovery of the log. The
//! floor is the last commit time of all owners that have given slots away: a new owner's commits are later.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{
    manifest::Revision,
    sealed_cell::{field, seal, unseal},
    slot::{SLOTS, Slot, SlotSet},
};

const VERSION: u8 = 1;

/// The owner of a slot and its successor, as incarnations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotOwner {
    /// The node that writes the slot's cells; `None` before the first assignment.
    pub owner: Option<u64>,
    /// The node to which the owner has to give the slot.
    pub next: Option<u64>,
}

/// Numbers of slots of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCount {
    /// Slots that the node owns.
    pub owned: usize,
    /// Slots that other nodes have to give to it.
    pub moving_in: usize,
    /// Slots that it has to give away.
    pub moving_out: usize,
}

/// Which node owns which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Counts the changes, from 1.
    pub generation: u64,
    /// The incarnation that made the last change.
    pub writer: u64,
    /// New owners commit later than this, epoch milliseconds.
    pub floor_ms: i64,
    /// Nodes that give all their slots away, and get no slots.
    pub leaving: BTreeSet<u64>,
    slots: Vec<SlotOwner>,
}

impl Default for Assignment {
    fn default() -> Self {
        let slots = vec![SlotOwner::default(); SLOTS];
        Self { generation: 0, writer: 0, floor_ms: i64::MIN, leaving: BTreeSet::new(), slots }
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

    /// Identifies the last change. No two changes have the same revision.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        Revision { number: self.generation, writer: self.writer }
    }

    /// The next generation, by this writer, with a floor that is at least this one.
    #[must_use]
    pub fn next_generation(&self, writer: u64, floor_ms: i64) -> Self {
        let floor_ms = self.floor_ms.max(floor_ms);
        Self { generation: self.generation + 1, writer, floor_ms, ..self.clone() }
    }

    /// Numbers of slots by node.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<u64, SlotCount> {
        let mut counts: BTreeMap<u64, SlotCount> = BTreeMap::new();
        for SlotOwner { owner, next } in &self.slots {
            if let Some(owner) = owner {
                let count = counts.entry(*owner).or_default();
                count.owned += 1;
                count.moving_out += usize::from(next.is_some());
            }
            if let Some(next) = next {
                counts.entry(*next).or_default().moving_in += 1;
            }
        }
        counts
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
        let places: BTreeMap<u64, u16> = nodes.iter().copied().zip(1..).collect();
        let place =
            |node: Option<u64>| node.and_then(|node| places.get(&node).copied()).unwrap_or(0);
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.generation.to_be_bytes());
        out.extend_from_slice(&self.writer.to_be_bytes());
        out.extend_from_slice(&self.floor_ms.to_be_bytes());
        push_list(&mut out, &nodes);
        push_list(&mut out, &self.leaving);
        let bits = bits_of(places.len());
        pack(&mut out, bits, self.slots.iter().map(|slot| place(slot.owner)));
        let is_moving = self.moving_count() > 0;
        out.push(u8::from(is_moving));
        if is_moving {
            pack(&mut out, bits, self.slots.iter().map(|slot| place(slot.next)));
        }
        seal(out)
    }

    /// Decodes a cell, or returns `None` if this version does not know its format.
    #[must_use]
    pub fn decode(cell: &[u8]) -> Option<Self> {
        let mut rest = unseal(cell)?.strip_prefix(&[VERSION])?;
        let generation = u64::from_be_bytes(field(&mut rest)?);
        let writer = u64::from_be_bytes(field(&mut rest)?);
        let floor_ms = i64::from_be_bytes(field(&mut rest)?);
        let nodes = list(&mut rest)?;
        let leaving = list(&mut rest)?.into_iter().collect();
        let owners = unpack(&mut rest, &nodes)?;
        let next = match field(&mut rest)? {
            [0] => vec![None; SLOTS],
            [1] => unpack(&mut rest, &nodes)?,
            _ => return None,
        };
        let slot = |(owner, next)| SlotOwner { owner, next };
        let slots = owners.into_iter().zip(next).map(slot).collect();
        rest.is_empty().then_some(Self { generation, writer, floor_ms, leaving, slots })
    }
}

/// Bits of a place in a list of this many nodes.
const fn bits_of(nodes: usize) -> usize {
    (usize::BITS - nodes.leading_zeros()) as usize
}

/// Bytes of the packed places of all slots.
const fn packed_bytes(bits: usize) -> usize {
    SLOTS * bits / 8
}

/// Appends places, the lowest bits first.
fn pack(out: &mut Vec<u8>, bits: usize, places: impl Iterator<Item = u16>) {
    let (mut word, mut filled) = (0_u64, 0);
    for place in places {
        word |= u64::from(place) << filled;
        filled += bits;
        while filled >= 8 {
            out.push(word as u8);
            word >>= 8;
            filled -= 8;
        }
    }
}

/// Removes the places of all slots and returns their nodes.
fn unpack(rest: &mut &[u8], nodes: &[u64]) -> Option<Vec<Option<u64>>> {
    let bits = bits_of(nodes.len());
    let (packed, after) = rest.split_at_checked(packed_bytes(bits))?;
    *rest = after;
    let (mut word, mut filled) = (0_u64, 0);
    let mut bytes = packed.iter();
    let mut found = Vec::with_capacity(SLOTS);
    for _ in 0..SLOTS {
        while filled < bits {
            word |= u64::from(*bytes.next()?) << filled;
            filled += 8;
        }
        let place = (word & ((1 << bits) - 1)) as usize;
        word >>= bits;
        filled -= bits;
        found.push(match place.checked_sub(1) {
            None => None,
            Some(place) => Some(*nodes.get(place)?),
        });
    }
    Some(found)
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::keys::hex;

    fn assignment() -> Assignment {
        let mut of =
            Assignment { generation: 7, writer: 4, floor_ms: 258, ..Assignment::default() };
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
        // Two bits a slot: slot 0 has no owner, slot 1 the first one, all others the second one.
        let begin = "010000000000000007000000000000000400000000000001020002000000000000000300000000000000050001\
                     0000000000000003a4aaaa";
        assert!(hex(&cell).starts_with(begin), "{}", hex(&cell));
        let head = 1 + 8 + 8 + 8 + 2 + 16 + 2 + 8;
        assert_eq!(cell.len(), head + SLOTS / 4 + 1 + SLOTS / 4 + 4);
        // Only slot 1 moves, to the second one.
        let moves = 2 * (head + SLOTS / 4);
        assert!(hex(&cell).get(moves..).unwrap().starts_with("01080000"));
        assert_eq!(assignment().revision(), Revision { number: 7, writer: 4 });
    }

    #[test]
    fn a_thousand_nodes_fit_into_a_small_cell() {
        let mut of = Assignment::default();
        for slot in Slot::all() {
            let owner = Some(slot.number() as u64 % 1_000);
            of.set(slot, SlotOwner { owner, next: None });
        }
        let cell = of.encode();
        assert!(cell.len() < 30_000, "{} bytes", cell.len());
        assert_eq!(Assignment::decode(&cell), Some(of));
    }

    #[test]
    fn decoding_undoes_encoding_and_damage_is_found() {
        let cell = assignment().encode();
        assert_eq!(Assignment::decode(&cell), Some(assignment()));
        for at in (0..cell.len()).step_by(97) {
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
        let count = |owned, moving_in, moving_out| SlotCount { owned, moving_in, moving_out };
        let expected = [(3, count(1, 0, 1)), (5, count(SLOTS - 2, 1, 0))];
        assert_eq!(of.counts(), BTreeMap::from(expected));
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

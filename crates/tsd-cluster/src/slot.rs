//! Slots: the units in which nodes share the writes of series.
//!
//! The slot of a series is a hash, so all its rows have the same slot, in every table and with any salting
//! ([`SlotRule`](crate::SlotRule)). The hash is part of the format, like the layout of row keys: nodes that hash
//! differently would both write a series. Names have slots too, for the assignment of their UIDs.

use std::sync::Arc;

/// Number of slots: with a thousand nodes, each still owns about sixteen.
pub const SLOTS: usize = 16_384;

/// Words of a [`SlotSet`].
const WORDS: usize = SLOTS / 64;
/// A hash's bits below its slot. The highest bits are the best mixed.
const SHIFT: u32 = u64::BITS - SLOTS.ilog2();
/// Start of the hash of a tag value, so that values and whole series are hashed differently.
const VALUES: u64 = 0x736c_6f74_5f74_6167;

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

/// A set of slots. A clone shares the set until one of them changes.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet(Arc<[u64; WORDS]>);

impl Slot {
    /// Returns the slot with this number; `None` from [`SLOTS`] on.
    #[must_use]
    pub fn try_new(number: usize) -> Option<Self> {
        if number < SLOTS { Some(Self(number as u16)) } else { None }
    }

    /// All slots.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SLOTS as u16).map(Self)
    }

    /// Number of the slot.
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// Returns the slot of a whole series. Metric and tags are encoded as in a row key.
    #[must_use]
    pub fn of_series(metric: &[u8], tags: &[u8]) -> Self {
        Self((finish(hash_bytes(hash_bytes(0, metric), tags)) >> SHIFT) as u16)
    }

    /// Returns the slot of the series that have this value of a slot tag. The value is its UID.
    #[must_use]
    pub fn of_value(value: &[u8]) -> Self {
        Self((finish(hash_bytes(VALUES, value)) >> SHIFT) as u16)
    }

    /// Returns the slot of a name of this kind (`metrics`, `tagk` or `tagv`).
    #[must_use]
    pub fn of_name(kind: &str, name: &[u8]) -> Self {
        Self::of_series(kind.as_bytes(), name)
    }
}

/// How a set is encoded: as runs, or as bits if they are shorter.
const RUNS: u8 = 0;
const BITS: u8 = 1;

impl SlotSet {
    /// No slot.
    #[must_use]
    pub fn empty() -> Self {
        Self(Arc::new([0; WORDS]))
    }

    /// All slots.
    #[must_use]
    pub fn full() -> Self {
        Self(Arc::new([u64::MAX; WORDS]))
    }

    /// Adds a slot.
    pub fn insert(&mut self, slot: Slot) {
        if let Some(word) = Arc::make_mut(&mut self.0).get_mut(slot.number() / 64) {
            *word |= 1 << (slot.number() % 64);
        }
    }

    /// Removes a slot.
    pub fn remove(&mut self, slot: Slot) {
        if let Some(word) = Arc::make_mut(&mut self.0).get_mut(slot.number() / 64) {
            *word &= !(1 << (slot.number() % 64));
        }
    }

    /// True if the set contains the slot.
    #[must_use]
    pub fn contains(&self, slot: Slot) -> bool {
        self.0.get(slot.number() / 64).is_some_and(|word| word >> (slot.number() % 64) & 1 == 1)
    }

    /// Returns the slots that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.merged(other, |own, other| own & !other)
    }

    /// Returns the slots of both sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.merged(other, |own, other| own | other)
    }

    /// Returns the slots that both sets have.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.merged(other, |own, other| own & other)
    }

    fn merged(&self, other: &Self, merge: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = *self.0;
        for (word, other) in words.iter_mut().zip(other.0.iter()) {
            *word = merge(*word, *other);
        }
        Self(Arc::new(words))
    }

    /// True if the set has all slots of `other`.
    #[must_use]
    pub fn is_superset(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0.iter()).all(|(own, other)| other & !own == 0)
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// True if the set has all slots.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.iter().all(|word| *word == u64::MAX)
    }

    /// Number of slots in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Iterates over the slots in order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        let bits = |(at, word): (usize, &u64)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(Slot((at * 64) as u16 + bit as u16))
            })
        };
        self.0.iter().enumerate().flat_map(bits)
    }

    /// Encodes the set, in at most 2049 bytes: as the lengths of the runs of slots that are not and are in it, or as
    /// bits.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![RUNS];
        let mut end = 0;
        let mut slots = self.iter().map(Slot::number).peekable();
        while let Some(start) = slots.next() {
            let mut stop = start + 1;
            while slots.next_if_eq(&stop).is_some() {
                stop += 1;
            }
            push_number(&mut out, start - end);
            push_number(&mut out, stop - start);
            end = stop;
            if out.len() > WORDS * 8 {
                out = vec![BITS];
                out.extend(self.0.iter().flat_map(|word| word.to_le_bytes()));
                break;
            }
        }
        out
    }

    /// Decodes a set; `None` if the bytes are not an encoded set.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, mut rest) = bytes.split_first()?;
        match *kind {
            BITS => {
                let (words, &[]) = rest.as_chunks::<8>() else { return None };
                let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                Some(Self(Arc::new(words.try_into().ok()?)))
            }
            RUNS => {
                let mut set = Self::empty();
                let mut end = 0;
                while !rest.is_empty() {
                    let start = end + number(&mut rest)?;
                    end = start + number(&mut rest)?;
                    for slot in start..end {
                        set.insert(Slot::try_new(slot)?);
                    }
                }
                Some(set)
            }
            _ => None,
        }
    }
}

/// Appends a number below 2^15, in one byte or two.
fn push_number(out: &mut Vec<u8>, number: usize) {
    if number < 0x80 {
        out.push(number as u8);
    } else {
        out.extend_from_slice(&(number as u16 | 0x8000).to_be_bytes());
    }
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let (first, left) = rest.split_first()?;
    if *first < 0x80 {
        *rest = left;
        return Some(usize::from(*first));
    }
    let (both, left) = rest.split_first_chunk::<2>()?;
    *rest = left;
    Some(usize::from(u16::from_be_bytes(*both) & 0x7fff))
}

impl Default for SlotSet {
    fn default() -> Self {
        Self::empty()
    }
}

impl std::fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(Slot::number)).finish()
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut words = [0; WORDS];
        for slot in slots {
            if let Some(word) = words.get_mut(slot.number() / 64) {
                *word |= 1 << (slot.number() % 64);
            }
        }
        Self(Arc::new(words))
    }
}

/// Adds bytes to a hash, eight at a time, and then the number of bytes.
pub(crate) fn hash_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    // Avoids an array: a load of eight bytes waits for the stores of single bytes.
    let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(mix(hash, last), rest.len() as u64)
}

pub(crate) const fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Mixes the hash so that every bit depends on all others.
pub(crate) const fn finish(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_hash_is_fixed() {
        for (metric, tags, expected) in [
            (&[0, 0, 1][..], &[0, 0, 1, 0, 0, 1][..], 425),
            (&[0, 0, 1], &[0, 0, 1, 0, 0, 2], 554),
            (&[0, 0, 0], &[], 10_258),
        ] {
            assert_eq!(Slot::of_series(metric, tags).number(), expected, "{metric:?} {tags:?}");
        }
        assert_eq!(
            [&[0, 0, 1][..], &[0, 0, 2], &[]].map(|of| Slot::of_value(of).number()),
            [4_851, 10_189, 12_547]
        );
    }

    fn share_of_alike(
        some: impl Iterator<Item = Slot>,
        others: impl Iterator<Item = Slot>,
    ) -> usize {
        some.zip(others).filter(|(one, other)| one == other).count()
    }

    #[test]
    fn names_of_two_kinds_and_values_have_slots_of_their_own() {
        let slots = |kind: &'static str| {
            let names = (0..1_000_u32).map(|number| format!("web{number}"));
            names.map(move |name| Slot::of_name(kind, name.as_bytes()))
        };
        let values = (0..1_000_u32).map(|number| Slot::of_value(format!("web{number}").as_bytes()));
        assert!(share_of_alike(slots("tagk"), slots("tagv")) < 10);
        assert!(share_of_alike(slots("tagk"), values) < 10);
        let set: SlotSet = slots("tagk").chain(slots("tagv")).collect();
        assert!(set.len() > 1_700, "{} slots", set.len());
    }

    #[test]
    fn series_and_values_are_spread_evenly() {
        let series = |number: u32| {
            Slot::of_series(&[0, 0, 7], &[&[0, 0, 1][..], &number.to_be_bytes()[1..]].concat())
        };
        let value = |number: u32| Slot::of_value(&number.to_be_bytes()[1..]);
        for slot_of in [&series as &dyn Fn(u32) -> Slot, &value] {
            let mut counts = vec![0_u32; SLOTS];
            for number in 0..100 * SLOTS as u32 {
                counts[slot_of(number).number()] += 1;
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least > 40 && *most < 180, "{least} to {most}, 100 on average");
        }
    }

    #[test]
    fn a_set_has_what_was_added() {
        let slots = [0, 63, 64, SLOTS - 1].map(|number| Slot::try_new(number).unwrap());
        let mut set: SlotSet = slots.into_iter().collect();
        assert_eq!((set.len(), set.iter().collect::<Vec<_>>()), (4, slots.to_vec()));
        assert!(set.without(&SlotSet::full()).is_empty() && !set.is_empty());
        let before = set.clone();
        set.remove(slots[1]);
        assert!(!set.contains(slots[1]) && set.contains(slots[2]) && before.contains(slots[1]));
        assert!(before.is_superset(&set) && !set.is_superset(&before));
        assert_eq!(set.union(&before), before);
        assert_eq!(set.intersection(&before), set);
        assert_eq!(before.without(&set), [slots[1]].into_iter().collect());
        assert_eq!(SlotSet::full().without(&set).len(), SLOTS - 3);
        assert!(SlotSet::full().is_full() && !before.is_full());
        assert_eq!(Slot::try_new(SLOTS), None);
    }

    #[test]
    fn encoded_sets_are_small() {
        let some =
            |step: usize| Slot::all().filter(|slot| slot.number() % step == 0).collect::<SlotSet>();
        for (set, bytes) in [
            (SlotSet::empty(), 1),
            (SlotSet::full(), 4),
            (some(SLOTS), 3),
            (some(2), 1 + SLOTS / 8),
            (some(64), 1 + 2 * SLOTS / 64),
        ] {
            let encoded = set.encode();
            assert_eq!(encoded.len(), bytes);
            assert_eq!(SlotSet::decode(&encoded), Some(set));
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(runs: Vec<(u16, u8)>) {
            let slots = runs.into_iter().flat_map(|(start, length)| {
                (0..usize::from(length)).map(move |at| (usize::from(start) + at) % SLOTS)
            });
            let set: SlotSet = slots.filter_map(Slot::try_new).collect();
            let encoded = set.encode();
            prop_assert!(encoded.len() <= 1 + SLOTS / 8);
            prop_assert_eq!(SlotSet::decode(&encoded), Some(set));
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(bytes: Vec<u8>) {
            let _ = SlotSet::decode(&bytes);
        }
    }
}

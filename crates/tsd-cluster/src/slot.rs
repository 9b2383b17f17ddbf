//! Slots: the units in which nodes share the writes of series.
//!
//! A slot is a hash of a series, so all rows of a series have the same slot, in every table and with any
//! salting. The hash is part of the format, like the layout of row keys: nodes that hash differently would
//! both write a series. Names have slots too, for the assignment of their UIDs.

/// Number of slots.
pub const SLOTS: usize = 1_024;

/// Width of the base time in a row key, bytes.
const BASE_TIME: usize = 4;
/// Words of a [`SlotSet`].
const WORDS: usize = SLOTS / 64;

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

/// Position of the series in a row key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesKeyLayout {
    /// Bytes of the salt.
    pub salt_width: usize,
    /// Bytes of the metric.
    pub metric_width: usize,
}

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSet([u64; WORDS]);

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

    /// Returns the slot of a series. Metric and tags are encoded as in a row key.
    #[must_use]
    pub fn of_series(metric: &[u8], tags: &[u8]) -> Self {
        let hash = finish(hash_bytes(hash_bytes(0, metric), tags));
        // The highest bits are the best mixed.
        Self((hash >> 54) as u16)
    }

    /// Returns the slot of a name of this kind (`metrics`, `tagk` or `tagv`).
    #[must_use]
    pub fn of_name(kind: &str, name: &[u8]) -> Self {
        Self::of_series(kind.as_bytes(), name)
    }
}

impl SeriesKeyLayout {
    /// Returns the slot of a row. A key too short for a series has a slot, too.
    #[must_use]
    pub fn slot_of(&self, key: &[u8]) -> Slot {
        let series = key.get(self.salt_width..).unwrap_or_default();
        let (metric, rest) = series.split_at_checked(self.metric_width).unwrap_or((series, &[]));
        Slot::of_series(metric, rest.get(BASE_TIME..).unwrap_or_default())
    }
}

impl SlotSet {
    /// No slot.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// All slots.
    pub const FULL: Self = Self([u64::MAX; WORDS]);

    /// Adds a slot.
    pub fn insert(&mut self, slot: Slot) {
        if let Some(word) = self.0.get_mut(slot.number() / 64) {
            *word |= 1 << (slot.number() % 64);
        }
    }

    /// Removes a slot.
    pub fn remove(&mut self, slot: Slot) {
        if let Some(word) = self.0.get_mut(slot.number() / 64) {
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
    pub fn without(mut self, other: &Self) -> Self {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own &= !other;
        }
        self
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Number of slots in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Iterates over the slots in order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        Slot::all().filter(|slot| self.contains(*slot))
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = Self::EMPTY;
        for slot in slots {
            set.insert(slot);
        }
        set
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
            (&[0, 0, 1][..], &[0, 0, 1, 0, 0, 1][..], 26),
            (&[0, 0, 1], &[0, 0, 1, 0, 0, 2], 34),
            (&[0, 0, 0], &[], 641),
        ] {
            assert_eq!(Slot::of_series(metric, tags).number(), expected, "{metric:?} {tags:?}");
        }
    }

    #[test]
    fn names_of_two_kinds_have_slots_of_their_own() {
        let slots = |kind: &str| {
            let names = (0..1_000_u32).map(|number| format!("web{number}"));
            names.map(|name| Slot::of_name(kind, name.as_bytes())).collect::<Vec<_>>()
        };
        let (keys, values) = (slots("tagk"), slots("tagv"));
        let alike = keys.iter().zip(&values).filter(|(key, value)| key == value).count();
        let set: SlotSet = keys.into_iter().chain(values).collect();
        assert!(alike < 10 && set.len() > 700, "{alike} alike, {} slots", set.len());
    }

    #[test]
    fn series_are_spread_evenly() {
        let mut counts = [0_u32; SLOTS];
        for series in 0..102_400_u32 {
            let tags = [&[0, 0, 1][..], &series.to_be_bytes()[1..]].concat();
            counts[Slot::of_series(&[0, 0, 7], &tags).number()] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 50 && *most < 170, "{least} to {most}, 100 on average");
    }

    #[test]
    fn salt_and_time_do_not_count() {
        let salted = SeriesKeyLayout { salt_width: 1, metric_width: 3 };
        let unsalted = SeriesKeyLayout { salt_width: 0, metric_width: 3 };
        let slot = unsalted.slot_of(&[0, 0, 1, 9, 9, 9, 9, 0, 0, 1, 0, 0, 2]);
        assert_eq!(slot, Slot::of_series(&[0, 0, 1], &[0, 0, 1, 0, 0, 2]));
        assert_eq!(salted.slot_of(&[5, 0, 0, 1, 8, 8, 8, 8, 0, 0, 1, 0, 0, 2]), slot);
    }

    #[test]
    fn a_set_has_what_was_added() {
        let slots = [0, 63, 64, 1_023].map(|number| Slot::try_new(number).unwrap());
        let mut set: SlotSet = slots.into_iter().collect();
        assert_eq!((set.len(), set.iter().collect::<Vec<_>>()), (4, slots.to_vec()));
        assert_eq!(set.without(&SlotSet::FULL), SlotSet::EMPTY);
        set.remove(slots[1]);
        assert!(!set.contains(slots[1]) && set.contains(slots[2]));
        assert_eq!(set.without(&set), SlotSet::EMPTY);
        assert_eq!(SlotSet::FULL.without(&set).len(), SLOTS - 3);
        assert_eq!(Slot::try_new(SLOTS), None);
    }

    proptest! {
        #[test]
        fn any_key_has_a_slot(key: Vec<u8>, salt_width in 0..9_usize, metric_width in 1..9_usize) {
            let slot = SeriesKeyLayout { salt_width, metric_width }.slot_of(&key);
            prop_assert!(slot.number() < SLOTS);
        }
    }
}

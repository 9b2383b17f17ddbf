//! Decides the slot of a series from its row key.
//!
//! Series with the same value of a slot tag have the same slot, so that all points of a source go to one node,
//! however many nodes there are. A series without a slot tag is placed by its metric and tags. Salt and time of a row
//! key never count.
//!
//! The rule compares UIDs, never names. The UIDs of the slot tags are stored with the settings of the cluster, so
//! that all nodes have the same rule, and a rename moves no series.

use crate::{keys::hex, shared_settings::MAX_SLOT_TAGS, slot::Slot};

/// Width of the base time in a row key, bytes.
const BASE_TIME: usize = 4;

/// Widths of the fields of a row key, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyWidths {
    /// Salt.
    pub salt: usize,
    /// UID of the metric.
    pub metric: usize,
    /// UID of a tag key.
    pub tagk: usize,
    /// UID of a tag value.
    pub tagv: usize,
}

/// Decides the slots of series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRule {
    widths: KeyWidths,
    /// Concatenated UIDs of the slot tags, in order of preference.
    tags: Box<[u8]>,
}

/// What places a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement<'a> {
    /// The UID of the value of a slot tag.
    Value(&'a [u8]),
    /// The whole series, which has no slot tag.
    Series {
        /// UID of the metric.
        metric: &'a [u8],
        /// Tag pairs.
        tags: &'a [u8],
    },
}

impl Placement<'_> {
    /// The slot.
    #[must_use]
    pub fn slot(&self) -> Slot {
        match self {
            Self::Value(value) => Slot::of_value(value),
            Self::Series { metric, tags } => Slot::of_series(metric, tags),
        }
    }
}

impl SlotRule {
    /// Returns the rule with these UIDs of slot tags, in order of preference. Returns `None` if a UID has another
    /// width, or if there are more than [`MAX_SLOT_TAGS`].
    #[must_use]
    pub fn try_new(widths: KeyWidths, tags: &[impl AsRef<[u8]>]) -> Option<Self> {
        let has_width = |tag: &&[u8]| tag.len() == widths.tagk && !tag.is_empty();
        let tags: Vec<&[u8]> = tags.iter().map(AsRef::as_ref).collect();
        let is_valid = tags.len() <= MAX_SLOT_TAGS && tags.iter().all(has_width);
        is_valid.then(|| Self { widths, tags: tags.concat().into() })
    }

    /// Parses the UIDs of slot tags from the text of [`Self::uid_text`]. Returns `None` if they are no rule.
    #[must_use]
    pub fn parse(widths: KeyWidths, text: &str) -> Option<Self> {
        let uids = text.split(',').filter(|uid| !uid.is_empty()).map(parse_hex);
        Self::try_new(widths, &uids.collect::<Option<Vec<_>>>()?)
    }

    /// The UIDs of the slot tags as hexadecimal digits, separated by commas.
    #[must_use]
    pub fn uid_text(&self) -> String {
        self.tags().map(hex).collect::<Vec<_>>().join(",")
    }

    /// Widths of the fields of a row key.
    #[must_use]
    pub const fn widths(&self) -> &KeyWidths {
        &self.widths
    }

    /// UIDs of the slot tags, in order of preference.
    pub fn tags(&self) -> impl Iterator<Item = &[u8]> {
        // Without tags the width may be 0.
        self.tags.chunks_exact(self.widths.tagk.max(1))
    }

    /// Returns the slot of a row. Every key has a slot.
    #[must_use]
    pub fn slot_of(&self, key: &[u8]) -> Slot {
        self.placement(key).slot()
    }

    /// Returns what places a row. A key that is too short for tags is placed as a series without tags.
    #[must_use]
    pub fn placement<'a>(&self, key: &'a [u8]) -> Placement<'a> {
        let series = key.get(self.widths.salt..).unwrap_or_default();
        let (metric, rest) = series.split_at_checked(self.widths.metric).unwrap_or((series, &[]));
        self.series_placement(metric, rest.get(BASE_TIME..).unwrap_or_default())
    }

    /// As [`Self::placement`], from the fields of the key.
    #[must_use]
    pub fn series_placement<'a>(&self, metric: &'a [u8], tags: &'a [u8]) -> Placement<'a> {
        let KeyWidths { tagk, tagv, .. } = self.widths;
        let pair = tagk + tagv;
        let whole = Placement::Series { metric, tags };
        if self.tags.is_empty() || !tags.len().is_multiple_of(pair) {
            return whole;
        }
        // The best tag until now: its place in the order of preference, and its value.
        let mut best: Option<(usize, &[u8])> = None;
        for tag in tags.chunks_exact(pair) {
            let (key, value) = tag.split_at(tagk);
            let better = best.map_or(self.tags.len() / tagk, |(at, _)| at);
            if let Some(at) = self.tags().take(better).position(|slot_tag| slot_tag == key) {
                best = Some((at, value));
                if at == 0 {
                    break;
                }
            }
        }
        best.map_or(whole, |(_, value)| Placement::Value(value))
    }
}

/// Bytes of hexadecimal digits.
fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    const WIDTHS: KeyWidths = KeyWidths { salt: 1, metric: 3, tagk: 3, tagv: 3 };
    const HOST: [u8; 3] = [0, 0, 5];
    const POD: [u8; 3] = [0, 0, 2];

    fn rule() -> SlotRule {
        SlotRule::try_new(WIDTHS, &[HOST, POD]).unwrap()
    }

    /// A row key. Its tags are sorted, as in every row key.
    fn key(salt: u8, metric: [u8; 3], time: [u8; 4], tags: &[([u8; 3], [u8; 3])]) -> Vec<u8> {
        let mut tags: Vec<_> = tags.iter().map(|(key, value)| [*key, *value].concat()).collect();
        tags.sort_unstable();
        [&[salt][..], &metric, &time, &tags.concat()].concat()
    }

    #[test]
    fn the_first_slot_tag_that_a_series_has_places_it() {
        let slot = |tags: &[([u8; 3], [u8; 3])]| rule().slot_of(&key(9, [0, 0, 1], [7; 4], tags));
        let (a, b) = ([0, 0, 1], [0, 0, 2]);
        assert_eq!(slot(&[(HOST, a)]), Slot::of_value(&a));
        assert_eq!(slot(&[(POD, b)]), Slot::of_value(&b));
        assert_eq!(slot(&[(HOST, a), (POD, b)]), Slot::of_value(&a), "host comes first");
        let other = [0, 0, 3];
        let whole = Slot::of_series(&[0, 0, 1], &[other, a].concat());
        assert_eq!(slot(&[(other, a)]), whole);
        assert_ne!(whole, Slot::of_value(&a));
        assert_eq!(slot(&[]), Slot::of_series(&[0, 0, 1], &[]));
    }

    #[test]
    fn without_slot_tags_whole_series_are_placed() {
        let rule = SlotRule::try_new(WIDTHS, &[[0_u8; 3]; 0]).unwrap();
        let series = key(1, [0, 0, 1], [7; 4], &[(HOST, [0, 0, 1])]);
        let expected = Slot::of_series(&[0, 0, 1], &[HOST, [0, 0, 1]].concat());
        assert_eq!(rule.slot_of(&series), expected);
    }

    #[test]
    fn uids_of_another_width_are_no_rule() {
        assert_eq!(SlotRule::try_new(WIDTHS, &[[0_u8; 4]]), None);
        assert_eq!(SlotRule::try_new(WIDTHS, &[HOST; MAX_SLOT_TAGS + 1]), None);
        let tags = rule().tags().map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(tags, [HOST.to_vec(), POD.to_vec()]);
    }

    #[test]
    fn parsing_undoes_rendering() {
        let parse = |text: &str| SlotRule::parse(WIDTHS, text);
        assert_eq!(rule().uid_text(), "000005,000002");
        assert_eq!(parse(&rule().uid_text()), Some(rule()));
        assert_eq!(parse("").map(|rule| rule.uid_text()), Some(String::new()));
        for bad in ["00005", "0000+5", "0000000005", "00000g", "é0000"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    type Tags = Vec<([u8; 3], [u8; 3])>;

    proptest! {
        #[test]
        fn salt_and_time_do_not_count(
            of: ([u8; 3], Tags),
            one: (u8, [u8; 4]),
            other: (u8, [u8; 4]),
        ) {
            let key = |at: (u8, [u8; 4])| key(at.0, of.0, at.1, &of.1);
            prop_assert_eq!(rule().slot_of(&key(one)), rule().slot_of(&key(other)));
        }

        #[test]
        fn metric_and_other_tags_do_not_count_with_a_slot_tag(
            value: [u8; 3],
            one: ([u8; 3], Tags),
            other: ([u8; 3], Tags),
        ) {
            let key = |(metric, tags): &([u8; 3], Tags)| {
                let others = tags.iter().copied().filter(|(key, _)| *key != HOST);
                key(0, *metric, [1; 4], &others.chain([(HOST, value)]).collect::<Vec<_>>())
            };
            prop_assert_eq!(rule().slot_of(&key(&one)), Slot::of_value(&value));
            prop_assert_eq!(rule().slot_of(&key(&other)), Slot::of_value(&value));
        }

        #[test]
        fn any_key_has_a_slot(key: Vec<u8>, widths: [u8; 4]) {
            let [salt, metric, tagk, tagv] = widths.map(|width| usize::from(width % 9));
            let widths = KeyWidths { salt, metric, tagk: tagk.max(1), tagv };
            let rule = SlotRule::try_new(widths, &[vec![7; tagk.max(1)]]).unwrap();
            prop_assert!(rule.slot_of(&key).number() < crate::SLOTS);
        }
    }
}

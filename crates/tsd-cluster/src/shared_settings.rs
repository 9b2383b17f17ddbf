//! Settings that must be equal on all members of a cluster, because they decide what the rows mean.
//!
//! The first member stores them in a row of the log table; a member that differs does not start.
//!
//! ```text
//! cell = version u8 = 1 | (name "=" value "\n")...                                          (UTF-8)
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;

const VERSION: u8 = 1;

/// The lowest and the highest version of the messages between the nodes, such as `1-3`. A node joins if it speaks
/// one of them.
pub const WIRE_VERSIONS: &str = "tsd.cluster.wire_versions";

/// Tag keys whose values place a series, in order of preference.
pub const SLOT_TAGS: &str = "tsd.cluster.slot_tags";

/// UIDs of the slot tags, which decide: names may change. The first node stores them.
pub const SLOT_TAG_UIDS: &str = "tsd.cluster.slot_tag_uids";

/// Number of slots.
pub const SLOT_COUNT: &str = "tsd.cluster.slots";

/// Maximum number of slot tags. Each written row is compared with all of them.
pub const MAX_SLOT_TAGS: usize = 8;

/// Settings that a cluster may change, since no row in HBase depends on them.
const CHANGEABLE: [&str; 3] = [WIRE_VERSIONS, SLOT_TAGS, SLOT_TAG_UIDS];

/// Names and values of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedSettings(BTreeMap<String, String>);

impl SharedSettings {
    /// Returns settings with these names and values. Line breaks in values count as spaces.
    pub fn new<N: Into<String>, V: Into<String>>(all: impl IntoIterator<Item = (N, V)>) -> Self {
        let pair = |(name, value): (N, V)| (name.into(), value.into().replace('\n', " "));
        Self(all.into_iter().map(pair).collect())
    }

    /// Encodes the settings as a cell.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let lines = self.0.iter().flat_map(|(name, value)| [name, "=", value, "\n"]);
        [vec![VERSION], lines.collect::<String>().into_bytes()].concat().into()
    }

    /// Decodes a cell, or returns `None` if this version does not know its format.
    #[must_use]
    pub fn decode(cell: &[u8]) -> Option<Self> {
        let lines = std::str::from_utf8(cell.strip_prefix(&[VERSION])?).ok()?;
        let pair = |line: &str| {
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Some(Self(lines.lines().map(pair).collect::<Option<_>>()?))
    }

    /// Adds a setting, or replaces its value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Number of settings.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns these settings, and the settings of `other` that are missing here.
    #[must_use]
    pub fn with_missing(&self, other: &Self) -> Self {
        let mut all = other.0.clone();
        all.extend(self.0.clone());
        Self(all)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The value of a setting.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the settings of a cluster with the changeable values of `self`: the versions of messages, and which
    /// tags place a series.
    ///
    /// # Errors
    ///
    /// The differences of the other settings, which would change the meaning of the cluster's rows.
    pub fn adopted_by(&self, of_cluster: &Self) -> Result<Self, Vec<String>> {
        let mut fixed = self.clone();
        let mut all = of_cluster.with_missing(self);
        for (name, value) in CHANGEABLE.iter().filter_map(|name| fixed.0.remove_entry(*name)) {
            all.0.insert(name, value);
        }
        let differences = fixed.differences(of_cluster);
        if differences.is_empty() { Ok(all) } else { Err(differences) }
    }

    /// True for the text of a difference that [`Self::adopted_by`] removes.
    #[must_use]
    pub fn is_changeable(difference: &str) -> bool {
        CHANGEABLE.iter().any(|name| difference.split(' ').next() == Some(name))
    }

    /// Returns the differences from the cluster's settings. A setting that only one side has does not count: another
    /// release has or had it.
    #[must_use]
    pub fn differences(&self, of_cluster: &Self) -> Vec<String> {
        let differs = |(name, own): (&String, &String)| {
            let theirs = of_cluster.0.get(name).filter(|theirs| *theirs != own)?;
            if name == WIRE_VERSIONS && overlap(own, theirs) {
                return None;
            }
            Some(format!("{name} is {own}, and {theirs} in the cluster"))
        };
        self.0.iter().filter_map(differs).collect()
    }
}

/// True if two ranges of numbers overlap.
fn overlap(one: &str, other: &str) -> bool {
    let range = |text: &str| {
        let (lowest, highest) = text.split_once('-')?;
        Some((lowest.parse::<u32>().ok()?, highest.parse::<u32>().ok()?))
    };
    range(one)
        .zip(range(other))
        .is_some_and(|(one, other)| one.0.max(other.0) <= one.1.min(other.1))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_difference_names_both_values() {
        let cluster = SharedSettings::new([("tsd.salt.width", "1"), ("of.older.release", "x")]);
        let same = SharedSettings::new([("tsd.salt.width", "1"), ("of.newer.release", "y")]);
        assert_eq!(same.differences(&cluster), Vec::<String>::new());
        let other = SharedSettings::new([("tsd.salt.width", "2")]);
        let expected = ["tsd.salt.width is 2, and 1 in the cluster"];
        assert_eq!(other.differences(&cluster), expected);
        assert_eq!(cluster.with_missing(&same).count(), 3);
        assert_eq!(cluster.with_missing(&other), cluster);
    }

    #[test]
    fn versions_of_messages_must_overlap() {
        let with = |versions: &str| SharedSettings::new([(WIRE_VERSIONS, versions)]);
        for (own, cluster, joins) in [
            ("1-1", "1-1", true),
            ("1-2", "1-1", true),
            ("2-3", "1-2", true),
            ("2-3", "1-1", false),
        ] {
            let differences = with(own).differences(&with(cluster));
            assert_eq!(differences.is_empty(), joins, "{differences:?}");
        }
        let expected = ["tsd.cluster.wire_versions is 2-3, and 1-1 in the cluster"];
        assert_eq!(with("2-3").differences(&with("1-1")), expected);
        assert_eq!(with("x").differences(&with("1-1")).len(), 1);
    }

    #[test]
    fn a_cluster_adopts_what_its_rows_do_not_depend_on() {
        let of = |tags: &str, versions: &str, salt: &str| {
            SharedSettings::new([(SLOT_TAGS, tags), (WIRE_VERSIONS, versions), ("salt", salt)])
        };
        let cluster = of("host", "1-1", "2").with_missing(&SharedSettings::new([("old", "x")]));
        let adopted = of("pod", "2-3", "2").adopted_by(&cluster).unwrap();
        let expected = of("pod", "2-3", "2").with_missing(&SharedSettings::new([("old", "x")]));
        assert_eq!(adopted, expected);
        assert_eq!(adopted.value(SLOT_TAGS), Some("pod"));
        assert_eq!(
            of("pod", "1-1", "3").adopted_by(&cluster).unwrap_err(),
            ["salt is 3, and 2 in the cluster"]
        );
    }

    #[test]
    fn decoding_undoes_encoding() {
        let settings = SharedSettings::new([("a", "1=2"), ("b", ""), ("c", "x\ny")]);
        let cell = settings.encode();
        assert_eq!(&cell[..], b"\x01a=1=2\nb=\nc=x y\n");
        assert_eq!(SharedSettings::decode(&cell).unwrap(), settings);
        for bad in [&b""[..], b"\x02a=1\n", b"\x01a\n", b"\x01\xff=\n"] {
            assert_eq!(SharedSettings::decode(bad), None, "{bad:?}");
        }
    }
}

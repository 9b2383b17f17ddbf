//! Iteration order of Java's hash map.
//!
//! OpenTSDB keeps the tags of a point in a `HashMap`. The order of the map is visible in error texts
//! (`{host=a, cpu=0}`), in the `tags` object of a response, and in the order in which new names get
//! UIDs. So this crate returns tags in that order.

use std::{
    borrow::Cow,
    fmt::{self, Display},
};

use tsd_model::{decode_latin1, sort_as_grown_hash_map};

use crate::Latin1;

/// Sorts tag pairs (distinct ISO-8859-1 keys, in insertion order) into the order of a Java hash
/// map.
pub(crate) fn sort_tags_as_java_map<V: Copy>(pairs: &mut [(&[u8], V)]) {
    if pairs.len() < 2 {
        return;
    }
    let mut entries: Vec<_> = pairs
        .iter()
        .map(|pair| {
            let ascii = std::str::from_utf8(pair.0).ok().filter(|key| key.is_ascii());
            let key = ascii.map_or_else(|| Cow::from(decode_latin1(pair.0)), Cow::from);
            (key, *pair)
        })
        .collect();
    sort_as_grown_hash_map(&mut entries, |(key, _)| key);
    for (pair, (_, entry)) in pairs.iter_mut().zip(entries) {
        *pair = entry;
    }
}

/// Displays tag pairs, in ISO-8859-1 and in map order, like a Java map: `{k=v, k2=v2}`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JavaMapText<'a>(pub &'a [(&'a [u8], &'a [u8])]);

impl Display for JavaMapText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (k, v)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}={}", Latin1(k), Latin1(v))?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &[&str], expected: &[&str]) {
        let mut pairs: Vec<(&[u8], ())> = given.iter().map(|k| (k.as_bytes(), ())).collect();
        sort_tags_as_java_map(&mut pairs);
        let expected: Vec<(&[u8], ())> = expected.iter().map(|k| (k.as_bytes(), ())).collect();
        assert_eq!(pairs, expected);
    }

    /// The order in which a real OpenTSDB assigned UIDs to these keys.
    #[test]
    fn order_is_by_slot_then_by_insertion() {
        let given = ["zeta", "owner", "dept", "alpha", "Beta", "host", "cpu", "k10"];
        check(&given, &["zeta", "owner", "alpha", "host", "cpu", "dept", "k10", "Beta"]);
        let reversed: Vec<&str> = given.iter().rev().copied().collect();
        check(&reversed, &["owner", "zeta", "alpha", "host", "cpu", "k10", "dept", "Beta"]);
    }

    #[test]
    fn map_text_is_as_java_prints_it() {
        assert_eq!(JavaMapText(&[]).to_string(), "{}");
        assert_eq!(JavaMapText(&[(b"a", b"1"), (b"\xe9", b"2")]).to_string(), "{a=1, é=2}");
    }
}

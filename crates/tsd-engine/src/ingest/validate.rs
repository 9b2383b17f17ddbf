//! Checks of a point before any name is looked up, in OpenTSDB's order.
//!
//! Names are checked before UIDs are assigned, so a point with an invalid name creates none.

use std::borrow::Cow;

use smallvec::SmallVec;
use tsd_model::{
    NameRole, NameRule, decode_latin1, encode_latin1, encode_latin1_lossy, sort_as_grown_hash_map,
};

use super::{NameList, NameText};
use crate::put_error::PutError;

/// Rules of valid names, and of storing letters above U+00FF.
#[derive(Clone, Debug)]
pub(crate) struct NameRules {
    /// Allowed characters.
    pub(crate) rule: NameRule,
    /// True to store such letters as `?` instead of rejecting them.
    pub(crate) fold_unmappable_letters: bool,
}

impl NameRules {
    /// The first invalid character of a name.
    pub(crate) fn first_illegal(&self, name: &str) -> Option<char> {
        let mut text = [0; 4];
        name.chars().find(|c| self.rule.check(NameRole::Metric, c.encode_utf8(&mut text)).is_err())
    }

    fn push(&self, names: &mut NameList, name: &str) -> Result<(), PutError> {
        if name.is_ascii() {
            names.push(name.bytes());
        } else if self.fold_unmappable_letters {
            names.push(encode_latin1_lossy(name));
        } else {
            names.push(encode_latin1(name)?);
        }
        Ok(())
    }
}

/// Checks the names of a point and returns them as they are stored. They are in the order in which OpenTSDB assigns
/// UIDs: the iteration order of the Java hash map of the tags.
pub(crate) fn check_point(
    rules: &NameRules,
    max_tags: usize,
    text: NameText,
    metric: &[u8],
    tags: &[(&[u8], &[u8])],
) -> Result<NameList, PutError> {
    if tags.is_empty() {
        return Err(PutError::NoTags);
    }
    if tags.len() > max_tags {
        return Err(PutError::TooManyTags { count: tags.len(), max: max_tags });
    }
    let metric = decode(text, metric);
    let mut tags: SmallVec<[(Cow<'_, str>, Cow<'_, str>); 8]> =
        tags.iter().map(|(key, value)| (decode(text, key), decode(text, value))).collect();
    sort_as_grown_hash_map(&mut tags, |(key, _)| key.as_ref());
    rules.rule.check(NameRole::Metric, &metric)?;
    for (key, value) in &tags {
        rules.rule.check(NameRole::TagKey(value), key)?;
        rules.rule.check(NameRole::TagValue(key), value)?;
    }
    let mut names = NameList::default();
    rules.push(&mut names, &metric)?;
    for (key, value) in &tags {
        rules.push(&mut names, key)?;
        rules.push(&mut names, value)?;
    }
    Ok(names)
}

fn decode(text: NameText, bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(name) if text == NameText::Utf8 || bytes.is_ascii() => Cow::Borrowed(name),
        // Not UTF-8: the check rejects the replacement character, because it is not a letter.
        Err(_) if text == NameText::Utf8 => String::from_utf8_lossy(bytes),
        _ => Cow::Owned(decode_latin1(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(fold: bool) -> NameRules {
        NameRules { rule: NameRule::default(), fold_unmappable_letters: fold }
    }

    #[track_caller]
    fn check(
        text: NameText,
        metric: &[u8],
        tags: &[(&[u8], &[u8])],
        expected: Result<&[&[u8]], &str>,
    ) {
        let names = check_point(&rules(false), 2, text, metric, tags);
        assert_eq!(
            names.as_ref().map(|n| n.iter().collect::<Vec<_>>()).map_err(ToString::to_string),
            expected.map(<[&[u8]]>::to_vec).map_err(str::to_owned)
        );
    }

    #[test]
    fn names_are_in_assignment_order() {
        check(
            NameText::Latin1,
            b"m",
            &[(b"cpu", b"1"), (b"host", b"a")],
            Ok(&[b"m", b"host", b"a", b"cpu", b"1"]),
        );
    }

    #[test]
    fn first_error_in_opentsdb_order_is_returned() {
        let many: [(&[u8], &[u8]); 3] = [(b"a", b"b"), (b"c", b"d"), (b"e", b"f")];
        check(NameText::Latin1, b"m$", &[], Err("need at least one tag"));
        check(NameText::Latin1, b"m$", &many, Err("too many tags: 3 maximum allowed: 2"));
        check(
            NameText::Latin1,
            b"m$",
            &[(b"k$", b"v")],
            Err("Invalid metric name (\"m$\"): illegal character: $"),
        );
        check(
            NameText::Latin1,
            b"m",
            &[(b"k$", b"v$")],
            Err("Invalid tag name with value [v$] (\"k$\"): illegal character: $"),
        );
    }

    #[test]
    fn same_bytes_are_different_names_by_telnet_and_by_json() {
        let bytes = "é".as_bytes();
        check(NameText::Utf8, bytes, &[(b"k", b"v")], Ok(&[b"\xE9", b"k", b"v"]));
        check(
            NameText::Latin1,
            bytes,
            &[(b"k", b"v")],
            Err("Invalid metric name (\"Ã©\"): illegal character: ©"),
        );
        check(NameText::Latin1, b"\xE9", &[(b"k", b"v")], Ok(&[b"\xE9", b"k", b"v"]));
        assert!(check_point(&rules(false), 8, NameText::Utf8, b"\xFF", &[(b"k", b"v")]).is_err());
    }

    #[test]
    fn unmappable_letters_are_rejected_or_replaced() {
        let tags: [(&[u8], &[u8]); 1] = [(b"k", b"v")];
        let put = |fold| check_point(&rules(fold), 8, NameText::Utf8, "中".as_bytes(), &tags);
        assert!(matches!(put(false), Err(PutError::UnmappableName(_))));
        assert_eq!(put(true).ok().and_then(|n| n.get(0).map(<[u8]>::to_vec)), Some(b"?".to_vec()));
    }
}

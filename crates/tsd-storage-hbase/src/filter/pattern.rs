//! Java regular expressions over bytes, as ASCII text.
//!
//! Every byte is written as `\xHH`, so nothing needs quoting. A set of byte strings is a trie:
//! common prefixes are written once, and branches with equal continuations share a character class.
//! The server thus compares few bytes per row, however large the set is.

use std::{collections::BTreeMap, fmt::Write};

/// Longest expression of a set, in bytes.
const MAX_SET: usize = 32 * 1024;
/// Size of a set, in bytes, above which no expression is built.
const MAX_MEMBERS: usize = 256 * 1024;

/// Matches any `count` bytes.
pub(super) fn any(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ".".to_owned(),
        _ => format!(".{{{count}}}"),
    }
}

/// Matches these bytes.
pub(super) fn literal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 4);
    for byte in bytes {
        push_byte(*byte, &mut text);
    }
    text
}

/// Matches one of `members`, which are sorted; `None` if the expression is too long.
pub(super) fn one_of<T: AsRef<[u8]>>(members: &[T]) -> Option<String> {
    if members.iter().map(|member| member.as_ref().len() + 1).sum::<usize>() > MAX_MEMBERS {
        return None;
    }
    let text = trie(members, 0);
    (text.len() <= MAX_SET).then_some(text)
}

/// Matches what follows the first `depth` bytes, which all members share.
fn trie<T: AsRef<[u8]>>(members: &[T], depth: usize) -> String {
    let ended = members.iter().take_while(|member| member.as_ref().len() <= depth).count();
    let mut rest = members.get(ended..).unwrap_or_default();
    let byte_at = |member: &T| member.as_ref().get(depth).copied();
    // The next bytes, by the expression for the rest.
    let mut branches: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    while let Some(byte) = rest.first().and_then(byte_at) {
        let same = rest.iter().take_while(|member| byte_at(member) == Some(byte)).count();
        let (these, others) = rest.split_at(same);
        branches.entry(trie(these, depth + 1)).or_default().push(byte);
        rest = others;
    }
    let mut branches: Vec<String> =
        branches.into_iter().map(|(rest, bytes)| byte_class(&bytes) + &rest).collect();
    match (branches.pop(), branches.is_empty(), ended) {
        (None, ..) => String::new(),
        (Some(only), true, 0) => only,
        (Some(last), _, ended) => {
            let mut text = "(?:".to_owned();
            for branch in branches {
                text.push_str(&branch);
                text.push('|');
            }
            text.push_str(&last);
            text.push_str(if ended == 0 { ")" } else { ")?" });
            text
        }
    }
}

/// Matches one of these bytes, which ascend.
fn byte_class(bytes: &[u8]) -> String {
    let mut text = String::new();
    if let [only] = bytes {
        push_byte(*only, &mut text);
        return text;
    }
    text.push('[');
    let mut rest = bytes;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..=u8::MAX).take_while(|(a, b)| **a == *b).count();
        let (these, others) = rest.split_at(run.max(1));
        push_byte(first, &mut text);
        if let [_, .., last] = these {
            text.push('-');
            push_byte(*last, &mut text);
        }
        rest = others;
    }
    text.push(']');
    text
}

fn push_byte(byte: u8, text: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;

    use super::*;

    fn set(members: &[&'static [u8]]) -> String {
        let members: Vec<Bytes> = members.iter().map(|m| Bytes::from_static(m)).collect();
        one_of(&members).unwrap()
    }

    #[test]
    fn common_prefixes_are_written_once() {
        assert_eq!(set(&[&[0, 0, 1]]), r"\x00\x00\x01");
        assert_eq!(
            set(&[&[0, 0, 1], &[0, 0, 2], &[0, 0, 3], &[0, 0, 5]]),
            r"\x00\x00[\x01-\x03\x05]"
        );
        assert_eq!(
            set(&[&[0, 1], &[0, 2], &[7, 1], &[7, 2], &[9, 9]]),
            r"(?:[\x00\x07][\x01-\x02]|\x09\x09)"
        );
        assert_eq!(set(&[&[], &[1], &[1, 2]]), r"(?:\x01(?:\x02)?)?");
        assert_eq!(set(&[&[254], &[255]]), r"[\xfe-\xff]");
    }

    #[test]
    fn too_large_a_set_has_no_expression() {
        let many = |step: u32, count: u32| -> Vec<Bytes> {
            (0..count).map(|i| Bytes::copy_from_slice(&(i * step).to_be_bytes())).collect()
        };
        // Adjacent values share classes; scattered ones do not.
        assert!(one_of(&many(1, 40_000)).is_some());
        assert!(one_of(&many(7_919, 10_000)).is_none());
        assert!(one_of(&many(1, 1_000_000)).is_none());
    }
}

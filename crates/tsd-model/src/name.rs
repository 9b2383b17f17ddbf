//! Names of metrics, tag keys and tag values: valid characters and stored bytes.
//!
//! Tables store names in ISO-8859-1. OpenTSDB accepts other letters and stores them as `?`, so that different
//! names share a UID. This module rejects such names ([`NameEncodeError`]), so they never get a UID.

use crate::java_letter::is_java_letter;

/// Longest name that can be stored, in bytes: names are row keys, which HBase limits to this length.
pub const MAX_NAME_BYTES: usize = 32_767;

/// Role of a name in error texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRole<'a> {
    /// A metric.
    Metric,
    /// A tag key; the text is its value.
    TagKey(&'a str),
    /// A tag value; the text is its key.
    TagValue(&'a str),
}

/// An invalid name. The messages are OpenTSDB's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Empty.
    #[error("Invalid {what}: empty string")]
    Empty {
        /// Role of the name.
        what: String,
    },
    /// An illegal character.
    #[error("Invalid {what} (\"{name}\"): illegal character: {character}")]
    IllegalCharacter {
        /// Role of the name.
        what: String,
        /// The whole name.
        name: String,
        /// The first illegal UTF-16 unit; a surrogate if the character is beyond the BMP.
        character: JavaChar,
    },
    /// Longer than [`MAX_NAME_BYTES`]. The name is left out of the message.
    #[error("Invalid {what}: {length} characters, more than {MAX_NAME_BYTES}")]
    TooLong {
        /// `metric name`, `tag name` or `tag value`.
        what: &'static str,
        /// Length of the name, in characters; the table stores each as one byte.
        length: usize,
    },
}

/// One UTF-16 unit as Java prints it: a lone surrogate becomes `?` in UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JavaChar(pub u16);

impl std::fmt::Display for JavaChar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", char::from_u32(u32::from(self.0)).unwrap_or('?'))
    }
}

/// A name with a letter that ISO-8859-1 lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("name \"{name}\" has the letter {letter}, which the tables cannot store")]
pub struct NameEncodeError {
    /// The whole name.
    pub name: String,
    /// The first such letter.
    pub letter: char,
}

/// Valid characters of names: ASCII letters and digits, `-`, `_`, `.`, `/`, other letters, and characters that
/// the operator allows (`tsd.core.tag.allow_specialchars`, for metrics too).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameRule {
    extra: Vec<u16>,
}

impl NameRule {
    /// The default characters and `characters`.
    #[must_use]
    pub fn with_special_characters(characters: &str) -> Self {
        Self { extra: characters.encode_utf16().collect() }
    }

    /// Validates a name.
    pub fn check(&self, role: NameRole<'_>, name: &str) -> Result<(), NameError> {
        if name.is_empty() {
            return Err(NameError::Empty { what: role.describe() });
        }
        if name.len() > MAX_NAME_BYTES {
            let length = name.chars().count();
            if length > MAX_NAME_BYTES {
                return Err(NameError::TooLong { what: role.what(), length });
            }
        }
        match name.encode_utf16().find(|unit| !self.allows(*unit)) {
            None => Ok(()),
            Some(unit) => Err(NameError::IllegalCharacter {
                what: role.describe(),
                name: name.to_owned(),
                character: JavaChar(unit),
            }),
        }
    }

    fn allows(&self, unit: u16) -> bool {
        const PUNCTUATION: [u16; 4] = [b'-' as u16, b'_' as u16, b'.' as u16, b'/' as u16];
        matches!(unit, 0x30..=0x39)
            || PUNCTUATION.contains(&unit)
            || is_java_letter(unit)
            || self.extra.contains(&unit)
    }
}

impl NameRole<'_> {
    const fn what(self) -> &'static str {
        match self {
            Self::Metric => "metric name",
            Self::TagKey(_) => "tag name",
            Self::TagValue(_) => "tag value",
        }
    }

    fn describe(self) -> String {
        let what = self.what();
        match self {
            Self::Metric => what.to_owned(),
            Self::TagKey(value) => format!("{what} with value [{value}]"),
            Self::TagValue(key) => format!("{what} with key [{key}]"),
        }
    }
}

/// Text of stored bytes, or of bytes from the telnet port. Every byte is one character.
#[must_use]
pub fn decode_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|b| char::from(*b)).collect()
}

/// Bytes of a name to store; an error for characters that ISO-8859-1 lacks.
pub fn encode_latin1(name: &str) -> Result<Vec<u8>, NameEncodeError> {
    name.chars()
        .map(|c| {
            u8::try_from(u32::from(c))
                .map_err(|_| NameEncodeError { name: name.to_owned(), letter: c })
        })
        .collect()
}

/// Bytes of a name as OpenTSDB writes and looks it up: `?` for each character that ISO-8859-1 lacks.
/// For reading OpenTSDB's tables.
#[must_use]
pub fn encode_latin1_lossy(name: &str) -> Vec<u8> {
    name.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(role: NameRole<'_>, name: &str, expected: Result<(), &str>) {
        let result = NameRule::default().check(role, name).map_err(|e| e.to_string());
        assert_eq!(result, expected.map_err(str::to_owned));
    }

    #[test]
    fn letters_digits_and_four_signs_are_valid() {
        check(NameRole::Metric, "sys.cpu-user_0/ok", Ok(()));
        check(NameRole::Metric, "température", Ok(()));
        check(NameRole::Metric, "中", Ok(()));
    }

    #[test]
    fn messages_are_those_of_opentsdb() {
        check(NameRole::Metric, "a b", Err("Invalid metric name (\"a b\"): illegal character:  "));
        check(
            NameRole::TagKey("v"),
            "k$",
            Err("Invalid tag name with value [v] (\"k$\"): illegal character: $"),
        );
        check(
            NameRole::TagValue("k"),
            "v:",
            Err("Invalid tag value with key [k] (\"v:\"): illegal character: :"),
        );
        check(NameRole::TagValue("k"), "", Err("Invalid tag value with key [k]: empty string"));
        check(NameRole::Metric, "a😀", Err("Invalid metric name (\"a😀\"): illegal character: ?"));
    }

    #[test]
    fn special_characters_are_added_to_the_rule() {
        let rule = NameRule::with_special_characters("$@:");
        assert_eq!(rule.check(NameRole::Metric, "a$b@c:"), Ok(()));
        assert!(rule.check(NameRole::Metric, "a b").is_err());
    }

    #[test]
    fn names_are_latin_1_bytes() {
        assert_eq!(encode_latin1("é").unwrap(), [0xE9]);
        assert_eq!(encode_latin1("a中").unwrap_err().letter, '中');
        assert_eq!(encode_latin1_lossy("a中"), b"a?");
    }

    #[test]
    fn names_are_limited_in_characters_as_they_are_stored() {
        let rule = NameRule::default();
        for letter in ["x", "é"] {
            let longest = letter.repeat(MAX_NAME_BYTES);
            assert_eq!(rule.check(NameRole::Metric, &longest), Ok(()));
            let error = rule.check(NameRole::TagKey("v"), &format!("{longest}{letter}"));
            let text = "Invalid tag name: 32768 characters, more than 32767";
            assert_eq!(error.unwrap_err().to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn encode_inverts_decode(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(encode_latin1(&decode_latin1(&bytes)), Ok(bytes));
        }

        #[test]
        fn arbitrary_text_does_not_panic(name in ".*") {
            let _ = NameRule::default().check(NameRole::Metric, &name);
        }
    }
}

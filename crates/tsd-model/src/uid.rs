//! UIDs: fixed-width numbers that stand for names in keys.

use std::{cmp::Ordering, fmt, hash};

use crate::{hex::to_hex, table_schema::TableSchema};

/// The three independent name spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UidKind {
    /// Metric names.
    Metric,
    /// Tag keys.
    Tagk,
    /// Tag values.
    Tagv,
}

impl UidKind {
    /// All three, in the order OpenTSDB lists them.
    pub const ALL: [Self; 3] = [Self::Metric, Self::Tagk, Self::Tagv];

    /// Qualifier of mappings and counters in the UID table, and the name in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Metric => "metrics",
            Self::Tagk => "tagk",
            Self::Tagv => "tagv",
        }
    }

    /// Finds the kind of a column of mappings by its qualifier.
    #[must_use]
    pub fn of_column(qualifier: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str().as_bytes() == qualifier)
    }

    /// Qualifier of the UIDMeta cell.
    #[must_use]
    pub const fn meta_qualifier(self) -> &'static str {
        match self {
            Self::Metric => "metric_meta",
            Self::Tagk => "tagk_meta",
            Self::Tagv => "tagv_meta",
        }
    }

    /// Name in UIDMeta objects and tree rules.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Metric => "METRIC",
            Self::Tagk => "TAGK",
            Self::Tagv => "TAGV",
        }
    }

    /// Finds a kind by its name in requests, case-insensitively: `metric` or `metrics`, `tagk`, `tagv`.
    #[must_use]
    pub const fn from_name(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("metric") || name.eq_ignore_ascii_case("metrics") {
            Some(Self::Metric)
        } else if name.eq_ignore_ascii_case("tagk") {
            Some(Self::Tagk)
        } else if name.eq_ignore_ascii_case("tagv") {
            Some(Self::Tagv)
        } else {
            None
        }
    }

    /// Width of a UID of this kind, bytes.
    #[must_use]
    pub const fn width(self, schema: &TableSchema) -> usize {
        match self {
            Self::Metric => schema.metric_width(),
            Self::Tagk => schema.tagk_width(),
            Self::Tagv => schema.tagv_width(),
        }
    }
}

impl fmt::Display for UidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A UID of one to eight bytes. Ordered and hashed as its bytes.
#[derive(Clone, Copy)]
pub struct Uid {
    bytes: [u8; 8],
    len: u8,
}

/// An invalid UID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UidError {
    /// Empty, or more than eight bytes.
    #[error("UID of {0} bytes")]
    Length(usize),
    /// Another width than configured.
    #[error("Wrong id.length = {actual} which is != {expected}")]
    Width {
        /// Configured width.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// Zero, or a number that does not fit.
    #[error("number {number} is no UID of {width} bytes")]
    Number {
        /// The number.
        number: u64,
        /// Configured width.
        width: usize,
    },
    /// A text that is not hexadecimal, or too long.
    #[error("\"{0}\" is no hexadecimal UID")]
    Hex(String),
}

impl Uid {
    /// Creates a UID of one to eight bytes.
    #[inline]
    pub fn try_new(bytes: &[u8]) -> Result<Self, UidError> {
        let mut padded = [0; 8];
        match padded.get_mut(..bytes.len()) {
            Some(front) if !bytes.is_empty() => front.copy_from_slice(bytes),
            _ => return Err(UidError::Length(bytes.len())),
        }
        Ok(Self { bytes: padded, len: bytes.len() as u8 })
    }

    /// The UID in a field of a key. Every [`TableSchema`] gives the field one to eight bytes.
    pub(crate) fn of_field(bytes: &[u8]) -> Self {
        let mut padded = [0; 8];
        padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self { bytes: padded, len: bytes.len().min(padded.len()) as u8 }
    }

    /// Creates a UID from bytes of the expected width.
    pub fn with_width(bytes: &[u8], width: usize) -> Result<Self, UidError> {
        if bytes.len() != width {
            return Err(UidError::Width { expected: width, actual: bytes.len() });
        }
        Self::try_new(bytes)
    }

    /// Largest number of a UID of this width. With eight bytes the top bit is Java's sign.
    #[must_use]
    pub const fn max_number(width: usize) -> u64 {
        match width {
            0 => 0,
            1..=7 => (1 << (8 * width)) - 1,
            _ => i64::MAX as u64,
        }
    }

    /// UID of an assigned number; zero is never assigned.
    pub fn from_number(number: u64, width: usize) -> Result<Self, UidError> {
        if number == 0 || width > 8 || number > Self::max_number(width) {
            return Err(UidError::Number { number, width });
        }
        let bytes = number.to_be_bytes();
        Self::try_new(bytes.get(8 - width..).unwrap_or_default())
    }

    /// The big-endian number of the bytes of a UID, at most eight.
    #[must_use]
    pub fn number_of(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    /// The big-endian number of the bytes.
    #[must_use]
    pub fn to_number(self) -> u64 {
        Self::number_of(self.as_bytes())
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    /// Number of bytes.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.len as usize
    }

    /// Parses hex of either case; shorter text is padded with leading zeros.
    pub fn parse_hex(text: &str, width: usize) -> Result<Self, UidError> {
        let error = || UidError::Hex(text.to_owned());
        if text.is_empty() || width > 8 || text.len() > 2 * width {
            return Err(error());
        }
        let padded = format!("{text:0>digits$}", digits = 2 * width);
        let bytes = crate::hex::from_hex(padded.as_bytes()).ok_or_else(error)?;
        Self::try_new(&bytes)
    }
}

impl AsRef<[u8]> for Uid {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Uid {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Uid {}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Uid {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl hash::Hash for Uid {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Upper-case hex.
impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(self.as_bytes()))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({self})")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn last_number_of_each_width() {
        assert_eq!(Uid::from_number(0xFF_FFFF, 3).unwrap().as_bytes(), [0xFF; 3]);
        assert_eq!(
            Uid::from_number(0x100_0000, 3),
            Err(UidError::Number { number: 0x100_0000, width: 3 })
        );
        assert_eq!(Uid::max_number(8), i64::MAX as u64);
        assert!(Uid::from_number(0, 3).is_err());
        assert!(Uid::from_number(1, 0).is_err());
        assert!(Uid::from_number(1, 9).is_err());
    }

    #[test]
    fn hex_is_upper_case_and_padded() {
        let uid = Uid::parse_hex("1a", 3).unwrap();
        assert_eq!(uid.to_string(), "00001A");
        assert!(Uid::parse_hex("1234567", 3).is_err());
        assert!(Uid::parse_hex("xy", 3).is_err());
        assert!(Uid::parse_hex("é", 1).is_err());
        assert!(Uid::parse_hex("", 1).is_err());
    }

    #[test]
    fn width_error_is_opentsdbs() {
        let error = Uid::with_width(&[1], 3).unwrap_err();
        assert_eq!(error.to_string(), "Wrong id.length = 1 which is != 3");
    }

    #[test]
    fn kinds_are_named_in_any_case() {
        assert_eq!(UidKind::from_name("Metrics"), Some(UidKind::Metric));
        assert_eq!(UidKind::from_name("TAGV"), Some(UidKind::Tagv));
        assert_eq!(UidKind::from_name("tag"), None);
    }

    proptest! {
        #[test]
        fn bytes_invert_number(width in 1..=8_usize, raw: u64) {
            let number = raw % Uid::max_number(width) + 1;
            prop_assume!(number <= Uid::max_number(width));
            let uid = Uid::from_number(number, width).unwrap();
            prop_assert_eq!(uid.to_number(), number);
            prop_assert_eq!(uid.width(), width);
            prop_assert_eq!(Uid::parse_hex(&uid.to_string(), width), Ok(uid));
        }

        #[test]
        fn byte_order_is_number_order(a: u32, b: u32) {
            let uid = |n: u32| Uid::try_new(&n.to_be_bytes()).unwrap();
            prop_assert_eq!(uid(a).cmp(&uid(b)), a.cmp(&b));
        }
    }
}

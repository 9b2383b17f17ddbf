//! Qualifier of one point: its offset in the hour, its unit, type and length.
//!
//! ```text
//! seconds       oooo oooo oooo ffff                              offset 0..3599 s
//! milliseconds  1111 oooo oooo oooo oooo oooo oo.. ffff          offset 0..3599999 ms
//! ```
//!
//! The first nibble of a seconds qualifier is never F; this distinguishes the two in a sequence.

use crate::{flags::Flags, timestamp::Timestamp};

/// Qualifier of one point, two bytes (seconds) or four (milliseconds).
///
/// Ordered as HBase orders the bytes: seconds by time, then milliseconds by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qualifier {
    bytes: [u8; 4],
    len: u8,
}

impl Qualifier {
    /// First nibble of a millisecond qualifier, shifted into position.
    const MILLIS: u8 = 0xF0;

    /// Qualifier of a point at `timestamp` with a value of that type and length.
    #[must_use]
    #[inline]
    pub const fn new(timestamp: Timestamp, flags: Flags) -> Self {
        if timestamp.is_millis() {
            Self::from_millis_bits(timestamp.offset_ms(), flags)
        } else {
            Self::from_seconds_bits(timestamp.offset_secs() as u16, flags)
        }
    }

    const fn from_seconds_bits(offset_secs: u16, flags: Flags) -> Self {
        let [a, b] = (offset_secs << 4 | flags.bits() as u16).to_be_bytes();
        Self { bytes: [a, b, 0, 0], len: 2 }
    }

    const fn from_millis_bits(offset_ms: u32, flags: Flags) -> Self {
        let bits = 0xF000_0000 | offset_ms << 6 | flags.bits() as u32;
        Self { bytes: bits.to_be_bytes(), len: 4 }
    }

    /// Qualifier at an offset in seconds, 0 to 3599.
    #[must_use]
    pub const fn at_seconds(offset_secs: u32, flags: Flags) -> Option<Self> {
        if offset_secs < 3_600 {
            Some(Self::from_seconds_bits(offset_secs as u16, flags))
        } else {
            None
        }
    }

    /// Qualifier at an offset in milliseconds, 0 to 3599999.
    #[must_use]
    pub const fn at_millis(offset_ms: u32, flags: Flags) -> Option<Self> {
        if offset_ms < 3_600_000 { Some(Self::from_millis_bits(offset_ms, flags)) } else { None }
    }

    /// Splits the first qualifier off a sequence; `None` if the bytes end inside it.
    #[must_use]
    #[inline]
    pub const fn split_first(bytes: &[u8]) -> Option<(Self, &[u8])> {
        match bytes {
            [a, ..] if *a >= Self::MILLIS => match bytes.split_first_chunk::<4>() {
                Some((four, rest)) => Some((Self { bytes: *four, len: 4 }, rest)),
                None => None,
            },
            [a, b, rest @ ..] => Some((Self { bytes: [*a, *b, 0, 0], len: 2 }, rest)),
            _ => None,
        }
    }

    /// The qualifier of a single-point column; `None` for other columns.
    #[must_use]
    #[inline]
    pub const fn decode(bytes: &[u8]) -> Option<Self> {
        match Self::split_first(bytes) {
            Some((qualifier, [])) => Some(qualifier),
            _ => None,
        }
    }

    /// The bytes as stored.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    /// True if the offset is in milliseconds.
    #[must_use]
    #[inline]
    pub const fn is_millis(&self) -> bool {
        self.len == 4
    }

    /// Offset from the base time in milliseconds. Damaged qualifiers may exceed the hour.
    #[must_use]
    #[inline]
    pub const fn offset_ms(&self) -> u32 {
        let [a, b, _, _] = self.bytes;
        if self.is_millis() {
            (u32::from_be_bytes(self.bytes) & 0x0FFF_FFFF) >> 6
        } else {
            (u16::from_be_bytes([a, b]) >> 4) as u32 * 1_000
        }
    }

    /// Type and length of the value.
    #[must_use]
    #[inline]
    pub const fn flags(&self) -> Flags {
        let [_, b, _, d] = self.bytes;
        Flags::from_bits(if self.is_millis() { d } else { b })
    }

    /// The same instant and unit with other flags.
    #[must_use]
    pub const fn with_flags(&self, flags: Flags) -> Self {
        let [a, b, c, d] = self.bytes;
        let bytes = if self.is_millis() {
            [a, b, c, d & 0xF0 | flags.bits()]
        } else {
            [a, b & 0xF0 | flags.bits(), c, d]
        };
        Self { bytes, len: self.len }
    }
}

impl AsRef<[u8]> for Qualifier {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn timestamp() -> impl Strategy<Value = Timestamp> {
        prop_oneof![0..=Timestamp::MAX_SECS, Timestamp::MAX_SECS + 1..=Timestamp::MAX.as_given()]
            .prop_map(|n| Timestamp::try_new(n).unwrap())
    }

    fn flags() -> impl Strategy<Value = Flags> {
        prop::sample::select(vec![0, 1, 3, 7, 11, 15]).prop_map(Flags::from_bits)
    }

    #[test]
    fn second_offsets_reach_the_top_bit_but_never_nibble_f() {
        let q = Qualifier::at_seconds(3_599, Flags::from_bits(7)).unwrap();
        assert_eq!(q.as_bytes(), [0xE0, 0xF7]);
        assert_eq!(Qualifier::at_seconds(3_600, Flags::SINGLE), None);
        assert_eq!(Qualifier::at_millis(3_600_000, Flags::SINGLE), None);
    }

    #[test]
    fn reserved_bits_of_milliseconds_are_ignored() {
        let q = Qualifier::decode(&[0xF0, 0x00, 0x02, 0x37]).unwrap();
        assert_eq!((q.offset_ms(), q.flags().bits()), (8, 7));
    }

    #[test]
    fn a_truncated_qualifier_is_none() {
        for bytes in [&[][..], &[0x00], &[0xF0, 0], &[0xF0, 0, 0]] {
            assert_eq!(Qualifier::split_first(bytes), None);
        }
        assert_eq!(Qualifier::decode(&[0, 0, 0, 0x10]), None);
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(ts in timestamp(), flags in flags()) {
            let q = Qualifier::new(ts, flags);
            prop_assert_eq!(Qualifier::decode(q.as_bytes()), Some(q));
            prop_assert_eq!(q.offset_ms(), ts.offset_ms());
            prop_assert_eq!(q.flags(), flags);
            prop_assert_eq!(q.is_millis(), ts.is_millis());
        }

        #[test]
        fn byte_order_is_time_order(a in 0..3_600_u32, b in 0..3_600_u32, f in flags(), g in flags()) {
            prop_assume!(a != b);
            let (qa, qb) = (Qualifier::at_seconds(a, f).unwrap(), Qualifier::at_seconds(b, g).unwrap());
            prop_assert_eq!(qa.as_bytes().cmp(qb.as_bytes()), a.cmp(&b));
            let (qa, qb) = (Qualifier::at_millis(a, f).unwrap(), Qualifier::at_millis(b, g).unwrap());
            prop_assert_eq!(qa.as_bytes().cmp(qb.as_bytes()), a.cmp(&b));
            prop_assert_eq!(qa.cmp(&qb), a.cmp(&b));
        }
    }
}

//! Timestamp of a point, in the client's unit.
//!
//! The unit is part of a point's identity: 1356998400 and 1356998400000 are one instant and two
//! cells. OpenTSDB distinguishes them by magnitude, so this type stores only the number.

use crate::base_time::BaseTime;

/// Seconds, or milliseconds if the number exceeds 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// An invalid timestamp: negative, or milliseconds of more than 13 digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad timestamp={0}")]
pub struct TimestampError(pub i64);

impl Timestamp {
    /// Largest timestamp, in milliseconds: November 2286.
    pub const MAX: Self = Self(9_999_999_999_999);
    /// Largest number that means seconds.
    pub const MAX_SECS: i64 = 0xFFFF_FFFF;

    /// Validates a number sent by a client.
    #[inline]
    pub const fn try_new(number: i64) -> Result<Self, TimestampError> {
        if number < 0 || number > Self::MAX.0 {
            Err(TimestampError(number))
        } else {
            Ok(Self(number))
        }
    }

    /// The number as given.
    #[must_use]
    #[inline]
    pub const fn as_given(self) -> i64 {
        self.0
    }

    /// True for milliseconds.
    #[must_use]
    #[inline]
    pub const fn is_millis(self) -> bool {
        self.0 > Self::MAX_SECS
    }

    /// Epoch milliseconds. Also the explicit cell timestamp of a point, if enabled.
    #[must_use]
    #[inline]
    pub const fn as_millis(self) -> i64 {
        if self.is_millis() { self.0 } else { self.0 * 1_000 }
    }

    /// Whole epoch seconds; more than 32 bits from 2106 on.
    #[must_use]
    #[inline]
    pub const fn as_secs(self) -> u64 {
        (if self.is_millis() { self.0 / 1_000 } else { self.0 }) as u64
    }

    /// Base time of the row that contains this time.
    #[must_use]
    #[inline]
    pub const fn base_time(self) -> BaseTime {
        BaseTime::before(self.as_secs() as u32, self.offset_secs())
    }

    /// Whole seconds since the start of the hour, below 3600.
    #[must_use]
    #[inline]
    pub const fn offset_secs(self) -> u32 {
        if self.is_millis() {
            self.offset_ms() / 1_000
        } else {
            // Seconds fit in 32 bits, where a remainder is cheap.
            self.0 as u32 % BaseTime::SPAN_SECONDS
        }
    }

    /// Milliseconds since the start of the hour, below 3 600 000.
    #[must_use]
    #[inline]
    pub const fn offset_ms(self) -> u32 {
        if self.is_millis() {
            (self.0 as u64 % (BaseTime::SPAN_SECONDS as u64 * 1_000)) as u32
        } else {
            self.offset_secs() * 1_000
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_follows_from_size() {
        let ts = |n| Timestamp::try_new(n).map(Timestamp::as_millis);
        assert_eq!(ts(4_294_967_295), Ok(4_294_967_295_000));
        assert_eq!(ts(4_294_967_296), Ok(4_294_967_296));
        assert_eq!(ts(0), Ok(0));
    }

    #[test]
    fn negative_and_fourteen_digits_are_rejected() {
        assert_eq!(Timestamp::try_new(-1), Err(TimestampError(-1)));
        assert!(Timestamp::try_new(9_999_999_999_999).is_ok());
        assert!(Timestamp::try_new(10_000_000_000_000).is_err());
    }
}

//! Timestamp of a point, in the client's unit.
//!
//! The unit is part of a point's identity: 1356998400 and 1356998400000 are one instant and two
//! cells. OpenTSDB distinguishes them by magnitude, so this type stores only the number.

use crate::base_time::BaseTime;

/// Seconds, or milliseconds if the number exceeds 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// An invalid timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimestampError {
    /// Negative, or of more than 13 digits. The text is OpenTSDB's.
    #[error("bad timestamp={0}")]
    OutOfRange(i64),
    /// After [`Timestamp::MAX`]. OpenTSDB stores it 2^32 seconds earlier.
    #[error("timestamp {0} is after 2106-02-07 06:28:15 UTC, the last that a row key can have")]
    AfterLast(i64),
}

impl Timestamp {
    /// Largest timestamp, in milliseconds: the last millisecond whose second fits the row key.
    pub const MAX: Self = Self(Self::MAX_SECS * 1_000 + 999);
    /// Largest number of 13 digits, the most that OpenTSDB accepts.
    const MAX_DIGITS: i64 = 9_999_999_999_999;
    /// Largest number that means seconds.
    pub const MAX_SECS: i64 = 0xFFFF_FFFF;

    /// Validates a number sent by a client.
    #[inline]
    pub const fn try_new(number: i64) -> Result<Self, TimestampError> {
        if number < 0 || number > Self::MAX_DIGITS {
            Err(TimestampError::OutOfRange(number))
        } else if number > Self::MAX.0 {
            Err(TimestampError::AfterLast(number))
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
        millis_of(self.0)
    }

    /// Whole epoch seconds. They fit 32 bits up to [`Self::MAX`].
    #[must_use]
    #[inline]
    pub const fn as_secs(self) -> u32 {
        (if self.is_millis() { self.0 as u64 / 1_000 } else { self.0 as u64 }) as u32
    }

    /// Base time of the row that contains this time.
    #[must_use]
    #[inline]
    pub const fn base_time(self) -> BaseTime {
        BaseTime::containing(self.as_secs())
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

/// Epoch milliseconds of a number in seconds, or in milliseconds if it exceeds 32 bits. Accepts
/// numbers that are not a [`Timestamp`].
#[must_use]
#[inline]
pub const fn millis_of(number: i64) -> i64 {
    if number > Timestamp::MAX_SECS { number } else { number.saturating_mul(1_000) }
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
        for number in [-1, i64::MIN, 10_000_000_000_000, i64::MAX] {
            assert_eq!(Timestamp::try_new(number), Err(TimestampError::OutOfRange(number)));
        }
    }

    /// Issue 37.
    #[test]
    fn times_after_the_last_of_a_row_key_are_rejected() {
        let last = Timestamp::try_new(4_294_967_295_999).map(Timestamp::as_secs);
        assert_eq!(last, Ok(u32::MAX));
        for number in [4_294_967_296_000, 9_999_999_999_999] {
            assert_eq!(Timestamp::try_new(number), Err(TimestampError::AfterLast(number)));
        }
    }
}

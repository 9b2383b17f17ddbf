//! The base time of a row: the start of its hour.
//!
//! The row key has the hour, and each qualifier only the offset inside it, so a row key with an
//! unaligned time is never found again. This type makes such keys impossible.

/// Start of the hour that one row covers, epoch seconds; four bytes in the row key.
///
/// A multiple of [`Self::SPAN_SECONDS`] for every time before the year 2106. Later times, which
/// only millisecond timestamps reach, keep their low 32 bits as they do in OpenTSDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseTime(u32);

impl BaseTime {
    /// Seconds covered by one row. Part of the table format: stored rows depend on it.
    pub const SPAN_SECONDS: u32 = 3_600;

    /// Base time of the row that holds `epoch_secs`.
    #[must_use]
    pub const fn containing(epoch_secs: u32) -> Self {
        Self(epoch_secs - epoch_secs % Self::SPAN_SECONDS)
    }

    /// Base time of the row of a time that is so many seconds after its hour. Only its low 32 bits count, before or
    /// after the subtraction.
    #[inline]
    pub(crate) const fn before(low_secs: u32, offset_secs: u32) -> Self {
        Self(low_secs.wrapping_sub(offset_secs))
    }

    /// Base time as a stored row key has it; other writers may have stored unaligned ones.
    #[must_use]
    pub const fn from_stored(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    /// Epoch seconds.
    #[must_use]
    #[inline]
    pub const fn as_secs(self) -> u32 {
        self.0
    }

    /// Epoch milliseconds.
    #[must_use]
    #[inline]
    pub const fn as_millis(self) -> i64 {
        self.0 as i64 * 1_000
    }

    /// The four bytes of the row key.
    #[must_use]
    #[inline]
    pub const fn to_bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// The next row's base time; `None` after the last that fits 32 bits.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(Self::SPAN_SECONDS) {
            Some(secs) => Some(Self(secs)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::timestamp::Timestamp;

    #[track_caller]
    fn check(epoch_secs: u32, expected: u32) {
        assert_eq!(BaseTime::containing(epoch_secs).0, expected);
    }

    #[test]
    fn last_second_stays_in_its_hour() {
        check(7_199, 3_600);
        check(7_200, 7_200);
        check(0, 0);
        check(u32::MAX, 4_294_965_600);
    }

    #[test]
    fn times_beyond_2106_keep_their_low_bits() {
        let base = |n| Timestamp::try_new(n).map(|t| t.base_time().0);
        assert_eq!(base(9_999_999_999_999), Ok(1_410_062_608));
        assert_eq!(base(((1 << 32) + 100) * 1_000), Ok(4_294_965_600));
    }

    #[test]
    fn last_hour_has_no_next() {
        assert_eq!(BaseTime::containing(u32::MAX).next(), None);
        assert_eq!(BaseTime::containing(0).next(), Some(BaseTime(3_600)));
    }

    proptest! {
        #[test]
        fn offset_fits_the_span(ts: u32) {
            prop_assert!(ts - BaseTime::containing(ts).0 < BaseTime::SPAN_SECONDS);
        }

        #[test]
        fn byte_order_is_time_order(a: u32, b: u32) {
            let (a, b) = (BaseTime::containing(a), BaseTime::containing(b));
            prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
        }
    }
}

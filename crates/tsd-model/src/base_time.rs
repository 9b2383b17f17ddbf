//! The base time of a row: the start of its hour.
//!
//! The row key has the hour, and each qualifier only the offset in that hour. No lookup would find
//! a row key with an unaligned time, so this type never makes one.

/// Start of the hour that one row covers, epoch seconds; four bytes in the row key.
///
/// A multiple of [`Self::SPAN_SECONDS`]. Times after 2106-02-07 06:28:15 UTC do not fit:
/// [`crate::Timestamp`] and [`crate::AnnotationKey`] reject them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseTime(u32);

impl BaseTime {
    /// Seconds covered by one row. Part of the table format: stored rows depend on it.
    pub const SPAN_SECONDS: u32 = 3_600;

    /// Base time of the row that holds `epoch_secs`.
    #[must_use]
    #[inline]
    pub const fn containing(epoch_secs: u32) -> Self {
        Self(epoch_secs - epoch_secs % Self::SPAN_SECONDS)
    }

    /// Base time of a stored row key, which may be unaligned if another program wrote it.
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
    fn last_hour_has_no_next() {
        assert_eq!(BaseTime::containing(u32::MAX).next(), None);
        assert_eq!(BaseTime::containing(0).next(), Some(BaseTime(3_600)));
    }

    proptest! {
        #[test]
        fn offset_fits_the_span(ts: u32) {
            prop_assert!(ts - BaseTime::containing(ts).0 < BaseTime::SPAN_SECONDS);
        }

        /// Issue 37: a time after 2106 was stored 2^32 seconds earlier.
        #[test]
        fn no_timestamp_wraps(number: i64) {
            if let Ok(time) = crate::Timestamp::try_new(number) {
                let (base, ms) = (time.base_time(), time.as_millis());
                prop_assert_eq!(base.as_millis() + i64::from(time.offset_ms()), ms);
                prop_assert!(base.as_millis() <= ms && ms <= crate::Timestamp::MAX.as_millis());
            }
        }

        #[test]
        fn byte_order_is_time_order(a: u32, b: u32) {
            let (a, b) = (BaseTime::containing(a), BaseTime::containing(b));
            prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
        }
    }
}

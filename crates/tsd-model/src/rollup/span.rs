//! Time span of a rollup row.

use crate::{base_time::BaseTime, calendar_units::DAY_SECS};

/// Span of a rollup row, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowSpan {
    /// A number of hours: 1 or even.
    Hours(u16),
    /// A day.
    Day,
    /// A month.
    Month,
    /// A year.
    Year,
}

impl RowSpan {
    /// Parses `1h`, `6h`, `1d`, `1n` or `1y`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (multiplier, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        if !multiplier.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        match (unit, multiplier.parse().ok()?) {
            ("h", hours) if hours == 1 || (hours > 0 && hours % 2 == 0) => Some(Self::Hours(hours)),
            ("d", 1_u16) => Some(Self::Day),
            ("n", 1) => Some(Self::Month),
            ("y", 1) => Some(Self::Year),
            _ => None,
        }
    }

    /// Length in seconds for counting slots: the longest such span, plus a day for months and years.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Hours(hours) => 3_600 * hours as u64,
            Self::Day => DAY_SECS as u64,
            Self::Month => 32 * DAY_SECS as u64,
            Self::Year => 366 * DAY_SECS as u64,
        }
    }

    /// Start of the row that contains a time.
    #[must_use]
    pub const fn base_time(self, epoch_secs: u32) -> BaseTime {
        let secs = match self {
            Self::Hours(hours) => {
                let span = 3_600 * if hours == 0 { 1 } else { hours as u32 };
                epoch_secs - epoch_secs % span
            }
            Self::Day => epoch_secs - epoch_secs % DAY_SECS,
            Self::Month | Self::Year => {
                let days = epoch_secs / DAY_SECS;
                let (day_of_month, day_of_year) = calendar(days);
                let back = if matches!(self, Self::Month) { day_of_month } else { day_of_year };
                (days - back) * DAY_SECS
            }
        };
        BaseTime::from_stored(secs.to_be_bytes())
    }
}

/// Days since the first of the month and since January 1, for a number of days since the epoch.
const fn calendar(days: u32) -> (u32, u32) {
    let mut year = 1970;
    let mut rest = days;
    while rest >= days_in_year(year) {
        rest -= days_in_year(year);
        year += 1;
    }
    let february = if days_in_year(year) == 366 { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (mut day, mut left) = (rest, months.as_slice());
    while let [length, later @ ..] = left {
        if day < *length {
            break;
        }
        day -= *length;
        left = later;
    }
    (day, rest)
}

const fn days_in_year(year: u32) -> u32 {
    if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) {
        366
    } else {
        365
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spans_are_a_number_and_a_unit() {
        assert_eq!(RowSpan::parse("6h"), Some(RowSpan::Hours(6)));
        assert_eq!(RowSpan::parse("1n"), Some(RowSpan::Month));
        for text in ["3h", "0h", "2d", "2n", "1w", "h", "", "1", "+1h", "é", "99999999h"] {
            assert_eq!(RowSpan::parse(text), None, "{text}");
        }
    }

    #[test]
    fn months_and_years_start_at_midnight_utc() {
        let base = |span: RowSpan, secs| span.base_time(secs).as_secs();
        assert_eq!(base(RowSpan::Month, 1_330_559_999), 1_328_054_400);
        assert_eq!(base(RowSpan::Month, 951_827_696), 949_363_200);
        assert_eq!(base(RowSpan::Year, 978_307_199), 946_684_800);
        assert_eq!(base(RowSpan::Year, 0), 0);
        assert_eq!(base(RowSpan::Year, u32::MAX), 4_291_747_200);
        assert_eq!(base(RowSpan::Month, u32::MAX), 4_294_425_600);
    }

    proptest! {
        #[test]
        fn rows_are_no_longer_than_their_span(secs: u32, hours in 1..12_u16) {
            for span in [RowSpan::Hours(hours), RowSpan::Day, RowSpan::Month, RowSpan::Year] {
                let base = span.base_time(secs).as_secs();
                prop_assert!(base <= secs && u64::from(secs - base) < span.seconds());
                prop_assert_eq!(span.base_time(base).as_secs(), base);
            }
        }
    }
}

//! Durations such as `5m` or `1d`.
//!
//! OpenTSDB parses the leading digits and the last character and ignores the text between them:
//! `1h30m` is one minute. Existing dashboards rely on such texts. Units in words are an exception,
//! since OpenTSDB reads `1day` as a year and `10min` as ten months.

/// Unit of a duration or of a calendar interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// `ms`
    Millisecond,
    /// `s`
    Second,
    /// `m`
    Minute,
    /// `h`
    Hour,
    /// `d`
    Day,
    /// `w`
    Week,
    /// `n`: 30 days as a duration, a calendar month in calendar downsampling.
    Month,
    /// `y`: 365 days as a duration, a calendar year in calendar downsampling.
    Year,
}

impl TimeUnit {
    /// Length as a plain duration.
    #[must_use]
    pub const fn millis(self) -> i64 {
        match self {
            Self::Millisecond => 1,
            Self::Second => 1_000,
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
            Self::Week => 604_800_000,
            Self::Month => 2_592_000_000,
            Self::Year => 31_536_000_000,
        }
    }
}

/// A positive duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Duration {
    /// Length in milliseconds.
    pub millis: i64,
    /// Unit as given.
    pub unit: TimeUnit,
}

/// An invalid duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Empty text.
    #[error("Cannot parse null or empty duration")]
    Empty,
    /// Only digits.
    #[error("Invalid duration, must have an integer and unit: {0}")]
    NoUnit(String),
    /// No digits, or too many digits.
    #[error("Invalid duration (number): {0}")]
    Number(String),
    /// Zero.
    #[error("Zero or negative duration: {0}")]
    Zero(String),
    /// Unknown unit.
    #[error("Invalid duration (suffix): {0}")]
    Suffix(String),
    /// Too many milliseconds for 64 bits.
    #[error("Duration must be < Long.MAX_VALUE ms: {0}")]
    Overflow(String),
}

impl Duration {
    /// Parses a duration. The last character decides an unknown unit.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        Self::parse_with(text, |unit| unit_in_words(unit).or_else(|| unit_of_last_character(unit)))
    }

    /// Parses a duration whose unit is a letter, `ms` or a word. Rejects any other unit.
    pub fn parse_exact(text: &str) -> Result<Self, DurationError> {
        Self::parse_with(text, |unit| {
            let is_short = unit.len() == 1 || unit == "ms";
            unit_in_words(unit).or_else(|| unit_of_last_character(unit).filter(|_| is_short))
        })
    }

    fn parse_with(
        text: &str,
        unit_of: impl Fn(&str) -> Option<TimeUnit>,
    ) -> Result<Self, DurationError> {
        if text.is_empty() {
            return Err(DurationError::Empty);
        }
        let Some((digits, unit)) =
            text.find(|c: char| !c.is_ascii_digit()).and_then(|at| text.split_at_checked(at))
        else {
            return Err(DurationError::NoUnit(text.to_owned()));
        };
        let count: i64 = digits.parse().map_err(|_| DurationError::Number(text.to_owned()))?;
        if count <= 0 {
            return Err(DurationError::Zero(text.to_owned()));
        }
        let unit = unit_of(unit).ok_or_else(|| DurationError::Suffix(text.to_owned()))?;
        let millis = count
            .checked_mul(unit.millis())
            .ok_or_else(|| DurationError::Overflow(text.to_owned()))?;
        Ok(Self { millis, unit })
    }
}

fn unit_in_words(word: &str) -> Option<TimeUnit> {
    Some(match word.to_ascii_lowercase().as_str() {
        "sec" | "secs" | "second" | "seconds" => TimeUnit::Second,
        "min" | "mins" | "minute" | "minutes" => TimeUnit::Minute,
        "hr" | "hrs" | "hour" | "hours" => TimeUnit::Hour,
        "day" | "days" => TimeUnit::Day,
        "week" | "weeks" => TimeUnit::Week,
        "month" | "months" => TimeUnit::Month,
        "year" | "years" => TimeUnit::Year,
        _ => return None,
    })
}

/// Unit by the last character; milliseconds require a lower-case `m` before it.
fn unit_of_last_character(text: &str) -> Option<TimeUnit> {
    let mut reversed = text.chars().rev();
    Some(match reversed.next()?.to_ascii_lowercase() {
        's' if reversed.next() == Some('m') => TimeUnit::Millisecond,
        's' => TimeUnit::Second,
        'm' => TimeUnit::Minute,
        'h' => TimeUnit::Hour,
        'd' => TimeUnit::Day,
        'w' => TimeUnit::Week,
        'n' => TimeUnit::Month,
        'y' => TimeUnit::Year,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<i64, &str>) {
        let got = Duration::parse(text).map(|d| d.millis).map_err(|e| e.to_string());
        assert_eq!(got, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn units_have_their_lengths() {
        check("250ms", Ok(250));
        check("30s", Ok(30_000));
        check("5m", Ok(300_000));
        check("2h", Ok(7_200_000));
        check("1d", Ok(86_400_000));
        check("1w", Ok(604_800_000));
        check("1n", Ok(2_592_000_000));
        check("1y", Ok(31_536_000_000));
    }

    #[test]
    fn only_leading_digits_and_last_character_count() {
        check("1.5h", Ok(3_600_000));
        check("1h30m", Ok(60_000));
        check("1H", Ok(3_600_000));
        check("100mS", Ok(100));
        check("100MS", Ok(100_000));
    }

    /// Issue 37, case B32: by its last letter `1day` is a year, and `10min` are ten months.
    #[test]
    fn units_in_words_have_their_lengths() {
        for (text, millis) in [
            ("1day", 86_400_000),
            ("2Days", 172_800_000),
            ("60min", 3_600_000),
            ("90sec", 90_000),
            ("24hour", 86_400_000),
            ("24hr", 86_400_000),
            ("1week", 604_800_000),
            ("1month", 2_592_000_000),
        ] {
            check(text, Ok(millis));
            assert_eq!(Duration::parse_exact(text).map(|d| d.millis), Ok(millis), "{text}");
        }
    }

    /// Issue 37.
    #[test]
    fn exact_durations_have_a_known_unit() {
        for text in ["1h30m", "1.5h", "1fortnight", "1 d", "100MS"] {
            let suffix = DurationError::Suffix(text.to_owned());
            assert_eq!(Duration::parse_exact(text), Err(suffix), "{text}");
        }
        assert_eq!(Duration::parse_exact("100ms").map(|d| d.millis), Ok(100));
        assert_eq!(Duration::parse_exact("1D").map(|d| d.millis), Ok(86_400_000));
    }

    #[test]
    fn errors_match_opentsdb() {
        check("", Err("Cannot parse null or empty duration"));
        check("60", Err("Invalid duration, must have an integer and unit: 60"));
        check("h", Err("Invalid duration (number): h"));
        check("99999999999999999999h", Err("Invalid duration (number): 99999999999999999999h"));
        check("0m", Err("Zero or negative duration: 0m"));
        check("5q", Err("Invalid duration (suffix): 5q"));
        check(
            "9223372036854775807y",
            Err("Duration must be < Long.MAX_VALUE ms: 9223372036854775807y"),
        );
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in "\\PC*") {
            if let Ok(duration) = Duration::parse(&text) {
                prop_assert!(duration.millis > 0);
            }
        }
    }
}

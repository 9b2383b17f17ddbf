//! Downsampling specifications: `1m-avg`, `1dc-sum-nan`, `0all-max`.

use crate::{
    aggregator::Aggregator,
    time::{Duration, DurationError, TimeUnit},
    valid_names::valid_names,
};

/// How a series is downsampled before aggregation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DownsampleSpec {
    /// The text as given.
    pub text: String,
    /// Buckets of points.
    pub window: DownsampleWindow,
    /// Aggregator of the points of a bucket.
    pub function: Aggregator,
    /// Value of an empty bucket.
    pub fill: FillPolicy,
}

/// Buckets of points.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DownsampleWindow {
    /// Buckets of equal length, aligned to the epoch.
    Fixed {
        /// Length of a bucket.
        interval_ms: i64,
    },
    /// Buckets that follow the calendar of the request's zone.
    Calendar {
        /// Units in a bucket.
        count: i64,
        /// Calendar unit.
        unit: TimeUnit,
        /// Length as a plain duration, for the range of the scan.
        interval_ms: i64,
    },
    /// One bucket for the whole query range.
    All,
}

/// Value of an empty bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FillPolicy {
    /// The bucket has no point.
    #[default]
    None,
    /// NaN.
    Nan,
    /// NaN that is written as `null`.
    Null,
    /// Zero.
    Zero,
    /// Accepted in requests; an error once a bucket has to be filled.
    Scalar,
}

/// An invalid downsampling specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownsampleError {
    /// Fewer than two parts.
    #[error("Invalid downsampling specifier '{0}': must provide at least interval and function")]
    TooFewParts(String),
    /// More than three parts.
    #[error(
        "Invalid downsampling specifier '{0}': must consist of interval, function, and optional \
         fill policy"
    )]
    TooManyParts(String),
    /// An unknown function.
    #[error("No such downsampling function: {0}")]
    UnknownFunction(String),
    /// `none`, which does not aggregate.
    #[error("cannot use the NONE aggregator for downsampling")]
    NoneFunction,
    /// A fill policy that does not exist.
    #[error("Unrecognized fill policy: {0}")]
    UnknownFill(String),
    /// The interval is not a duration.
    #[error(transparent)]
    Interval(#[from] DurationError),
    /// A calendar interval with text between number and unit.
    #[error("Invalid count \"{0}\" of a calendar interval: must be a whole number")]
    CalendarCount(String),
}

impl DownsampleError {
    /// The nearest and all valid names, if a name is unknown.
    #[must_use]
    pub fn valid_names(&self) -> Option<String> {
        match self {
            Self::UnknownFunction(name) => Some(valid_names(name, functions())),
            Self::UnknownFill(name) => Some(valid_names(name, FillPolicy::names())),
            _ => None,
        }
    }
}

impl FillPolicy {
    const ALL: [Self; 5] = [Self::None, Self::Nan, Self::Null, Self::Zero, Self::Scalar];

    /// The policy of that name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name))
    }

    /// Every name.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        Self::ALL.into_iter().map(Self::name)
    }

    /// Name in requests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Nan => "nan",
            Self::Null => "null",
            Self::Zero => "zero",
            Self::Scalar => "scalar",
        }
    }
}

impl DownsampleSpec {
    /// Parses a specification. With `use_calendar` a plain interval is a calendar interval.
    pub fn parse(text: &str, use_calendar: bool) -> Result<Self, DownsampleError> {
        let (interval, function, fill) = split(text)?;
        let window = if interval.contains("all") {
            DownsampleWindow::All
        } else if let Some(interval) = calendar_interval(interval) {
            calendar(interval)?
        } else if use_calendar {
            calendar(interval)?
        } else {
            DownsampleWindow::Fixed { interval_ms: Duration::parse(interval)?.millis }
        };
        let function = Aggregator::from_name(function)
            .ok_or_else(|| DownsampleError::UnknownFunction(function.to_owned()))?;
        if function == Aggregator::None {
            return Err(DownsampleError::NoneFunction);
        }
        let fill = match fill {
            None => FillPolicy::None,
            Some(name) => FillPolicy::from_name(name)
                .ok_or_else(|| DownsampleError::UnknownFill(name.to_owned()))?,
        };
        Ok(Self { text: text.to_owned(), window, function, fill })
    }

    /// Interval as a plain duration; 0 if the window is the whole range.
    #[must_use]
    pub const fn interval_ms(&self) -> i64 {
        match self.window {
            DownsampleWindow::Fixed { interval_ms }
            | DownsampleWindow::Calendar { interval_ms, .. } => interval_ms,
            DownsampleWindow::All => 0,
        }
    }
}

/// Names of the functions that downsample.
fn functions() -> impl Iterator<Item = &'static str> + Clone {
    Aggregator::names().filter(|name| *name != Aggregator::None.name())
}

/// Splits into interval, function and fill policy. Trailing empty parts are dropped, as by Java's
/// `split`.
fn split(text: &str) -> Result<(&str, &str, Option<&str>), DownsampleError> {
    let mut parts = text.trim_end_matches('-').split('-');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(interval), Some(function), fill, None) => Ok((interval, function, fill)),
        (_, _, _, Some(_)) => Err(DownsampleError::TooManyParts(text.to_owned())),
        _ => Err(DownsampleError::TooFewParts(text.to_owned())),
    }
}

/// The interval before its calendar mark. The `c` of `90sec` belongs to the unit.
fn calendar_interval(interval: &str) -> Option<&str> {
    interval.strip_suffix('c').filter(|_| Duration::parse(interval).is_err())
}

fn calendar(interval: &str) -> Result<DownsampleWindow, DownsampleError> {
    let duration = Duration::parse(interval)?;
    let unit_length = if duration.unit == TimeUnit::Millisecond { 2 } else { 1 };
    let digits = interval.len().checked_sub(unit_length).and_then(|end| interval.get(..end));
    let digits = digits.unwrap_or(interval);
    let count = match Duration::parse_exact(interval) {
        // Its unit may be a word.
        Ok(exact) => i32::try_from(exact.millis / exact.unit.millis()).ok(),
        Err(_) => digits.parse().ok(),
    };
    let count = count.ok_or_else(|| DownsampleError::CalendarCount(digits.to_owned()))?;
    Ok(DownsampleWindow::Calendar {
        count: i64::from(count),
        unit: duration.unit,
        interval_ms: duration.millis,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, window: DownsampleWindow, function: Aggregator, fill: FillPolicy) {
        let expected = DownsampleSpec { text: text.to_owned(), window, function, fill };
        assert_eq!(DownsampleSpec::parse(text, false), Ok(expected));
    }

    #[track_caller]
    fn check_error(text: &str, use_calendar: bool, message: &str) {
        let got = DownsampleSpec::parse(text, use_calendar).map_err(|e| e.to_string());
        assert_eq!(got, Err(message.to_owned()), "{text}");
    }

    #[test]
    fn windows_are_fixed_calendar_or_all() {
        let fixed = |interval_ms| DownsampleWindow::Fixed { interval_ms };
        check("1m-avg", fixed(60_000), Aggregator::Avg, FillPolicy::None);
        check("1.5h-sum-NaN", fixed(3_600_000), Aggregator::Sum, FillPolicy::Nan);
        check("0all-max-zero", DownsampleWindow::All, Aggregator::Max, FillPolicy::Zero);
        let month = DownsampleWindow::Calendar {
            count: 2,
            unit: TimeUnit::Month,
            interval_ms: 5_184_000_000,
        };
        check("2nc-count", month, Aggregator::Count, FillPolicy::None);
    }

    /// Issue 37. The `c` of `sec` was taken for the mark of a calendar interval.
    #[test]
    fn units_in_words_are_intervals() {
        let fixed = |interval_ms| DownsampleWindow::Fixed { interval_ms };
        check("90sec-avg", fixed(90_000), Aggregator::Avg, FillPolicy::None);
        check("90SEC-avg", fixed(90_000), Aggregator::Avg, FillPolicy::None);
        check("10min-avg", fixed(600_000), Aggregator::Avg, FillPolicy::None);
        let seconds =
            DownsampleWindow::Calendar { count: 90, unit: TimeUnit::Second, interval_ms: 90_000 };
        check("90sc-avg", seconds.clone(), Aggregator::Avg, FillPolicy::None);
        check("90secc-avg", seconds.clone(), Aggregator::Avg, FillPolicy::None);
        let by_request = DownsampleSpec::parse("90sec-avg", true).map(|spec| spec.window);
        assert_eq!(by_request, Ok(seconds));
    }

    #[test]
    fn use_calendar_applies_to_plain_intervals() {
        let spec = DownsampleSpec::parse("1d-sum", true).map(|spec| spec.window);
        assert!(matches!(spec, Ok(DownsampleWindow::Calendar { count: 1, .. })));
    }

    #[test]
    fn errors_match_opentsdb() {
        let few =
            "Invalid downsampling specifier '1m': must provide at least interval and function";
        check_error("1m", false, few);
        check_error(
            "1m-avg-nan-x",
            false,
            "Invalid downsampling specifier '1m-avg-nan-x': must consist of interval, function, \
             and optional fill policy",
        );
        check_error("1m-nope", false, "No such downsampling function: nope");
        let names = |text| DownsampleSpec::parse(text, false).err().and_then(|e| e.valid_names());
        let functions = names("1m-smu").unwrap_or_default();
        assert!(functions.starts_with("Did you mean sum? Valid names: avg, "), "{functions}");
        check_error("1m-none", false, "cannot use the NONE aggregator for downsampling");
        check_error("1m-avg-bad", false, "Unrecognized fill policy: bad");
        let policies = "Valid names: nan, none, null, scalar, zero";
        assert_eq!(names("1m-avg-bad").as_deref(), Some(policies));
        assert_eq!(names("1q-avg"), None);
        check_error("1q-avg", false, "Invalid duration (suffix): 1q");
        for (text, calendar, count) in
            [("1h30mc-sum", false, "1h30"), ("1.5hc-sum", false, "1.5"), ("1.5h-sum", true, "1.5")]
        {
            let message =
                format!("Invalid count \"{count}\" of a calendar interval: must be a whole number");
            check_error(text, calendar, &message);
        }
        check_error("c-sum", false, "Cannot parse null or empty duration");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in "\\PC*", calendar: bool) {
            let _ = DownsampleSpec::parse(&text, calendar);
        }

        #[test]
        fn text_near_the_grammar_is_parsed_or_rejected(text in "[0-9]{0,20}[.a-z]{0,4}-[a-z-]{0,12}") {
            let _ = DownsampleSpec::parse(&text, true);
        }
    }
}

//! Rate options.

use crate::error::RateError;

/// Options of a rate computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateOptions {
    /// A falling value means the counter wrapped.
    pub counter: bool,
    /// Value at which the counter wraps.
    pub counter_max: i64,
    /// If positive, a rate above this at a counter wrap becomes zero.
    pub reset_value: i64,
    /// Drop the point at which the counter wrapped.
    pub drop_resets: bool,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self { counter: false, counter_max: i64::MAX, reset_value: 0, drop_resets: false }
    }
}

impl RateOptions {
    /// Parses the part of a URI sub query that starts with `rate`.
    pub(crate) fn parse(text: &str) -> Result<Self, RateError> {
        if text.eq_ignore_ascii_case("rate") {
            return Ok(Self::default());
        }
        // As in OpenTSDB, the text between the fifth and the last character, whatever these are.
        let count = text.chars().count();
        if count < 6 {
            return Err(RateError::TooShort(text.to_owned()));
        }
        let inner: String = text.chars().take(count - 1).skip(5).collect();
        let mut parts: Vec<&str> = inner.split(',').collect();
        // As `String.split` of Java does.
        while parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty()) {
            parts.pop();
        }
        if parts.len() > 3 {
            return Err(RateError::TooManyParts(parts.len()));
        }
        let part = |i: usize| parts.get(i).copied().unwrap_or_default();
        let mut options = Self { counter: part(0).ends_with("counter"), ..Self::default() };
        options.drop_resets = part(0) == "dropcounter";
        let number = |number: &str, error: fn(String) -> RateError| {
            number.parse().map_err(|_| error(number.to_owned()))
        };
        if !part(1).is_empty() {
            options.counter_max = number(part(1), RateError::CounterMax)?;
        }
        if parts.len() == 3 {
            options.reset_value = number(part(2), RateError::ResetValue)?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, counter: bool, counter_max: i64, reset_value: i64, drop_resets: bool) {
        let expected = RateOptions { counter, counter_max, reset_value, drop_resets };
        assert_eq!(RateOptions::parse(text), Ok(expected), "{text}");
    }

    #[track_caller]
    fn check_error(text: &str, expected: RateError) {
        assert_eq!(RateOptions::parse(text), Err(expected));
    }

    #[test]
    fn braces_contain_kind_maximum_and_reset() {
        check("rate", false, i64::MAX, 0, false);
        check("rate{counter}", true, i64::MAX, 0, false);
        check("rate{foocounter}", true, i64::MAX, 0, false);
        check("rate{dropcounter}", true, i64::MAX, 0, true);
        check("rate{counter,255,30}", true, 255, 30, false);
        check("rate{counter,,100}", true, i64::MAX, 100, false);
        check("rate{counter,,}", true, i64::MAX, 0, false);
        check("rate{counter,5,,,}", true, 5, 0, false);
        check("rate{}", false, i64::MAX, 0, false);
    }

    #[test]
    fn invalid_options_are_rejected() {
        check_error("rate{", RateError::TooShort("rate{".into()));
        check_error("rate{counter,1,2,3}", RateError::TooManyParts(4));
        check_error("rate{counter,x}", RateError::CounterMax("x".into()));
        check_error("rate{counter,1,x}", RateError::ResetValue("x".into()));
    }

    proptest! {
        #[test]
        fn any_piece_is_parsed_or_rejected(piece in "rate\\PC*") {
            let _ = RateOptions::parse(&piece);
        }
    }
}

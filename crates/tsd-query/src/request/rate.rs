//! How rates of counters are taken.

use crate::error::QueryError;

/// Options of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateOptions {
    /// A falling value means the counter wrapped.
    pub counter: bool,
    /// Value at which the counter wraps.
    pub counter_max: i64,
    /// Rates above this become zero, if it is positive and the counter wrapped.
    pub reset_value: i64,
    /// Leave the point out where the counter wrapped.
    pub drop_resets: bool,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self { counter: false, counter_max: i64::MAX, reset_value: 0, drop_resets: false }
    }
}

impl RateOptions {
    /// Reads the middle piece of a URI sub query that starts with `rate`.
    pub(crate) fn parse(piece: &str) -> Result<Self, QueryError> {
        if piece.eq_ignore_ascii_case("rate") {
            return Ok(Self::default());
        }
        // Between the sixth character and the last one, whatever those are.
        let count = piece.chars().count();
        if count < 6 {
            return Err(QueryError::bad_request(format!(
                "Invalid rate options specification: {piece}"
            )));
        }
        let inner: String = piece.chars().take(count - 1).skip(5).collect();
        let parts: Vec<&str> = inner.split(',').collect();
        if parts.len() > 3 {
            return Err(QueryError::bad_request(format!(
                "Incorrect number of values in rate options specification, must be \
                 counter[,counter max value,reset value], recieved: {} parts",
                parts.len()
            )));
        }
        let part = |i: usize| parts.get(i).copied().unwrap_or_default();
        let mut options = Self { counter: part(0).ends_with("counter"), ..Self::default() };
        options.drop_resets = part(0) == "dropcounter";
        let number = |text: &str, what: &str| {
            text.parse().map_err(|_| {
                QueryError::bad_request(format!(
                    "{what} value of counter was not a number, received '{text}'"
                ))
            })
        };
        if !part(1).is_empty() {
            options.counter_max = number(part(1), "Max")?;
        }
        if parts.len() == 3 {
            options.reset_value = number(part(2), "Reset")?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(piece: &str, counter: bool, counter_max: i64, reset_value: i64, drop_resets: bool) {
        let expected = RateOptions { counter, counter_max, reset_value, drop_resets };
        assert_eq!(RateOptions::parse(piece), Ok(expected), "{piece}");
    }

    #[track_caller]
    fn refuse(piece: &str, message: &str) {
        assert_eq!(RateOptions::parse(piece).map_err(|e| e.message), Err(message.to_owned()));
    }

    #[test]
    fn braces_hold_kind_maximum_and_reset() {
        check("rate", false, i64::MAX, 0, false);
        check("rate{counter}", true, i64::MAX, 0, false);
        check("rate{foocounter}", true, i64::MAX, 0, false);
        check("rate{dropcounter}", true, i64::MAX, 0, true);
        check("rate{counter,255,30}", true, 255, 30, false);
        check("rate{counter,,100}", true, i64::MAX, 100, false);
        check("rate{}", false, i64::MAX, 0, false);
    }

    #[test]
    fn refusals_have_the_original_words() {
        refuse("rate{", "Invalid rate options specification: rate{");
        refuse(
            "rate{counter,1,2,3}",
            "Incorrect number of values in rate options specification, must be counter[,counter \
             max value,reset value], recieved: 4 parts",
        );
        refuse("rate{counter,x}", "Max value of counter was not a number, received 'x'");
        refuse("rate{counter,1,x}", "Reset value of counter was not a number, received 'x'");
    }

    proptest! {
        #[test]
        fn any_piece_is_read_or_refused(piece in "rate\\PC*") {
            let _ = RateOptions::parse(&piece);
        }
    }
}

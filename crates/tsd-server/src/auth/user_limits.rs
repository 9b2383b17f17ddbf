//! Limits of one line of the file of users. Each replaces the limit of the configuration for all identities.

/// Limits of a user; `None` leaves the configured limit, and 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// Points a second (`points=50k/s`).
    pub points_per_second: Option<u64>,
    /// New series an hour (`series=1000/h`).
    pub new_series_per_hour: Option<u64>,
    /// Concurrent queries (`queries=4`).
    pub concurrent_queries: Option<u64>,
    /// Bytes that a query reads (`bytes=1GiB`).
    pub query_bytes: Option<u64>,
    /// Bytes of memory of a query (`memory=256MiB`).
    pub query_memory: Option<u64>,
}

/// A value is not a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a limit for {field}: expected {expected}, or off for no limit")]
pub struct UserLimitError {
    field: &'static str,
    value: String,
    expected: &'static str,
}

/// Units of numbers, and of bytes.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
    ("", 1),
];

impl UserLimits {
    /// Returns true if the line has no limit of its own.
    pub(crate) fn are_unset(&self) -> bool {
        *self == Self::default()
    }

    /// Sets the limit of a field; `None` if the field is not a limit. True in the result means that it was set before.
    pub(super) fn set(&mut self, field: &str, value: &str) -> Option<Result<bool, UserLimitError>> {
        let (slot, field, suffix, expected) = match field {
            "points" => (&mut self.points_per_second, "points", "/s", "a rate such as 50k/s"),
            "series" => (&mut self.new_series_per_hour, "series", "/h", "a rate such as 1000/h"),
            "queries" => (&mut self.concurrent_queries, "queries", "", "a number such as 4"),
            "bytes" => (&mut self.query_bytes, "bytes", "", "a size such as 1GiB"),
            "memory" => (&mut self.query_memory, "memory", "", "a size such as 256MiB"),
            _ => return None,
        };
        let Some(limit) = parse(value, suffix) else {
            let value = value.chars().take(64).collect();
            return Some(Err(UserLimitError { field, value, expected }));
        };
        Some(Ok(slot.replace(limit).is_some()))
    }
}

/// Parses a whole number with a unit and a suffix, or `off`.
fn parse(value: &str, suffix: &str) -> Option<u64> {
    if value == "off" {
        return Some(0);
    }
    let number = value.strip_suffix(suffix)?;
    let (digits, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((number.strip_suffix(unit)?, *factor)))?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(field: &str, value: &str, expected: Option<u64>) {
        let mut limits = UserLimits::default();
        let set = limits.set(field, value).is_some_and(|set| set == Ok(false));
        let found = [
            limits.points_per_second,
            limits.new_series_per_hour,
            limits.concurrent_queries,
            limits.query_bytes,
            limits.query_memory,
        ];
        assert_eq!(set, expected.is_some(), "{field}={value}");
        assert_eq!(found.into_iter().flatten().next(), expected, "{field}={value}");
    }

    #[test]
    fn limits_are_numbers_with_units() {
        check("points", "50k/s", Some(50_000));
        check("points", "1M/s", Some(1_000_000));
        check("points", "off", Some(0));
        check("series", "1000/h", Some(1_000));
        check("queries", "4", Some(4));
        check("bytes", "1GiB", Some(1 << 30));
        check("memory", "256MiB", Some(256 << 20));
        for (field, value) in [
            ("points", "50k"),
            ("points", "50k/h"),
            ("points", "-1/s"),
            ("points", "+1/s"),
            ("points", "k/s"),
            ("series", "1.5/h"),
            ("queries", ""),
            ("bytes", "99999999999999999999"),
            ("memory", "18446744073709551615G"),
            ("other", "1"),
        ] {
            check(field, value, None);
        }
    }

    #[test]
    fn a_wrong_limit_is_named_with_what_is_expected() {
        let error = UserLimits::default().set("points", "many").and_then(Result::err);
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(
            text,
            "\"many\" is not a limit for points: expected a rate such as 50k/s, or off for no limit"
        );
    }
}

//! Rollups: values of a series at coarser intervals, in OpenTSDB's format.
//!
//! A rollup row has the key of a data row with another base time, and cells of three bytes:
//!
//! ```text
//! qualifier  aggregator id u8 | slot << 4 | flags, u16
//! ```
//!
//! Twelve bits number the slots of a row. Readers interpret slots from 3840 on as milliseconds and
//! OpenTSDB wraps those from 4096 on, so a configuration that needs them is rejected.

mod config;
mod qualifier;
mod row;
mod span;

pub use self::{
    config::{RollupConfig, RollupConfigError, RollupInterval},
    qualifier::{RollupAggregator, RollupQualifier},
    row::RollupRowDecoder,
    span::RowSpan,
};

/// Seconds of a duration text such as `10m` or `1d`, by OpenTSDB's rules.
#[must_use]
pub(crate) fn parse_duration_secs(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "ms" => return Some(number / 1_000),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "n" => 30 * 86_400,
        "y" => 365 * 86_400,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::parse_duration_secs;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        assert_eq!(parse_duration_secs("10m"), Some(600));
        assert_eq!(parse_duration_secs("1n"), Some(2_592_000));
        assert_eq!(parse_duration_secs("1500ms"), Some(1));
        for text in ["", "m", "10", "-1m", "1x", "1.5h", "99999999999999999999s", "é"] {
            assert_eq!(parse_duration_secs(text), None, "{text}");
        }
    }
}

//! Parsers of timestamps, one per interface.
//!
//! Each function returns the number by OpenTSDB's rules; [`crate::Timestamp::try_new`] then checks its
//! range. The steps are separate because OpenTSDB checks value and tags in between, and clients see
//! which error comes first.

use smallvec::SmallVec;

use crate::{
    float_text::{java_trim, parse_java_double},
    integer_text::{IntegerTextError, parse_integer, read_integer, split_sign},
};

/// A text that is not a timestamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimestampTextError {
    /// Not an integer.
    #[error(transparent)]
    Integer(#[from] IntegerTextError),
    /// Zero or less.
    #[error("invalid timestamp: {0}")]
    NotPositive(i64),
    /// A JSON value that is not a 64-bit integer; the whole body is then invalid.
    #[error("not a valid Long value")]
    NotALong,
}

/// Telnet (`put`, `rollup`, `histogram`): dots are removed, the rest must be an integer.
///
/// So `1356998400.123` is milliseconds, and `1356998400.5` is a time in June 1970.
#[inline]
pub fn parse_telnet_timestamp(text: &[u8]) -> Result<i64, TimestampTextError> {
    match read_integer(text) {
        Some(number) => positive(number),
        None => parse_dotted(text),
    }
}

#[inline(never)]
fn parse_dotted(text: &[u8]) -> Result<i64, TimestampTextError> {
    let undotted: SmallVec<[u8; 24]> = text.iter().copied().filter(|b| *b != b'.').collect();
    positive(parse_integer(&undotted)?)
}

/// File import: an integer.
pub fn parse_import_timestamp(text: &[u8]) -> Result<i64, TimestampTextError> {
    positive(parse_integer(text)?)
}

/// HTTP, the token of a JSON number: a fraction is truncated.
#[inline]
pub fn parse_http_timestamp_number(token: &[u8]) -> Result<i64, TimestampTextError> {
    if let Some(number) = read_integer(token) {
        return positive(number);
    }
    if !token.iter().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        return Err(TimestampTextError::NotALong);
    }
    let number = parse_java_double(token).map_err(|_| TimestampTextError::NotALong)?;
    // 2^63 is exact as a double; the largest i64 is not.
    if (-(2_f64.powi(63))..=2_f64.powi(63)).contains(&number) {
        positive(number as i64)
    } else {
        Err(TimestampTextError::NotALong)
    }
}

/// HTTP, the content of a JSON string: an integer with optional blanks around it; an empty string
/// is 0.
pub fn parse_http_timestamp_string(text: &[u8]) -> Result<i64, TimestampTextError> {
    let trimmed = java_trim(text);
    if trimmed.is_empty() {
        return positive(0);
    }
    let (_, digits) = split_sign(trimmed);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(TimestampTextError::NotALong);
    }
    std::str::from_utf8(trimmed)
        .ok()
        .and_then(|number| number.parse().ok())
        .map_or(Err(TimestampTextError::NotALong), positive)
}

#[inline]
const fn positive(number: i64) -> Result<i64, TimestampTextError> {
    if number > 0 { Ok(number) } else { Err(TimestampTextError::NotPositive(number)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(result: Result<i64, TimestampTextError>, expected: Result<i64, &str>) {
        assert_eq!(result.map_err(|e| e.to_string()), expected.map_err(str::to_owned));
    }

    #[test]
    fn telnet_drops_every_dot() {
        let telnet = |text: &str| parse_telnet_timestamp(text.as_bytes());
        check(telnet("1356998400"), Ok(1_356_998_400));
        check(telnet("1356998400.123"), Ok(1_356_998_400_123));
        check(telnet("1356998400.5"), Ok(13_569_984_005));
        check(telnet("1.3.5.6998400"), Ok(1_356_998_400));
        check(telnet("+1356998400.123"), Ok(1_356_998_400_123));
        check(telnet("1e9"), Err("Invalid character 'e' in 1e9"));
        check(telnet("1.5x"), Err("Invalid character 'x' in 15x"));
        check(telnet("."), Err("Empty string"));
        check(telnet("0"), Err("invalid timestamp: 0"));
        check(telnet("-1.5"), Err("invalid timestamp: -15"));
    }

    #[test]
    fn import_rejects_dots() {
        check(parse_import_timestamp(b"1356998400"), Ok(1_356_998_400));
        check(
            parse_import_timestamp(b"1356998400.5"),
            Err("Invalid character '.' in 1356998400.5"),
        );
    }

    #[test]
    fn http_numbers_are_truncated() {
        let http = |text: &str| parse_http_timestamp_number(text.as_bytes());
        check(http("1356998400.9"), Ok(1_356_998_400));
        check(http("1.3569984e9"), Ok(1_356_998_400));
        check(http("0"), Err("invalid timestamp: 0"));
        check(http("0.5"), Err("invalid timestamp: 0"));
        check(http("99999999999999999999"), Err("not a valid Long value"));
        check(http("1e30"), Err("not a valid Long value"));
    }

    #[test]
    fn http_strings_are_trimmed_integers() {
        let http = |text: &str| parse_http_timestamp_string(text.as_bytes());
        check(http("+1356998404"), Ok(1_356_998_404));
        check(http(" 01356998406 "), Ok(1_356_998_406));
        check(http("00000000000000000000001356998406"), Ok(1_356_998_406));
        check(http(""), Err("invalid timestamp: 0"));
        check(http("1356998403.5"), Err("not a valid Long value"));
        check(http("x"), Err("not a valid Long value"));
        check(http("+"), Err("not a valid Long value"));
    }
}

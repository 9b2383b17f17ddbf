//! Parses values of points.
//!
//! It runs once per point, so the common forms (an integer, or digits with one decimal point) are
//! parsed in one pass without allocation; all others use Java's full grammar.

use crate::{
    float_text::{FloatTextError, parse_java_double, parse_java_single},
    integer_text::{IntegerTextError, MAX_DIGITS, ZEROS, parse_eight, parse_integer, split_sign},
    point_value::PointValue,
};

/// Interface of a point. It decides the width of stored floating point values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputFormat {
    /// Telnet: a single if that is exact, else a double.
    Telnet,
    /// HTTP: always a double.
    Http,
    /// File import: always a single, rounded.
    Import,
}

/// A text that is not a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueTextError {
    /// Without `.`, `e` and `E` it must be an integer.
    #[error(transparent)]
    Integer(#[from] IntegerTextError),
    /// With `.`, `e` or `E` it must be a floating point number.
    #[error(transparent)]
    Float(#[from] FloatTextError),
    /// A number too large for its precision. The text is Java's: `Infinity` or `-Infinity`.
    #[error("value is NaN or Infinite: {0}")]
    NotFinite(&'static str),
}

/// Parses the value of a point by the rules of its interface.
#[inline]
pub fn parse_point_value(text: &[u8], format: InputFormat) -> Result<PointValue, ValueTextError> {
    match parse_common_value(text, format) {
        Some(value) => Ok(value),
        None => parse_slowly(text, format),
    }
}

/// As [`parse_point_value`], for the common forms; `None` for all others, valid or not.
///
/// Returns an `Option`, since a `Result` would be returned in memory. Reading it back as a whole just after
/// its parts were written would stall on those writes.
#[inline]
#[must_use]
pub fn parse_common_value(text: &[u8], format: InputFormat) -> Option<PointValue> {
    match scan(text)? {
        Scanned::Integer(value) => Some(PointValue::Integer(value)),
        Scanned::Decimal { negative, digits, scale } => {
            let value = exact_double(negative, digits, scale)?;
            match format {
                InputFormat::Import => None,
                InputFormat::Http => Some(PointValue::Double(value)),
                InputFormat::Telnet => Some(narrow_if_exact(value)),
            }
        }
    }
}

enum Scanned {
    Integer(i64),
    Decimal { negative: bool, digits: u64, scale: usize },
}

/// Parses `[+-] digits [. digits]` with fewer than 19 digits; `None` for anything else.
#[inline]
fn scan(text: &[u8]) -> Option<Scanned> {
    let (negative, body) = split_sign(text);
    if body.len() <= 8 { scan_short(negative, body) } else { scan_long(negative, body) }
}

/// Parses up to eight characters in one word. Digits are shifted to its end, digits before the point over the
/// point, and zeros fill the front.
#[inline]
fn scan_short(negative: bool, body: &[u8]) -> Option<Scanned> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    const POINTS: u64 = 0x2E2E_2E2E_2E2E_2E2E;
    let gap = 64 - 8 * body.len() as u32;
    let word = load(body)? << gap | (ZEROS & !(u64::MAX << gap));
    // The lowest top bit marks the first point; higher top bits may be wrong.
    let difference = word ^ POINTS;
    let points = difference.wrapping_sub(ONES) & !difference & TOPS;
    if points == 0 {
        let value = parse_eight(word)? as i64;
        return Some(Scanned::Integer(if negative { -value } else { value }));
    }
    if body.len() == 1 {
        return None;
    }
    let at = points.trailing_zeros() & !7;
    let before = word & !(u64::MAX << at);
    let after = word & (u64::MAX << at << 7 << 1);
    let digits = parse_eight(after | before << 8 | u64::from(b'0'))?;
    Some(Scanned::Decimal { negative, digits, scale: 7 - at as usize / 8 })
}

/// The bytes as a little-endian word, by two loads that may overlap; `None` without bytes.
#[inline]
fn load(bytes: &[u8]) -> Option<u64> {
    let count = bytes.len();
    if let (Some(front), Some(back)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (front, back) = (u32::from_le_bytes(*front), u32::from_le_bytes(*back));
        return Some(u64::from(front) | u64::from(back) << (8 * (count - 4)));
    }
    let (first, last) = (bytes.first()?, bytes.last()?);
    let middle = bytes.get(count / 2)?;
    Some(
        u64::from(*first)
            | u64::from(*middle) << (8 * (count / 2))
            | u64::from(*last) << (8 * (count - 1)),
    )
}

/// Parses nine and more characters one by one.
fn scan_long(negative: bool, body: &[u8]) -> Option<Scanned> {
    if body.len() > MAX_DIGITS {
        return None;
    }
    let mut value = 0_u64;
    let mut point = None;
    for (at, &byte) in body.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        } else if byte == b'.' && point.is_none() {
            point = Some(at);
        } else {
            return None;
        }
    }
    match point {
        None if body.len() < MAX_DIGITS => {
            Some(Scanned::Integer(if negative { -(value as i64) } else { value as i64 }))
        }
        None => None,
        Some(at) => Some(Scanned::Decimal { negative, digits: value, scale: body.len() - 1 - at }),
    }
}

/// `digits / 10^scale` of two exact doubles, so that one division rounds correctly.
#[inline]
fn exact_double(negative: bool, digits: u64, scale: usize) -> Option<f64> {
    let power = POWERS_OF_TEN.get(scale)?;
    if digits >= 1 << 53 {
        return None;
    }
    let value = digits as f64 / power;
    Some(if negative { -value } else { value })
}

const POWERS_OF_TEN: [f64; 19] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18,
];

#[inline]
fn narrow_if_exact(value: f64) -> PointValue {
    let single = value as f32;
    #[expect(clippy::float_cmp, reason = "the question is whether nothing at all was lost")]
    let exact = f64::from(single) == value;
    if exact { PointValue::Single(single) } else { PointValue::Double(value) }
}

#[inline(never)]
fn parse_slowly(text: &[u8], format: InputFormat) -> Result<PointValue, ValueTextError> {
    if !text.iter().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        return Ok(PointValue::Integer(parse_integer(text)?));
    }
    let value = match format {
        InputFormat::Import => PointValue::Single(parse_java_single(text)?),
        InputFormat::Http => PointValue::Double(parse_java_double(text)?),
        InputFormat::Telnet => narrow_if_exact(parse_java_double(text)?),
    };
    match value {
        PointValue::Single(v) if !v.is_finite() => Err(not_finite(f64::from(v))),
        PointValue::Double(v) if !v.is_finite() => Err(not_finite(v)),
        finite => Ok(finite),
    }
}

const fn not_finite(value: f64) -> ValueTextError {
    ValueTextError::NotFinite(if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, telnet: PointValue, http: PointValue, import: PointValue) {
        let bits = |format| parse_point_value(text.as_bytes(), format).map(PointValue::encode);
        assert_eq!(bits(InputFormat::Telnet), Ok(telnet.encode()), "telnet {text}");
        assert_eq!(bits(InputFormat::Http), Ok(http.encode()), "http {text}");
        assert_eq!(bits(InputFormat::Import), Ok(import.encode()), "import {text}");
    }

    #[test]
    fn each_interface_has_its_width() {
        use PointValue::{Double, Integer, Single};
        check("42", Integer(42), Integer(42), Integer(42));
        check("-0", Integer(0), Integer(0), Integer(0));
        check("42.5", Single(42.5), Double(42.5), Single(42.5));
        check("42.1", Double(42.1), Double(42.1), Single(42.1));
        check("0.0", Single(0.0), Double(0.0), Single(0.0));
        check("-0.0", Single(-0.0), Double(-0.0), Single(-0.0));
        check("1e-400", Single(0.0), Double(0.0), Single(0.0));
        check(
            "123456789012345678.5",
            Double(123_456_789_012_345_680.0),
            Double(123_456_789_012_345_680.0),
            Single(123_456_790_000_000_000.0),
        );
        check(" 1.5 ", Single(1.5), Double(1.5), Single(1.5));
    }

    #[test]
    fn infinite_depends_on_the_precision() {
        let http = |text: &str| parse_point_value(text.as_bytes(), InputFormat::Http);
        assert_eq!(http("1e39"), Ok(PointValue::Double(1e39)));
        assert_eq!(http("1e400"), Err(ValueTextError::NotFinite("Infinity")));
        assert_eq!(
            parse_point_value(b"-1e39", InputFormat::Import),
            Err(ValueTextError::NotFinite("-Infinity"))
        );
    }

    #[test]
    fn nan_and_hex_integers_fail_as_integers() {
        for text in ["NaN", "Infinity", "0x10", "", "-", "1,000", "5f"] {
            let result = parse_point_value(text.as_bytes(), InputFormat::Telnet);
            assert!(matches!(result, Err(ValueTextError::Integer(_))), "{text}: {result:?}");
        }
    }

    proptest! {
        #[test]
        fn the_fast_path_agrees_with_the_slow_one(
            text in "[+-]?[0-9]{0,12}[.]?[0-9]{0,12}|[0-9.+-]{0,9}|[0-9]{0,4}[./:]{0,2}[0-9]{0,4}",
            noise in prop::collection::vec(prop_oneof![b'0'..=b'9', b'-'..=b':', any::<u8>()], 0..9),
        ) {
            for format in [InputFormat::Telnet, InputFormat::Http, InputFormat::Import] {
                let texts = [text.as_bytes(), b"", &noise];
                for text in texts {
                    prop_assert_eq!(
                        parse_point_value(text, format).map(PointValue::encode),
                        parse_slowly(text, format).map(PointValue::encode)
                    );
                }
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(text in prop::collection::vec(any::<u8>(), 0..24)) {
            let _ = parse_point_value(&text, InputFormat::Telnet);
        }
    }
}

//! Parser of floating point numbers in Java's grammar.
//!
//! A value may be any text that `Double.parseDouble` accepts: decimal digits with point and exponent, a type suffix (`1.5f`), hexadecimal
//! floats (`0x1.8p1`), blanks around it. The standard library converts decimal texts that match this grammar, and rounds as Java does. This
//! module converts hexadecimal texts.

use std::str;

/// A text that is not a floating point number. The messages are Java's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FloatTextError {
    /// Only blanks.
    #[error("empty String")]
    Empty,
    /// Two decimal points.
    #[error("multiple points")]
    MultiplePoints,
    /// Anything else.
    #[error("For input string: \"{0}\"")]
    Invalid(String),
}

/// Parses a double as `Double.parseDouble` does; overflow is infinite.
pub fn parse_java_double(text: &[u8]) -> Result<f64, FloatTextError> {
    match parse(text)? {
        Parsed::Decimal(decimal) => decimal.parse().map_err(|_| invalid(text)),
        Parsed::Hex(hex) => Ok(f64::from_bits(hex.round(52, 1_023))),
        Parsed::Special(value) => Ok(value),
    }
}

/// Parses a single as `Float.parseFloat` does: rounded once, from the text.
pub fn parse_java_single(text: &[u8]) -> Result<f32, FloatTextError> {
    match parse(text)? {
        Parsed::Decimal(decimal) => decimal.parse().map_err(|_| invalid(text)),
        Parsed::Hex(hex) => Ok(f32::from_bits(hex.round(23, 127) as u32)),
        Parsed::Special(value) => Ok(value as f32),
    }
}

enum Parsed<'a> {
    /// Sign, digits, point and exponent, in a form that Rust parses too.
    Decimal(&'a str),
    Hex(HexFloat),
    Special(f64),
}

/// `String.trim`: removes blanks and control characters at both ends.
pub(crate) fn java_trim(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|b| *b > b' ').unwrap_or(text.len());
    let end = text.iter().rposition(|b| *b > b' ').map_or(start, |last| last + 1);
    text.get(start..end).unwrap_or_default()
}

#[cold]
fn invalid(text: &[u8]) -> FloatTextError {
    FloatTextError::Invalid(crate::name::decode_latin1(java_trim(text)))
}

fn parse(text: &[u8]) -> Result<Parsed<'_>, FloatTextError> {
    let trimmed = java_trim(text);
    if trimmed.is_empty() {
        return Err(FloatTextError::Empty);
    }
    let (negative, body) = crate::integer_text::split_sign(trimmed);
    match body {
        b"NaN" => Ok(Parsed::Special(f64::NAN)),
        b"Infinity" => {
            Ok(Parsed::Special(if negative { f64::NEG_INFINITY } else { f64::INFINITY }))
        }
        [b'0', b'x' | b'X', hex @ ..] => {
            parse_hex(negative, hex).map(Parsed::Hex).ok_or_else(|| invalid(text))
        }
        _ => {
            let length = decimal_length(body)?.ok_or_else(|| invalid(text))?;
            let signed = trimmed.len() - body.len() + length;
            trimmed
                .get(..signed)
                .and_then(|decimal| str::from_utf8(decimal).ok())
                .map(Parsed::Decimal)
                .ok_or_else(|| invalid(text))
        }
    }
}

/// Length of the number in front of an optional type suffix; `None` if the text is not a number.
fn decimal_length(body: &[u8]) -> Result<Option<usize>, FloatTextError> {
    let (mut digits, mut points, mut at) = (0_usize, 0_usize, 0_usize);
    for byte in body {
        match byte {
            b'0'..=b'9' => digits += 1,
            b'.' if points == 0 => points = 1,
            b'.' => return Err(FloatTextError::MultiplePoints),
            _ => break,
        }
        at += 1;
    }
    if digits == 0 {
        return Ok(None);
    }
    let mut rest = body.get(at..).unwrap_or_default();
    if let [b'e' | b'E', exponent @ ..] = rest {
        let (_, exponent) = crate::integer_text::split_sign(exponent);
        let length = exponent.iter().take_while(|b| b.is_ascii_digit()).count();
        if length == 0 {
            return Ok(None);
        }
        rest = exponent.get(length..).unwrap_or_default();
        at = body.len() - rest.len();
    }
    Ok(strip_suffix(rest).is_empty().then_some(at))
}

/// Removes a Java type suffix: a single `f`, `F`, `d` or `D`.
const fn strip_suffix(rest: &[u8]) -> &[u8] {
    match rest {
        [b'f' | b'F' | b'd' | b'D'] => &[],
        _ => rest,
    }
}

/// `significand * 2^exponent`, with a sticky lowest bit for discarded bits.
struct HexFloat {
    negative: bool,
    significand: u64,
    exponent: i64,
}

fn parse_hex(negative: bool, text: &[u8]) -> Option<HexFloat> {
    let mut significand = 0_u64;
    let mut exponent = 0_i64;
    let (mut digits, mut point) = (0_usize, false);
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        if *byte == b'.' && !point {
            point = true;
        } else if let Some(digit) = char::from(*byte).to_digit(16) {
            digits += 1;
            if significand >> 60 == 0 {
                significand = significand << 4 | u64::from(digit);
                exponent -= if point { 4 } else { 0 };
            } else {
                // The significand is full: keep a sticky bit.
                significand |= u64::from(digit != 0);
                exponent += if point { 0 } else { 4 };
            }
        } else {
            break;
        }
        rest = tail;
    }
    let [b'p' | b'P', power @ ..] = rest else { return None };
    let (negative_power, power) = crate::integer_text::split_sign(power);
    let length = power.iter().take_while(|b| b.is_ascii_digit()).count();
    let (power, suffix) = power.split_at_checked(length)?;
    if digits == 0 || length == 0 || !strip_suffix(suffix).is_empty() {
        return None;
    }
    // Beyond the range of any float, and small enough not to overflow below.
    let power = power.iter().fold(0_i64, |sum, b| (sum * 10 + i64::from(b - b'0')).min(1 << 40));
    exponent += if negative_power { -power } else { power };
    Some(HexFloat { negative, significand, exponent })
}

impl HexFloat {
    /// IEEE bits of the nearest float (ties to even) with `fraction_bits` and `bias`.
    fn round(&self, fraction_bits: u32, bias: i64) -> u64 {
        let sign = u64::from(self.negative) << (fraction_bits + exponent_bits(bias));
        if self.significand == 0 {
            return sign;
        }
        let infinity = ((2 * bias + 1) as u64) << fraction_bits;
        // Weight of the highest bit, then of the lowest bit that is kept.
        let top = self.exponent + 63 - i64::from(self.significand.leading_zeros());
        if top > bias {
            return sign | infinity;
        }
        let lowest = top.max(1 - bias) - i64::from(fraction_bits);
        let drop = lowest - self.exponent;
        let kept = if drop <= 0 {
            // drop is never below -63: the highest bit stays within fraction_bits + 1 bits.
            self.significand << (-drop).min(63)
        } else if drop > 64 {
            0
        } else {
            let wide = u128::from(self.significand) << 64 >> drop;
            let (kept, half) = ((wide >> 64) as u64, wide as u64);
            let up = half > 1 << 63 || (half == 1 << 63 && kept & 1 == 1);
            kept + u64::from(up)
        };
        // In normal numbers, the hidden bit adds one to the exponent field, and so does a carry out of the fraction. Subnormal numbers need
        // no correction.
        let field = (lowest + i64::from(fraction_bits) + bias - 1) as u64;
        sign | ((field << fraction_bits) + kept).min(infinity)
    }
}

const fn exponent_bits(bias: i64) -> u32 {
    (bias + 1).ilog2() + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: f64) {
        let parsed = parse_java_double(text.as_bytes()).map(f64::to_bits);
        assert_eq!(parsed, Ok(expected.to_bits()), "{text}");
    }

    #[track_caller]
    fn check_err(text: &str, message: &str) {
        let error = parse_java_double(text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(error, Err(message.to_owned()));
    }

    #[test]
    fn decimals_suffixes_and_blanks() {
        check("1.", 1.0);
        check(".5", 0.5);
        check("-.5", -0.5);
        check("+1.5", 1.5);
        check("1.5f", 1.5);
        check("1.5D", 1.5);
        check("1e3", 1_000.0);
        check("1E+3d", 1_000.0);
        check(" \t1.5 ", 1.5);
        check("-0.0", -0.0);
        check("1e400", f64::INFINITY);
        check("-1e400", f64::NEG_INFINITY);
        check("1e-400", 0.0);
        check("1e99999999999999999999", f64::INFINITY);
        check("Infinity", f64::INFINITY);
        check("-Infinity", f64::NEG_INFINITY);
        check("4.9E-324", f64::from_bits(1));
    }

    #[test]
    fn hexadecimal_floats() {
        check("0x1.8p1", 3.0);
        check("0X1P-1", 0.5);
        check("0x.8p0", 0.5);
        check("0x8.p0f", 8.0);
        check("-0x0p0", -0.0);
        check("0x1p1023", f64::MAX / (2.0 - f64::EPSILON));
        check("0x1p1024", f64::INFINITY);
        check("0x1p-1074", f64::from_bits(1));
        check("0x1p-1075", 0.0);
        check("0x1.8p-1075", f64::from_bits(1));
        check("0x0.8p-1074", 0.0);
        check("0x1.fffffffffffffp1023", f64::MAX);
        check("0x1.fffffffffffff8p1023", f64::INFINITY);
        check("0x1.00000000000008p0", 1.0);
        check("0x1.000000000000080000000000000001p0", 1.0 + f64::EPSILON);
        check("0x1.00000000000018p0", 1.0 + 2.0 * f64::EPSILON);
        check("0x1p99999999999999999999", f64::INFINITY);
        check("0x1p-99999999999999999999", 0.0);
        check("0x0.fffffffffffff8p-1022", f64::MIN_POSITIVE);
    }

    #[test]
    fn singles_round_once() {
        let single = |text: &str| parse_java_single(text.as_bytes());
        assert_eq!(single("42.1"), Ok(42.1));
        assert_eq!(single("16777217.0"), Ok(16_777_216.0));
        assert_eq!(single("1e39"), Ok(f32::INFINITY));
        assert_eq!(single("0x1.000001p0"), Ok(1.0));
        assert_eq!(single("0x1.00000100000000000001p0"), Ok(1.0 + f32::EPSILON));
        assert_eq!(single("0x1p-149"), Ok(f32::from_bits(1)));
    }

    #[test]
    fn messages_are_those_of_java() {
        check_err(" ", "empty String");
        check_err("1.2.3", "multiple points");
        for text in [
            "1.5e",
            "e5",
            "true",
            ".",
            "1e5e5",
            "0x1e",
            "0x1.8",
            "0xp1",
            "0x.p1",
            "1.5ff",
            "1.5fd",
            "- 1.0",
            "1.5e+",
            "1e 5",
            "inf",
            "nan",
            "Infinityf",
            "0x1p",
            "1.e.",
        ] {
            check_err(text, &format!("For input string: \"{text}\""));
        }
        check_err(" 1x ", "For input string: \"1x\"");
    }

    proptest! {
        #[test]
        fn hexadecimal_text_of_every_double_is_exact(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let fraction = bits & ((1 << 52) - 1);
            let field = (bits >> 52) & 0x7FF;
            let text = format!(
                "{}0x{}.{fraction:013x}p{}",
                if value.is_sign_negative() { "-" } else { "" },
                u8::from(field != 0),
                i64::try_from(field.max(1)).unwrap_or(0) - 1_023,
            );
            prop_assert_eq!(parse_java_double(text.as_bytes()).map(f64::to_bits), Ok(bits));
        }

        #[test]
        fn hexadecimal_singles_round_as_the_cast_does(bits: u64) {
            let value = f64::from_bits(bits & !(0x7 << 60) | 0x3 << 60);
            prop_assume!(value.is_finite());
            let bits = value.to_bits();
            let text = format!(
                "{}0x1.{:013x}p{}",
                if value.is_sign_negative() { "-" } else { "" },
                bits & ((1 << 52) - 1),
                i64::try_from((bits >> 52) & 0x7FF).unwrap_or(0) - 1_023,
            );
            prop_assert_eq!(
                parse_java_single(text.as_bytes()).map(f32::to_bits),
                Ok((value as f32).to_bits())
            );
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(text in prop::collection::vec(
            prop_oneof![prop::sample::select(b"0123456789.eEpPxXfd+- aN".to_vec()), any::<u8>()], 0..24))
        {
            let _ = parse_java_double(&text);
            let _ = parse_java_single(&text);
        }
    }
}

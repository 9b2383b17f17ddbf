//! Parser of integers by OpenTSDB's rules, with OpenTSDB's messages.

/// A text that is not an integer. The messages are OpenTSDB's.
///
/// Texts are read as ISO-8859-1, as on the telnet port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntegerTextError {
    /// Empty text.
    #[error("Empty string")]
    Empty,
    /// A sign without digits.
    #[error("Just a sign, no value: {0}")]
    JustASign(String),
    /// More than 19 digits; leading zeros count.
    #[error("Value too long: {0}")]
    TooLong(String),
    /// A character that is not a decimal digit.
    #[error("Invalid character '{character}' in {text}")]
    InvalidCharacter {
        /// The first such character.
        character: char,
        /// The whole text.
        text: String,
    },
    /// Exceeds 64 bits.
    #[error("Overflow in {0}")]
    Overflow(String),
}

/// Parses a signed 64-bit integer: optional sign, then 1 to 19 decimal digits, nothing else.
#[inline]
pub fn parse_integer(text: &[u8]) -> Result<i64, IntegerTextError> {
    match read_integer(text) {
        Some(value) => Ok(value),
        None => Err(explain(text)),
    }
}

/// As [`parse_integer`], without an error text.
#[inline]
pub(crate) fn read_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    let magnitude = parse_digits(digits)?;
    if !negative {
        i64::try_from(magnitude).ok()
    } else if magnitude <= i64::MIN.unsigned_abs() {
        Some(0_i64.wrapping_sub(magnitude as i64))
    } else {
        None
    }
}

/// Maximum number of digits in OpenTSDB; 19 digits always fit in a `u64`.
pub(crate) const MAX_DIGITS: usize = 19;

/// Splits off a leading sign; true for minus.
#[inline]
pub(crate) const fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// Value of at most [`MAX_DIGITS`] decimal digits; `None` if there is another byte.
#[inline]
pub(crate) fn parse_digits(digits: &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    let mut rest = digits;
    while let Some((eight, tail)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*eight);
        value = value.wrapping_mul(100_000_000).wrapping_add(parse_eight(word)?);
        rest = tail;
    }
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    Some(value)
}

/// Eight ASCII zeros.
pub(crate) const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Value of eight digits at once, the first in the lowest byte: pairs, then fours, then all, each
/// by one multiplication.
#[inline]
pub(crate) const fn parse_eight(word: u64) -> Option<u64> {
    const HIGH: u64 = 0xF0F0_F0F0_F0F0_F0F0;
    // Digits are 30..39: the high nibble is 3 with and without 6 added.
    let shifted = word.wrapping_add(0x0606_0606_0606_0606);
    if (word & HIGH) != ZEROS || (shifted & HIGH) != ZEROS {
        return None;
    }
    let ones = word - ZEROS;
    let pairs = ones.wrapping_mul(10).wrapping_add(ones >> 8);
    let low = (pairs & 0x0000_00FF_0000_00FF).wrapping_mul(0x000F_4240_0000_0064);
    let high = ((pairs >> 16) & 0x0000_00FF_0000_00FF).wrapping_mul(0x0000_2710_0000_0001);
    Some(low.wrapping_add(high) >> 32)
}

#[cold]
fn explain(text: &[u8]) -> IntegerTextError {
    let (_, digits) = split_sign(text);
    let all = || crate::name::decode_latin1(text);
    if text.is_empty() {
        IntegerTextError::Empty
    } else if digits.is_empty() {
        IntegerTextError::JustASign(all())
    } else if digits.len() > MAX_DIGITS {
        IntegerTextError::TooLong(all())
    } else if let Some(&byte) = digits.iter().find(|b| !b.is_ascii_digit()) {
        IntegerTextError::InvalidCharacter { character: char::from(byte), text: all() }
    } else {
        IntegerTextError::Overflow(all())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: i64) {
        assert_eq!(parse_integer(text.as_bytes()), Ok(expected), "{text}");
    }

    #[track_caller]
    fn check_err(text: &str, message: &str) {
        let error = parse_integer(text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(error, Err(message.to_owned()), "{text}");
    }

    #[test]
    fn signs_and_leading_zeros_are_accepted() {
        check("+5", 5);
        check("-5", -5);
        check("-0", 0);
        check("0000000000000000001", 1);
        check("-0000000000000000001", -1);
        check("9223372036854775807", i64::MAX);
        check("-9223372036854775808", i64::MIN);
        check("1356998400", 1_356_998_400);
    }

    #[test]
    fn messages_are_those_of_opentsdb() {
        check_err("", "Empty string");
        check_err("-", "Just a sign, no value: -");
        check_err("+", "Just a sign, no value: +");
        check_err("00000000000000000001", "Value too long: 00000000000000000001");
        check_err("99999999999999999999x", "Value too long: 99999999999999999999x");
        check_err("--5", "Invalid character '-' in --5");
        check_err("+-5", "Invalid character '-' in +-5");
        check_err("12345678x", "Invalid character 'x' in 12345678x");
        check_err("1234567:", "Invalid character ':' in 1234567:");
        check_err("1234567/", "Invalid character '/' in 1234567/");
        check_err("5 ", "Invalid character ' ' in 5 ");
        check_err("9223372036854775808", "Overflow in 9223372036854775808");
        check_err("-9223372036854775809", "Overflow in -9223372036854775809");
        check_err("9999999999999999999", "Overflow in 9999999999999999999");
    }

    #[test]
    fn bytes_above_ascii_show_as_latin_1() {
        let error = parse_integer(b"1\xE9").map_err(|e| e.to_string());
        assert_eq!(error, Err("Invalid character 'é' in 1é".to_owned()));
    }

    proptest! {
        #[test]
        fn every_integer_is_read_back(v: i64, shift in 0..64_u32) {
            let v = v >> shift;
            prop_assert_eq!(parse_integer(v.to_string().as_bytes()), Ok(v));
        }

        #[test]
        fn results_equal_those_of_a_simple_parser(text in prop::collection::vec(
            prop_oneof![b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', any::<u8>()], 0..22))
        {
            let plain = std::str::from_utf8(&text).ok().and_then(|s| {
                let digits = s.strip_prefix(['+', '-']).unwrap_or(s);
                (digits.len() <= 19).then(|| s.parse::<i64>().ok()).flatten()
            });
            prop_assert_eq!(parse_integer(&text).ok(), plain);
        }
    }
}

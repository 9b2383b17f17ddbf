//! Numbers and strings in Java's notation, for clients and stored bytes that depend on it.

use std::fmt::Write as _;

use crate::java_digits;

/// A double as `Double.toString` writes it: `42.0`, `1.0E7`, `9.999E-4`, `NaN`, `-Infinity`.
#[must_use]
pub fn java_double(value: f64) -> String {
    let mut out = Vec::with_capacity(24);
    write_java_double(value, &mut out);
    crate::name::decode_latin1(&out)
}

/// Appends a double as `Double.toString` of Java 17 writes it.
///
/// Decimal from 10^-3 up to below 10^7, otherwise one digit, a point, at least one digit and an
/// exponent. The digits are the fewest that parse to the same double, except where Java's algorithm
/// before version 19 writes more (`java_digits`).
pub fn write_java_double(value: f64, out: &mut Vec<u8>) {
    let magnitude = value.abs();
    if !value.is_finite() {
        out.extend_from_slice(if value.is_nan() {
            b"NaN"
        } else if value > 0.0 {
            b"Infinity"
        } else {
            b"-Infinity"
        });
        return;
    }
    if java_digits::may_not_be_shortest(value) {
        return write_as_java(value, out);
    }
    let mut buffer = zmij::Buffer::new();
    let shortest = buffer.format_finite(value);
    if magnitude == 0.0 || (1e-3..1e7).contains(&magnitude) {
        out.extend_from_slice(shortest.as_bytes());
    } else {
        write_scientific(shortest, out);
    }
}

/// As [`write_java_double`] with Java's own digits, for any double but 0.
#[cold]
fn write_as_java(value: f64, out: &mut Vec<u8>) {
    let (digits, exponent) = java_digits::java_digits(value);
    if value < 0.0 {
        out.push(b'-');
    }
    let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, &[]));
    let fraction = |rest: &[u8], out: &mut Vec<u8>| {
        out.push(b'.');
        out.extend_from_slice(if rest.is_empty() { b"0" } else { rest });
    };
    if (1..8).contains(&exponent) {
        let whole = exponent as usize;
        let (digits, rest) = digits.split_at_checked(whole).unwrap_or((&digits, &[]));
        out.extend_from_slice(digits);
        out.resize(out.len() + whole - digits.len(), b'0');
        fraction(rest, out);
    } else if (-2..=0).contains(&exponent) {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + exponent.unsigned_abs() as usize, b'0');
        out.extend_from_slice(&digits);
    } else {
        out.extend_from_slice(first);
        fraction(rest, out);
        out.push(b'E');
        out.extend_from_slice(itoa::Buffer::new().format(exponent - 1).as_bytes());
    }
}

/// Converts a decimal text to `d.dddE±x` (no plus sign).
fn write_scientific(text: &str, out: &mut Vec<u8>) {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if unsigned.len() < text.len() {
        out.push(b'-');
    }
    let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // Position of the first significant digit, without the point.
    let zeros = whole.bytes().chain(fraction.bytes()).take_while(|b| *b == b'0').count();
    let digits = || whole.bytes().chain(fraction.bytes()).skip(zeros);
    let significant =
        digits().collect::<Vec<_>>().iter().rposition(|b| *b != b'0').map_or(1, |last| last + 1);
    out.extend(digits().take(1));
    out.push(b'.');
    if significant > 1 {
        out.extend(digits().take(significant).skip(1));
    } else {
        out.push(b'0');
    }
    out.push(b'E');
    let exponent = exponent + whole.len() as i32 - 1 - zeros as i32;
    out.extend_from_slice(itoa::Buffer::new().format(exponent).as_bytes());
}

/// Appends a string with its quotes as Jackson writes it to storage: controls as `\u00XX` in upper
/// case, characters beyond the BMP as two escaped surrogates, everything else raw.
pub fn write_java_json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1F}' | '\u{10000}'.. => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04X}");
                }
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Bytes as `Arrays.toString(byte[])` writes them: `[0, 80, -30]`.
#[must_use]
pub fn java_byte_list(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + 4 * bytes.len());
    out.push('[');
    for (at, byte) in bytes.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        let _ = write!(out, "{separator}{}", *byte as i8);
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(value: f64, expected: &str) {
        assert_eq!(java_double(value), expected);
    }

    #[test]
    fn decimal_between_a_thousandth_and_ten_million() {
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(42.0, "42.0");
        check(0.001, "0.001");
        check(9_999_999.0, "9999999.0");
        check(9_999_999.999_999_998, "9999999.999999998");
        check(f64::from(0.1_f32), "0.10000000149011612");
        check(-0.5, "-0.5");
    }

    #[test]
    fn scientific_outside() {
        check(1e7, "1.0E7");
        check(12_345_678.0, "1.2345678E7");
        check(1e10, "1.0E10");
        check(25_595_461_080.123_4, "2.55954610801234E10");
        check(9.999e-4, "9.999E-4");
        check(1e-4, "1.0E-4");
        check(-1e21, "-1.0E21");
        check(1e23, "9.999999999999999E22");
        check(2e23, "1.9999999999999998E23");
        check(f64::MAX, "1.7976931348623157E308");
        check(f64::MIN_POSITIVE, "2.2250738585072014E-308");
    }

    #[test]
    fn the_smallest_doubles_have_two_digits() {
        check(f64::from_bits(1), "4.9E-324");
        check(f64::from_bits(2), "1.0E-323");
        check(f64::from_bits(3), "1.5E-323");
        check(-f64::from_bits(1), "-4.9E-324");
        check(1e-310, "1.0E-310");
    }

    /// Recorded from Java 17: the bits of a double and its text.
    #[test]
    fn doubles_print_as_in_java_17() {
        let recorded = include_str!("../tests/data/java17_doubles.txt");
        for line in recorded.lines().filter(|line| !line.starts_with('#')) {
            let (bits, text) = line.split_once(' ').unwrap();
            let value = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
            assert_eq!(java_double(value), text, "{bits}");
            let mut slow = Vec::new();
            if value != 0.0 {
                write_as_java(value, &mut slow);
                assert_eq!(String::from_utf8_lossy(&slow), text, "{bits}");
            }
        }
    }

    #[test]
    fn nan_and_infinities_have_names() {
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "Infinity");
        check(f64::NEG_INFINITY, "-Infinity");
    }

    #[test]
    fn bytes_are_signed() {
        assert_eq!(java_byte_list(&[0, 80, 0xE2]), "[0, 80, -30]");
        assert_eq!(java_byte_list(&[]), "[]");
    }

    #[test]
    fn json_strings_escape_as_jackson_does() {
        let mut out = String::new();
        write_java_json_string("a\"\\\u{8}\u{C}\n\r\t\u{1}\u{1F}\u{7F}\u{2028}é/😀", &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001F\u{7F}\u{2028}é/\\uD83D\\uDE00\"");
    }

    proptest! {
        #[test]
        fn fast_and_java_digits_agree(bits: u64, ordinary in -1e9..1e9) {
            for value in [f64::from_bits(bits), ordinary, (ordinary * 100.0).round() / 100.0] {
                prop_assume!(value.is_finite() && value != 0.0);
                let mut slow = Vec::new();
                write_as_java(value, &mut slow);
                prop_assert_eq!(java_double(value).into_bytes(), slow);
            }
        }

        #[test]
        fn text_reads_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            prop_assert_eq!(java_double(value).parse::<f64>().map(f64::to_bits), Ok(bits));
        }

        #[test]
        fn json_strings_read_back(text in any::<String>()) {
            let mut out = String::new();
            write_java_json_string(&text, &mut out);
            prop_assert_eq!(serde_json::from_str::<String>(&out).ok(), Some(text));
        }
    }
}

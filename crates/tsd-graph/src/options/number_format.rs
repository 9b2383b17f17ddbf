//! Format of numbers as in gnuplot: C's printf, with mantissas and prefixes.

use std::fmt::Write;

use super::option_error::PlotOptionProblem;

/// Most bytes of a format.
const MAX_BYTES: usize = 64;
/// Greatest width and precision of a conversion.
const MAX_WIDTH: usize = 40;
/// Most characters of a number with its unit.
const MAX_CHARS: usize = 64;
/// Prefixes of powers of 1000, from 10⁻²⁴ to 10²⁴.
const PREFIXES: [&str; 17] =
    ["y", "z", "a", "f", "p", "n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y"];
/// Prefixes of powers of 1024, from 2⁰ to 2⁸⁰.
const BINARY_PREFIXES: [&str; 9] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];

/// A format of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberFormat(Vec<FormatItem>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum FormatItem {
    Text(String),
    Conversion(Conversion),
}

/// `%[flags][width][.precision]conversion`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of printf")]
struct Conversion {
    is_left: bool,
    has_sign: bool,
    has_blank: bool,
    has_zeros: bool,
    width: usize,
    precision: Option<usize>,
    kind: char,
}

impl Default for NumberFormat {
    /// `%g`
    fn default() -> Self {
        Self(vec![FormatItem::Conversion(Conversion::PLAIN)])
    }
}

impl NumberFormat {
    /// Parses a format.
    pub(super) fn parse(text: &str) -> Result<Self, PlotOptionProblem> {
        PlotOptionProblem::check_text(text, MAX_BYTES, " %-_./,:+*()^°²³")?;
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                plain.push(c);
                continue;
            }
            if chars.as_str().starts_with('%') {
                chars.next();
                plain.push('%');
                continue;
            }
            let (conversion, rest) =
                Conversion::parse(chars.as_str()).map_err(PlotOptionProblem::NumberFormat)?;
            chars = rest.chars();
            if !plain.is_empty() {
                parts.push(FormatItem::Text(std::mem::take(&mut plain)));
            }
            parts.push(FormatItem::Conversion(conversion));
        }
        if !plain.is_empty() {
            parts.push(FormatItem::Text(plain));
        }
        Ok(Self(parts))
    }

    /// Renders a number; `digits` is the number of significant digits of formats without a
    /// precision.
    pub(crate) fn render(&self, value: f64, digits: usize) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                FormatItem::Text(text) => out.push_str(text),
                FormatItem::Conversion(conversion) => conversion.render(value, digits, &mut out),
            }
        }
        let text = out.trim_end();
        text.chars().take(MAX_CHARS).collect()
    }
}

impl Conversion {
    /// `%g`
    const PLAIN: Self = Self {
        is_left: false,
        has_sign: false,
        has_blank: false,
        has_zeros: false,
        width: 0,
        precision: None,
        kind: 'g',
    };

    /// Parses a conversion after its percent sign; returns it and the rest of the text.
    fn parse(text: &str) -> Result<(Self, &str), &'static str> {
        let mut conversion = Self::PLAIN;
        let mut rest = text;
        loop {
            let flag = match rest.chars().next() {
                Some('-') => &mut conversion.is_left,
                Some('+') => &mut conversion.has_sign,
                Some(' ') => &mut conversion.has_blank,
                Some('0') => &mut conversion.has_zeros,
                _ => break,
            };
            *flag = true;
            rest = rest.get(1..).unwrap_or_default();
        }
        conversion.width = take_number(&mut rest)?.unwrap_or(0);
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            conversion.precision = Some(take_number(&mut rest)?.unwrap_or(0));
        }
        let kind = rest.chars().next().ok_or("it ends after a percent sign")?;
        if !"fFeEgGxXodusScbBtTlLP".contains(kind) {
            return Err("unknown conversion");
        }
        conversion.kind = kind;
        Ok((conversion, rest.get(1..).unwrap_or_default()))
    }

    fn render(&self, value: f64, digits: usize, out: &mut String) {
        let precision = self.precision;
        let text = match self.kind {
            'f' | 'F' => fixed(value, precision.unwrap_or(6)),
            'e' | 'E' => exponential(value, precision.unwrap_or(6)),
            'd' | 'u' => (value.round() as i64).to_string(),
            'x' | 'X' => format!("{:x}", value.round() as i64),
            'o' => format!("{:o}", value.round() as i64),
            // Mantissa and power of ten; the base of a logarithmic axis is ten, too.
            't' | 'l' => mantissa(value / 10_f64.powi(decimal_power(value)), precision),
            'T' | 'L' => decimal_power(value).to_string(),
            's' => mantissa(value / 1_000_f64.powi(thousands(value)), precision),
            'S' => (3 * thousands(value)).to_string(),
            'c' => prefix(&PREFIXES, thousands(value) + 8).to_owned(),
            'b' => mantissa(value / 1_024_f64.powi(kibis(value)), precision),
            'B' => prefix(&BINARY_PREFIXES, kibis(value)).to_owned(),
            'P' => general(value / std::f64::consts::PI, precision.unwrap_or(6)),
            _ => general(value, precision.unwrap_or(digits)),
        };
        let text = if matches!(self.kind, 'E' | 'G' | 'X') { text.to_uppercase() } else { text };
        self.pad(&text, out);
    }

    fn pad(&self, text: &str, out: &mut String) {
        let is_number = !matches!(self.kind, 'c' | 'B');
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None if is_number && self.has_sign => ("+", text),
            None if is_number && self.has_blank => (" ", text),
            None => ("", text),
        };
        let (number, width) = (format!("{sign}{digits}"), self.width);
        let _ = if self.is_left {
            write!(out, "{number:<width$}")
        } else if is_number && self.has_zeros {
            write!(out, "{sign}{digits:0>rest$}", rest = width.saturating_sub(sign.len()))
        } else {
            write!(out, "{number:>width$}")
        };
    }
}

fn take_number(rest: &mut &str) -> Result<Option<usize>, &'static str> {
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, after) = rest.split_at(digits);
    *rest = after;
    if number.is_empty() {
        return Ok(None);
    }
    let number = number.parse().ok().filter(|number| *number <= MAX_WIDTH);
    number.map(Some).ok_or("a width or precision is too great")
}

/// `%f`
fn fixed(value: f64, precision: usize) -> String {
    format!("{value:.precision$}")
}

/// `%e`: at least two digits of the exponent.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// `%g`: the shorter one of `%f` and `%e`, without trailing zeros.
pub(crate) fn general(value: f64, precision: usize) -> String {
    let precision = precision.max(1);
    if value == 0.0 || !value.is_finite() {
        return format!("{}", value.abs());
    }
    let rounded = format!("{value:.*e}", precision - 1);
    let power: i32 =
        rounded.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or_default();
    if power < -4 || power >= precision as i32 {
        let text = exponential(value, precision - 1);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{exponent}", without_zeros(mantissa));
    }
    let decimals = usize::try_from(precision as i32 - 1 - power).unwrap_or(0);
    without_zeros(&fixed(value, decimals)).to_owned()
}

/// A mantissa; as short as possible without a precision.
fn mantissa(value: f64, precision: Option<usize>) -> String {
    match precision {
        Some(precision) => fixed(value, precision),
        None => general(value, 6),
    }
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn decimal_power(value: f64) -> i32 {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    // Rounding to the digits that are shown may reach the next power.
    let rounded = format!("{:.5e}", value.abs());
    rounded.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0)
}

/// The power of 1000, limited to the known prefixes.
fn thousands(value: f64) -> i32 {
    decimal_power(value).div_euclid(3).clamp(-8, 8)
}

/// The power of 1024, limited to the known prefixes.
fn kibis(value: f64) -> i32 {
    let value = value.abs();
    if value < 1.0 || !value.is_finite() {
        return 0;
    }
    ((value.log2() / 10.0 + 1e-9).floor() as i32).clamp(0, 8)
}

fn prefix(prefixes: &'static [&'static str], at: i32) -> &'static str {
    usize::try_from(at).ok().and_then(|at| prefixes.get(at)).copied().unwrap_or_default()
}

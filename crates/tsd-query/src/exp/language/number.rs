//! Values of the language and JEXL's conversions between their types.

/// A value. The types are Java's, since they determine the arithmetic.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::exp) enum Literal {
    Null,
    Boolean(bool),
    /// `int` and `BigInteger`: they differ only in the class name of a result.
    Integer(i128),
    Long(i64),
    Single(f32),
    Double(f64),
    Text(String),
}

/// Reads the number at the start of a text; `None` if it is malformed.
pub(super) fn read_number(text: &str) -> Option<(Literal, &str)> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        let (number, rest) = hex.split_at_checked(end)?;
        return Some((Literal::Integer(i128::from_str_radix(number, 16).ok()?), no_name(rest)?));
    }
    let (whole, rest) = text.split_at_checked(digits(text))?;
    if let Some(fraction) = rest.strip_prefix('.') {
        let (fraction, rest) = fraction.split_at_checked(digits(fraction))?;
        let number = format!("{whole}.{fraction}0");
        if let Some(rest) = rest.strip_prefix(['d', 'D']) {
            return Some((Literal::Double(number.parse().ok()?), no_name(rest)?));
        }
        let rest = rest.strip_prefix(['f', 'F']).unwrap_or(rest);
        return Some((Literal::Single(number.parse().ok()?), no_name(rest)?));
    }
    let octal = whole.len() > 1 && whole.starts_with('0');
    let radix = if octal { 8 } else { 10 };
    let number = i128::from_str_radix(whole, radix).ok()?;
    let (suffix, after) = match rest.chars().next() {
        Some(c) if c.is_ascii_alphabetic() => (Some(c), rest.get(1..)?),
        _ => (None, rest),
    };
    let literal = match suffix {
        None | Some('h' | 'H') => Literal::Integer(number),
        Some('l' | 'L') => Literal::Long(i64::try_from(number).ok()?),
        Some('d' | 'D') => Literal::Double(whole.parse().ok()?),
        Some('f' | 'F') => Literal::Single(whole.parse().ok()?),
        Some(_) => return None,
    };
    Some((literal, no_name(after)?))
}

/// Rejects a name directly after a number: `1e3` is an error.
fn no_name(rest: &str) -> Option<&str> {
    let follows = rest.chars().next().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.');
    (!follows).then_some(rest)
}

impl Literal {
    /// True if arithmetic with it uses doubles.
    pub(super) fn is_floating(&self) -> bool {
        match self {
            Self::Single(_) | Self::Double(_) => true,
            Self::Text(text) => text.contains(['.', 'e', 'E']),
            _ => false,
        }
    }

    /// Converts to a double; `None` if a text is not a number.
    pub(super) fn to_double(&self) -> Option<f64> {
        Some(match self {
            Self::Null => 0.0,
            Self::Boolean(b) => f64::from(u8::from(*b)),
            Self::Integer(v) => *v as f64,
            Self::Long(v) => *v as f64,
            // Through the shortest decimal text, so that 0.1 stays 0.1.
            Self::Single(v) => v.to_string().parse().ok()?,
            Self::Double(v) => *v,
            Self::Text(text) if text.is_empty() => f64::NAN,
            Self::Text(text) => text.trim().parse().ok()?,
        })
    }

    /// Converts to an integer; `None` if a text is not a number.
    pub(super) fn to_whole(&self) -> Option<i128> {
        Some(match self {
            Self::Null => 0,
            Self::Boolean(b) => i128::from(*b),
            Self::Integer(v) => *v,
            Self::Long(v) => i128::from(*v),
            Self::Single(v) => *v as i128,
            Self::Double(v) => *v as i128,
            Self::Text(text) if text.is_empty() => 0,
            Self::Text(text) => text.trim().parse().ok()?,
        })
    }

    /// Converts to a condition.
    pub(super) fn to_boolean(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Boolean(b) => *b,
            Self::Text(text) => text.eq_ignore_ascii_case("true"),
            number => number.to_double().is_some_and(|v| v != 0.0 && !v.is_nan()),
        }
    }

    /// Name of the Java class, for error texts.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "java.lang.Boolean",
            Self::Integer(v) if i32::try_from(*v).is_ok() => "java.lang.Integer",
            Self::Integer(v) if i64::try_from(*v).is_err() => "java.math.BigInteger",
            Self::Integer(_) | Self::Long(_) => "java.lang.Long",
            Self::Single(_) => "java.lang.Float",
            Self::Double(_) => "java.lang.Double",
            Self::Text(_) => "java.lang.String",
        }
    }
}

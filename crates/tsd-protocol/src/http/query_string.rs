//! Parses the parameters of a request URI.

use thiserror::Error;

use crate::ApiError;

/// Maximum parameters; later ones are ignored, as in OpenTSDB's HTTP library.
const MAX_PARAMETERS: usize = 1_024;

/// The parameters of a URI in order, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryString {
    pairs: Vec<(String, String)>,
}

/// An invalid percent escape.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QueryStringError {
    /// A `%` at the very end.
    #[error("unterminated escape sequence at end of string: {0}")]
    Unterminated(String),
    /// One digit after `%`.
    #[error("partial escape sequence at end of string: {0}")]
    Partial(String),
    /// No hexadecimal digits after `%`.
    #[error("invalid escape sequence in: {0}")]
    Invalid(String),
}

impl QueryString {
    /// Parses the part of a URI after `?`.
    ///
    /// `&` and `;` separate parameters, `+` is a blank, `%%` is a percent sign. Bytes that are not
    /// UTF-8 after decoding become U+FFFD.
    pub fn parse(query: &str) -> Result<Self, QueryStringError> {
        let mut pairs = Vec::new();
        for piece in query.split(['&', ';']) {
            // A piece that begins with `=` names a flag.
            let (name, value) = match piece.split_once('=') {
                Some(("", rest)) => match rest.split_once('=') {
                    Some((name, value)) => (name, value),
                    None => (rest, ""),
                },
                Some((name, value)) => (name, value),
                None => (piece, ""),
            };
            if name.is_empty() {
                continue;
            }
            if pairs.len() == MAX_PARAMETERS {
                break;
            }
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Self { pairs })
    }

    /// Returns true if the parameter is present. The value of a flag does not matter.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(n, _)| n == name)
    }

    /// Returns the last value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Returns the last value of a parameter, or a 400 if it is missing or empty.
    pub fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| ApiError::missing_parameter(name))
    }

    /// Returns all values of a parameter, in order.
    pub fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s str> {
        self.pairs.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Returns all parameters, in order.
    #[must_use]
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }
}

/// Decodes the escapes of one name or value.
fn decode(text: &str) -> Result<String, QueryStringError> {
    if !text.contains(['%', '+']) {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        match b {
            b'+' => bytes.push(b' '),
            b'%' => {
                let high =
                    rest.next().ok_or_else(|| QueryStringError::Unterminated(text.into()))?;
                if high == b'%' {
                    bytes.push(b'%');
                    continue;
                }
                let low = rest.next().ok_or_else(|| QueryStringError::Partial(text.into()))?;
                let digits = char::from(high).to_digit(16).zip(char::from(low).to_digit(16));
                let (high, low) = digits.ok_or_else(|| QueryStringError::Invalid(text.into()))?;
                bytes.push((high << 4 | low) as u8);
            }
            b => bytes.push(b),
        }
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &[(&str, &str)]) {
        let read = QueryString::parse(query).unwrap();
        let pairs: Vec<_> = read.pairs().iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, expected, "{query}");
    }

    #[test]
    fn names_and_values_are_decoded() {
        check("", &[]);
        check("a=b&c=d", &[("a", "b"), ("c", "d")]);
        check("a=b;c", &[("a", "b"), ("c", "")]);
        check("m=sum:cpu{host=*}", &[("m", "sum:cpu{host=*}")]);
        check("m=sum:cpu%7Bhost%3Dw%7C%C3%A9%7D", &[("m", "sum:cpu{host=w|é}")]);
        check("start=2013/01/01+00:00", &[("start", "2013/01/01 00:00")]);
        check("a=100%%", &[("a", "100%")]);
        check("a=%ff", &[("a", "\u{fffd}")]);
        check("&&a&=&", &[("a", "")]);
        check("=x", &[("x", "")]);
        check("a=", &[("a", "")]);
    }

    #[test]
    fn bad_escapes_are_refused() {
        assert_eq!(QueryString::parse("a=%"), Err(QueryStringError::Unterminated("%".into())));
        assert_eq!(QueryString::parse("a=%4"), Err(QueryStringError::Partial("%4".into())));
        assert_eq!(QueryString::parse("a=%zz"), Err(QueryStringError::Invalid("%zz".into())));
    }

    #[test]
    fn the_last_value_counts_and_flags_need_none() {
        let read = QueryString::parse("max=1&m=a&max=2&m=b&ms=false&q=").unwrap();
        assert_eq!(read.get("max"), Some("2"));
        assert_eq!(read.all("m").collect::<Vec<_>>(), ["a", "b"]);
        assert!(read.has("ms"));
        assert!(!read.has("arrays"));
        assert_eq!(read.required("max").unwrap(), "2");
        assert_eq!(read.required("q").unwrap_err().message, "Missing parameter <code>q</code>");
    }

    #[test]
    fn parameters_are_bounded() {
        let query = "a=b&".repeat(2_000);
        assert_eq!(QueryString::parse(&query).unwrap().pairs().len(), MAX_PARAMETERS);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            let _ = QueryString::parse(&text);
        }

        #[test]
        fn percent_encoding_is_undone(value in any::<String>()) {
            use std::fmt::Write;
            let mut encoded = String::from("v=");
            for b in value.bytes() {
                write!(encoded, "%{b:02x}").unwrap();
            }
            let read = QueryString::parse(&encoded).unwrap();
            prop_assert_eq!(read.get("v"), Some(value.as_str()));
        }
    }
}

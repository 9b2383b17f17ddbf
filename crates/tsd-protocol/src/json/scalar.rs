//! Raw keys and scalar values of a JSON text.

/// A key or a value other than a container: its raw text, for a string without the quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scalar<'t> {
    pub(crate) raw: &'t [u8],
    pub(crate) kind: ScalarKind,
}

/// Kind of a [`Scalar`]. Pointer-sized: scalars are copied often, and padding in them costs a third
/// of the time to read a point.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    /// A string in ASCII without escapes.
    Plain,
    /// Any other string, with escapes.
    Escaped,
    /// A number, `NaN` or an infinity.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
}

impl<'t> Scalar<'t> {
    /// Returns the value as a Java string field reads it: `None` for `null`.
    #[inline]
    pub(crate) fn text(self) -> Option<Self> {
        (self.kind != ScalarKind::Null).then_some(self)
    }

    /// Returns the raw text if it has no escapes.
    #[inline]
    pub(crate) fn as_is(self) -> Option<&'t [u8]> {
        (self.kind != ScalarKind::Escaped).then_some(self.raw)
    }

    /// Returns the unescaped characters. A lone surrogate becomes U+FFFD.
    pub(crate) fn chars(self) -> impl Iterator<Item = char> + 't {
        Unescape { rest: std::str::from_utf8(self.raw).unwrap_or_default().chars() }
    }

    /// Returns the unescaped text.
    pub(crate) fn to_owned_string(self) -> String {
        self.chars().collect()
    }
}

/// Unescapes a string that the reader has validated.
struct Unescape<'t> {
    rest: std::str::Chars<'t>,
}

impl Unescape<'_> {
    /// Reads four hex digits.
    fn unit(&mut self) -> Option<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            unit = unit << 4 | self.rest.next()?.to_digit(16)?;
        }
        Some(unit)
    }

    /// Reads the character of `\uXXXX`, with a second escape after a high surrogate.
    fn code_point(&mut self) -> char {
        let Some(high) = self.unit() else { return char::REPLACEMENT_CHARACTER };
        if (0xD800..0xDC00).contains(&high) {
            let mut ahead = Unescape { rest: self.rest.clone() };
            if ahead.rest.next() == Some('\\')
                && ahead.rest.next() == Some('u')
                && let Some(low @ 0xDC00..0xE000) = ahead.unit()
            {
                self.rest = ahead.rest;
                let code = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            }
        }
        char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

impl Iterator for Unescape<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self.rest.next()? {
            '\\' => Some(match self.rest.next()? {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => self.code_point(),
                other => other,
            }),
            c => Some(c),
        }
    }
}

//! A lenient pull reader over one JSON text.
//!
//! OpenTSDB's parser accepts what strict JSON readers refuse: bare `NaN` and `Infinity` tokens, text
//! after the value, repeated keys. Data points also need the *text* of a number (`42.50` stays
//! `42.50`), and there are millions of them a second. So put bodies are read by this cursor, which
//! hands out slices of the body and allocates nothing.
//!
//! Nothing here recurses: values that nobody wants are skipped with a stack of bits, at most
//! [`MAX_DEPTH`] deep.

use super::fault::{JsonError, JsonFault};

/// Deepest nesting that is read; deeper text is an error, not a crash.
pub(crate) const MAX_DEPTH: usize = 1_024;

/// The text between the quotes of a JSON string, escapes not yet undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawText<'t> {
    /// Bytes as they stand in the body.
    pub(crate) raw: &'t [u8],
    /// Only ASCII and no escapes: `raw` is the text.
    pub(crate) plain: bool,
}

/// A value that is not a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar<'t> {
    /// A string.
    Text(RawText<'t>),
    /// A number, `NaN` or an infinity, as written.
    Number(&'t [u8]),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
}

impl<'t> Scalar<'t> {
    /// The text a Java string field takes from this value; `None` for `null`.
    pub(crate) fn text(self) -> Option<RawText<'t>> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(raw) => Some(RawText { raw, plain: true }),
            Self::Bool(true) => Some(RawText { raw: b"true", plain: true }),
            Self::Bool(false) => Some(RawText { raw: b"false", plain: true }),
            Self::Null => None,
        }
    }
}

impl<'t> RawText<'t> {
    /// The text's characters, escapes undone. A lone surrogate becomes U+FFFD.
    pub(crate) fn chars(self) -> impl Iterator<Item = char> + 't {
        Unescape { rest: std::str::from_utf8(self.raw).unwrap_or_default().chars() }
    }

    /// The text as an owned string.
    pub(crate) fn to_owned_string(self) -> String {
        self.chars().collect()
    }
}

/// Undoes the escapes of a string that the reader has already checked.
struct Unescape<'t> {
    rest: std::str::Chars<'t>,
}

impl Unescape<'_> {
    /// Four hex digits.
    fn unit(&mut self) -> Option<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            unit = unit << 4 | self.rest.next()?.to_digit(16)?;
        }
        Some(unit)
    }

    /// The character of `\uXXXX`, with a second escape if the first is a high surrogate.
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

/// What a byte means inside a string.
const PLAIN: u8 = 0;
const QUOTE: u8 = 1;
const BACKSLASH: u8 = 2;
const WIDE: u8 = 3;
const CONTROL: u8 = 4;

#[expect(clippy::indexing_slicing, reason = "a table of 256 entries indexed by a byte")]
const STRING_CLASS: [u8; 256] = {
    let mut table = [PLAIN; 256];
    let mut b = 0;
    while b < 256 {
        if b < 0x20 {
            table[b] = CONTROL;
        } else if b >= 0x80 {
            table[b] = WIDE;
        }
        b += 1;
    }
    table[b'"' as usize] = QUOTE;
    table[b'\\' as usize] = BACKSLASH;
    table
};

/// Cursor over one text.
#[derive(Clone, Debug)]
pub(crate) struct JsonReader<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> JsonReader<'t> {
    /// Starts at the head of `text`.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text: text.as_bytes(), at: 0 }
    }

    /// Starts in the middle of `text`.
    pub(crate) fn new_at(text: &'t str, at: usize) -> Self {
        Self { text: text.as_bytes(), at }
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// The next byte, not consumed.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next byte that is no blank, not consumed.
    #[inline]
    pub(crate) fn peek_token(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(&b) => return Some(b),
                None => return None,
            }
        }
    }

    /// Takes the next byte that is no blank if it is `wanted`.
    #[inline]
    pub(crate) fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek_token() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    /// Takes `wanted` or fails, naming what was wanted.
    #[inline]
    pub(crate) fn expect(&mut self, wanted: u8, what: &'static str) -> Result<(), JsonError> {
        if self.take(wanted) { Ok(()) } else { Err(self.unexpected(what)) }
    }

    /// An error at the cursor.
    #[cold]
    pub(crate) fn fault(&self, fault: JsonFault) -> JsonError {
        self.fault_at(self.at, fault)
    }

    /// An error at `offset`.
    #[cold]
    pub(crate) fn fault_at(&self, offset: usize, fault: JsonFault) -> JsonError {
        JsonError::new(self.text, offset, fault)
    }

    /// The error for a byte that does not fit.
    #[cold]
    pub(crate) fn unexpected(&self, wanted: &'static str) -> JsonError {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.len().min(4);
        let head = String::from_utf8_lossy(rest.get(..end).unwrap_or_default());
        self.fault(match head.chars().next() {
            Some(found) => JsonFault::Unexpected { found, wanted },
            None => JsonFault::End { wanted },
        })
    }

    /// After an element: true if another one follows, false if the container is closed.
    #[inline]
    pub(crate) fn more(&mut self, close: u8, wanted: &'static str) -> Result<bool, JsonError> {
        match self.peek_token() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(b) if b == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    /// The key of the next member and its colon.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<RawText<'t>, JsonError> {
        self.expect(b'"', "a field name in double quotes")?;
        let key = self.string_tail()?;
        self.expect(b':', "a colon after the field name")?;
        Ok(key)
    }

    /// Reads a string whose opening quote was consumed.
    #[expect(clippy::indexing_slicing, reason = "a table of 256 entries indexed by a byte")]
    #[inline]
    pub(crate) fn string_tail(&mut self) -> Result<RawText<'t>, JsonError> {
        let start = self.at;
        let mut plain = true;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(n) = rest.iter().position(|b| STRING_CLASS[usize::from(*b)] != PLAIN) else {
                self.at = self.text.len();
                return Err(self.unexpected("the closing quote of a string"));
            };
            self.at += n;
            match rest.get(n).map_or(CONTROL, |b| STRING_CLASS[usize::from(*b)]) {
                QUOTE => {
                    let raw = self.text.get(start..self.at).unwrap_or_default();
                    self.at += 1;
                    return Ok(RawText { raw, plain });
                }
                BACKSLASH => {
                    plain = false;
                    self.at += 1;
                    self.escape()?;
                }
                WIDE => {
                    plain = false;
                    self.at += 1;
                }
                _ => return Err(self.fault(JsonFault::ControlCharacter)),
            }
        }
    }

    /// Checks an escape whose backslash was consumed.
    fn escape(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                        return Err(self.unexpected("a hexadecimal digit of an escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.unexpected("an escape character")),
        }
        Ok(())
    }

    /// Reads a value that must not be a container.
    #[inline]
    pub(crate) fn scalar(&mut self, field: &'static str) -> Result<Scalar<'t>, JsonError> {
        match self.peek_token() {
            Some(b'"') => {
                self.at += 1;
                Ok(Scalar::Text(self.string_tail()?))
            }
            Some(b'0'..=b'9' | b'-') => Ok(Scalar::Number(self.number()?)),
            Some(b'{') => Err(self.fault(JsonFault::WrongType { field, found: "an object" })),
            Some(b'[') => Err(self.fault(JsonFault::WrongType { field, found: "an array" })),
            _ => self.word(),
        }
    }

    /// `true`, `false`, `null`, `NaN`, `Infinity` and the other spellings of infinity.
    #[cold]
    fn word(&mut self) -> Result<Scalar<'t>, JsonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        const WORDS: [(&[u8], Scalar<'static>); 8] = [
            (b"true", Scalar::Bool(true)),
            (b"false", Scalar::Bool(false)),
            (b"null", Scalar::Null),
            (b"NaN", Scalar::Number(b"NaN")),
            (b"Infinity", Scalar::Number(b"Infinity")),
            (b"INF", Scalar::Number(b"INF")),
            (b"+Infinity", Scalar::Number(b"+Infinity")),
            (b"+INF", Scalar::Number(b"+INF")),
        ];
        for (word, scalar) in WORDS {
            if rest.starts_with(word)
                && !rest.get(word.len()).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
            {
                self.at += word.len();
                return Ok(scalar);
            }
        }
        Err(self.unexpected("a value"))
    }

    /// Reads a number and returns its text.
    #[inline]
    fn number(&mut self) -> Result<&'t [u8], JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
            if let Some(b'I') = self.peek() {
                return self.negative_infinity(start);
            }
        }
        match self.peek() {
            Some(b'0') => {
                self.at += 1;
                if self.peek().is_some_and(|b| b.is_ascii_digit()) {
                    return Err(self.fault(JsonFault::LeadingZero));
                }
            }
            Some(b'1'..=b'9') => self.digits("a digit")?,
            _ => return Err(self.unexpected("a digit after the minus sign")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("a digit after the decimal point")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits("a digit of the exponent")?;
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    /// One or more digits.
    #[inline]
    fn digits(&mut self, wanted: &'static str) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.unexpected(wanted)) } else { Ok(()) }
    }

    #[cold]
    fn negative_infinity(&mut self, start: usize) -> Result<&'t [u8], JsonError> {
        match self.word()? {
            Scalar::Number(b"Infinity" | b"INF") => {
                Ok(self.text.get(start..self.at).unwrap_or_default())
            }
            _ => Err(self.fault_at(start, JsonFault::Unexpected { found: '-', wanted: "a value" })),
        }
    }

    /// Skips one value of any kind.
    pub(crate) fn skip_value(&mut self) -> Result<(), JsonError> {
        let mut open = BitStack::default();
        loop {
            // A value is due.
            match self.peek_token() {
                Some(b'{') => {
                    self.at += 1;
                    if self.take(b'}') {
                        // Falls through to what follows a value.
                    } else {
                        open.push(true).ok_or_else(|| self.fault(JsonFault::TooDeep))?;
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if !self.take(b']') {
                        open.push(false).ok_or_else(|| self.fault(JsonFault::TooDeep))?;
                        continue;
                    }
                }
                _ => {
                    self.scalar("value")?;
                }
            }
            // A value has ended: close what it completes.
            loop {
                let Some(object) = open.top() else { return Ok(()) };
                let (close, wanted) =
                    if object { (b'}', "a comma or }") } else { (b']', "a comma or ]") };
                if self.more(close, wanted)? {
                    if object {
                        self.key()?;
                    }
                    break;
                }
                open.pop();
            }
        }
    }
}

/// One bit per open container: is it an object?
struct BitStack {
    words: [u64; MAX_DEPTH / 64],
    depth: usize,
}

impl Default for BitStack {
    fn default() -> Self {
        Self { words: [0; MAX_DEPTH / 64], depth: 0 }
    }
}

impl BitStack {
    fn push(&mut self, object: bool) -> Option<()> {
        let word = self.words.get_mut(self.depth / 64)?;
        let bit = 1 << (self.depth % 64);
        if object {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        self.depth += 1;
        Some(())
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn top(&self) -> Option<bool> {
        let at = self.depth.checked_sub(1)?;
        self.words.get(at / 64).map(|word| word >> (at % 64) & 1 == 1)
    }
}

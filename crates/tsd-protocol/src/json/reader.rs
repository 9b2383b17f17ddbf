//! A lenient pull reader over one JSON text.
//!
//! OpenTSDB's parser accepts tokens that strict JSON readers reject: bare `NaN` and `Infinity`, and
//! repeated keys. Data points also need the *text* of a number (`42.50` stays `42.50`), at millions
//! per second. So this cursor returns slices of the body and does not allocate.
//!
//! It does not recurse either: it skips unknown values with a bit stack of at most [`MAX_DEPTH`]
//! levels.

use super::{
    error::{JsonError, JsonErrorKind},
    plain_text::plain_prefix,
    scalar::{Scalar, ScalarKind},
};

/// Maximum nesting; deeper text is an error.
pub(crate) const MAX_DEPTH: usize = 1_024;

/// Cursor over a JSON text.
#[derive(Clone, Debug)]
pub(crate) struct JsonReader<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> JsonReader<'t> {
    /// Starts at the beginning of `text`.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text: text.as_bytes(), at: 0 }
    }

    /// Starts at offset `at` of `text`.
    pub(crate) fn new_at(text: &'t str, at: usize) -> Self {
        Self { text: text.as_bytes(), at }
    }

    /// Returns the offset of the next byte.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Returns the next byte without consuming it.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Returns the next non-blank byte without consuming it.
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

    /// Consumes the next non-blank byte if it is `expected`.
    #[inline]
    pub(crate) fn take(&mut self, expected: u8) -> bool {
        let found = self.peek_token() == Some(expected);
        self.at += usize::from(found);
        found
    }

    /// Rejects text after the document that was read.
    pub(crate) fn expect_end(&mut self) -> Result<(), JsonError> {
        match self.peek_token() {
            None => Ok(()),
            Some(_) => Err(self.error(JsonErrorKind::TextAfterDocument { byte: self.at })),
        }
    }

    /// Consumes `expected` or fails; `what` describes it in the error.
    #[inline]
    pub(crate) fn expect(&mut self, expected: u8, what: &'static str) -> Result<(), JsonError> {
        if self.take(expected) { Ok(()) } else { Err(self.unexpected(what)) }
    }

    /// Returns an error at the cursor.
    #[cold]
    pub(crate) fn error(&self, error: JsonErrorKind) -> JsonError {
        self.error_at(self.at, error)
    }

    /// Returns an error at `offset`.
    #[cold]
    pub(crate) fn error_at(&self, offset: usize, error: JsonErrorKind) -> JsonError {
        JsonError::new(self.text, offset, error)
    }

    /// Returns the error for the next byte.
    #[cold]
    pub(crate) fn unexpected(&self, expected: &'static str) -> JsonError {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.len().min(4);
        let head = String::from_utf8_lossy(rest.get(..end).unwrap_or_default());
        self.error(match head.chars().next() {
            Some(found) => JsonErrorKind::Unexpected { found, expected },
            None => JsonErrorKind::End { expected },
        })
    }

    /// Reads the delimiter after an element: true if another element follows, false at the end of the
    /// container.
    #[inline]
    pub(crate) fn more(&mut self, close: u8, expected: &'static str) -> Result<bool, JsonError> {
        match self.peek_token() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(b) if b == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Reads the key of the next member and its colon.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<Scalar<'t>, JsonError> {
        self.expect(b'"', "a field name in double quotes")?;
        let key = self.string_tail()?;
        self.expect(b':', "a colon after the field name")?;
        Ok(key)
    }

    /// Reads a string whose opening quote was consumed.
    #[inline]
    pub(crate) fn string_tail(&mut self) -> Result<Scalar<'t>, JsonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let plain = plain_prefix(rest);
        if rest.get(plain) == Some(&b'"') {
            self.at += plain + 1;
            let raw = rest.get(..plain).unwrap_or_default();
            return Ok(Scalar { raw, kind: ScalarKind::Plain });
        }
        self.unusual_string_tail(plain)
    }

    /// Reads a string with escapes or non-ASCII characters, or without an end. The first `plain` bytes
    /// are plain.
    #[cold]
    fn unusual_string_tail(&mut self, plain: usize) -> Result<Scalar<'t>, JsonError> {
        let start = self.at;
        self.at += plain;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let raw = self.text.get(start..self.at).unwrap_or_default();
                    self.at += 1;
                    return Ok(Scalar { raw, kind: ScalarKind::Escaped });
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(0..=0x1F) => return Err(self.error(JsonErrorKind::ControlCharacter)),
                Some(_) => {
                    self.at += 1;
                    self.at += plain_prefix(self.text.get(self.at..).unwrap_or_default());
                }
                None => return Err(self.unexpected("the closing quote of a string")),
            }
        }
    }

    /// Validates an escape whose backslash was consumed.
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

    /// Reads a value other than a container.
    #[inline]
    pub(crate) fn scalar(&mut self, field: &'static str) -> Result<Scalar<'t>, JsonError> {
        match self.peek_token() {
            Some(b'"') => {
                self.at += 1;
                self.string_tail()
            }
            Some(b'0'..=b'9' | b'-') => {
                Ok(Scalar { raw: self.number()?, kind: ScalarKind::Number })
            }
            Some(b'{') => Err(self.error(JsonErrorKind::WrongType { field, found: "an object" })),
            Some(b'[') => Err(self.error(JsonErrorKind::WrongType { field, found: "an array" })),
            _ => self.word(),
        }
    }

    /// Reads `true`, `false`, `null`, `NaN`, `Infinity` and other spellings of infinity.
    #[cold]
    fn word(&mut self) -> Result<Scalar<'t>, JsonError> {
        use ScalarKind::{Bool, Null, Number};
        const WORDS: [(&[u8], ScalarKind); 8] = [
            (b"true", Bool),
            (b"false", Bool),
            (b"null", Null),
            (b"NaN", Number),
            (b"Infinity", Number),
            (b"INF", Number),
            (b"+Infinity", Number),
            (b"+INF", Number),
        ];
        let rest = self.text.get(self.at..).unwrap_or_default();
        for (raw, kind) in WORDS {
            if rest.starts_with(raw)
                && !rest.get(raw.len()).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
            {
                self.at += raw.len();
                return Ok(Scalar { raw, kind });
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
                    return Err(self.error(JsonErrorKind::LeadingZero));
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

    /// Reads one or more digits.
    #[inline]
    fn digits(&mut self, expected: &'static str) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.unexpected(expected)) } else { Ok(()) }
    }

    #[cold]
    fn negative_infinity(&mut self, start: usize) -> Result<&'t [u8], JsonError> {
        match self.word()? {
            Scalar { raw: b"Infinity" | b"INF", .. } => {
                Ok(self.text.get(start..self.at).unwrap_or_default())
            }
            _ => {
                Err(self
                    .error_at(start, JsonErrorKind::Unexpected { found: '-', expected: "a value" }))
            }
        }
    }

    /// Skips one value of any kind.
    pub(crate) fn skip_value(&mut self) -> Result<(), JsonError> {
        let mut open = BitStack::default();
        loop {
            // Expects a value.
            match self.peek_token() {
                Some(b'{') => {
                    self.at += 1;
                    if self.take(b'}') {
                        // Empty object: continue after the value.
                    } else {
                        open.push(true).ok_or_else(|| self.error(JsonErrorKind::TooDeep))?;
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if !self.take(b']') {
                        open.push(false).ok_or_else(|| self.error(JsonErrorKind::TooDeep))?;
                        continue;
                    }
                }
                _ => {
                    self.scalar("value")?;
                }
            }
            // After a value: close the containers it completes.
            loop {
                let Some(object) = open.top() else { return Ok(()) };
                let (close, expected) =
                    if object { (b'}', "a comma or }") } else { (b']', "a comma or ]") };
                if self.more(close, expected)? {
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

/// One bit per open container: 1 for an object.
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

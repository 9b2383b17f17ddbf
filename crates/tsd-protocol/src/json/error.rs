//! Why a JSON text could not be read.
//!
//! The wording is our own: OpenTSDB shows its parser's class names here, which differ between
//! its releases, so no client can depend on them.

/// A JSON text that could not be read, with the place.
///
/// One pointer wide, since it is in the result of every step of the reader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} at line {}, column {}", .0.kind, .0.line, .0.column)]
pub struct JsonError(Box<LocatedError>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct LocatedError {
    kind: JsonErrorKind,
    line: usize,
    column: usize,
}

/// What is wrong with a JSON text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// The text ends too early.
    #[error("unexpected end of input: expected {expected}")]
    End {
        /// What should have come.
        expected: &'static str,
    },
    /// Something else was due here.
    #[error("unexpected character '{found}': expected {expected}")]
    Unexpected {
        /// What stands there.
        found: char,
        /// What should have come.
        expected: &'static str,
    },
    /// A number such as `01`.
    #[error("invalid numeric value: leading zeroes not allowed")]
    LeadingZero,
    /// A raw control character inside a string.
    #[error("illegal unquoted control character in a string")]
    ControlCharacter,
    /// More nesting than is read.
    #[error("nesting too deep")]
    TooDeep,
    /// A field holds a value of a kind it cannot take.
    #[error("cannot read {found} as the field '{field}'")]
    WrongType {
        /// Name of the field.
        field: &'static str,
        /// Kind of value found.
        found: &'static str,
    },
    /// A time that is no integer.
    #[error("cannot read \"{text}\" as a 64-bit integer")]
    NotAnInteger {
        /// The text as given, shortened.
        text: String,
    },
    /// The body is larger than offsets can tell.
    #[error("the body is too large")]
    TooLarge,
}

impl JsonError {
    #[cold]
    pub(crate) fn new(text: &[u8], offset: usize, kind: JsonErrorKind) -> Self {
        let before = text.get(..offset.min(text.len())).unwrap_or_default();
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |at| at + 1) + 1;
        Self(Box::new(LocatedError { kind, line, column }))
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> &JsonErrorKind {
        &self.0.kind
    }

    /// Line and byte column of the place, from 1.
    #[must_use]
    pub fn place(&self) -> (usize, usize) {
        (self.0.line, self.0.column)
    }
}

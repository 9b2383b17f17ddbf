//! Errors of the JSON reader.
//!
//! The texts are not OpenTSDB's, which shows class names of its parser. These differ between releases,
//! so no client depends on them.

/// A JSON error with its position.
///
/// Boxed, since it is in the result of every reader method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} at line {}, column {}", .0.kind, .0.line, .0.column)]
pub struct JsonError(Box<LocatedError>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct LocatedError {
    kind: JsonErrorKind,
    line: usize,
    column: usize,
}

/// Kind of a JSON error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// Unexpected end of the text.
    #[error("unexpected end of input: expected {expected}")]
    End {
        /// Description of the expected text.
        expected: &'static str,
    },
    /// An unexpected character.
    #[error("unexpected character '{found}': expected {expected}")]
    Unexpected {
        /// The character.
        found: char,
        /// Description of the expected text.
        expected: &'static str,
    },
    /// A number such as `01`.
    #[error("invalid numeric value: leading zeroes not allowed")]
    LeadingZero,
    /// A raw control character inside a string.
    #[error("illegal unquoted control character in a string")]
    ControlCharacter,
    /// Nesting exceeds the limit.
    #[error("nesting too deep: the limit is {} levels", super::reader::MAX_DEPTH)]
    TooDeep,
    /// A field has a value of a wrong type.
    #[error("cannot read {found} as the field '{field}'")]
    WrongType {
        /// Name of the field.
        field: &'static str,
        /// Kind of value found.
        found: &'static str,
    },
    /// A time that is not an integer.
    #[error("cannot read \"{text}\" as a 64-bit integer")]
    NotAnInteger {
        /// The text, truncated.
        text: String,
    },
    /// Text follows the document.
    #[error("unexpected text after the JSON document, from byte {byte} of the body")]
    TextAfterDocument {
        /// Offset of the text.
        byte: usize,
    },
    /// The body is larger than offsets can represent.
    #[error("the body is larger than 4 GiB")]
    TooLarge,
    /// An object has too many members.
    #[error("the field '{field}' has more than {most} members")]
    TooManyMembers {
        /// Name of the field.
        field: &'static str,
        /// The limit.
        most: usize,
    },
}

impl JsonError {
    #[cold]
    pub(crate) fn new(text: &[u8], offset: usize, kind: JsonErrorKind) -> Self {
        let before = text.get(..offset.min(text.len())).unwrap_or_default();
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |at| at + 1) + 1;
        Self(Box::new(LocatedError { kind, line, column }))
    }
}

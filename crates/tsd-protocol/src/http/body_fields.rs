//! Reads fields of request bodies one by one, without building a JSON tree.
//!
//! A tree needs a multiple of the memory of its text, and an unknown field may be as large as the
//! body. The reader skips unknown values without recursion and checks element limits while reading.

use std::{borrow::Cow, str::FromStr};

use tsd_query::QueryError;

use crate::{
    ApiError,
    json::{JsonError, JsonErrorKind, JsonReader, Scalar, ScalarKind},
};

/// Why a body was rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum BodyError {
    /// The body is not the expected JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Text follows the document.
    #[error(transparent)]
    TextAfterDocument(JsonError),
    /// The body is not a valid query.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// An element is not an annotation.
    #[error(transparent)]
    Annotation(tsd_model::JsonError),
    /// The body has more elements than the limit.
    #[error("too many {what}")]
    TooMany {
        /// Name of the elements.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl BodyError {
    /// Converts to an API error.
    pub(crate) fn into_api_error(self) -> ApiError {
        match self {
            Self::Json(error) | Self::TextAfterDocument(error) => {
                ApiError::bad_json(error.to_string())
            }
            Self::Query(error) => error.into(),
            Self::Annotation(error) => ApiError::new(400, error.to_string()),
            Self::TooMany { what, limit } => ApiError::too_many(what, limit),
        }
    }
}

/// Limit on the number of elements of a request.
#[derive(Debug)]
pub(crate) struct CountLimit {
    what: &'static str,
    limit: usize,
    remaining: usize,
}

impl CountLimit {
    pub(crate) const fn new(what: &'static str, limit: usize) -> Self {
        Self { what, limit, remaining: limit }
    }

    /// Counts one element.
    pub(crate) fn take(&mut self) -> Result<(), BodyError> {
        self.take_many(1)
    }

    /// Counts `count` elements.
    pub(crate) fn take_many(&mut self, count: usize) -> Result<(), BodyError> {
        match self.remaining.checked_sub(count) {
            Some(remaining) => {
                self.remaining = remaining;
                Ok(())
            }
            None => Err(BodyError::TooMany { what: self.what, limit: self.limit }),
        }
    }
}

/// Reads a body that is one document. Rejects text after the document, since its sender expects it to count.
pub(crate) fn read_document<'t, T>(
    body: &'t str,
    read: impl FnOnce(&mut JsonReader<'t>) -> Result<T, BodyError>,
) -> Result<T, BodyError> {
    let mut reader = JsonReader::new(body);
    let document = read(&mut reader)?;
    reader.expect_end().map_err(BodyError::TextAfterDocument)?;
    Ok(document)
}

/// Reads an object, calling `each` with every key and the reader before its value.
pub(crate) fn read_object<'t>(
    reader: &mut JsonReader<'t>,
    field: &'static str,
    mut visit: impl FnMut(&str, &mut JsonReader<'t>) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    if !reader.take(b'{') {
        return Err(mismatch(reader, field, "an object"));
    }
    if reader.take(b'}') {
        return Ok(());
    }
    loop {
        let key = reader.key()?;
        visit(&text_of(key), reader)?;
        if !reader.more(b'}', "a comma or } after a field")? {
            return Ok(());
        }
    }
}

/// Reads a body that is one object ([`read_document`], [`read_object`]).
pub(crate) fn read_body_object<'t>(
    body: &'t str,
    field: &'static str,
    visit: impl FnMut(&str, &mut JsonReader<'t>) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    read_document(body, |reader| read_object(reader, field, visit))
}

/// Reads an array, calling `each` before every element. `null` is an empty array.
pub(crate) fn read_list<'t>(
    reader: &mut JsonReader<'t>,
    field: &'static str,
    mut visit: impl FnMut(&mut JsonReader<'t>) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    if take_null(reader)? {
        return Ok(());
    }
    if !reader.take(b'[') {
        return Err(mismatch(reader, field, "an array"));
    }
    if reader.take(b']') {
        return Ok(());
    }
    loop {
        visit(reader)?;
        if !reader.more(b']', "a comma or ] after an element")? {
            return Ok(());
        }
    }
}

/// Reads an array into a list. `null` is an empty list.
pub(crate) fn read_all<'t, T>(
    reader: &mut JsonReader<'t>,
    field: &'static str,
    mut read: impl FnMut(&mut JsonReader<'t>) -> Result<T, BodyError>,
) -> Result<Vec<T>, BodyError> {
    let mut all = Vec::new();
    read_list(reader, field, |reader| {
        all.push(read(reader)?);
        Ok(())
    })?;
    Ok(all)
}

/// Reads an array of texts; `null` is an empty text.
pub(crate) fn read_texts(
    reader: &mut JsonReader<'_>,
    field: &'static str,
    limit: &mut CountLimit,
) -> Result<Vec<String>, BodyError> {
    read_all(reader, field, |reader| {
        limit.take()?;
        Ok(read_text(reader, field)?.unwrap_or_default())
    })
}

/// Adds a pair, or replaces the text of its key.
pub(crate) fn put_text(pairs: &mut Vec<(String, String)>, key: &str, text: String) {
    match pairs.iter_mut().find(|(present, _)| present == key) {
        Some((_, present)) => *present = text,
        None => pairs.push((key.to_owned(), text)),
    }
}

/// Consumes the next value if it is `null`.
pub(crate) fn take_null(reader: &mut JsonReader<'_>) -> Result<bool, BodyError> {
    if reader.peek_token() != Some(b'n') {
        return Ok(false);
    }
    Ok(reader.scalar("value")?.kind == ScalarKind::Null)
}

/// Reads text, also from numbers and booleans.
pub(crate) fn read_text(
    reader: &mut JsonReader<'_>,
    field: &'static str,
) -> Result<Option<String>, BodyError> {
    Ok(reader.scalar(field)?.text().map(|text| text_of(text).into_owned()))
}

/// Reads a boolean, also from its name and from numbers.
pub(crate) fn read_flag(
    reader: &mut JsonReader<'_>,
    field: &'static str,
) -> Result<bool, BodyError> {
    let at = reader.offset();
    let scalar = reader.scalar(field)?;
    let text = text_of(scalar);
    match scalar.kind {
        ScalarKind::Null => Ok(false),
        ScalarKind::Bool => Ok(text == "true"),
        ScalarKind::Number => Ok(text.parse::<f64>().is_ok_and(|number| number != 0.0)),
        ScalarKind::Plain | ScalarKind::Escaped => match text.trim() {
            "true" | "True" | "TRUE" => Ok(true),
            "false" | "False" | "FALSE" | "" => Ok(false),
            _ => Err(wrong_type(reader, at, field, "a text").into()),
        },
    }
}

/// Reads an integer, also from text; fractions are truncated.
pub(crate) fn read_integer(
    reader: &mut JsonReader<'_>,
    field: &'static str,
) -> Result<i64, BodyError> {
    let at = reader.offset();
    let scalar = reader.scalar(field)?;
    let text = text_of(scalar);
    let cut = |number: f64| (number.abs() < 9.3e18).then_some(number as i64);
    let (parsed, found) = match scalar.kind {
        ScalarKind::Null => (Some(0), "null"),
        ScalarKind::Bool => (None, "a boolean"),
        ScalarKind::Number => {
            let parsed = text.parse().ok().or_else(|| text.parse::<f64>().ok().and_then(cut));
            (parsed, "a number")
        }
        ScalarKind::Plain | ScalarKind::Escaped => match text.trim() {
            "" => (Some(0), "a text"),
            text => (text.parse().ok(), "a text"),
        },
    };
    parsed.ok_or_else(|| wrong_type(reader, at, field, found).into())
}

/// Reads a number of type `T`, also from text.
pub(crate) fn read_float<T: FromStr + Default>(
    reader: &mut JsonReader<'_>,
    field: &'static str,
) -> Result<T, BodyError> {
    let at = reader.offset();
    let scalar = reader.scalar(field)?;
    let text = text_of(scalar);
    let parsed = match scalar.kind {
        ScalarKind::Null => Some(T::default()),
        ScalarKind::Bool => None,
        _ => text.trim().parse().ok(),
    };
    parsed.ok_or_else(|| wrong_type(reader, at, field, "a value").into())
}

/// Returns the unescaped text of a scalar.
pub(crate) fn text_of(scalar: Scalar<'_>) -> Cow<'_, str> {
    match scalar.as_is().and_then(|raw| std::str::from_utf8(raw).ok()) {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(scalar.to_owned_string()),
    }
}

/// Error for a value that is not the expected container.
fn mismatch(reader: &mut JsonReader<'_>, field: &'static str, expected: &'static str) -> BodyError {
    let found = match reader.peek_token() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a text",
        Some(b'0'..=b'9' | b'-') => "a number",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => return reader.unexpected(expected).into(),
    };
    reader.error(JsonErrorKind::WrongType { field, found }).into()
}

fn wrong_type(
    reader: &JsonReader<'_>,
    at: usize,
    field: &'static str,
    found: &'static str,
) -> JsonError {
    reader.error_at(at, JsonErrorKind::WrongType { field, found })
}

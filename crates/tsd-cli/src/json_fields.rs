//! Fields of JSON objects that another process has written, and that may be missing.

use serde_json::{Map, Value};

/// A text; empty if there is none.
pub(crate) fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A whole number; 0 if there is none.
pub(crate) fn number(object: &Value, field: &str) -> u64 {
    object.get(field).and_then(Value::as_u64).unwrap_or_default()
}

/// The elements of an array; none if there is no array.
pub(crate) fn elements<'v>(object: &'v Value, field: &str) -> &'v [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The fields of an object, all of which have texts; `None` if one has another value.
pub(crate) fn texts<T: FromIterator<(String, String)>>(object: &Map<String, Value>) -> Option<T> {
    object.iter().map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

//! Reads fields of JSON objects of another process, which may lack them.

use serde_json::{Map, Value};

/// The text of a field; empty if the field is missing or is not a text.
pub(crate) fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number of a field; 0 if the field is missing or is not a whole number.
pub(crate) fn number(object: &Value, field: &str) -> u64 {
    object.get(field).and_then(Value::as_u64).unwrap_or_default()
}

/// The elements of an array; empty if the field is missing or is not an array.
pub(crate) fn elements<'v>(object: &'v Value, field: &str) -> &'v [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The fields of an object whose values are all texts; `None` if a value is not a text.
pub(crate) fn texts<T: FromIterator<(String, String)>>(object: &Map<String, Value>) -> Option<T> {
    object.iter().map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

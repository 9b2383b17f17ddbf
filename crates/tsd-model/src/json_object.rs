//! JSON objects in cells: written with OpenTSDB's bytes, read in any form.
//!
//! OpenTSDB updates some objects only if the stored bytes equal its own rendering of the parsed
//! object. It could never update an object with other bytes.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::{
    java_hash::sort_as_copied_hash_map,
    java_text::{java_double, write_java_json_string},
};

/// User-defined key and value pairs of annotations and meta objects; a value may be null.
pub type CustomFields = Vec<(String, Option<String>)>;

/// Bytes that are not an object of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// JSON, but not an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// A field has a value of a wrong type.
    #[error("field {0} has a value of another type")]
    Field(&'static str),
}

/// How a map of custom fields is ordered.
#[derive(Clone, Copy)]
pub(crate) enum CustomOrder {
    /// By UTF-16 units of the key.
    Sorted,
    /// In the iteration order of a Java hash map.
    HashMap,
}

/// Writes one object, field by field.
pub(crate) struct ObjectWriter {
    out: String,
}

impl ObjectWriter {
    pub(crate) fn new() -> Self {
        Self { out: "{".to_owned() }
    }

    fn key(&mut self, key: &str) {
        if self.out.len() > 1 {
            self.out.push(',');
        }
        write_java_json_string(key, &mut self.out);
        self.out.push(':');
    }

    pub(crate) fn string(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        write_java_json_string(value, &mut self.out);
        self
    }

    pub(crate) fn integer(mut self, key: &str, value: i64) -> Self {
        self.key(key);
        let _ = write!(self.out, "{value}");
        self
    }

    pub(crate) fn boolean(mut self, key: &str, value: bool) -> Self {
        self.key(key);
        self.out.push_str(if value { "true" } else { "false" });
        self
    }

    /// A double in Java's notation; NaN and infinities are quoted.
    pub(crate) fn double(mut self, key: &str, value: f64) -> Self {
        let text = java_double(value);
        if value.is_finite() {
            self.key(key);
            self.out.push_str(&text);
            self
        } else {
            self.string(key, &text)
        }
    }

    pub(crate) fn custom(
        mut self,
        key: &str,
        custom: Option<&CustomFields>,
        order: CustomOrder,
    ) -> Self {
        self.key(key);
        let Some(custom) = custom else {
            self.out.push_str("null");
            return self;
        };
        let mut fields: Vec<_> = custom.iter().collect();
        match order {
            CustomOrder::Sorted => {
                fields.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
            }
            CustomOrder::HashMap => sort_as_copied_hash_map(&mut fields, |f| &f.0),
        }
        self.out.push('{');
        for (at, (name, value)) in fields.into_iter().enumerate() {
            if at > 0 {
                self.out.push(',');
            }
            write_java_json_string(name, &mut self.out);
            self.out.push(':');
            match value {
                Some(value) => write_java_json_string(value, &mut self.out),
                None => self.out.push_str("null"),
            }
        }
        self.out.push('}');
        self
    }

    /// An object whose keys are 0, 1, 2 and so on.
    pub(crate) fn numbered(mut self, key: &str, values: &[String]) -> Self {
        self.key(key);
        let inner = values
            .iter()
            .enumerate()
            .fold(Self::new(), |inner, (at, value)| inner.string(&at.to_string(), value));
        self.out.push_str(&inner.finish());
        self
    }

    pub(crate) fn finish(mut self) -> String {
        self.out.push('}');
        self.out
    }
}

/// Reads the fields of one object; unknown ones are ignored, missing ones have the default.
pub(crate) struct ObjectReader(Map<String, Value>);

impl ObjectReader {
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, JsonError> {
        // As Java's parser, without a look at what follows the object.
        match serde_json::Deserializer::from_slice(bytes).into_iter().next() {
            Some(Ok(Value::Object(fields))) => Ok(Self(fields)),
            Some(Ok(_)) => Err(JsonError::NotAnObject),
            Some(Err(error)) => Err(JsonError::Syntax(error.to_string())),
            None => Err(JsonError::Syntax("no value".to_owned())),
        }
    }

    pub(crate) fn string(&self, key: &'static str) -> Result<String, JsonError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(value) => scalar(value).ok_or(JsonError::Field(key)),
        }
    }

    pub(crate) fn integer(&self, key: &'static str) -> Result<i64, JsonError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(0),
            Some(Value::Number(n)) => {
                n.as_i64().or_else(|| n.as_f64().and_then(truncated)).ok_or(JsonError::Field(key))
            }
            Some(Value::String(text)) => text.trim().parse().map_err(|_| JsonError::Field(key)),
            Some(_) => Err(JsonError::Field(key)),
        }
    }

    pub(crate) fn double(&self, key: &'static str, default: f64) -> Result<f64, JsonError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Number(n)) => n.as_f64().ok_or(JsonError::Field(key)),
            Some(Value::String(text)) => {
                crate::parse_java_double(text.as_bytes()).map_err(|_| JsonError::Field(key))
            }
            Some(_) => Err(JsonError::Field(key)),
        }
    }

    pub(crate) fn boolean(&self, key: &'static str) -> Result<bool, JsonError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(JsonError::Field(key)),
        }
    }

    pub(crate) fn custom(&self, key: &'static str) -> Result<Option<CustomFields>, JsonError> {
        let fields = match self.0.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err(JsonError::Field(key)),
        };
        fields
            .iter()
            .map(|(name, value)| match value {
                Value::Null => Ok((name.clone(), None)),
                value => scalar(value)
                    .map(|text| (name.clone(), Some(text)))
                    .ok_or(JsonError::Field(key)),
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// Values of an object whose keys are 0, 1, 2 and so on, in that order.
    pub(crate) fn numbered(&self, key: &'static str) -> Result<Vec<String>, JsonError> {
        let fields = match self.0.get(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err(JsonError::Field(key)),
        };
        (0..fields.len())
            .map(|at| fields.get(&at.to_string()).and_then(scalar).ok_or(JsonError::Field(key)))
            .collect()
    }
}

/// The whole part of a number; `None` outside the range of 64-bit integers.
fn truncated(number: f64) -> Option<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    (-END..END).contains(&number).then_some(number as i64)
}

/// Text of a string, a number or a boolean, all of which Java accepts as a string.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

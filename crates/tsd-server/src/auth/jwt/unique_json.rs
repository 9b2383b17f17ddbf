//! JSON objects without repeated names.
//!
//! Parsers differ in which of two values they take. What a provider has signed must have one meaning.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value, map::Entry};

/// A value in which no object has a name twice.
struct UniqueValue(Value);

struct UniqueVisitor;

/// Parses an object.
pub(super) fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::from_slice(bytes)? {
        UniqueValue(Value::Object(object)) => Ok(object),
        _ => Err(Error::custom("expected an object")),
    }
}

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(UniqueValue(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, UniqueValue(value))) = members.next_entry::<String, _>()? {
            match object.entry(name) {
                Entry::Vacant(entry) => _ = entry.insert(value),
                Entry::Occupied(entry) => {
                    return Err(A::Error::custom(format!("{:?} occurs twice", entry.key())));
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_occurs_once_at_any_depth() {
        let text = r#"{"a":[1,-1,1.5,null,true,"x",{"b":{"c":""}}],"b":{}}"#;
        let parsed =
            parse_object(text.as_bytes()).ok().map(|object| Value::Object(object).to_string());
        assert_eq!(parsed.as_deref(), Some(text));
        for text in [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, r#"{"x":[{"y":{"a":1,"a":2}}]}"#]
        {
            let error = parse_object(text.as_bytes()).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("\"a\" occurs twice")), "{text}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(1_000));
        for text in ["", "[]", "1", "{}{}", "{", "\"a\"", &deep] {
            assert!(parse_object(text.as_bytes()).is_err(), "{text}");
        }
    }
}

//! JSON parsed without loss: numbers keep their digits, objects their order and duplicate keys.
//!
//! A response may have a key twice (several points in one second), integers differ from floats, and
//! doubles are compared bit by bit; `serde_json` preserves none of these.

use std::fmt;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// The digits as written.
    Number(String),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a whole text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = JsonReader { rest: text };
        let value = reader.value()?;
        reader.skip_blanks();
        if reader.rest.is_empty() { Ok(value) } else { Err(reader.unexpected()) }
    }

    /// The first value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.fields().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The text of a key.
    pub(crate) fn text_of(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Self::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Fields of an object; empty for other values.
    pub(crate) fn fields(&self) -> &[(String, Self)] {
        match self {
            Self::Object(fields) => fields,
            _ => &[],
        }
    }

    /// Values of an array; empty for other values.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Number(digits) => f.write_str(digits),
            Self::Text(text) => write_text(f, text),
            Self::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    item.fmt(f)?;
                }
                f.write_str("]")
            }
            Self::Object(fields) => {
                f.write_str("{")?;
                for (i, (key, value)) in fields.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { "," })?;
                    write_text(f, key)?;
                    write!(f, ":{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str(&serde_json::to_string(text).map_err(|_| fmt::Error)?)
}

struct JsonReader<'t> {
    rest: &'t str,
}

impl<'t> JsonReader<'t> {
    fn value(&mut self) -> Result<Json, String> {
        self.skip_blanks();
        match self.rest.chars().next() {
            Some('{') => self.object(),
            Some('[') => self.array(),
            Some('"') => Ok(Json::Text(self.text()?)),
            Some('-' | '0'..='9') => {
                let is_part = |c: char| matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E');
                Ok(Json::Number(self.take_while(is_part).to_owned()))
            }
            _ => match self.take_while(|c| c.is_ascii_lowercase()) {
                "null" => Ok(Json::Null),
                "true" => Ok(Json::Bool(true)),
                "false" => Ok(Json::Bool(false)),
                _ => Err(self.unexpected()),
            },
        }
    }

    fn object(&mut self) -> Result<Json, String> {
        let mut fields = Vec::new();
        self.expect('{')?;
        while !self.take('}') {
            if !fields.is_empty() {
                self.expect(',')?;
            }
            self.skip_blanks();
            let key = self.text()?;
            self.expect(':')?;
            fields.push((key, self.value()?));
        }
        Ok(Json::Object(fields))
    }

    fn array(&mut self) -> Result<Json, String> {
        let mut items = Vec::new();
        self.expect('[')?;
        while !self.take(']') {
            if !items.is_empty() {
                self.expect(',')?;
            }
            items.push(self.value()?);
        }
        Ok(Json::Array(items))
    }

    /// A text; `serde_json` decodes its escapes.
    fn text(&mut self) -> Result<String, String> {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        let (text, rest) = end
            .and_then(|(at, _)| self.rest.split_at_checked(at + 1))
            .ok_or_else(|| self.unexpected())?;
        self.rest = rest;
        serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, expected: char) -> bool {
        self.skip_blanks();
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, expected: char) -> Result<(), String> {
        if self.take(expected) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&self) -> String {
        format!("invalid JSON at: {}", self.rest.chars().take(60).collect::<String>())
    }
}

#[test]
fn parsed_json_is_rendered_unchanged() {
    let text = r#"{"a":[1,1.0,1E5,-0.0,"x\"é\\",null,true],"a":{},"b":[]}"#;
    assert_eq!(Json::parse(text).expect("JSON").to_string(), text);
    for broken in ["", "{", "[1,]", "{\"a\"}", "\"a", "nul", "1 2"] {
        assert!(Json::parse(broken).is_err(), "{broken}");
    }
}

//! JSON that preserves the details of a comparison: the text of numbers, the order of members,
//! duplicate keys.

use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    /// The text of a number, string, `true`, `false` or `null`.
    Scalar(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a whole text; `None` if it is not JSON.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (value, rest) = parse_value(text)?;
        rest.trim().is_empty().then_some(value)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.iter().find(|(name, _)| name == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Removes a member of an object.
    pub(crate) fn remove(&mut self, key: &str) {
        if let Self::Object(members) = self {
            members.retain(|(name, _)| name != key);
        }
    }

    /// Calls `change` for each member of each object, inner ones first.
    pub(crate) fn change_members(&mut self, change: &mut impl FnMut(&str, &mut Json)) {
        match self {
            Self::Scalar(_) => {}
            Self::List(elements) => elements.iter_mut().for_each(|e| e.change_members(change)),
            Self::Object(members) => {
                for (name, value) in members {
                    value.change_members(change);
                    change(name, value);
                }
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(text) => f.write_str(text),
            Self::List(elements) => {
                f.write_str("[")?;
                for (at, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if at > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Object(members) => {
                f.write_str("{")?;
                for (at, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}{name:?}:{value}", if at > 0 { "," } else { "" })?;
                }
                f.write_str("}")
            }
        }
    }
}

fn parse_value(text: &str) -> Option<(Json, &str)> {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('[') {
        let mut elements = Vec::new();
        if let Some(rest) = rest.trim_start().strip_prefix(']') {
            return Some((Json::List(elements), rest));
        }
        loop {
            let (element, after) = parse_value(rest)?;
            elements.push(element);
            let after = after.trim_start();
            if let Some(after) = after.strip_prefix(']') {
                return Some((Json::List(elements), after));
            }
            rest = after.strip_prefix(',')?;
        }
    }
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut members = Vec::new();
        if let Some(rest) = rest.trim_start().strip_prefix('}') {
            return Some((Json::Object(members), rest));
        }
        loop {
            let (name, after) = parse_scalar(rest.trim_start())?;
            let name: String = serde_json::from_str(name).ok()?;
            let (value, after) = parse_value(after.trim_start().strip_prefix(':')?)?;
            members.push((name, value));
            let after = after.trim_start();
            if let Some(after) = after.strip_prefix('}') {
                return Some((Json::Object(members), after));
            }
            rest = after.strip_prefix(',')?;
        }
    }
    let (scalar, rest) = parse_scalar(text)?;
    Some((Json::Scalar(scalar.to_owned()), rest))
}

fn parse_scalar(text: &str) -> Option<(&str, &str)> {
    let end = if text.starts_with('"') {
        let mut escaped = false;
        let inner = text.get(1..)?;
        1 + inner.find(|c| {
            let end = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            end
        })? + 1
    } else {
        text.find([',', ']', '}', ':']).unwrap_or(text.len())
    };
    let (scalar, rest) = text.split_at_checked(end)?;
    (!scalar.is_empty()).then_some((scalar.trim_end(), rest))
}

//! One request to both daemons.

use std::fmt::{self, Write as _};

use serde_json::Value;

/// A request by HTTP, or lines by telnet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) parameters: Vec<(String, Option<String>)>,
    pub(crate) body: Option<Body>,
    /// Lines by telnet; the other fields are unused then.
    pub(crate) telnet: Option<String>,
    /// True if it may be sent again, so that it can be made smaller.
    pub(crate) is_read: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Json(Value),
    Text(String),
}

impl Request {
    pub(crate) fn get(path: &str) -> Self {
        Self {
            method: "GET",
            path: path.to_owned(),
            parameters: Vec::new(),
            body: None,
            telnet: None,
            is_read: true,
        }
    }

    pub(crate) fn post(path: &str, body: Value) -> Self {
        Self { method: "POST", body: Some(Body::Json(body)), ..Self::get(path) }
    }

    pub(crate) fn telnet(lines: String) -> Self {
        Self { telnet: Some(lines), is_read: false, ..Self::get("") }
    }

    pub(crate) fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self.body = Some(Body::Text(text.to_owned()));
        self
    }

    pub(crate) fn parameter(mut self, name: &str, value: impl Into<String>) -> Self {
        self.parameters.push((name.to_owned(), Some(value.into())));
        self
    }

    pub(crate) fn flag(mut self, name: &str) -> Self {
        self.parameters.push((name.to_owned(), None));
        self
    }

    /// Marks a request that changes stored data.
    pub(crate) fn write(mut self) -> Self {
        self.is_read = false;
        self
    }

    /// True for a query that deletes its points.
    pub(crate) fn is_delete(&self) -> bool {
        self.path == "/api/query" && !self.is_read
    }

    pub(crate) fn uri(&self) -> String {
        let mut uri = self.path.clone();
        for (at, (name, value)) in self.parameters.iter().enumerate() {
            uri.push(if at == 0 { '?' } else { '&' });
            uri.push_str(name);
            if let Some(value) = value {
                uri.push('=');
                uri.push_str(&escaped(value));
            }
        }
        uri
    }

    pub(crate) fn body_text(&self) -> Option<String> {
        self.body.as_ref().map(|body| match body {
            Body::Json(value) => value.to_string(),
            Body::Text(text) => text.clone(),
        })
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~:,/*()!'|".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lines) = &self.telnet {
            return write!(f, "telnet {lines:?}");
        }
        write!(f, "{} {}", self.method, self.path)?;
        for (at, (name, value)) in self.parameters.iter().enumerate() {
            f.write_str(if at == 0 { "?" } else { "&" })?;
            write!(f, "{name}")?;
            if let Some(value) = value {
                write!(f, "={value}")?;
            }
        }
        if let Some(body) = self.body_text() {
            write!(f, " {body}")?;
        }
        Ok(())
    }
}

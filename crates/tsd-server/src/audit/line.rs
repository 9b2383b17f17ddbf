//! A line of the audit log: a JSON object whose fields are in a fixed order.

use std::net::SocketAddr;

use jiff::Timestamp;
use serde_json::{Value, json};
use tsd_engine::LogOrigin;

/// Maximum characters of a text in a line; longer ones end with `…`.
const MAX_TEXT: usize = 4_096;

/// A line without its time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuditLine {
    fields: Vec<(&'static str, Value)>,
}

/// How a client reached the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Telnet,
}

/// How an act ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ActOutcome {
    /// As requested.
    Done,
    /// Its sender may not do it.
    Refused { status: Option<u16>, reason: String },
    /// It was not done, or not completely.
    Failed { status: u16, reason: String },
    /// The daemon does not know, since the client did not wait for the end.
    Unknown,
}

impl ActOutcome {
    /// A refusal with an HTTP status.
    pub(crate) fn refused(status: u16, reason: impl Into<String>) -> Self {
        Self::Refused { status: Some(status), reason: reason.into() }
    }
}

impl AuditLine {
    pub(crate) fn new(act: &str) -> Self {
        Self { fields: vec![("act", act.into())] }
    }

    /// A line about something that the daemon did by itself.
    pub(super) fn of_daemon(act: &str, details: Value) -> Self {
        Self::new(act).with("outcome", "done").with("protocol", "daemon").with("details", details)
    }

    /// A line about lost lines.
    pub(super) fn lost(lines: u64) -> Self {
        let verb = if lines == 1 { "line is" } else { "lines are" };
        let reason = format!("{lines} {verb} lost; the log of the daemon has the text");
        let line = Self::new("audit log").with("outcome", "failed").with("protocol", "daemon");
        line.with("reason", reason).with("count", lines)
    }

    /// A line about refusals without lines of their own.
    pub(super) fn refusals(count: u64, since: Timestamp) -> Self {
        let reason = format!("{count} further sign-ins and acts were refused since {since:.3}");
        let line = Self::new("refusals").with("outcome", "refused").with("protocol", "daemon");
        line.with("reason", reason).with("count", count)
    }

    /// Adds a field.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::String(text) => shortened(text).into(),
            value => value,
        };
        self.fields.push((name, value));
        self
    }

    /// Adds who sent the request, from where, and the id of the request or of the telnet connection.
    pub(crate) fn sent_by(
        self,
        user: Option<&str>,
        client: SocketAddr,
        protocol: Protocol,
    ) -> Self {
        let origin = LogOrigin::current();
        let client = SocketAddr::new(client.ip().to_canonical(), client.port()).to_string();
        let line = self.with("user", json!(user)).with("client", client);
        match protocol {
            Protocol::Http => line.with("protocol", "http").with("id", json!(origin.request())),
            Protocol::Telnet => {
                line.with("protocol", "telnet").with("id", json!(origin.connection()))
            }
        }
    }

    /// The line before the act.
    pub(super) fn started(&self) -> Self {
        let mut line = self.clone();
        line.fields.insert(1, ("outcome", "started".into()));
        line
    }

    /// The line with its outcome.
    pub(crate) fn ended(mut self, outcome: &ActOutcome) -> Self {
        let (word, status, reason) = match outcome {
            ActOutcome::Done => ("done", None, None),
            ActOutcome::Refused { status, reason } => ("refused", *status, Some(reason.as_str())),
            ActOutcome::Failed { status, reason } => {
                ("failed", Some(*status), Some(reason.as_str()))
            }
            ActOutcome::Unknown => {
                let reason = "the client closed its connection before the act ended, and the act may have been done";
                ("unknown", None, Some(reason))
            }
        };
        self.fields.insert(1, ("outcome", word.into()));
        let line = match status {
            Some(status) => self.with("status", status),
            None => self,
        };
        match reason.filter(|reason| !reason.is_empty()) {
            Some(reason) => line.with("reason", reason),
            None => line,
        }
    }

    /// Renders the line with its time.
    pub(super) fn render(&self, now: Timestamp) -> String {
        let mut line = format!("{{\"time\":\"{now:.3}\"");
        for (name, value) in &self.fields {
            line.push_str(&format_field(name, value));
        }
        line.push_str("}\n");
        line
    }
}

fn format_field(name: &str, value: &Value) -> String {
    format!(",\"{name}\":{value}")
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_line_is_an_object_in_a_fixed_order_and_on_one_line() {
        let client = "[::ffff:10.0.0.7]:51234".parse().unwrap();
        let line = AuditLine::new("uid rename")
            .sent_by(Some("alice"), client, Protocol::Http)
            .with("request", "POST /api/uid/rename")
            .with("body", "{\"metric\":\n\"a\"}");
        let now = "2027-03-01T10:00:00.5Z".parse().unwrap();
        assert_eq!(
            line.clone().ended(&ActOutcome::Done).render(now),
            "{\"time\":\"2027-03-01T10:00:00.500Z\",\"act\":\"uid rename\",\"outcome\":\"done\",\
             \"user\":\"alice\",\"client\":\"10.0.0.7:51234\",\"protocol\":\"http\",\"id\":null,\
             \"request\":\"POST /api/uid/rename\",\"body\":\"{\\\"metric\\\":\\n\\\"a\\\"}\"}\n"
        );
        let failed =
            line.ended(&ActOutcome::Failed { status: 400, reason: "no such UID".to_owned() });
        assert!(failed.render(now).ends_with(",\"status\":400,\"reason\":\"no such UID\"}\n"));
    }

    #[test]
    fn a_long_text_is_cut() {
        let line = AuditLine::new("a").with("body", "é".repeat(MAX_TEXT + 1));
        let text = line.render(Timestamp::UNIX_EPOCH);
        assert_eq!(text.matches('é').count(), MAX_TEXT);
        assert!(text.ends_with("é…\"}\n"), "{text}");
    }
}

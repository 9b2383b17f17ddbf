//! Adds the request or the telnet connection that caused a log line to its end.

use std::fmt::{self, Write as _};

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};
use tsd_engine::LogOrigin;

/// Formats lines by `F`, and adds the origin of the running task.
#[derive(Debug)]
pub(super) struct WithOrigin<F> {
    format: F,
    /// What a line of `F` ends with.
    end: &'static str,
    push: fn(&mut String, &LogOrigin),
}

impl<F> WithOrigin<F> {
    /// For lines of text.
    pub(super) fn text(format: F) -> Self {
        Self { format, end: "\n", push: push_text }
    }

    /// For JSON objects.
    pub(super) fn json(format: F) -> Self {
        Self { format, end: "}\n", push: push_json }
    }
}

/// Adds the origin as fields of a text.
pub(super) fn push_text(line: &mut String, origin: &LogOrigin) {
    // Writing to memory cannot fail.
    if let Some(id) = origin.request() {
        let _ = write!(line, " request={id:?}");
    }
    if let Some(number) = origin.connection() {
        let _ = write!(line, " connection={number}");
    }
}

/// Adds the origin as members of an object. The ids of requests need no escapes.
fn push_json(line: &mut String, origin: &LogOrigin) {
    if let Some(id) = origin.request() {
        let _ = write!(line, r#","request":"{id}""#);
    }
    if let Some(number) = origin.connection() {
        let _ = write!(line, r#","connection":{number}"#);
    }
}

impl<S, N, F> FormatEvent<S, N> for WithOrigin<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let origin = LogOrigin::current();
        if origin == LogOrigin::default() {
            return self.format.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        if line.ends_with(self.end) {
            line.truncate(line.len() - self.end.len());
            (self.push)(&mut line, &origin);
            line.push_str(self.end);
        }
        writer.write_str(&line)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{io, sync::Arc};

    use parking_lot::Mutex;
    use tracing_subscriber::{
        fmt::{self, format::JsonFields},
        layer::{Layer, SubscriberExt},
        registry::Registry,
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Logs a line of a request, one of a connection and one without an origin.
    fn logged(layer: impl FnOnce(Lines) -> Box<dyn Layer<Registry> + Send + Sync>) -> String {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::registry().with(layer(lines.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let log = || tracing::warn!(points = 2, "failed");
            LogOrigin::of_request("a-1".into()).in_scope(log);
            LogOrigin::of_connection().in_scope(log);
            log();
        });
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_ends_with_its_origin() {
        let text = logged(|lines| {
            let layer = fmt::layer().with_writer(move || lines.clone()).with_ansi(false);
            layer.event_format(WithOrigin::text(fmt::format().with_ansi(false))).boxed()
        });
        let ends: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(": failed "))
            .map(|(_, end)| end)
            .collect();
        assert_eq!(ends.len(), 3, "{text}");
        assert_eq!(
            (ends.first(), ends.last()),
            (Some(&r#"points=2 request="a-1""#), Some(&"points=2"))
        );
        assert!(ends.get(1).is_some_and(|end| end.starts_with("points=2 connection=")), "{text}");
    }

    #[test]
    fn an_object_has_its_origin() {
        let text = logged(|lines| {
            let layer = fmt::layer().with_writer(move || lines.clone());
            let format = WithOrigin::json(fmt::format().json().flatten_event(true));
            layer.fmt_fields(JsonFields::new()).event_format(format).boxed()
        });
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [of_request, of_connection, other] = &lines[..] else { panic!("{text}") };
        assert_eq!((&of_request["request"], &of_request["points"]), (&"a-1".into(), &2.into()));
        assert!(of_connection["connection"].is_u64() && of_connection.get("request").is_none());
        assert!(other.get("request").or(other.get("connection")).is_none(), "{text}");
    }
}

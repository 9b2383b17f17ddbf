//! Keeps the last log events in memory.

use std::{
    fmt::{self, Write},
    sync::Arc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context};
use tsd_engine::LogOrigin;
use tsd_server::{LogEvent, RecentLogs};

use super::origin_fields::push_text;

/// Adds every event to [`RecentLogs`].
#[derive(Debug)]
pub(super) struct RecentLayer(pub(super) Arc<RecentLogs>);

impl<S: Subscriber> Layer<S> for RecentLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = EventText::default();
        event.record(&mut text);
        push_text(&mut text.fields, &LogOrigin::current());
        let metadata = event.metadata();
        let thread = thread::current();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.0.add(LogEvent {
            epoch_secs: now.map_or(0, |since| since.as_secs()),
            level: *metadata.level(),
            thread: thread.name().unwrap_or("unnamed").to_owned(),
            logger: metadata.target().to_owned(),
            text: text.into_text(),
        });
    }
}

/// Message and fields of an event: `message name=value …`, as on standard error.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl EventText {
    fn into_text(self) -> String {
        let Self { message, fields } = self;
        if message.is_empty() {
            return fields.trim_start().to_owned();
        }
        message + &fields
    }
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to memory cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn events_are_kept_with_message_and_fields() {
        let recent = Arc::<RecentLogs>::default();
        let layer = RecentLayer(Arc::clone(&recent));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!(peer = %"::1", points = 2, "some points were refused");
            tracing::info!(only = "fields");
            let origin = LogOrigin::of_request("trace-42".into());
            origin.in_scope(|| tracing::info!(points = 1, "of a request"));
        });
        let shown = format!("{recent:?}");
        assert!(shown.contains(r#""some points were refused peer=::1 points=2""#), "{shown}");
        assert!(shown.contains(r#""only=\"fields\"""#), "{shown}");
        assert!(shown.contains(r#""of a request points=1 request=\"trace-42\"""#), "{shown}");
        assert!(shown.contains("tsd_cli::logging::recent_layer::tests"), "{shown}");
    }
}

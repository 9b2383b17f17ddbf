//! Spans of operations and attempts.

use std::{collections::BTreeMap, fmt, sync::Arc};

use hbase_fake::{FaultKind, InjectedFault};
use hbase_rs::{BufferConfig, Client, buffer::MutationBatch};
use parking_lot::Mutex;
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::{DefaultGuard, set_default},
};
use tracing_subscriber::{
    Layer, Registry,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

use super::{fill, get, start, start_with};

/// A span as a subscriber sees it.
#[derive(Debug, Default)]
struct RecordedSpan {
    id: u64,
    name: &'static str,
    /// Its parent, by its place in the list of all spans.
    parent: Option<usize>,
    fields: BTreeMap<&'static str, String>,
}

/// Records all spans of this crate, in the order of their starts.
#[derive(Clone, Debug, Default)]
struct SpanRecorder(Arc<Mutex<Vec<RecordedSpan>>>);

impl Visit for RecordedSpan {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanRecorder {
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if span.metadata().target() != "hbase_rs" {
            return;
        }
        let mut spans = self.0.lock();
        let parent = context.span(id).and_then(|span| span.parent()).map(|parent| parent.id());
        // Ids are used again after the end of a span.
        let parent =
            parent.and_then(|parent| spans.iter().rposition(|other| other.id == parent.into_u64()));
        let name = span.metadata().name();
        let mut recorded =
            RecordedSpan { id: id.into_u64(), name, parent, fields: BTreeMap::new() };
        span.record(&mut recorded);
        spans.push(recorded);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut spans = self.0.lock();
        if let Some(span) = spans.iter_mut().rfind(|span| span.id == id.into_u64()) {
            values.record(span);
        }
    }
}

impl SpanRecorder {
    /// Records the spans of this thread until the guard is dropped.
    fn install() -> (Self, DefaultGuard) {
        let recorder = Self::default();
        let guard = set_default(Registry::default().with(recorder.clone()));
        (recorder, guard)
    }

    /// The values of fields of all spans with this name; absent ones are empty.
    fn fields<const N: usize>(&self, name: &str, fields: [&str; N]) -> Vec<[String; N]> {
        let spans = self.0.lock();
        let named = spans.iter().filter(|span| span.name == name);
        named
            .map(|span| fields.map(|field| span.fields.get(field).cloned().unwrap_or_default()))
            .collect()
    }

    /// The operations that the attempts belong to.
    fn operations_of_attempts(&self) -> Vec<Option<String>> {
        let spans = self.0.lock();
        let attempts = spans.iter().filter(|span| span.name == "attempt");
        attempts
            .map(|attempt| attempt.parent.and_then(|at| spans[at].fields.get("operation").cloned()))
            .collect()
    }
}

#[tokio::test]
async fn operation_has_a_span_with_one_child_for_each_attempt() {
    let (cluster, table) = start().await;
    fill(&table, &["a"]).await;
    let (recorder, _guard) = SpanRecorder::install();
    let class = "NotServingRegionException";
    cluster.inject(InjectedFault::once("Get", FaultKind::Exception { class, text: "gone" }));
    table.get(&get("a")).await.unwrap();
    let operations = recorder.fields("operation", ["operation", "table", "outcome"]);
    assert_eq!(operations, [["get", "t", ""]]);
    let [deadline_ms] = &recorder.fields("operation", ["deadline_ms"])[0];
    assert!((15_000..=20_000).contains(&deadline_ms.parse().unwrap()), "{deadline_ms}");
    let attempts = recorder.fields("attempt", ["method", "attempt", "server", "region", "outcome"]);
    let [first, second] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!(first[..2], ["Get", "1"]);
    assert!(first[2].starts_with("127.0.0.1,") && first[3].starts_with("t,"), "{first:?}");
    assert!(first[4].contains("failed"), "{first:?}");
    assert_eq!((&second[1][..], &second[4][..]), ("2", "answered"));
    assert_eq!(recorder.operations_of_attempts(), [Some("get".to_owned()), Some("get".to_owned())]);
}

#[tokio::test]
async fn failed_operation_has_an_outcome() {
    let (_cluster, table) = start().await;
    let missing = table.client().table("missing".parse().unwrap());
    let (recorder, _guard) = SpanRecorder::install();
    missing.get(&get("a")).await.unwrap_err();
    let outcomes = recorder.fields("operation", ["table", "outcome"]);
    assert_eq!(outcomes, [["missing", "no table missing"]]);
}

#[tokio::test]
async fn all_calls_of_a_scan_are_in_one_span() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "h", "z"]).await;
    let (recorder, _guard) = SpanRecorder::install();
    let mut rows = table.scan(hbase_rs::Scan::all());
    while let Some(row) = rows.next().await {
        row.unwrap();
    }
    assert_eq!(recorder.fields("operation", ["operation", "table"]), [["scan", "t"]]);
    let operations = recorder.operations_of_attempts();
    assert!(operations.iter().flatten().all(|operation| operation == "scan"), "{operations:?}");
    assert!(operations.len() >= 3 && cluster.calls("Scan") >= 3, "{operations:?}");
}

#[tokio::test]
async fn buffered_mutations_have_spans_for_their_calls_only() {
    let (cluster, table) = start_with(super::config()).await;
    table.prefetch().await.unwrap();
    let (recorder, _guard) = SpanRecorder::install();
    let buffer = table.buffered(BufferConfig::default());
    let mut batch = MutationBatch::default();
    for number in 0..1_000_u32 {
        batch.put(format!("{number}").as_bytes(), b"f", b"q", 1, b"value").unwrap();
    }
    buffer.write(batch).await.unwrap();
    let calls = recorder.fields("attempt", ["method", "outcome"]);
    assert_eq!(calls.len(), cluster.calls("Multi"));
    assert!(calls.iter().all(|call| call[..] == ["Multi", "answered"]), "{calls:?}");
    assert_eq!(recorder.fields("operation", ["operation"]), Vec::<[String; 1]>::new());
}

#[tokio::test]
async fn administrative_operation_has_a_span() {
    let (cluster, _table) = start().await;
    let client = Client::new(super::config(), cluster.discovery());
    let (recorder, _guard) = SpanRecorder::install();
    client.admin().tables().await.unwrap();
    assert_eq!(recorder.fields("operation", ["operation"]), [["list tables"]]);
    let attempts = recorder.fields("attempt", ["method", "region", "outcome"]);
    assert_eq!(attempts, [["GetTableNames", "", "answered"]]);
}

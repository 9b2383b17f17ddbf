#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use tsd_meta::AnnotationEdit;
use tsd_model::PointValue;
use tsd_storage::{Fault, Operation, StorageError};

use super::*;
use crate::{
    EngineConfig, EngineHandle, NameText, SampleContent,
    testing::{TestStore, config, put, put_content, put_one, start, store},
};

const SECOND: i64 = 1_600_000_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// A plug-in that only has a queue.
fn queue(on_full: OnFull, limit: usize) -> (Arc<PluginQueue>, PluginItems) {
    plugin_queue("test", limit, on_full)
}

fn with_publisher(queue: &Arc<PluginQueue>) -> EngineConfig {
    let publisher = Some(Arc::clone(queue));
    EngineConfig { plugins: PointPlugins { publisher, exception_handler: None }, ..config() }
}

fn refuse_puts(store: &TestStore, calls: usize) {
    let error = || Fault::Error(StorageError::Backend("full".into()));
    store.script(Operation::Put, (0..calls).map(|_| error()));
}

/// `metric time value tags` of each queued point.
async fn taken(items: &mut PluginItems, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        let batch = tokio::time::timeout(PATIENCE, items.next_batch(usize::MAX));
        let batch = batch.await.unwrap().unwrap();
        for item in batch.items() {
            match item {
                PluginItem::Points(points) => lines.extend(points.iter().map(line)),
                PluginItem::Annotation(annotation) => lines.push(annotation.description.clone()),
            }
        }
        batch.delivered(0, "");
    }
    lines
}

fn line(point: &PointRecord) -> String {
    let value = match point.content() {
        RecordContent::Point(PointValue::Integer(value)) => value.to_string(),
        other => format!("{other:?}"),
    };
    let tags: Vec<String> = point.tags().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{} {} {value} {}", point.metric(), point.timestamp(), tags.join(","))
}

async fn put_two(engine: &EngineHandle, value: i64) {
    for host in ["host=a", "host=b dc=é"] {
        put_one(engine, "m", host, SECOND + value, value).await.unwrap();
    }
}

#[tokio::test]
async fn the_publisher_gets_what_was_stored_of_new_and_of_cached_series() {
    let (queue, mut items) = queue(OnFull::Drop, 1 << 20);
    let engine = start(with_publisher(&queue), &store());
    put_two(&engine, 1).await;
    put_two(&engine, 2).await;
    let lines = taken(&mut items, 4).await;
    assert_eq!(
        lines,
        [
            "m 1600000001 1 host=a",
            "m 1600000001 1 host=b,dc=é",
            "m 1600000002 2 host=a",
            "m 1600000002 2 host=b,dc=é"
        ]
    );
    let note = AnnotationEdit {
        start_time: SECOND,
        description: Some("release".to_owned()),
        ..AnnotationEdit::default()
    };
    engine.annotations().edit(note, false).await.unwrap();
    assert_eq!(taken(&mut items, 1).await, ["release"]);
    assert_eq!((queue.delivered(), queue.dropped(), queue.queued_bytes()), (5, 0, 0));
}

#[tokio::test]
async fn custom_fields_of_an_annotation_count_for_the_bound() {
    let (queue, mut items) = queue(OnFull::Drop, 4_096);
    let engine = start(with_publisher(&queue), &store());
    let note = |length: usize| AnnotationEdit {
        start_time: SECOND,
        custom: Some(vec![("k".to_owned(), Some("v".repeat(length)))]),
        ..AnnotationEdit::default()
    };
    engine.annotations().edit(note(8_192), false).await.unwrap();
    assert_eq!((queue.dropped(), queue.queued_bytes()), (1, 0));
    engine.annotations().edit(note(1_024), false).await.unwrap();
    assert!(queue.queued_bytes() > 1_024);
    assert_eq!(taken(&mut items, 1).await.len(), 1);
    assert_eq!((queue.delivered(), queue.queued_bytes()), (1, 0));
}

#[tokio::test]
async fn records_have_the_tsuid_of_their_series() {
    let (queue, mut items) = queue(OnFull::Drop, 1 << 20);
    let engine = start(with_publisher(&queue), &store());
    put_one(&engine, "m", "host=a", SECOND, 1).await.unwrap();
    let batch = items.next_batch(1).await.unwrap();
    let Some(PluginItem::Points(points)) = batch.items().first() else { panic!("{batch:?}") };
    assert_eq!(points.first().unwrap().tsuid(), [0, 0, 1, 0, 0, 1, 0, 0, 1]);
}

#[tokio::test]
async fn the_handler_gets_what_the_store_refused_and_the_publisher_does_not() {
    let (publisher, mut published) = queue(OnFull::Drop, 1 << 20);
    let (handler, mut refused) = queue(OnFull::Drop, 1 << 20);
    let plugins =
        PointPlugins { publisher: Some(publisher), exception_handler: Some(Arc::clone(&handler)) };
    let store = store();
    let engine = start(EngineConfig { plugins, ..config() }, &store);
    put_one(&engine, "m", "host=a", SECOND, 1).await.unwrap();
    // A point of a cached series, one of a new series, and one whose names have no UIDs because the store fails.
    refuse_puts(&store, 2);
    put_one(&engine, "m", "host=a", SECOND, 2).await.unwrap_err();
    let mut session = engine.ingest_session(NameText::Utf8);
    put(&mut session, "m", "host=a", SECOND, 3, 0).unwrap();
    assert_eq!(session.commit().await.failures.len(), 1);
    let lost = || Fault::Error(StorageError::Backend("gone".into()));
    for operation in [Operation::Get, Operation::MultiGet] {
        store.script(operation, (0..8).map(|_| lost()));
    }
    put_one(&engine, "n", "host=a", SECOND, 4).await.unwrap_err();
    store.heal();
    // The point itself is invalid, so it would be refused again.
    let nan = SampleContent::Point(PointValue::Double(f64::NAN));
    put_content(&mut session, "m", "host=a", SECOND, nan, 0).unwrap_err();
    put_one(&engine, "m", "host=a", SECOND, 5).await.unwrap();
    assert_eq!(
        taken(&mut refused, 3).await,
        ["m 1600000000 2 host=a", "m 1600000000 3 host=a", "n 1600000000 4 host=a"]
    );
    assert_eq!(handler.queued_bytes(), 0);
    assert_eq!(taken(&mut published, 2).await, ["m 1600000000 1 host=a", "m 1600000000 5 host=a"]);
}

#[tokio::test]
async fn a_full_queue_drops_what_comes_in_and_counts_it() {
    let (queue, mut items) = queue(OnFull::Drop, 500);
    let engine = start(with_publisher(&queue), &store());
    for value in 0..20 {
        put_one(&engine, "m", "host=a", SECOND + value, value).await.unwrap();
    }
    let dropped = queue.dropped();
    assert!((1..20).contains(&dropped), "{dropped}");
    assert!(queue.queued_bytes() <= 500);
    let kept = taken(&mut items, 20 - dropped as usize).await;
    assert_eq!(kept.first().unwrap(), "m 1600000000 0 host=a", "the oldest are kept");
    assert_eq!(queue.delivered() + dropped, 20);
}

#[tokio::test]
async fn a_full_queue_that_holds_makes_senders_wait() {
    let (queue, mut items) = queue(OnFull::Hold, 100);
    let mut config = with_publisher(&queue);
    config.ingest.queue_deadline = PATIENCE;
    let engine = start(config, &store());
    put_one(&engine, "m", "host=a", SECOND, 0).await.unwrap();
    assert!(queue.queued_bytes() >= 100);
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { put_one(&engine, "m", "host=a", SECOND, 1).await }
    });
    while queue.waits() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!waiting.is_finished());
    assert_eq!(taken(&mut items, 1).await, ["m 1600000000 0 host=a"]);
    waiting.await.unwrap().unwrap();
    assert_eq!(taken(&mut items, 1).await, ["m 1600000000 1 host=a"]);
    assert_eq!(queue.dropped(), 0);
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_full_queue() {
    let (queue, _items) = queue(OnFull::Hold, 100);
    let mut config = with_publisher(&queue);
    config.ingest.queue_deadline = PATIENCE;
    let engine = start(config, &store());
    put_one(&engine, "m", "host=a", SECOND, 0).await.unwrap();
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { put_one(&engine, "m", "host=a", SECOND, 1).await }
    });
    while queue.waits() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    engine.end_holds();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_plugin_leaves_counts_as_dropped() {
    let (queue, mut items) = queue(OnFull::Drop, 1 << 20);
    let engine = start(with_publisher(&queue), &store());
    put_two(&engine, 1).await;
    drop(items.next_batch(1).await);
    items.close();
    put_two(&engine, 2).await;
    drop(items);
    assert_eq!((queue.dropped(), queue.queued_bytes()), (4, 0));
}

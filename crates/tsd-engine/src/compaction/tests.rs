#![expect(clippy::unwrap_used, reason = "tests")]

use std::{sync::Arc, time::Duration};

use tsd_storage::{Fault, Operation, StorageError};

use crate::{
    EngineConfig, EngineHandle, NameText,
    testing::{ManualClock, TestStore, config, dump, put, put_one, start, store},
};

const HOUR: i64 = 1_356_998_400;

fn engine_at(secs: i64, store: &Arc<TestStore>) -> (EngineHandle, Arc<ManualClock>) {
    let clock = ManualClock::at_secs(secs);
    let mut settings = config();
    settings.compaction.flush_interval = Duration::from_hours(1);
    settings.clock = Arc::<ManualClock>::clone(&clock);
    (start(settings, store), clock)
}

async fn data(store: &TestStore) -> Vec<String> {
    dump(store, &EngineConfig::default().tables.data).await
}

async fn compacted(engine: &EngineHandle) -> i64 {
    let stats = engine.stats().await;
    stats.points.iter().find(|stat| stat.name == "compaction.writes").unwrap().value
}

#[tokio::test]
async fn written_rows_are_compacted_when_their_hour_is_over() {
    let store = store();
    let (engine, clock) = engine_at(HOUR + 1_800, &store);
    for (offset, value) in [(0, 1), (10, 2), (20, 300)] {
        put_one(&engine, "m", "host=a", HOUR + offset, value).await.unwrap();
    }
    put_one(&engine, "m", "host=a", HOUR + 3_600, 4).await.unwrap();
    put_one(&engine, "m", "host=a", HOUR + 3_601, 5).await.unwrap();
    clock.set_secs(HOUR + 3_600);
    engine.flush_compactions().await;
    assert_eq!(data(&store).await.len(), 5, "one second early");
    clock.set_secs(HOUR + 3_601);
    engine.flush_compactions().await;
    assert_eq!(
        data(&store).await,
        [
            "00000150E22700000001000001 t 000000A00141 0102012C00",
            "00000150E23510000001000001 t 0000 04",
            "00000150E23510000001000001 t 0010 05",
        ]
    );
    assert_eq!(compacted(&engine).await, 1);
    // A late point queues the row again, although its series did not start a new row.
    put_one(&engine, "m", "host=a", HOUR + 3_602, 6).await.unwrap();
    put_one(&engine, "m", "host=a", HOUR + 30, 7).await.unwrap();
    engine.flush_compactions().await;
    assert_eq!(
        data(&store).await.first().unwrap(),
        "00000150E22700000001000001 t 000000A0014101E0 0102012C0700"
    );
}

#[tokio::test]
async fn throttled_row_is_retried_and_failed_row_is_dropped() {
    let store = store();
    let (engine, _clock) = engine_at(HOUR + 7_201, &store);
    for offset in [0, 10] {
        put_one(&engine, "m", "host=a", HOUR + offset, 1).await.unwrap();
    }
    for operation in [Operation::Get, Operation::RewriteRow] {
        store.script(operation, [Fault::Error(StorageError::Throttled("test"))]);
        engine.flush_compactions().await;
        assert_eq!(data(&store).await.len(), 2, "{operation:?}");
    }
    engine.flush_compactions().await;
    assert_eq!(data(&store).await.len(), 1);
    put_one(&engine, "m", "host=a", HOUR + 20, 1).await.unwrap();
    store.script(Operation::RewriteRow, [Fault::Error(StorageError::Backend("down".into()))]);
    engine.flush_compactions().await;
    engine.flush_compactions().await;
    assert_eq!(data(&store).await.len(), 2);
    // A rewrite whose acknowledgement is lost took effect, so the next flush has nothing to do.
    put_one(&engine, "m", "host=a", HOUR + 30, 1).await.unwrap();
    store.script(Operation::RewriteRow, [Fault::LostAck(StorageError::Timeout("test"))]);
    engine.flush_compactions().await;
    assert_eq!(data(&store).await.len(), 1);
}

#[tokio::test]
async fn conflicting_points_are_left_unchanged() {
    let store = store();
    let mut settings = config();
    settings.rows.fix_duplicates = false;
    settings.clock = ManualClock::at_secs(HOUR + 7_201);
    let engine = start(settings, &store);
    // One instant, two widths: two cells with different values.
    put_one(&engine, "m", "host=a", HOUR, 1).await.unwrap();
    put_one(&engine, "m", "host=a", HOUR, 300).await.unwrap();
    engine.flush_compactions().await;
    assert_eq!(data(&store).await.len(), 2);
    assert_eq!(compacted(&engine).await, 0);
}

#[tokio::test]
async fn disabled_compaction_queues_and_rewrites_nothing() {
    let store = store();
    let mut settings = config();
    settings.compaction.enabled = false;
    let engine = start(settings, &store);
    for offset in [0, 10] {
        put_one(&engine, "m", "host=a", HOUR + offset, 1).await.unwrap();
    }
    engine.flush_compactions().await;
    assert_eq!(data(&store).await.len(), 2);
    let stats = engine.stats().await.points;
    let mut of_queue = stats.iter().filter(|stat| stat.name == "compaction.queue.size");
    assert_eq!(of_queue.next().map(|stat| stat.value), Some(0));
}

#[tokio::test]
async fn rounds_compact_due_rows() {
    let store = store();
    let mut settings = config();
    settings.compaction.flush_interval = Duration::from_millis(20);
    settings.compaction.min_flush_threshold = 0;
    settings.compaction.flush_speed = 36_000;
    let engine = start(settings, &store);
    for offset in [0, 10] {
        put_one(&engine, "m", "host=a", HOUR + offset, 1).await.unwrap();
    }
    while data(&store).await.len() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(compacted(&engine).await, 1);
}

#[tokio::test]
async fn rows_of_a_single_shard_chunk_are_reported_to_the_compactors_of_their_buckets() {
    let store = store();
    let (engine, _clock) = engine_at(HOUR + 7_200, &store);
    // Twice, because the second chunk finds its series in the cache.
    for offset in [0, 10] {
        let mut session = engine.ingest_session(NameText::Utf8);
        session.use_single_shard(1);
        for (tag, host) in (0..50_u32).map(|i| (i, format!("host=h{i:02}"))) {
            put(&mut session, "m", &host, HOUR + offset, 1, tag).unwrap();
            put(&mut session, "m", &host, HOUR + offset, 2, 50 + tag).unwrap();
        }
        let report = session.commit().await;
        assert_eq!((report.stored, report.failures.len()), (100, 0));
    }
    let cells = data(&store).await;
    assert_eq!(cells.len(), 100);
    assert!(cells.iter().all(|cell| cell.ends_with(" 02")), "the last put of a cell wins");
    engine.flush_compactions().await;
    let cells = data(&store).await;
    assert_eq!(cells.len(), 50);
    assert!(cells.iter().all(|cell| cell.ends_with(" t 000000A0 020200")), "{cells:?}");
}

#![expect(clippy::unwrap_used, reason = "tests")]

use tsd_storage::{Fault, Operation};

use super::*;
use crate::{
    EngineConfig, EngineHandle, NameText,
    testing::{ManualClock, TestStore, config, dump, put, put_one, start, store},
};

fn tracking(tracking: MetaTracking) -> EngineConfig {
    let clock = ManualClock::at_secs(1_356_998_400);
    EngineConfig { meta_tracking: tracking, clock, ..config() }
}

async fn tracked(engine: &EngineHandle, store: &TestStore) -> Vec<String> {
    let tracker = engine.tracker().unwrap();
    tracker.ask(TrackOrder::Drain).await.unwrap();
    dump(store, &EngineConfig::default().tables.meta).await
}

fn described(tsuid: &str) -> String {
    let json = format!(
        r#"{{"tsuid":"{tsuid}","displayName":"","description":"","notes":"","created":1356998400,"custom":null,"units":"","dataType":"","retention":0,"max":"NaN","min":"NaN"}}"#
    );
    format!("{tsuid} name ts_meta {}", to_hex(json.as_bytes()))
}

const A: &str = "000001000001000001";
const B: &str = "000001000001000002";

async fn put_three(engine: &EngineHandle) {
    put_one(engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
    put_one(engine, "m", "host=a", 1_356_998_401, 2).await.unwrap();
    put_one(engine, "m", "host=b", 1_356_998_400, 1).await.unwrap();
}

#[test]
fn three_settings_make_one_choice() {
    use MetaTracking::{Count, Describe, Mark, Off};
    let choice = MetaTracking::from_settings;
    assert_eq!([choice(false, true, true), choice(true, false, true)], [Off, Mark]);
    assert_eq!([choice(true, true, false), choice(true, true, true)], [Describe, Count]);
}

#[tokio::test]
async fn series_are_marked_described_or_counted() {
    let mark = |tsuid: &str, count: u64| format!("{tsuid} name ts_ctr {count:016X}");
    for (choice, expected) in [
        (MetaTracking::Mark, vec![mark(A, 1), mark(B, 1)]),
        (MetaTracking::Describe, vec![described(A), described(B)]),
        (MetaTracking::Count, vec![mark(A, 2), described(A), mark(B, 1), described(B)]),
    ] {
        for salt_width in [0, 1] {
            let store = store();
            let mut settings = tracking(choice);
            settings.schema = TableSchema::try_new(3, 3, 3, salt_width, 20).unwrap();
            let engine = start(settings, &store);
            put_three(&engine).await;
            assert_eq!(tracked(&engine, &store).await, expected, "{choice:?} {salt_width}");
        }
    }
}

#[tokio::test]
async fn stored_meta_objects_are_left_alone_and_counters_go_on() {
    for choice in [MetaTracking::Describe, MetaTracking::Count] {
        let store = store();
        let engine = start(tracking(choice), &store);
        put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
        tracked(&engine, &store).await;
        let cell = CellRef {
            family: Family::Name,
            qualifier: b"ts_meta",
            value: b"edited",
            timestamp_ms: None,
        };
        let row = tsd_model::from_hex(A.as_bytes()).unwrap();
        let batch = CellBatch::single(&row, cell).unwrap();
        store.put(&EngineConfig::default().tables.meta, batch).await.unwrap();
        let mut session = engine.ingest_session(NameText::Utf8);
        for second in 2..10 {
            put(&mut session, "m", "host=a", second, 1, 0).unwrap();
        }
        session.commit().await;
        let cells = tracked(&engine, &store).await;
        assert_eq!(cells.last(), Some(&format!("{A} name ts_meta {}", to_hex(b"edited"))));
        if choice == MetaTracking::Count {
            assert_eq!(cells.first(), Some(&format!("{A} name ts_ctr 0000000000000009")));
        }
    }
}

#[tokio::test]
async fn a_store_that_fails_costs_no_point() {
    let store = store();
    let engine = start(tracking(MetaTracking::Count), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    tracked(&engine, &store).await;
    store.script(Operation::Increment, [Fault::Error(StorageError::DiskFull)]);
    put_one(&engine, "m", "host=a", 2, 1).await.unwrap();
    let cells = tracked(&engine, &store).await;
    assert_eq!(cells.first(), Some(&format!("{A} name ts_ctr 0000000000000001")));
    put_one(&engine, "m", "host=a", 3, 1).await.unwrap();
    let cells = tracked(&engine, &store).await;
    assert_eq!(cells.first(), Some(&format!("{A} name ts_ctr 0000000000000002")));
}

#[tokio::test]
async fn a_shutdown_writes_what_was_seen() {
    let store = store();
    let engine = start(tracking(MetaTracking::Mark), &store);
    put_three(&engine).await;
    assert!(engine.shutdown(Duration::from_secs(5)).await);
    assert_eq!(dump(&store, &EngineConfig::default().tables.meta).await.len(), 2);
}

#[tokio::test]
async fn names_get_their_meta_objects_with_their_uids() {
    let store = store();
    let mut settings = tracking(MetaTracking::Off);
    settings.uids.realtime_meta = true;
    let engine = start(settings, &store);
    put_three(&engine).await;
    let cells = dump(&store, &EngineConfig::default().tables.uid).await;
    let metas: Vec<&str> = cells
        .iter()
        .filter_map(|cell| cell.split(' ').nth(2).filter(|qualifier| qualifier.ends_with("_meta")))
        .collect();
    assert_eq!(metas, ["metric_meta", "tagk_meta", "tagv_meta", "tagv_meta"]);
    let json = r#"{"type":"METRIC","displayName":"","description":"","notes":"","created":1356998400,"custom":null}"#;
    let expected = format!("000001 name metric_meta {}", to_hex(json.as_bytes()));
    assert!(cells.contains(&expected), "{cells:?}");
    assert!(engine.tracker().is_none());
}

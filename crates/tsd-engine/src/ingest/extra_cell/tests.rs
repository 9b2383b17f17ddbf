#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use tsd_model::SimpleHistogram;
use tsd_storage::{Fault, MemoryStorage, Operation, StorageError, Table};

use super::*;
use crate::{
    EngineHandle, IngestSession, NameText,
    testing::{TestStore, config, dump, put, start, store_with},
};

const ROLLUPS: &str = r#"{
    "aggregationIds": {"sum": 0, "count": 1},
    "intervals": [
        {"table": "tsdb", "preAggregationTable": "agg", "interval": "1m", "rowSpan": "1h",
         "defaultInterval": true},
        {"table": "rollup-1h", "preAggregationTable": "agg-1h", "interval": "1h", "rowSpan": "1n"}
    ]
}"#;
const TABLES: [&str; 3] = ["agg", "rollup-1h", "agg-1h"];
const HOURLY_SUM: RollupPlace =
    RollupPlace::Slot { interval: 1, aggregator_id: 0, pre_aggregate: false };

fn rollup_config() -> EngineConfig {
    let rollups = RollupConfig::from_json(ROLLUPS.as_bytes(), |_| true).unwrap();
    EngineConfig { rollups: Some(Rollups::new(rollups)), ..config() }
}

fn rollup_store() -> Arc<TestStore> {
    store_with(TABLES.map(Table::new))
}

/// Gives a cell of `m host=<host>` to a session, as a front end does.
fn put_cell(session: &mut IngestSession, host: &str, cell: ExtraCell, tag: u32) {
    let raw = format!("host={host}");
    if let Some(put) = session.put_cell_cached(b"m", raw.as_bytes(), &cell, tag) {
        return put.unwrap();
    }
    let tags: [(&[u8], &[u8]); 1] = [(b"host", host.as_bytes())];
    session.put_cell_new(b"m", raw.as_bytes(), &tags, cell, tag).unwrap();
}

fn rollup(session: &IngestSession, place: RollupPlace, secs: i64, value: i64) -> ExtraCell {
    session.rollup_cell(place, secs, PointValue::Integer(value)).unwrap()
}

async fn put_rollup(engine: &EngineHandle, place: RollupPlace, secs: i64, value: i64) {
    let mut session = engine.ingest_session(NameText::Latin1);
    let cell = rollup(&session, place, secs, value);
    put_cell(&mut session, "a", cell, 0);
    assert_eq!(session.commit().await.stored, 1);
}

async fn table(store: &TestStore, name: &str) -> Vec<String> {
    dump(store, &Table::new(name)).await
}

#[tokio::test]
async fn rolled_up_values_go_to_the_tables_of_their_interval() {
    let store = rollup_store();
    let engine = start(rollup_config(), &store);
    let places = [
        HOURLY_SUM,
        RollupPlace::Slot { interval: 1, aggregator_id: 1, pre_aggregate: true },
        RollupPlace::Slot { interval: 0, aggregator_id: 0, pre_aggregate: false },
        RollupPlace::PreAggregate,
    ];
    // The second round finds the series in the cache.
    for value in [1, 42] {
        for place in places {
            put_rollup(&engine, place, 1_370_532_925, value).await;
        }
    }
    assert_eq!(table(&store, "rollup-1h").await, ["00000151A93980000001000001 t 000870 2A"]);
    assert_eq!(table(&store, "agg-1h").await, ["00000151A93980000001000001 t 010870 2A"]);
    assert_eq!(table(&store, "tsdb").await, ["00000151B0A3F0000001000001 t 000230 2A"]);
    assert_eq!(table(&store, "agg").await, ["00000151B0A3F0000001000001 t 84D0 2A"]);
}

#[tokio::test]
async fn salted_rollup_rows_carry_the_bucket_of_their_series() {
    let store = rollup_store();
    let mut settings = rollup_config();
    settings.schema = tsd_model::TableSchema::try_new(3, 3, 3, 1, 20).unwrap();
    let engine = start(settings, &store);
    put_rollup(&engine, HOURLY_SUM, 1_370_532_925, 42).await;
    assert_eq!(table(&store, "rollup-1h").await, ["0800000151A93980000001000001 t 000870 2A"]);
}

#[tokio::test]
async fn only_points_are_appended() {
    let store = rollup_store();
    let mut settings = rollup_config();
    settings.ingest.enable_appends = true;
    let engine = start(settings, &store);
    let mut session = engine.ingest_session(NameText::Latin1);
    for round in 0..2 {
        put(&mut session, "m", "host=a", 1_356_998_400 + round, 1, 0).unwrap();
        let histogram = session.histogram_cell(1_356_998_400, &[42, 0, 0, 0, 0]).unwrap();
        put_cell(&mut session, "a", histogram, 1);
        let sum = rollup(&session, HOURLY_SUM, 1_356_998_400, 7);
        put_cell(&mut session, "a", sum, 2);
        session.send().await;
    }
    session.drain().await;
    assert_eq!(
        table(&store, "tsdb").await,
        [
            "00000150E22700000001000001 t 050000 000001001001",
            "00000150E22700000001000001 t 060000 2A00000000"
        ]
    );
    assert_eq!(table(&store, "rollup-1h").await, ["00000150E22700000001000001 t 000000 07"]);
}

#[tokio::test]
async fn histograms_lie_among_the_points() {
    let store = rollup_store();
    let engine = start(config(), &store);
    let value = SimpleHistogram::parse("u=0:o=1:0,1=42").unwrap().encode(42).unwrap();
    let mut session = engine.ingest_session(NameText::Latin1);
    session.keep_together();
    for (tag, timestamp) in [(0, 1_356_998_401), (1, 1_356_998_400_250)] {
        let cell = session.histogram_cell(timestamp, &value).unwrap();
        put_cell(&mut session, "a", cell, tag);
    }
    put(&mut session, "m", "host=a", 1_356_998_400, 5, 2).unwrap();
    assert_eq!((session.pending(), session.commit().await.stored), (3, 3));
    assert_eq!(
        table(&store, "tsdb").await,
        [
            "00000150E22700000001000001 t 0000 05",
            "00000150E22700000001000001 t 06000000FA 2A0001000000003F8000002A0001",
            "00000150E22700000001000001 t 060001 2A0001000000003F8000002A0001",
        ]
    );
}

#[tokio::test]
async fn cells_of_one_column_land_in_the_order_they_were_put() {
    let store = rollup_store();
    let engine = start(rollup_config(), &store);
    let mut session = engine.ingest_session(NameText::Latin1);
    for value in 0..40 {
        let cell = rollup(&session, HOURLY_SUM, 1_370_532_925, value);
        // Two spellings of the series: the second is new while the first is known.
        let raw = format!("host=a{}", " ".repeat(usize::try_from(value).unwrap() % 7));
        let tags: [(&[u8], &[u8]); 1] = [(b"host", b"a")];
        let known = session.put_cell_cached(b"m", raw.as_bytes(), &cell, 0);
        if known.is_none() {
            session.put_cell_new(b"m", raw.as_bytes(), &tags, cell, 0).unwrap();
        }
        session.send().await;
    }
    session.drain().await;
    assert_eq!(table(&store, "rollup-1h").await, ["00000151A93980000001000001 t 000870 27"]);
}

#[tokio::test]
async fn times_in_milliseconds_and_unknown_places_are_refused() {
    let engine = start(rollup_config(), &rollup_store());
    let session = engine.ingest_session(NameText::Latin1);
    let one = PointValue::Integer(1);
    let error = session.rollup_cell(HOURLY_SUM, 1_370_532_925_123, one).unwrap_err();
    assert!(matches!(error, PutError::BadTimestamp(1_370_532_925_123)));
    let nowhere = RollupPlace::Slot { interval: 9, aggregator_id: 0, pre_aggregate: false };
    assert!(matches!(session.rollup_cell(nowhere, 1, one), Err(PutError::NoRollups)));
    assert!(matches!(session.histogram_cell(-1, &[]), Err(PutError::BadTimestamp(-1))));
    let infinite = PointValue::Double(f64::INFINITY);
    assert!(matches!(session.rollup_cell(HOURLY_SUM, 1, infinite), Err(PutError::NotFinite)));
    let plain = start(config(), &rollup_store());
    let session = plain.ingest_session(NameText::Latin1);
    let refused = session.rollup_cell(RollupPlace::PreAggregate, 1, one);
    assert!(matches!(refused, Err(PutError::NoRollups)));
}

#[tokio::test]
async fn a_store_error_fails_the_cells_it_hit_and_no_others() {
    let store = rollup_store();
    let engine = start(rollup_config(), &store);
    put_rollup(&engine, HOURLY_SUM, 7_200, 1).await;
    let mut session = engine.ingest_session(NameText::Latin1);
    let sum = rollup(&session, HOURLY_SUM, 10_800, 1);
    put_cell(&mut session, "a", sum, 4);
    store.script(Operation::Put, [Fault::Error(StorageError::Backend("region moved".into()))]);
    let report = session.commit().await;
    assert_eq!((report.stored, report.failures.len()), (0, 1));
    assert_eq!(report.failures.first().map(|f| f.tag), Some(4));
    put_rollup(&engine, HOURLY_SUM, 14_400, 1).await;
}

#[tokio::test]
async fn a_full_queue_throttles_rollups_as_it_does_points() {
    let store = rollup_store();
    let mut settings = rollup_config();
    settings.ingest.bucket_queue_bytes = 64;
    settings.ingest.queue_deadline = Duration::from_millis(30);
    let engine = start(settings, &store);
    put_rollup(&engine, HOURLY_SUM, 7_200, 1).await;
    store.script(Operation::Put, [Fault::Delay(Duration::from_millis(300))]);
    let mut first = engine.ingest_session(NameText::Latin1);
    put(&mut first, "m", "host=a", 2, 1, 0).unwrap();
    first.send().await;
    let mut second = engine.ingest_session(NameText::Latin1);
    let sum = rollup(&second, HOURLY_SUM, 10_800, 1);
    put_cell(&mut second, "a", sum, 7);
    let report = second.commit().await;
    assert!(matches!(report.failures.first().map(|f| &f.error), Some(PutError::Throttled)));
    first.drain().await;
}

#[test]
fn an_engine_without_its_rollup_tables_does_not_start() {
    let tables = EngineConfig::default().tables;
    let bare: Arc<dyn tsd_storage::Storage> =
        Arc::new(MemoryStorage::new([tables.data, tables.uid]));
    let error = crate::Engine::start(rollup_config(), bare).unwrap_err();
    assert_eq!(error.to_string(), "table agg does not exist");
}

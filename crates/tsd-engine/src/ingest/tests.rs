#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::time::Duration;

use tsd_model::{PointValue, TableSchema};
use tsd_storage::{ByteBudget, Fault, Operation, StorageError};

use super::*;
use crate::{
    EngineConfig, PutError, Sample, SampleContent,
    testing::{config, dump, pairs, put, put_all, put_one, start, store},
    writer::WriteMessage,
};

async fn data(store: &crate::testing::TestStore) -> Vec<String> {
    dump(store, &EngineConfig::default().tables.data).await
}

#[tokio::test]
async fn points_are_stored_as_opentsdb_cells() {
    let store = store();
    let engine = start(config(), &store);
    let mut session = engine.ingest_session(NameText::Latin1);
    for round in 0..2 {
        let points: Vec<_> = [
            (1_356_998_400, PointValue::Integer(42)),
            (1_356_998_401, PointValue::Integer(-300)),
            (1_356_998_400_250, PointValue::Single(42.5)),
            (1_357_002_000, PointValue::Double(0.1)),
        ]
        .into_iter()
        .map(|(timestamp, value)| Sample {
            metric: b"sys.cpu",
            tags_raw: b"host=web01",
            timestamp,
            content: SampleContent::Point(value),
            tag: 0,
        })
        .collect();
        let mut parsed = 0;
        let rejected = session.put(
            &points,
            |point| *point,
            |point| {
                parsed += 1;
                Ok::<_, PutError>(pairs(point.tags_raw))
            },
        );
        assert!(rejected.is_empty());
        assert_eq!(
            parsed,
            if round == 0 { 4 } else { 0 },
            "the series is cached in the second round"
        );
        let report = session.commit().await;
        assert_eq!((report.stored, report.failures.len(), report.timed_out), (4, 0, 0));
    }
    assert_eq!(
        data(&store).await,
        [
            "00000150E22700000001000001 t 0000 2A",
            "00000150E22700000001000001 t 0011 FED4",
            "00000150E22700000001000001 t F0003E8B 422A0000",
            "00000150E23510000001000001 t 000F 3FB999999999999A",
        ]
    );
}

#[tokio::test]
async fn salted_rows_carry_their_bucket() {
    let store = store();
    let mut settings = config();
    settings.schema = TableSchema::try_new(3, 3, 3, 1, 20).unwrap();
    let engine = start(settings, &store);
    put_one(&engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
    let cells = data(&store).await;
    assert_eq!(cells.len(), 1);
    assert_eq!(&cells[0][2..26], "00000150E227000000010000");
}

#[tokio::test]
async fn appends_share_one_column() {
    let store = store();
    let mut settings = config();
    settings.ingest.enable_appends = true;
    let engine = start(settings, &store);
    put_one(&engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
    put_one(&engine, "m", "host=a", 1_356_998_401, 2).await.unwrap();
    assert_eq!(data(&store).await, ["00000150E22700000001000001 t 050000 000001001002"]);
}

#[tokio::test]
async fn cell_timestamps_are_point_times_if_enabled() {
    let store = store();
    let mut settings = config();
    settings.rows.use_otsdb_timestamp = true;
    let engine = start(settings, &store);
    put_one(&engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
    let cells = crate::testing::cells(&store, &EngineConfig::default().tables.data).await;
    assert_eq!(cells[0].1.timestamp_ms, 1_356_998_400_000);
}

#[tokio::test]
async fn points_of_one_cell_are_stored_in_order_cached_or_not() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "a=1 b=2", 7_200, 0).await.unwrap();
    let mut session = engine.ingest_session(NameText::Utf8);
    // One series in several spellings: two that are not cached, between cached ones.
    for (value, tags) in
        [(1, "a=1 b=2"), (2, "b=2 a=1"), (3, "a=1 b=2"), (4, "b=2 a=1 "), (5, "a=1 b=2")]
    {
        put(&mut session, "m", tags, 7_200, value, 0).unwrap();
        let last = data(&store).await;
        assert_eq!(last, ["00000100001C20000001000001000002000002 t 0000 00"]);
    }
    assert_eq!(session.commit().await.stored, 5);
    assert_eq!(data(&store).await, ["00000100001C20000001000001000002000002 t 0000 05"]);
    // Pipelined chunks also keep the order.
    for value in 6..40 {
        put(&mut session, "m", &format!("b=2 a=1{}", " ".repeat(value % 5)), 7_200, 0, 0).unwrap();
        put(&mut session, "m", "a=1 b=2", 7_200, i64::try_from(value).unwrap(), 0).unwrap();
        session.send().await;
    }
    session.drain().await;
    assert_eq!(data(&store).await, ["00000100001C20000001000001000002000002 t 0000 27"]);
}

#[tokio::test]
async fn points_of_one_cell_are_stored_in_order_in_chunks_of_all_sizes() {
    let store = store();
    let mut settings = config();
    settings.schema = TableSchema::try_new(3, 3, 3, 1, 20).unwrap();
    let engine = start(settings, &store);
    // All values have two bytes, so their columns are the same.
    let mut value = 1_000;
    put_one(&engine, "m", "host=0", 7_200, value).await.unwrap();
    let mut session = engine.ingest_session(NameText::Utf8);
    let mut failures = session.failures();
    // Points of a chunk, and whether chunks of this size go to one shard after earlier chunks are stored.
    for (points, to_one) in [
        (1, false),
        (1, true),
        (3, true),
        (700, false),
        (700, false),
        (2, false),
        (1, true),
        (40, true),
        (511, true),
        (512, false),
        (1, false),
        (1, true),
    ] {
        for _ in 0..points {
            value += 1;
            let host = format!("host={}", value % 7);
            put(&mut session, "m", &host, 7_200, value, 0).unwrap();
        }
        session.send().await;
        assert_eq!(session.sends_to_one, to_one, "{points}");
        if points < 3 {
            session.drain().await;
        }
    }
    session.drain().await;
    let stored = u64::try_from(value - 1_000).unwrap();
    assert_eq!((session.stored(), failures.try_recv().is_err()), (stored, true));
    let mut cells: Vec<_> = data(&store).await;
    cells.sort_by_key(|cell| cell.split(' ').next_back().unwrap().to_owned());
    let values: Vec<_> =
        cells.iter().map(|cell| cell.split(' ').next_back().unwrap().to_owned()).collect();
    let expected: Vec<_> = (value - 6..=value).map(|last| format!("{last:04X}")).collect();
    assert_eq!(values, expected, "the last values of seven series in their buckets");
}

/// Many sessions that send one point at a time.
#[tokio::test]
async fn few_points_of_many_sessions_are_all_stored() {
    const SESSIONS: i64 = 60;
    const ROUNDS: i64 = 20;
    let inner = store();
    let engine = start(config(), &inner);
    put_one(&engine, "m", "host=a", 7_199, 0).await.unwrap();
    let mut sessions: Vec<_> =
        (0..SESSIONS).map(|_| engine.ingest_session(NameText::Utf8)).collect();
    for round in 0..ROUNDS {
        for (at, session) in (0..).zip(&mut sessions) {
            put(session, "m", "host=a", 7_200 + round * SESSIONS + at, 1, 0).unwrap();
            session.send().await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for session in &mut sessions {
        session.drain().await;
        assert_eq!(session.stored(), u64::try_from(ROUNDS).unwrap());
    }
    assert_eq!(data(&inner).await.len(), usize::try_from(SESSIONS * ROUNDS + 1).unwrap());
}

#[tokio::test]
async fn grouped_points_are_stored_like_single_ones() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "known", "a=1", 7_200, 0).await.unwrap();
    let mut session = engine.ingest_session(NameText::Utf8);
    // Several groups, each with cached and new series, cells that are put repeatedly, and an invalid point.
    let names: Vec<_> = (0..200).map(|i| format!("a={}", i % 9)).collect();
    let points: Vec<_> = (0..200_u32)
        .map(|i| Sample {
            metric: if i % 2 == 0 { b"known" } else { b"new" },
            tags_raw: if i % 11 == 5 { b"" } else { names[i as usize].as_bytes() },
            timestamp: 7_200,
            content: SampleContent::Point(PointValue::Integer(i64::from(i) % 100)),
            tag: i,
        })
        .collect();
    let rejected = put_all(&mut session, &points);
    assert!(rejected.iter().all(|(_, error)| matches!(error, PutError::NoTags)));
    let rejected: Vec<_> = rejected.into_iter().map(|(at, _)| at).collect();
    assert_eq!(rejected, (0..200).filter(|i| i % 11 == 5).collect::<Vec<_>>());
    assert_eq!(session.pending(), 200 - rejected.len());
    let report = session.commit().await;
    assert_eq!((report.stored, report.failures.len()), (200 - rejected.len(), 0));
    let last = |metric: u32, tag: u32| {
        let mut puts = (0..200_u32).filter(|i| i % 11 != 5 && i % 2 == metric && i % 9 == tag);
        puts.next_back().unwrap() % 100
    };
    let mut expected: Vec<_> =
        (0..2).flat_map(|metric| (0..9).map(move |tag| last(metric, tag))).collect();
    let mut values: Vec<_> = crate::testing::cells(&store, &EngineConfig::default().tables.data)
        .await
        .into_iter()
        .map(|(_, cell)| u32::from(cell.value[0]))
        .collect();
    expected.sort_unstable();
    values.sort_unstable();
    assert_eq!(values, expected, "the last point of each cell stays");
}

#[tokio::test]
async fn invalid_points_are_rejected_at_once_and_affect_no_others() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    let mut session = engine.ingest_session(NameText::Utf8);
    let one = PointValue::Integer(1);
    let point = |timestamp, value| Sample {
        metric: b"m",
        tags_raw: b"host=a",
        timestamp,
        content: SampleContent::Point(value),
        tag: 0,
    };
    let points =
        [point(10_000_000_000_000, one), point(-1, one), point(-1, PointValue::Double(f64::NAN))];
    let rejected = put_all(&mut session, &points);
    let rejected: Vec<_> =
        rejected.into_iter().map(|(at, error)| (at, error.to_string())).collect();
    assert_eq!(
        rejected,
        [
            (0, "bad timestamp=10000000000000".to_owned()),
            (1, "bad timestamp=-1".to_owned()),
            (2, PutError::NotFinite.to_string()),
        ]
    );
    assert!(matches!(put_one(&engine, "m", "", 1, 1).await, Err(PutError::NoTags)));
    assert!(matches!(put_one(&engine, "m m", "host=a", 1, 1).await, Err(PutError::Name(_))));
    put(&mut session, "m", "host=a", 2, 1, 0).unwrap();
    assert_eq!((session.pending(), session.commit().await.stored), (1, 1));
}

#[tokio::test]
async fn storage_error_fails_only_the_points_of_its_call() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    let error = || StorageError::Backend("region moved".into());
    for fault in [Fault::Error(error()), Fault::LostAck(error())] {
        store.script(Operation::Put, [fault]);
        let mut session = engine.ingest_session(NameText::Utf8);
        put(&mut session, "m", "host=a", 3_600, 1, 4).unwrap();
        put(&mut session, "m", "host=a", 3_601, 1, 9).unwrap();
        let report = session.commit().await;
        assert_eq!(report.failures.iter().map(|f| f.tag).collect::<Vec<_>>(), [4, 9]);
        assert!(
            report.failures.iter().all(
                |f| matches!(&f.error, PutError::Storage(e) if e.to_string() == "region moved")
            )
        );
    }
    put_one(&engine, "m", "host=a", 3_602, 1).await.unwrap();
}

#[tokio::test]
async fn failures_of_pipelined_points_are_sent_to_the_channel() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    store.script(Operation::Put, [Fault::Error(StorageError::Throttled("test"))]);
    let mut session = engine.ingest_session(NameText::Latin1);
    let mut failures = session.failures();
    put(&mut session, "m", "host=a", 2, 1, 7).unwrap();
    session.send().await;
    let failure = failures.recv().await.unwrap();
    assert_eq!(failure.tag, 7);
    assert!(matches!(failure.error, PutError::Throttled("test")));
}

#[tokio::test]
async fn full_queue_throttles_after_the_deadline() {
    let store = store();
    let mut settings = config();
    settings.ingest.budget = ByteBudget::new(64);
    settings.ingest.queue_deadline = Duration::from_millis(30);
    let engine = start(settings, &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    store.script(Operation::Put, [Fault::Delay(Duration::from_millis(300))]);
    let mut first = engine.ingest_session(NameText::Utf8);
    put(&mut first, "m", "host=a", 2, 1, 0).unwrap();
    first.send().await;
    let error = put_one(&engine, "m", "host=a", 3, 1).await.unwrap_err();
    assert!(matches!(error, PutError::Throttled(_)));
    first.drain().await;
    put_one(&engine, "m", "host=a", 3, 1).await.unwrap();
    assert_eq!(data(&store).await.len(), 3);
}

#[tokio::test]
async fn commit_with_a_limit_counts_points_without_a_result() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    store.script(Operation::Put, [Fault::Delay(Duration::from_millis(200))]);
    let mut session = engine.ingest_session(NameText::Utf8);
    put(&mut session, "m", "host=a", 2, 1, 0).unwrap();
    let report = session.commit_within(Some(Duration::from_millis(20))).await;
    assert_eq!((report.stored, report.failures.len(), report.timed_out), (0, 0, 1));
}

#[tokio::test]
async fn panicked_write_actor_fails_its_requests_and_restarts() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    store.script(Operation::Put, [Fault::Delay(Duration::from_millis(50))]);
    let mut first = engine.ingest_session(NameText::Utf8);
    put(&mut first, "m", "host=a", 2, 1, 0).unwrap();
    first.send().await;
    let mut second = engine.ingest_session(NameText::Utf8);
    let mut failures = second.failures();
    put(&mut second, "m", "host=a", 3, 1, 1).unwrap();
    // Queued after the write in flight, so that the actor holds it when it panics.
    second.send().await;
    for shard in &engine.shared().ingest.shards {
        shard.writer.try_send(WriteMessage::Panic).ok().unwrap();
    }
    assert!(matches!(failures.recv().await.unwrap().error, PutError::Lost));
    first.drain().await;
    put_one(&engine, "m", "host=a", 4, 1).await.unwrap();
    assert_eq!(data(&store).await.len(), 3, "the write in flight completed");
}

#[tokio::test]
async fn shutdown_stores_accepted_points_and_rejects_others() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    let mut session = engine.ingest_session(NameText::Utf8);
    put(&mut session, "m", "host=a", 2, 1, 0).unwrap();
    session.send().await;
    assert!(engine.shutdown(Duration::from_secs(5)).await);
    assert_eq!(data(&store).await.len(), 2);
    assert!(matches!(put_one(&engine, "m", "host=a", 3, 1).await, Err(PutError::Closed)));
    assert!(matches!(put_one(&engine, "n", "host=a", 3, 1).await, Err(PutError::Closed)));
}

#[tokio::test]
async fn direct_writes_do_not_wait_for_the_write_actor() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    store.script(Operation::Put, [Fault::Delay(Duration::from_secs(5))]);
    let mut pipelined = engine.ingest_session(NameText::Utf8);
    put(&mut pipelined, "m", "host=a", 2, 1, 0).unwrap();
    pipelined.send().await;
    while !store.is_used_up(Operation::Put) {
        tokio::task::yield_now().await;
    }
    put_one(&engine, "m", "host=a", 3, 1).await.unwrap();
    assert_eq!(data(&store).await.len(), 2, "the actor's call is still in progress");
}

#[tokio::test]
async fn a_failed_direct_write_fails_only_its_request() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    // While the first call is in progress, the actor would join the second and the third request.
    let delay = Fault::Delay(Duration::from_millis(200));
    let failure = Fault::Error(StorageError::Rejected("one row".into()));
    store.script(Operation::Put, [delay, failure, Fault::Pass]);
    let put = |second| put_one(&engine, "m", "host=a", second, 1);
    let (first, second, third) = tokio::join!(put(2), put(3), put(4));
    let results = [first, second, third];
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1, "{results:?}");
    assert_eq!(data(&store).await.len(), 3);
}

#[tokio::test]
async fn shutdown_waits_for_direct_writes_whose_clients_left() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    store.script(Operation::Put, [Fault::Delay(Duration::from_millis(200))]);
    let mut session = engine.ingest_session(NameText::Utf8);
    put(&mut session, "m", "host=a", 2, 1, 0).unwrap();
    let report = session.commit_within(Some(Duration::from_millis(20))).await;
    assert_eq!(report.timed_out, 1);
    drop(session);
    assert!(engine.shutdown(Duration::from_secs(5)).await);
    assert_eq!(data(&store).await.len(), 2);
    assert!(matches!(put_one(&engine, "m", "host=a", 3, 1).await, Err(PutError::Closed)));
}

#[test]
fn engine_requires_its_tables() {
    let empty: std::sync::Arc<dyn tsd_storage::Storage> =
        std::sync::Arc::new(tsd_storage::MemoryStorage::new([]));
    let error = crate::Engine::start(config(), empty).unwrap_err();
    assert_eq!(error.to_string(), "table tsdb does not exist");
}

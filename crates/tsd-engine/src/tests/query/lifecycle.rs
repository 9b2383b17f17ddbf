//! Concurrent queries: the list of queries, cancellation, memory, limits of metrics.

use std::{sync::Arc, time::Duration};

use tsd_read::testing::{admitted, granted_bytes};
use tsd_storage::{Fault, Operation};

use super::*;
use crate::{
    EngineHandle, LimitOverride, QueryClass, QueryClient, QueryId, QueryOutcome, RunningStage,
    testing::{TestStore, start, store},
};

fn control_of(remote: &str, text: &str) -> QueryControl {
    let client =
        QueryClient { remote: remote.to_owned(), query: text.into(), ..QueryClient::default() };
    QueryControl { client: Arc::new(client), ..QueryControl::default() }
}

/// Delays all further scans by an hour.
pub(super) fn delay_scans(store: &TestStore) {
    let hour = Fault::Delay(Duration::from_hours(1));
    store.script(Operation::ScanBatch, vec![hour; 1_000]);
}

/// Starts a query, and returns when it hangs in its scans.
pub(super) async fn start_hanging_query(
    engine: &EngineHandle,
    control: QueryControl,
) -> tokio::task::JoinHandle<Result<QueryResult, QueryFailure>> {
    let before = engine.reads().queries().await.running.len();
    let query_engine = engine.clone();
    let query = query(HOUR, HOUR + 10_000, &["sum:sys.cpu"]);
    let task = tokio::spawn(async move { query_engine.reads().query(query, control).await });
    loop {
        let running = engine.reads().queries().await.running;
        if let Some(last) = running.get(before)
            && matches!(last.stage, RunningStage::Scanning)
        {
            return task;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn wait_for_closed_scans(store: &TestStore) {
    while store.open_scans() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(super) async fn wait_for_released_memory(engine: &EngineHandle) {
    while granted_bytes(engine.reads()) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Settings without row compaction, because compacted rows would have fewer cells.
fn settings_without_compaction(salt_width: usize, threads: usize) -> EngineConfig {
    let mut settings = settings(salt_width, threads);
    settings.compaction.on_read = false;
    settings
}

#[track_caller]
fn limit_of(failure: QueryFailure) -> LimitError {
    match failure {
        QueryFailure::Rejected(QueryError::Limit(limit)) => limit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn query_is_listed_until_its_response_was_written() {
    let store = store();
    let engine = start(settings_without_compaction(1, 2), &store);
    fill(&engine).await;
    let request = query(HOUR, HOUR + 10_000, &["sum:sys.cpu", "max:sys.cpu{host=*}"]);
    let result = engine.reads().query(request, control_of("10.0.0.1:5", "{}")).await.unwrap();
    let list = engine.reads().queries().await;
    assert!(list.completed.is_empty());
    let [running] = list.running.as_slice() else { panic!("{list:?}") };
    assert_eq!((running.id, running.stage), (result.id, RunningStage::Sending));
    assert_eq!((running.cells, running.client.remote.as_str()), (8_640, "10.0.0.1:5"));
    assert!(running.memory_bytes > 0 && !running.cpu.is_zero());
    result.guard.mark_sent(Duration::from_millis(3));
    let list = engine.reads().queries().await;
    assert!(list.running.is_empty());
    let [done] = list.completed.as_slice() else { panic!("{list:?}") };
    assert_eq!(done.id, result.id);
    assert!(matches!(done.outcome, QueryOutcome::Sent));
    assert_eq!((done.executed, done.running), (1, 1));
    let stats = &done.stats;
    assert_eq!(stats.serialization, Duration::from_millis(3));
    assert!(stats.peak_memory_bytes > 0 && stats.processing_pre_write <= stats.total);
    let [sum, max] = stats.sub_queries.as_slice() else { panic!("{stats:?}") };
    assert_eq!((sum.index, max.index), (0, 1));
    assert_eq!(max.scanners.len(), 20);
    assert!(max.scanners.iter().all(|scan| scan.successful));
    assert_eq!((max.rows(), max.cells()), (12, 4_320));
    assert_eq!((max.emitted_points, max.nan_points), (4_004, 0));
    let pairs: u64 = max.scanners.iter().map(|scan| scan.rows_post_filter).sum();
    assert_eq!(pairs, 12);
}

#[tokio::test]
async fn dropped_response_is_not_sent() {
    let store = store();
    let engine = start(settings(0, 1), &store);
    fill(&engine).await;
    drop(execute(&engine, query(HOUR, HOUR + 10, &["sum:sys.cpu"])).await.unwrap());
    assert!(execute(&engine, query(HOUR, HOUR + 10, &["sum:none"])).await.is_err());
    let completed = engine.reads().queries().await.completed;
    // Both have the same (empty) client and text, so the second replaces the first.
    let [last] = completed.as_slice() else { panic!("{completed:?}") };
    let QueryOutcome::Failed(QueryFailure::Rejected(error)) = &last.outcome else {
        panic!("{last:?}")
    };
    assert_eq!(*error, QueryError::no_such_name(UidKind::Metric, "none"));
    assert_eq!(last.executed, 2);
    drop(execute(&engine, query(HOUR, HOUR + 10, &["sum:sys.cpu"])).await.unwrap());
    assert!(matches!(engine.reads().queries().await.completed[0].outcome, QueryOutcome::NotSent));
}

#[tokio::test]
async fn query_cancelled_by_number_closes_its_scans() {
    let store = store();
    let engine = start(settings(1, 2), &store);
    fill(&engine).await;
    delay_scans(&store);
    let query = start_hanging_query(&engine, control_of("a:1", "1")).await;
    let id = engine.reads().queries().await.running[0].id;
    assert!(!engine.reads().cancel_query(QueryId(id.0 + 1)));
    assert!(engine.reads().cancel_query(id));
    let failure = query.await.unwrap().unwrap_err();
    assert!(matches!(failure, QueryFailure::CancelledByOperator), "{failure}");
    wait_for_closed_scans(&store).await;
    assert!(!engine.reads().cancel_query(id));
    let completed = engine.reads().queries().await.completed;
    assert!(matches!(
        completed[0].outcome,
        QueryOutcome::Failed(QueryFailure::CancelledByOperator)
    ));
    wait_for_released_memory(&engine).await;
}

#[tokio::test]
async fn client_disconnect_closes_scans() {
    let store = store();
    let engine = start(settings(1, 2), &store);
    fill(&engine).await;
    delay_scans(&store);
    let query = start_hanging_query(&engine, control_of("a:1", "1")).await;
    query.abort();
    assert!(query.await.unwrap_err().is_cancelled());
    wait_for_closed_scans(&store).await;
    let list = engine.reads().queries().await;
    assert!(list.running.is_empty());
    assert!(matches!(list.completed[0].outcome, QueryOutcome::Abandoned));
}

#[tokio::test]
async fn hanging_queries_do_not_block_others() {
    let store = store();
    let mut settings = settings(1, 1);
    (settings.query.max_running, settings.query.max_waiting) = (1, 7);
    let engine = start(settings, &store);
    fill(&engine).await;
    delay_scans(&store);
    let mut hung = Vec::new();
    for _ in 0..3 {
        hung.push(start_hanging_query(&engine, QueryControl::default()).await);
    }
    store.heal();
    assert!(execute(&engine, query(HOUR, HOUR + 10, &["sum:sys.cpu"])).await.is_ok());
    assert_eq!(engine.reads().queries().await.running.len(), 3);
    for query in hung {
        query.abort();
    }
}

#[tokio::test]
async fn duplicate_queries_of_a_client_can_be_rejected() {
    for allowed in [true, false] {
        let store = store();
        let mut settings = settings(1, 1);
        settings.query.allow_duplicates = allowed;
        let engine = start(settings, &store);
        fill(&engine).await;
        delay_scans(&store);
        let hung = start_hanging_query(&engine, control_of("10.0.0.1:4", "{}")).await;
        store.heal();
        let request = query(HOUR, HOUR + 10, &["sum:sys.cpu"]);
        let second = engine.reads().query(request.clone(), control_of("10.0.0.1:4", "{}")).await;
        match second {
            Ok(_) => assert!(allowed),
            Err(failure) => {
                assert!(!allowed);
                let QueryFailure::Rejected(error) = failure else { panic!("{failure:?}") };
                assert_eq!(error, QueryError::Duplicate { endpoint: "10.0.0.1:4".into() });
            }
        }
        for other in [control_of("10.0.0.1:5", "{}"), control_of("10.0.0.1:4", "{ }")] {
            assert!(engine.reads().query(request.clone(), other).await.is_ok());
        }
        hung.abort();
    }
}

#[tokio::test]
async fn memory_is_limited_per_query_and_in_total_and_released() {
    let store = store();
    let mut settings = settings(1, 2);
    // Scans that are open at the same time add up.
    settings.query.max_scans = 1;
    let large = ["max", "min", "sum", "avg", "count", "dev", "zimsum", "mimmin", "mimmax", "mult"]
        .map(|aggregator| format!("{aggregator}:sys.cpu{{host=*}}"));
    let large = query(HOUR, HOUR + 10_000, &large.each_ref().map(String::as_str));
    let small = query(HOUR, HOUR + 10_000, &["sum:1h-avg:sys.cpu"]);
    let engine = start(settings.clone(), &store);
    fill(&engine).await;
    let needs = async |query: &Query| {
        execute(&engine, query.clone()).await.unwrap().stats.peak_memory_bytes
    };
    let (less, more) = (needs(&small).await, needs(&large).await);
    assert!(less * 3 < more * 2, "{less}, {more}");
    (settings.query.max_memory_bytes, settings.query.max_total_memory_bytes) =
        (less.midpoint(more), 0);
    let engine = start(settings.clone(), &store);
    let failure = execute(&engine, large.clone()).await.unwrap_err();
    assert!(matches!(limit_of(failure), LimitError::Memory { .. }));
    wait_for_released_memory(&engine).await;
    let result = execute(&engine, small.clone()).await.unwrap();
    assert!(granted_bytes(engine.reads()) > 0);
    drop(result);
    wait_for_released_memory(&engine).await;

    // Results that are not sent yet keep their memory.
    (settings.query.max_memory_bytes, settings.query.max_total_memory_bytes) = (0, 5_000_000);
    let engine = start(settings, &store);
    let mut retained = Vec::new();
    let waiting = loop {
        let (engine, large) = (engine.clone(), large.clone());
        let handle = engine.clone();
        let task = tokio::spawn(async move { execute(&engine, large).await });
        while !task.is_finished() && admitted(handle.reads(), QueryClass::Wide).1 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if !task.is_finished() {
            break task;
        }
        retained.push(task.await.unwrap().unwrap());
        assert!(retained.len() < 100);
    };
    // The next query waits for memory; small queries have memory of their own.
    assert!(!retained.is_empty());
    assert!(execute(&engine, query(HOUR, HOUR + 10, &["sum:1h-avg:sys.cpu"])).await.is_ok());
    assert!(!waiting.is_finished());
    retained.clear();
    assert!(waiting.await.unwrap().is_ok());
    wait_for_released_memory(&engine).await;
}

#[tokio::test]
async fn metric_limits_override_configured_limits() {
    let store = store();
    let mut settings = settings_without_compaction(0, 1);
    settings.query.scan_batch_rows = 1;
    settings.query.max_data_points = 100;
    let overrides = settings.query.overrides.clone();
    let engine = start(settings, &store);
    fill(&engine).await;
    let request = query(HOUR, HOUR + 10_000, &["sum:sys.cpu"]);
    let limit = async |request: &Query| match execute(&engine, request.clone()).await {
        Ok(_) => None,
        Err(failure) => Some(limit_of(failure)),
    };
    assert_eq!(limit(&request).await, Some(LimitError::DataPoints { limit: 100 }));
    overrides.replace(vec![LimitOverride::try_new("^sys\\.", 0, 0).unwrap()]);
    assert_eq!(limit(&request).await, None);
    overrides.replace(vec![
        LimitOverride::try_new("^cpu", 0, 0).unwrap(),
        LimitOverride::try_new("cpu$", 0, 7).unwrap(),
    ]);
    assert_eq!(limit(&request).await, Some(LimitError::DataPoints { limit: 7 }));
    overrides.replace(Vec::new());
    let result =
        execute(&engine, query(HOUR, HOUR + 1, &["sum:sys.cpu{host=web1}"])).await.unwrap();
    let tsuid = tsd_model::to_hex(&result.sub_results[0].series[0].tsuids[0]);
    overrides.replace(vec![LimitOverride::try_new("cpu", 0, 5).unwrap()]);
    let mut by_tsuid = request;
    by_tsuid.sub_queries[0].source = tsd_query::SeriesSource::Tsuids(vec![tsuid]);
    assert_eq!(limit(&by_tsuid).await, Some(LimitError::DataPoints { limit: 5 }));
}

#[tokio::test]
async fn number_of_sub_queries_is_limited() {
    let store = store();
    let mut settings = settings(0, 1);
    settings.query.max_sub_queries = 2;
    let engine = start(settings, &store);
    fill(&engine).await;
    let three = ["sum:sys.cpu", "max:sys.cpu", "min:sys.cpu"];
    assert!(execute(&engine, query(HOUR, HOUR + 1, &three[..2])).await.is_ok());
    let failure = execute(&engine, query(HOUR, HOUR + 1, &three)).await.unwrap_err();
    assert_eq!(limit_of(failure), LimitError::SubQueries { count: 3, limit: 2 });
}

#[tokio::test]
async fn only_the_last_completed_queries_are_listed() {
    let store = store();
    let engine = start(settings(0, 1), &store);
    fill(&engine).await;
    let request = query(HOUR, HOUR + 1, &["sum:sys.cpu"]);
    for n in 0..300 {
        let result = engine
            .reads()
            .query(request.clone(), control_of(&format!("a:{n}"), "{}"))
            .await
            .unwrap();
        result.guard.mark_sent(Duration::ZERO);
    }
    let completed = engine.reads().queries().await.completed;
    assert_eq!(completed.len(), 256);
    assert_eq!(completed[0].client.remote, "a:44");
    // Large queries evict more completed queries.
    let large = "q".repeat(6 << 20);
    for n in 0..5 {
        let control = control_of(&format!("b:{n}"), &large);
        drop(engine.reads().query(request.clone(), control).await.unwrap());
    }
    let completed = engine.reads().queries().await.completed;
    let remotes: Vec<_> = completed.iter().map(|q| q.client.remote.as_str()).collect();
    assert_eq!(remotes, ["b:3", "b:4"]);
}

//! Identical queries share executions, and no result lacks a point that was acknowledged before its query.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::Semaphore;
use tsd_query::{ExpQuery, GexpQuery, RawExpExpression, RawExpMetric, RawExpQuery, RawExpTime};
use tsd_storage::{HookedStorage, MemoryStorage, OperationHook, Storage};

use super::*;
use crate::{Engine, QueryOutcome};

/// A store whose scans need a permit for each batch.
#[derive(Debug)]
struct PausedScans {
    permits: Semaphore,
    /// Batches read so far. A paused execution has read one.
    batches: AtomicUsize,
    /// Batches of a whole execution.
    per_execution: AtomicUsize,
}

#[derive(Debug)]
struct PauseHook(Arc<PausedScans>);

impl OperationHook for PauseHook {
    async fn around<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> Result<T, StorageError> {
        if operation != Operation::ScanBatch {
            return call.await;
        }
        // The batch has the points from before the pause.
        let result = call.await;
        self.0.batches.fetch_add(1, Ordering::Relaxed);
        match self.0.permits.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return Err(StorageError::Backend("the store is gone".into())),
        }
        result
    }
}

/// An engine with one point, whose scans wait.
async fn paused(change: impl FnOnce(&mut EngineConfig)) -> (EngineHandle, Arc<PausedScans>) {
    let scans = Arc::new(PausedScans {
        permits: Semaphore::new(100),
        batches: AtomicUsize::new(0),
        per_execution: AtomicUsize::new(0),
    });
    let tables = EngineConfig::default().tables;
    let memory = MemoryStorage::new([tables.data, tables.uid, tables.meta, tables.tree]);
    let hook = PauseHook(Arc::clone(&scans));
    let storage: Arc<dyn Storage> = Arc::new(HookedStorage::with_hook(hook, Arc::new(memory)));
    let mut settings = settings(0, 2);
    settings.query.share_executions = true;
    settings.compaction.on_read = false;
    change(&mut settings);
    let engine = Engine::start(settings, storage).unwrap();
    put_one(&engine, "m", "host=a", HOUR, 1).await.unwrap();
    // The start has looked for interrupted changes of names.
    scans.batches.store(0, Ordering::Relaxed);
    execute(&engine, request()).await.unwrap();
    scans.permits.forget_permits(100);
    scans.per_execution.store(scans.batches.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    (engine, scans)
}

fn request() -> Query {
    query(HOUR, HOUR + 100, &["sum:m"])
}

type RunningQueryTask = tokio::task::JoinHandle<Result<QueryResult, QueryFailure>>;

/// Starts a query and returns once it is registered.
async fn submit(engine: &EngineHandle, query: Query, control: QueryControl) -> RunningQueryTask {
    let before = engine.reads().queries().await.running.len();
    let task = engine.clone();
    let task = tokio::spawn(async move { task.reads().query(query, control).await });
    while engine.reads().queries().await.running.len() == before {
        tokio::task::yield_now().await;
    }
    task
}

/// Starts queries that use up the admission of heavy queries, and pause.
async fn take_admission(engine: &EngineHandle, scans: &PausedScans) -> Vec<RunningQueryTask> {
    let mut others = Vec::new();
    for n in 1..=4 {
        let other = query(HOUR, HOUR + 100 + n, &["sum:m"]);
        others.push(submit(engine, other, QueryControl::default()).await);
    }
    scans.wait_for(4).await;
    others
}

impl PausedScans {
    /// Waits until this many executions have reached their pause.
    async fn wait_for(&self, executions: usize) {
        while self.batches.load(Ordering::Relaxed) < executions {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Number of executions, after all have ended.
    fn executions(&self) -> usize {
        let per_execution = self.per_execution.load(Ordering::Relaxed);
        self.batches.load(Ordering::Relaxed).div_ceil(per_execution)
    }
}

fn points(result: &QueryResult) -> Vec<(i64, f64)> {
    values(&result.sub_results[0].series[0])
}

/// Lets all executions end.
fn resume(scans: &PausedScans) {
    scans.permits.add_permits(1_000);
}

#[tokio::test]
async fn identical_queries_make_two_executions_and_miss_no_acknowledged_point() {
    let (engine, scans) = paused(|_| {}).await;
    let first = submit(&engine, request(), QueryControl::default()).await;
    scans.wait_for(1).await;
    put_one(&engine, "m", "host=a", HOUR + 10, 2).await.unwrap();
    let mut later = Vec::new();
    for n in 0..9 {
        // Options of the response make no difference.
        let request = Query { ms_resolution: n % 2 == 0, show_query: n % 3 == 0, ..request() };
        later.push(submit(&engine, request, QueryControl::default()).await);
    }
    assert_eq!(engine.reads().queries().await.running.len(), 10);
    assert_eq!(scans.batches.load(Ordering::Relaxed), 1);
    resume(&scans);
    assert_eq!(points(&first.await.unwrap().unwrap()), [(0, 1.0)]);
    let mut cells = 0;
    for query in later {
        let result = query.await.unwrap().unwrap();
        assert_eq!(points(&result), [(0, 1.0), (10, 2.0)]);
        assert!(result.stats.peak_memory_bytes > 0);
        cells += result.sub_results[0].stats.cells();
        result.guard.mark_sent(Duration::ZERO);
    }
    assert_eq!(cells, 9 * 2);
    assert_eq!(scans.executions(), 2);
    // No result is kept.
    assert_eq!(points(&execute(&engine, request()).await.unwrap()).len(), 2);
    assert_eq!(scans.executions(), 3);
    lifecycle::wait_for_released_memory(&engine).await;
}

#[tokio::test]
async fn queries_that_wait_for_admission_share_one_execution() {
    let (engine, scans) = paused(|settings| settings.query.max_running = 1).await;
    let others = take_admission(&engine, &scans).await;
    let mut same = Vec::new();
    for _ in 0..3 {
        same.push(submit(&engine, request(), QueryControl::default()).await);
    }
    resume(&scans);
    for query in others.into_iter().chain(same) {
        assert_eq!(points(&query.await.unwrap().unwrap()), [(0, 1.0)]);
    }
    assert_eq!(scans.executions(), 4 + 1);
}

#[tokio::test]
async fn different_queries_and_those_with_statistics_have_their_own_executions() {
    let (engine, scans) = paused(|_| {}).await;
    let stats = Query { show_stats: true, ..request() };
    let summary = Query { show_summary: true, ..request() };
    let delete = Query { delete: true, ..request() };
    let queries = [
        request(),
        query(HOUR, HOUR + 101, &["sum:m"]),
        query(HOUR, HOUR + 100, &["max:m"]),
        stats.clone(),
        stats,
        summary.clone(),
        summary,
        delete,
    ];
    let expected = queries.len();
    let mut running = Vec::new();
    for query in queries {
        running.push(submit(&engine, query, QueryControl::default()).await);
    }
    scans.wait_for(expected).await;
    resume(&scans);
    for query in running {
        assert_eq!(points(&query.await.unwrap().unwrap()), [(0, 1.0)]);
    }
    assert_eq!(scans.executions(), expected);
}

#[tokio::test]
async fn a_query_that_leaves_does_not_end_the_execution_for_the_others() {
    for leaves_by in ["client", "token", "operator", "deadline"] {
        let (engine, scans) = paused(|settings| settings.query.max_running = 1).await;
        let others = take_admission(&engine, &scans).await;
        // Long enough for both to be registered before it passes.
        let deadline = (leaves_by == "deadline").then(|| Instant::now() + Duration::from_secs(1));
        let control = QueryControl { deadline, ..QueryControl::default() };
        // This query starts the execution.
        let leaving = submit(&engine, request(), control.clone()).await;
        let id = engine.reads().queries().await.running.last().unwrap().id;
        let staying = submit(&engine, request(), QueryControl::default()).await;
        let failure = match leaves_by {
            "client" => {
                leaving.abort();
                assert!(leaving.await.unwrap_err().is_cancelled());
                None
            }
            "token" => {
                control.cancel.cancel();
                Some(leaving.await.unwrap().unwrap_err())
            }
            "operator" => {
                assert!(engine.reads().cancel_query(id));
                Some(leaving.await.unwrap().unwrap_err())
            }
            _ => Some(leaving.await.unwrap().unwrap_err()),
        };
        match (leaves_by, failure) {
            ("client", None)
            | ("token", Some(QueryFailure::Cancelled))
            | ("operator", Some(QueryFailure::CancelledByOperator))
            | (
                "deadline",
                Some(QueryFailure::Rejected(QueryError::Limit(LimitError::Time { .. }))),
            ) => {}
            other => panic!("{other:?}"),
        }
        resume(&scans);
        for query in others.into_iter().chain([staying]) {
            assert_eq!(points(&query.await.unwrap().unwrap()), [(0, 1.0)], "{leaves_by}");
        }
        assert_eq!(scans.executions(), 4 + 1, "{leaves_by}");
    }
}

#[tokio::test]
async fn an_execution_ends_when_all_have_left() {
    let (engine, scans) = paused(|_| {}).await;
    let first = submit(&engine, request(), QueryControl::default()).await;
    scans.wait_for(1).await;
    let second = submit(&engine, request(), QueryControl::default()).await;
    let third = submit(&engine, request(), QueryControl::default()).await;
    for query in [first, third, second] {
        query.abort();
        assert!(query.await.unwrap_err().is_cancelled());
    }
    let list = engine.reads().queries().await;
    assert!(list.running.is_empty());
    assert!(matches!(list.completed[0].outcome, QueryOutcome::Abandoned));
    lifecycle::wait_for_released_memory(&engine).await;
    assert_eq!(scans.batches.swap(0, Ordering::Relaxed), 1);
    // The next query does not wait.
    resume(&scans);
    assert_eq!(points(&execute(&engine, request()).await.unwrap()), [(0, 1.0)]);
}

#[tokio::test]
async fn a_failure_is_reported_to_each() {
    let (engine, scans) = paused(|_| {}).await;
    let mut queries = vec![submit(&engine, request(), QueryControl::default()).await];
    scans.wait_for(1).await;
    for _ in 0..4 {
        queries.push(submit(&engine, request(), QueryControl::default()).await);
    }
    scans.permits.close();
    for query in queries {
        let failure = query.await.unwrap().unwrap_err();
        assert!(matches!(failure, QueryFailure::Storage(_)), "{failure}");
        assert_eq!(failure.to_string(), "the store is gone");
    }
    // Neither has read more than its first batch.
    assert_eq!(scans.batches.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn waiting_queries_count_as_submitted() {
    let (engine, scans) = paused(|settings| {
        (settings.query.max_running, settings.query.max_waiting) = (1, 1);
    })
    .await;
    let first = submit(&engine, request(), QueryControl::default()).await;
    scans.wait_for(1).await;
    let second = submit(&engine, request(), QueryControl::default()).await;
    assert!(matches!(execute(&engine, request()).await, Err(QueryFailure::Busy)));
    resume(&scans);
    assert!(first.await.unwrap().is_ok() && second.await.unwrap().is_ok());
}

/// An expression `a + a` of the metric.
fn expression() -> ExpQuery {
    RawExpQuery {
        time: Some(RawExpTime {
            start: Some(HOUR.to_string()),
            end: Some((HOUR + 100).to_string()),
            aggregator: Some("sum".to_owned()),
            ..RawExpTime::default()
        }),
        metrics: vec![RawExpMetric {
            id: Some("a".to_owned()),
            metric: Some("m".to_owned()),
            ..RawExpMetric::default()
        }],
        expressions: vec![RawExpExpression {
            id: Some("e".to_owned()),
            expr: Some("a + a".to_owned()),
            ..RawExpExpression::default()
        }],
        ..RawExpQuery::default()
    }
    .validate(&QueryClock::utc(0))
    .unwrap()
}

/// The function that doubles the metric.
fn function() -> GexpQuery {
    let raw = RawQuery {
        start: Some(HOUR.to_string()),
        end: Some((HOUR + 100).to_string()),
        ..RawQuery::default()
    };
    GexpQuery::new(raw, &["scale(sum:m,2)"], &QueryClock::utc(0)).unwrap()
}

/// The points of an expression or a function, by seconds of the hour.
async fn doubled(engine: EngineHandle, is_function: bool) -> Vec<(i64, f64)> {
    if is_function {
        let result = engine.reads().query_gexp(function(), QueryControl::default()).await.unwrap();
        assert_eq!(result.stats.sub_queries.len(), 1);
        assert!(result.stats.peak_memory_bytes > 0);
        let points = &result.series[0].series.points;
        let value = |i| match points.value(i).unwrap() {
            Value::Integer(v) => v as f64,
            Value::Float(v) => v,
        };
        let time = |i: usize| points.times_ms[i] / 1_000 - HOUR;
        (0..points.len()).map(|i| (time(i), value(i))).collect()
    } else {
        let (result, guard) =
            engine.reads().query_exp(expression(), QueryControl::default()).await.unwrap();
        assert_eq!(guard.stats().sub_queries.len(), 1);
        let rows = &result.outputs[0].rows;
        rows.iter().map(|(time, values)| (time / 1_000 - HOUR, values[0])).collect()
    }
}

/// Starts an expression or a function and returns once it is registered.
async fn start_doubled(
    engine: &EngineHandle,
    is_function: bool,
) -> tokio::task::JoinHandle<Vec<(i64, f64)>> {
    let before = engine.reads().queries().await.running.len();
    let task = tokio::spawn(doubled(engine.clone(), is_function));
    while engine.reads().queries().await.running.len() == before {
        tokio::task::yield_now().await;
    }
    task
}

#[tokio::test]
async fn expressions_and_functions_share_executions_with_their_own_kind() {
    let (engine, scans) = paused(|_| {}).await;
    // One of each kind reads, and does not serve queries that come later.
    let first = [start_doubled(&engine, false).await, start_doubled(&engine, true).await];
    scans.wait_for(2).await;
    put_one(&engine, "m", "host=a", HOUR + 10, 2).await.unwrap();
    let mut later = Vec::new();
    for n in 0..10 {
        later.push(start_doubled(&engine, n % 2 == 0).await);
    }
    resume(&scans);
    for task in first {
        assert_eq!(task.await.unwrap(), [(0, 2.0)]);
    }
    for task in later {
        assert_eq!(task.await.unwrap(), [(0, 2.0), (10, 4.0)]);
    }
    assert_eq!(scans.executions(), 2 + 2);
    lifecycle::wait_for_released_memory(&engine).await;
}

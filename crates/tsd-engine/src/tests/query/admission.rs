//! Small queries must not get a 503 while 48 to 64 wide queries wait (issue 37). Whatever the estimates are, wide
//! queries run one after the other, and small queries at the same time.

use tokio::task::JoinHandle;
use tsd_read::testing::{admitted, class_after, learn_points_per_row, take_all_memory};

use super::*;
use crate::{QueryClass, QueryId, RunningStage};

const WIDE: usize = 64;

fn wide() -> Query {
    query(HOUR, HOUR + 10_800, &["none:sys.cpu"])
}

fn small() -> Query {
    query(HOUR, HOUR + 10, &["sum:small"])
}

/// Points per row that make estimates too low, about right, and as high as the limit of a query.
const ESTIMATES: [u64; 3] = [1, 360, 1_000_000];

/// An engine whose memory fits one wide query. Estimates assume this many points per row.
async fn engine(points: u64, change: impl FnOnce(&mut EngineConfig)) -> EngineHandle {
    let store = store();
    let mut settings = settings(0, 2);
    settings.compaction.on_read = false;
    settings.query.max_scans = 1;
    settings.query.max_memory_bytes = 0;
    let whole = start(settings.clone(), &store);
    fill(&whole).await;
    put_one(&whole, "small", "host=a", HOUR, 1).await.unwrap();
    let peak = execute(&whole, wide()).await.unwrap().stats.peak_memory_bytes;
    settings.query.max_total_memory_bytes = peak * 4 / 3 + peak / 8;
    change(&mut settings);
    let engine = start(settings, &store);
    learn_points_per_row(engine.reads(), points);
    engine
}

/// Starts a wide query. Its result keeps its memory until it is dropped.
fn spawn_wide(engine: &EngineHandle) -> JoinHandle<Result<QueryResult, QueryFailure>> {
    let engine = engine.clone();
    tokio::spawn(async move { execute(&engine, wide()).await })
}

/// Waits until this many wide queries wait.
async fn wait_for_waiting(engine: &EngineHandle, count: usize) {
    while admitted(engine.reads(), QueryClass::Wide).1 != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Numbers of the waiting queries, in the order in which they came.
async fn waiting(engine: &EngineHandle) -> Vec<QueryId> {
    let running = engine.reads().queries().await.running;
    let queued = running.iter().filter(|query| query.stage == RunningStage::Queued);
    queued.map(|query| query.id).collect()
}

#[tokio::test]
async fn small_queries_run_beside_many_wide_ones_which_all_succeed() {
    for points in ESTIMATES {
        let engine = engine(points, |_| ()).await;
        let expected = values(&execute(&engine, wide()).await.unwrap().sub_results[0].series[3]);
        let tasks: Vec<_> = (0..WIDE)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let result = execute(&engine, wide()).await?;
                    Ok::<_, QueryFailure>(values(&result.sub_results[0].series[3]))
                })
            })
            .collect();
        let mut beside = 0;
        while !tasks.iter().all(JoinHandle::is_finished) {
            let result = execute(&engine, small()).await.unwrap();
            assert_eq!(values(&result.sub_results[0].series[0]), [(0, 1.0)]);
            beside += 1;
        }
        assert!(beside > 0);
        for task in tasks {
            assert_eq!(task.await.unwrap().unwrap(), expected, "{points}");
        }
        lifecycle::wait_for_released_memory(&engine).await;
        let counts =
            [QueryClass::Small, QueryClass::Wide].map(|class| admitted(engine.reads(), class));
        assert_eq!(counts, [(0, 0); 2]);
    }
}

#[tokio::test]
async fn wide_queries_run_in_the_order_in_which_they_came() {
    // Each query claims all that a query may have, so one runs at a time.
    let engine = engine(ESTIMATES[2], |_| ()).await;
    let held = take_all_memory(engine.reads()).await;
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    for count in 1..=4 {
        let (engine, sender) = (engine.clone(), sender.clone());
        let waiting = engine.clone();
        tokio::spawn(async move {
            let result = execute(&engine, wide()).await.unwrap();
            sender.send(result.id).unwrap();
        });
        wait_for_waiting(&waiting, count).await;
    }
    let line = waiting(&engine).await;
    drop((held, sender));
    for id in line {
        assert!(execute(&engine, small()).await.is_ok());
        assert_eq!(ended.recv().await, Some(id));
    }
    assert_eq!(ended.recv().await, None);
    lifecycle::wait_for_released_memory(&engine).await;
}

#[tokio::test]
async fn a_query_that_is_cancelled_while_it_waits_frees_its_place() {
    let engine = engine(360, |_| ()).await;
    let held = take_all_memory(engine.reads()).await;
    let mut tasks = Vec::new();
    for count in 1..=3 {
        tasks.push(spawn_wide(&engine));
        wait_for_waiting(&engine, count).await;
    }
    let [by_operator, by_client, stays] = <[_; 3]>::try_from(tasks).unwrap();
    assert!(engine.reads().cancel_query(waiting(&engine).await[0]));
    let failure = by_operator.await.unwrap().unwrap_err();
    assert!(matches!(failure, QueryFailure::CancelledByOperator), "{failure}");
    wait_for_waiting(&engine, 2).await;
    by_client.abort();
    assert!(by_client.await.unwrap_err().is_cancelled());
    wait_for_waiting(&engine, 1).await;
    let deadline = Some(Instant::now() + Duration::from_millis(20));
    let late = QueryControl { deadline, ..QueryControl::default() };
    match engine.reads().query(wide(), late).await {
        Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Time { .. }))) => {}
        other => panic!("{other:?}"),
    }
    wait_for_waiting(&engine, 1).await;
    drop(held);
    assert!(stays.await.unwrap().is_ok());
    lifecycle::wait_for_released_memory(&engine).await;
}

#[tokio::test]
async fn the_newest_is_refused_when_the_line_is_full_and_small_queries_are_not() {
    let engine = engine(360, |settings| {
        (settings.query.max_running, settings.query.max_waiting) = (1, 4);
    })
    .await;
    let held = take_all_memory(engine.reads()).await;
    let mut tasks = Vec::new();
    for count in 1..=3 {
        tasks.push(spawn_wide(&engine));
        wait_for_waiting(&engine, count).await;
    }
    let failure = execute(&engine, wide()).await.unwrap_err();
    assert!(matches!(failure, QueryFailure::Busy), "{failure}");
    assert!(execute(&engine, small()).await.is_ok());
    drop(held);
    for task in tasks {
        assert!(task.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn identical_wide_queries_whose_copies_do_not_fit_succeed_as_well() {
    let engine = engine(360, |settings| settings.query.share_executions = true).await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { execute(&engine, wide()).await.map(|_| ()) })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    lifecycle::wait_for_released_memory(&engine).await;
}

#[tokio::test]
async fn a_query_that_takes_long_becomes_a_wide_one() {
    let engine = engine(360, |settings| {
        (settings.query.max_running, settings.query.max_total_memory_bytes) = (1, 0);
    })
    .await;
    let grant = take_all_memory(engine.reads()).await;
    assert_eq!(admitted(engine.reads(), QueryClass::Wide), (1, 0));
    let task = tokio::spawn({
        let engine = engine.clone();
        async move { class_after(engine.reads(), Duration::from_millis(150)).await }
    });
    wait_for_waiting(&engine, 1).await;
    assert!(execute(&engine, small()).await.is_ok());
    drop(grant);
    assert_eq!(task.await.unwrap().unwrap(), QueryClass::Wide);
}

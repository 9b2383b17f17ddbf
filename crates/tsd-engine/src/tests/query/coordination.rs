//! Tests of the query actor: panics, busy query threads, and the countdown of its scans.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use tsd_read::testing::query_threads;
use tsd_storage::{HookedStorage, MemoryStorage, OperationHook, Storage};

use super::*;
use crate::{Engine, QueryId};

const PATIENCE: Duration = Duration::from_mins(1);

/// Panics in one of the next batches of scans.
#[derive(Debug, Default)]
struct PanicInScan {
    /// Number of the batch that panics, counted from 1; 0 for none.
    batches: AtomicUsize,
}

#[derive(Debug)]
struct SharedHook(Arc<PanicInScan>);

impl OperationHook for SharedHook {
    async fn around<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> Result<T, StorageError> {
        let counter = &self.0.batches;
        let is_last = operation == Operation::ScanBatch && counter.load(Ordering::Relaxed) > 0;
        assert!(!(is_last && counter.fetch_sub(1, Ordering::Relaxed) == 1), "a scan of the test");
        call.await
    }
}

#[tokio::test]
async fn panic_in_a_scan_ends_its_query_with_the_cause_and_no_other() {
    let hook = Arc::new(PanicInScan::default());
    let tables = EngineConfig::default().tables;
    let memory = MemoryStorage::new([tables.data, tables.uid, tables.meta, tables.tree]);
    let shared = SharedHook(Arc::clone(&hook));
    let storage: Arc<dyn Storage> = Arc::new(HookedStorage::with_hook(shared, Arc::new(memory)));
    let engine = Engine::start(settings(1, 2), storage).unwrap();
    fill(&engine).await;
    let request = || query(HOUR, HOUR + 10_000, &["sum:sys.cpu"]);
    let expected = values(&execute(&engine, request()).await.unwrap().sub_results[0].series[0]);
    for batch in 1..8 {
        hook.batches.store(batch, Ordering::Relaxed);
        let failure = execute(&engine, request()).await.unwrap_err();
        assert!(matches!(failure, QueryFailure::Panicked { .. }), "{failure}");
        assert_eq!(hook.batches.load(Ordering::Relaxed), 0);
        let text = failure.to_string();
        assert!(text.ends_with("while it worked on the query: a scan of the test"), "{text}");
        let result = execute(&engine, request()).await.unwrap();
        assert_eq!(values(&result.sub_results[0].series[0]), expected);
    }
    lifecycle::wait_for_released_memory(&engine).await;
}

#[tokio::test]
async fn queries_are_listed_cancelled_and_timed_out_while_the_query_threads_are_blocked() {
    let store = store();
    let engine = start(settings(1, 2), &store);
    fill(&engine).await;
    lifecycle::delay_scans(&store);
    let control = || QueryControl::default();
    let cancelled = lifecycle::start_hanging_query(&engine, control()).await;
    let limited = QueryControl {
        deadline: Some(Instant::now() + Duration::from_millis(300)),
        ..QueryControl::default()
    };
    let limited = lifecycle::start_hanging_query(&engine, limited).await;
    let (runtime, threads) = query_threads(engine.reads());
    let (blocked, is_blocked) = mpsc::channel();
    let releases: Vec<_> = (0..threads)
        .map(|_| {
            let (release, wait) = mpsc::channel::<()>();
            let blocked = blocked.clone();
            runtime.spawn(async move {
                let _ = blocked.send(());
                let _ = wait.recv();
            });
            release
        })
        .collect();
    for _ in 0..threads {
        is_blocked.recv_timeout(PATIENCE).unwrap();
    }
    let listed = tokio::time::timeout(PATIENCE, engine.reads().queries()).await.unwrap();
    let QueryId(first) = listed.running[0].id;
    assert!(engine.reads().cancel_query(QueryId(first)));
    let failure = tokio::time::timeout(PATIENCE, cancelled).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(failure, QueryFailure::CancelledByOperator), "{failure}");
    let failure = tokio::time::timeout(PATIENCE, limited).await.unwrap().unwrap().unwrap_err();
    let QueryFailure::Rejected(QueryError::Limit(LimitError::Time { .. })) = failure else {
        panic!("{failure:?}")
    };
    drop(releases);
}

#[tokio::test]
async fn scans_of_a_read_are_counted_down_whatever_their_number() {
    for max_scans in [1, 3, 64] {
        let store = store();
        let mut settings = settings(1, 2);
        settings.query.max_scans = max_scans;
        settings.compaction.on_read = false;
        let engine = start(settings, &store);
        fill(&engine).await;
        let request = query(HOUR, HOUR + 10_000, &["sum:sys.cpu{host=*}", "max:sys.cpu"]);
        let result = execute(&engine, request).await.unwrap();
        let counts: Vec<usize> = result.sub_results.iter().map(|sub| sub.series.len()).collect();
        assert_eq!(counts, [4, 1], "{max_scans}");
        let scans: Vec<usize> = result.stats.sub_queries.iter().map(|s| s.scanners.len()).collect();
        assert_eq!(scans, [20, 20], "{max_scans}");
        assert_eq!(engine.reads().queries().await.running[0].scans, (40, 40), "{max_scans}");
    }
}

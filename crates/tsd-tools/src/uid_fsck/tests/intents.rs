//! Issue 37: a kill while a name is changed leaves one name.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tsd_storage::{
    CellBatch, CellRef, FaultyStorage, HookedStorage, MemoryStorage, Operation, OperationHook,
    Storage, StorageError, StorageExt,
};

use bytes::Bytes;
use tsd_engine::{
    Engine, EngineConfig, EngineHandle, Finished, Intent, Intents, NameChange, UidTable,
    testing::{TestStore, config, dump, put_one, start, store},
};
use tsd_meta::UidError;
use tsd_model::{Family, Uid, UidKind};

use crate::{FsckLevel, UidFsckOptions, UidFsckReport, uid_fsck};

const KIND: UidKind = UidKind::Metric;

/// A process that is killed after some writes to its store: all later writes fail.
#[derive(Debug)]
struct KilledAfter {
    writes: AtomicUsize,
    limit: usize,
    /// The last write takes effect, but its result is lost.
    loses_last_result: bool,
}

impl OperationHook for KilledAfter {
    async fn around<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> Result<T, StorageError> {
        if !is_write(operation) {
            return call.await;
        }
        let before = self.writes.fetch_add(1, Ordering::SeqCst);
        if before >= self.limit {
            return Err(StorageError::Closed);
        }
        let result = call.await;
        let is_lost = self.loses_last_result && before + 1 == self.limit;
        if is_lost { Err(StorageError::Closed) } else { result }
    }
}

/// Lets other tasks run before and after each call, as often as a generator says.
#[derive(Debug)]
struct Yielding(AtomicU64);

impl Yielding {
    async fn pause(&self) {
        let next = |x: u64| x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let state = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |x| Some(next(x)));
        for _ in 0..(state.unwrap() >> 33) % 4 {
            tokio::task::yield_now().await;
        }
    }
}

impl OperationHook for Yielding {
    async fn around<T: Send>(
        &self,
        _operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> Result<T, StorageError> {
        self.pause().await;
        let result = call.await;
        self.pause().await;
        result
    }
}

const fn is_write(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Put
            | Operation::CompareAndSet
            | Operation::CompareAndDelete
            | Operation::Delete
            | Operation::Increment
            | Operation::Append
    )
}

/// A store with a point of the metric `old`, whose name has a UIDMeta.
async fn with_old() -> Arc<TestStore> {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "old", "host=a", 1_356_998_400, 1).await.unwrap();
    plant(&store, &[0, 0, 1], Family::Name, "metric_meta", b"{}").await;
    drop(engine);
    store
}

async fn plant(store: &TestStore, row: &[u8], family: Family, qualifier: &str, value: &[u8]) {
    let cell = CellRef { family, qualifier: qualifier.as_bytes(), value, timestamp_ms: None };
    let table = EngineConfig::default().tables.uid;
    store.put(&table, CellBatch::single(row, cell).unwrap()).await.unwrap();
}

async fn fsck(engine: &EngineHandle, fix: bool) -> (UidFsckReport, Vec<String>) {
    let mut lines = Vec::new();
    let mut found = |level: FsckLevel, text: &str| lines.push(format!("{level} {text}"));
    let options = UidFsckOptions { fix, delete_unknown: fix };
    let report = uid_fsck(engine, options, &mut found).await.unwrap();
    (report, lines)
}

/// Stops a change after each of its writes. Returns the number of writes.
async fn stop_everywhere(
    loses_last_result: bool,
    change: impl AsyncFn(&EngineHandle) -> Result<(), UidError>,
    check: impl AsyncFn(&EngineHandle, &TestStore),
) -> usize {
    for limit in 0.. {
        let store = with_old().await;
        let hook = KilledAfter { writes: AtomicUsize::new(0), limit, loses_last_result };
        let killed = Arc::new(HookedStorage::with_hook(hook, Arc::clone(&store)));
        let storage: Arc<dyn Storage> =
            Arc::<HookedStorage<TestStore, KilledAfter>>::clone(&killed);
        let engine = Engine::start(config(), storage).unwrap();
        let result = change(&engine).await;
        let writes = killed.hook().writes.load(Ordering::SeqCst);
        drop(engine);

        let restarted = start(config(), &store);
        check(&restarted, &store).await;
        let (report, lines) = fsck(&restarted, false).await;
        assert_eq!((report.errors, lines.iter().any(|line| line.contains("change"))), (0, false));
        let Intents { found, unreadable } = restarted.uids().table().intents().await.unwrap();
        let is_none_left = found.is_empty() && unreadable.is_empty();
        assert!(is_none_left, "an intent is left after {limit} writes");
        if result.is_ok() && writes < limit {
            return writes;
        }
    }
    0
}

async fn number_of(engine: &EngineHandle, name: &str) -> Option<u64> {
    engine.uids().uid_of(KIND, name).await.ok().map(Uid::to_number)
}

#[tokio::test]
async fn a_kill_during_a_rename_leaves_the_old_name_or_the_new_one() {
    for loses_last_result in [false, true] {
        let rename = async |engine: &EngineHandle| engine.rename_uid(KIND, "old", "new").await;
        let writes = stop_everywhere(loses_last_result, rename, async |engine, _| {
            let (old, new) = (number_of(engine, "old").await, number_of(engine, "new").await);
            assert!(matches!((old, new), (Some(1), None) | (None, Some(1))), "{old:?} {new:?}");
            let name = engine.uids().name_of(KIND, Uid::from_number(1, 3).unwrap()).await.unwrap();
            assert_eq!(name, if old.is_some() { "old" } else { "new" });
            // Points of either name join the existing points.
            put_one(engine, &name, "host=a", 1_356_998_401, 1).await.unwrap();
            assert_eq!(number_of(engine, &name).await, Some(1));
        })
        .await;
        assert_eq!(writes, 5);
    }
}

#[tokio::test]
async fn a_kill_during_a_delete_leaves_the_whole_name_or_nothing_of_it() {
    for loses_last_result in [false, true] {
        let delete = async |engine: &EngineHandle| engine.delete_uid(KIND, "old").await.map(|_| ());
        let writes = stop_everywhere(loses_last_result, delete, async |engine, store| {
            let table = EngineConfig::default().tables.uid;
            let cells = dump(store, &table).await;
            let of_metric: Vec<_> = cells
                .iter()
                .filter(|cell| cell.contains("metric") && !cell.starts_with("00 "))
                .collect();
            let is_there = number_of(engine, "old").await.is_some();
            assert_eq!(of_metric.len(), if is_there { 3 } else { 0 }, "{of_metric:?}");
        })
        .await;
        assert_eq!(writes, 5);
    }
}

#[tokio::test]
async fn an_interrupted_change_is_finished_by_the_next_one_and_by_fsck() {
    let intent = |from: &'static [u8], to: &'static [u8]| Intent {
        kind: KIND,
        uid: Uid::from_number(1, 3).unwrap(),
        change: NameChange::Rename { from: from.into(), to: to.into(), named: Some(from.into()) },
    };
    for by_fsck in [false, true] {
        let store = with_old().await;
        let engine = start(config(), &store);
        let table = engine.uids().table().clone();
        assert!(table.store_intent(&intent(b"old", b"new")).await.unwrap());
        assert!(!table.store_intent(&intent(b"old", b"other")).await.unwrap(), "one at a time");
        let (report, lines) = fsck(&engine, false).await;
        assert_eq!((report.errors, report.warnings, report.repairs), (0, 1, 0), "{lines:?}");
        assert!(lines.first().unwrap().contains("rename of metrics old to new"), "{lines:?}");
        if by_fsck {
            let (report, lines) = fsck(&engine, true).await;
            assert_eq!((report.errors, report.warnings, report.repairs), (0, 0, 1), "{lines:?}");
            assert_eq!(number_of(&engine, "new").await, Some(1));
        } else {
            let missing = engine.rename_uid(KIND, "old", "other").await.unwrap_err();
            assert!(matches!(missing, UidError::NoSuchName { .. }), "{missing}");
            engine.rename_uid(KIND, "new", "other").await.unwrap();
            assert_eq!(number_of(&engine, "other").await, Some(1));
        }
        assert_eq!(number_of(&engine, "old").await, None);
        assert_eq!(fsck(&engine, false).await.0.errors, 0);
    }
}

#[tokio::test]
async fn a_rename_to_a_name_that_another_daemon_assigns_meanwhile_changes_nothing() {
    let store = with_old().await;
    let engine = start(config(), &store);
    let intent = Intent {
        kind: KIND,
        uid: Uid::from_number(1, 3).unwrap(),
        change: NameChange::Rename {
            from: "old".into(),
            to: "new".into(),
            named: Some("old".into()),
        },
    };
    assert!(engine.uids().table().store_intent(&intent).await.unwrap());
    put_one(&engine, "new", "host=a", 1_356_998_400, 1).await.unwrap();
    let finished = engine.uids().table().finish_intent(&intent).await.unwrap();
    assert_eq!(finished, Finished::Taken(Bytes::from_static(&[0, 0, 2])));
    assert_eq!(
        (number_of(&engine, "old").await, number_of(&engine, "new").await),
        (Some(1), Some(2))
    );
    assert_eq!(fsck(&engine, false).await.0.errors, 0);
}

#[tokio::test]
async fn an_intent_may_be_finished_by_several_daemons_at_once() {
    for seed in 0..200 {
        let store = with_old().await;
        let uids = start(config(), &store).uids().table().clone();
        let hook = Yielding(AtomicU64::new(seed));
        let storage: Arc<dyn Storage> = Arc::new(
            HookedStorage::<FaultyStorage<MemoryStorage>, _>::with_hook(hook, Arc::clone(&store)),
        );
        let change = if seed % 4 == 3 {
            NameChange::Delete { name: "old".into() }
        } else {
            NameChange::Rename { from: "old".into(), to: "new".into(), named: Some("old".into()) }
        };
        let is_rename = matches!(change, NameChange::Rename { .. });
        let intent = Intent { kind: KIND, uid: Uid::from_number(1, 3).unwrap(), change };
        assert!(uids.store_intent(&intent).await.unwrap());
        let slow = UidTable { storage, ..uids };
        let finish = || slow.finish_intent(&intent);
        let (a, b, c) = tokio::join!(finish(), finish(), finish());
        for finished in [a, b, c] {
            assert_eq!(finished.unwrap(), Finished::Made, "{seed}");
        }
        let engine = start(config(), &store);
        let names = (number_of(&engine, "old").await, number_of(&engine, "new").await);
        assert_eq!(names, (None, is_rename.then_some(1)), "{seed}");
        assert_eq!(fsck(&engine, false).await.0.errors, 0, "{seed}");
    }
}

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tsd_meta::UidError;
use tsd_model::{Family, TableSchema, UidKind};
use tsd_storage::{
    CellBatch, CellRef, Column, Fault, Get, Operation, Storage, StorageError, StorageExt, Table,
};

use super::*;
use crate::{
    EngineConfig, EngineHandle, NameText, PutError, WhiteList,
    testing::{TestStore, cells, config, dump, put, put_one, start, store},
};

fn uid_table() -> Table {
    EngineConfig::default().tables.uid
}

/// Checks both directions of the UID table against each other. Returns the UIDs by kind and name.
pub(super) async fn checked_names(store: &TestStore) -> BTreeMap<(String, Vec<u8>), Vec<u8>> {
    let (mut forward, mut reverse, mut counters) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (row, cell) in cells(store, &uid_table()).await {
        let kind = String::from_utf8(cell.qualifier.to_vec()).unwrap();
        match cell.family {
            Family::Id if row == [0] => {
                let count = i64::from_be_bytes(cell.value.as_ref().try_into().unwrap());
                counters.insert(kind, usize::try_from(count).unwrap());
            }
            Family::Id => assert!(forward.insert((kind, row), cell.value.to_vec()).is_none()),
            _ => assert!(reverse.insert((kind, cell.value.to_vec()), row).is_none()),
        }
    }
    assert_eq!(forward, reverse, "every mapping has its counterpart");
    for (kind, count) in counters {
        let names = forward.keys().filter(|(k, _)| *k == kind).count();
        assert_eq!(count, names, "the counter of {kind} has no gap");
    }
    forward
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrently_created_series_get_one_uid_each() {
    // Every name is new to some tasks while other tasks assign it.
    new_series_from_many_connections(2_000, 37, 2_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_thousand_new_series_get_one_uid_each() {
    // Two tasks send each name.
    new_series_from_many_connections(100_000, 6_250, 12_500).await;
}

/// Puts a point of each of `hosts` series from 16 tasks: task `i` puts `walk` series from `i *
/// stride` on.
async fn new_series_from_many_connections(hosts: usize, stride: usize, walk: usize) {
    let store = store();
    let mut config = config();
    // Independent of the load of the machine.
    config.ingest.queue_deadline = Duration::from_mins(10);
    config.ingest.store_deadline = Duration::from_mins(10);
    let engine = start(config, &store);
    let tasks = 16_usize;
    let mut joined = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let engine = engine.clone();
        joined.spawn(async move {
            let mut session = engine.ingest_session(NameText::Latin1);
            for chunk in 0..10 {
                for i in 0..walk / 10 {
                    let host = (chunk * (walk / 10) + i + task * stride) % hosts;
                    let tags = format!("host=web{host} cpu={}", host % 7);
                    put(&mut session, &format!("m.{}", host % 50), &tags, 1_356_998_400, 1, 0)
                        .unwrap();
                }
                let report = session.commit().await;
                assert_eq!(report.stored, walk / 10, "{:?}", report.failures.first());
            }
        });
    }
    joined.join_all().await;
    let names = checked_names(&store).await;
    assert_eq!(names.len(), 50 + 2 + hosts + 7);
    let data = cells(&store, &EngineConfig::default().tables.data).await;
    assert_eq!(data.len(), hosts, "one cell per series");
}

#[tokio::test]
async fn names_are_numbered_as_in_opentsdb() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "sys.cpu", "cpu=zero host=web01", 1_356_998_400, 1).await.unwrap();
    for (kind, name, number) in [
        (UidKind::Metric, "sys.cpu", 1),
        (UidKind::Tagk, "host", 1),
        (UidKind::Tagk, "cpu", 2),
        (UidKind::Tagv, "web01", 1),
        (UidKind::Tagv, "zero", 2),
    ] {
        let uid = engine.uids().uid_of(kind, name).await.unwrap();
        assert_eq!(uid.to_number(), number, "{name}");
        assert_eq!(engine.uids().name_of(kind, uid).await.unwrap(), name);
    }
    // Points of one chunk are numbered as if sent one by one.
    let mut session = engine.ingest_session(NameText::Utf8);
    put(&mut session, "b", "x=1 host=h2", 1, 1, 0).unwrap();
    put(&mut session, "a", "w=1 host=h1", 1, 1, 1).unwrap();
    assert_eq!(session.commit().await.stored, 2);
    for (kind, name, number) in [
        (UidKind::Metric, "b", 2),
        (UidKind::Metric, "a", 3),
        (UidKind::Tagk, "x", 3),
        (UidKind::Tagk, "w", 4),
    ] {
        assert_eq!(engine.uids().uid_of(kind, name).await.unwrap().to_number(), number, "{name}");
    }
    checked_names(&store).await;
}

async fn stored_names(store: &TestStore) -> Vec<(String, Vec<u8>)> {
    checked_names(store).await.into_keys().collect()
}

#[tokio::test]
async fn names_after_a_rejected_name_are_not_created() {
    let kind_names = |names: &[(UidKind, &str)]| {
        names
            .iter()
            .map(|(k, n)| (k.as_str().to_owned(), n.as_bytes().to_vec()))
            .collect::<Vec<_>>()
    };
    for many in [false, true] {
        let store = store();
        let mut settings = config();
        settings.uids.auto_create_tagks = false;
        let engine = start(settings, &store);
        engine.uids().assign(UidKind::Tagk, "host").await.unwrap();
        let mut session = engine.ingest_session(NameText::Utf8);
        put(&mut session, "m", "host=a cpu=1", 1, 1, 5).unwrap();
        if many {
            put(&mut session, "m", "cpu=2 host=b", 1, 1, 6).unwrap();
        }
        let report = session.commit().await;
        assert_eq!(report.failures.len(), 1 + usize::from(many));
        for failure in report.failures {
            assert!(matches!(
                failure.error,
                PutError::Uid(UidError::NoSuchName { kind: UidKind::Tagk, ref name }) if name == "cpu"
            ));
        }
        // `host` is before `cpu` in the hash map, so its value is created.
        let mut expected =
            vec![(UidKind::Metric, "m"), (UidKind::Tagk, "host"), (UidKind::Tagv, "a")];
        if many {
            expected.push((UidKind::Tagv, "b"));
        }
        assert_eq!(stored_names(&store).await, kind_names(&expected));
    }
    let store = store();
    let engine = start(EngineConfig::default(), &store);
    let error = put_one(&engine, "m", "host=a", 1, 1).await.unwrap_err();
    assert!(matches!(
        error,
        PutError::Uid(UidError::NoSuchName { kind: UidKind::Metric, ref name }) if name == "m"
    ));
    assert!(stored_names(&store).await.is_empty(), "an unknown metric creates no tags");
}

#[tokio::test]
async fn white_list_rejects_new_names() {
    let store = store();
    let mut settings = config();
    settings.uids.filter =
        Some(WhiteList { metric_patterns: vec!["^sys".into()], ..WhiteList::default() });
    let engine = start(settings, &store);
    let error = put_one(&engine, "my.cpu", "host=a", 1, 1).await.unwrap_err();
    assert!(matches!(error, PutError::Uid(UidError::BlockedByFilter { .. })));
    assert!(put_one(&engine, "sys.cpu", "host=a", 1, 1).await.is_ok());
    assert_eq!(stored_names(&store).await.len(), 3);
    assert!(engine.uids().assign(UidKind::Metric, "other").await.is_err());
}

async fn plant(store: &TestStore, row: &[u8], family: Family, kind: UidKind, value: &[u8]) {
    let cell = CellRef { family, qualifier: kind.as_str().as_bytes(), value, timestamp_ms: None };
    store.inner().put(&uid_table(), CellBatch::single(row, cell).unwrap()).await.unwrap();
}

async fn set_counter(store: &TestStore, kind: UidKind, count: i64) {
    plant(store, &[0], Family::Id, kind, &count.to_be_bytes()).await;
}

#[tokio::test]
async fn last_uid_is_assigned_and_then_none() {
    let store = store();
    set_counter(&store, UidKind::Metric, 0xFF_FFFE).await;
    let engine = start(config(), &store);
    put_one(&engine, "last", "host=a", 1, 1).await.unwrap();
    assert_eq!(engine.uids().uid_of(UidKind::Metric, "last").await.unwrap().to_number(), 0xFF_FFFF);
    for _ in 0..2 {
        let error = put_one(&engine, "more", "host=b", 1, 1).await.unwrap_err();
        assert!(matches!(
            error,
            PutError::Uid(UidError::AllAssigned { kind: UidKind::Metric, width: 3 })
        ));
    }
    let counter = UidTable::counter(UidKind::Metric);
    let sum = store.inner().increment(&uid_table(), counter, 0).await.unwrap();
    assert_eq!(sum, 0x100_0001, "every attempt increments the counter");
    assert!(engine.uids().uid_of(UidKind::Tagv, "b").await.is_err(), "no tags are created");
}

#[tokio::test]
async fn stale_counter_skips_one_taken_number_and_fails_on_two() {
    let store = store();
    for uid in 1..=3_u8 {
        plant(&store, &[0, 0, uid], Family::Name, UidKind::Tagk, b"taken").await;
    }
    set_counter(&store, UidKind::Tagk, 0).await;
    let engine = start(config(), &store);
    let error = put_one(&engine, "m", "host=a", 1, 1).await.unwrap_err();
    assert!(matches!(error, PutError::Uid(UidError::NumbersTaken { kind: UidKind::Tagk, .. })));
    let counter = UidTable::counter(UidKind::Tagk);
    assert_eq!(store.inner().increment(&uid_table(), counter, 0).await.unwrap(), 2);
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    assert_eq!(engine.uids().uid_of(UidKind::Tagk, "host").await.unwrap().to_number(), 4);
}

#[tokio::test]
async fn first_of_two_processes_wins() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "other", "host=a", 1, 1).await.unwrap();
    // The look-up misses, the other process assigns, then our compare-and-set fails.
    store.script(Operation::Increment, [Fault::Delay(Duration::from_millis(500))]);
    let (put, ()) = tokio::join!(put_one(&engine, "m", "host=a", 1, 1), async {
        while !store.is_used_up(Operation::Increment) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        plant(&store, b"m", Family::Id, UidKind::Metric, &[0, 0, 9]).await;
        plant(&store, &[0, 0, 9], Family::Name, UidKind::Metric, b"m").await;
    });
    put.unwrap();
    assert_eq!(engine.uids().uid_of(UidKind::Metric, "m").await.unwrap().to_number(), 9);
    let unused = Get::column(
        vec![0, 0, 2].into(),
        Family::Name,
        bytes::Bytes::from_static(UidKind::Metric.as_str().as_bytes()),
    );
    assert!(store.inner().get(&uid_table(), unused).await.unwrap().is_none(), "no orphan is left");
}

/// Issue 37: a query for such a name failed with the width of the counter.
#[tokio::test]
async fn the_row_of_the_counters_is_no_name() {
    let engine = start(config(), &store());
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    let uids = engine.uids();
    for name in ["\0", "nowhere"] {
        let found = uids.uid_of(UidKind::Metric, name).await;
        assert!(matches!(found, Err(UidError::NoSuchName { .. })), "{found:?}");
        let found = uids.uids_of(UidKind::Metric, &[name.to_owned()]).await;
        assert!(matches!(found[..], [Ok(None)]), "{found:?}");
    }
}

#[tokio::test]
async fn stored_uid_of_another_width_is_an_error() {
    let store = store();
    plant(&store, b"m", Family::Id, UidKind::Metric, &[1, 2]).await;
    let engine = start(config(), &store);
    let error = put_one(&engine, "m", "host=a", 1, 1).await.unwrap_err();
    assert!(matches!(error, PutError::Uid(UidError::WrongWidth { found: 2, expected: 3, .. })));
}

#[tokio::test]
async fn failed_assignment_is_not_cached() {
    let store = store();
    let engine = start(config(), &store);
    let down = || StorageError::Backend("down".into());
    for operation in [Operation::MultiGet, Operation::Increment, Operation::CompareAndSet] {
        store.script(operation, vec![Fault::Error(down()); 8]);
        let error = put_one(&engine, "m", "host=a", 1, 1).await.unwrap_err();
        assert!(
            matches!(error, PutError::Storage(StorageError::Backend(_))),
            "{operation:?}: {error}"
        );
        store.heal();
    }
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
    engine.uids().uid_of(UidKind::Metric, "m").await.unwrap();
}

#[tokio::test]
async fn lost_acknowledgement_leaves_at_worst_an_orphan() {
    for operation in [Operation::Increment, Operation::CompareAndSet] {
        let store = store();
        let engine = start(config(), &store);
        let lost = Fault::LostAck(StorageError::Timeout("test"));
        store.script(operation, [lost]);
        put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
        let uid = engine.uids().uid_of(UidKind::Metric, "m").await.unwrap();
        engine.drop_caches();
        assert_eq!(engine.uids().name_of(UidKind::Metric, uid).await.unwrap(), "m");
        assert_eq!(engine.uids().uid_of(UidKind::Metric, "m").await.unwrap(), uid);
    }
}

/// Puts a point of each of twenty new hosts at once.
async fn put_hosts(engine: &EngineHandle) -> usize {
    let mut session = engine.ingest_session(NameText::Latin1);
    for host in 0..20 {
        put(&mut session, "m", &format!("host=web{host}"), 1, 1, 0).unwrap();
    }
    session.commit().await.stored
}

#[tokio::test]
async fn many_names_skip_taken_numbers() {
    let store = store();
    for uid in [3_u8, 7, 8] {
        plant(&store, &[0, 0, uid], Family::Name, UidKind::Tagv, b"taken").await;
    }
    let engine = start(config(), &store);
    assert_eq!(put_hosts(&engine).await, 20);
    let mut numbers = Vec::new();
    for host in 0..20 {
        let name = format!("web{host}");
        let uid = engine.uids().uid_of(UidKind::Tagv, &name).await.unwrap();
        engine.drop_caches();
        assert_eq!(engine.uids().name_of(UidKind::Tagv, uid).await.unwrap(), name);
        numbers.push(uid.to_number());
    }
    numbers.sort_unstable();
    let expected = (1..=23).filter(|number| ![3, 7, 8].contains(number));
    assert_eq!(numbers, expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn a_lost_put_of_many_names_leaves_at_worst_orphans() {
    for fault in
        [Fault::Error(StorageError::Timeout("test")), Fault::LostAck(StorageError::Timeout("test"))]
    {
        let is_lost = matches!(fault, Fault::LostAck(_));
        let store = store();
        let engine = start(config(), &store);
        // The first put to the store writes the mappings.
        store.script(Operation::Put, [fault]);
        assert_eq!(put_hosts(&engine).await, 20);
        let (mut forward, mut reverse) = (BTreeMap::new(), BTreeMap::new());
        for (row, cell) in cells(&store, &uid_table()).await {
            if *cell.qualifier != *b"tagv" || row == [0] {
                continue;
            }
            if cell.family == Family::Id {
                forward.insert(cell.value.to_vec(), row);
            } else {
                reverse.insert(row, cell.value.to_vec());
            }
        }
        assert_eq!(forward.len(), 20);
        assert!(forward.iter().all(|(uid, name)| reverse.get(uid) == Some(name)));
        assert_eq!(reverse.len(), if is_lost { 40 } else { 20 });
    }
}

#[tokio::test]
async fn random_metric_uids_do_not_use_the_counter() {
    let store = store();
    let mut settings = config();
    settings.uids.random_metrics = true;
    let engine = start(settings, &store);
    for i in 0..20 {
        put_one(&engine, &format!("m{i}"), "host=a", 1, 1).await.unwrap();
    }
    let counter = UidTable::counter(UidKind::Metric);
    assert_eq!(store.inner().increment(&uid_table(), counter, 0).await.unwrap(), 0);
    for i in 0..20 {
        let uid = engine.uids().uid_of(UidKind::Metric, &format!("m{i}")).await.unwrap();
        assert_eq!((uid.width(), uid.to_number() > 0), (3, true));
    }
}

#[tokio::test]
async fn suggestions_are_names_with_the_prefix_in_byte_order() {
    let store = store();
    let engine = start(config(), &store);
    for name in ["sys.cpu.user", "sys.cpu.nice", "sys.mem", "sys.cpu.idle"] {
        engine.uids().assign(UidKind::Metric, name).await.unwrap();
    }
    engine.uids().assign(UidKind::Tagk, "sys.cpu").await.unwrap();
    let suggest =
        async |prefix, max| engine.uids().suggest(UidKind::Metric, prefix, max).await.unwrap();
    assert_eq!(suggest("sys.cpu", 25).await, ["sys.cpu.idle", "sys.cpu.nice", "sys.cpu.user"]);
    assert_eq!(suggest("", 1).await, ["sys.cpu.idle"]);
    assert_eq!(suggest("x", 25).await, [""; 0]);
    // Issue 37. Names that begin with a letter above `~` were left out.
    engine.uids().assign(UidKind::Tagv, "\u{e9}tage").await.unwrap();
    assert_eq!(engine.uids().suggest(UidKind::Tagv, "", 25).await.unwrap(), ["\u{e9}tage"]);
}

#[tokio::test]
async fn a_search_counts_all_names_and_returns_the_first_ones() {
    let store = store();
    let engine = start(config(), &store);
    for name in ["sys.cpu.user", "app.cpu", "sys.mem", "sys.CPU.idle"] {
        engine.uids().assign(UidKind::Metric, name).await.unwrap();
    }
    engine.uids().assign(UidKind::Tagk, "cpu").await.unwrap();
    let search = async |part: &str, max, is_shown: Option<ShownNames<'static>>| {
        let mut search = engine.uids().search(UidKind::Metric, part, max, is_shown);
        let mut names = Vec::new();
        while let Some(batch) = search.next_batch().await.unwrap() {
            names.extend(batch);
        }
        (names.join(" "), search.matching())
    };
    assert_eq!(search("cpu", 9, None).await, ("app.cpu sys.CPU.idle sys.cpu.user".to_owned(), 3));
    assert_eq!(search("cpu", 1, None).await, ("app.cpu".to_owned(), 3));
    assert_eq!(search("", 1, None).await, ("app.cpu".to_owned(), 4));
    assert_eq!(search("absent", 9, None).await, (String::new(), 0));
    let of_sys: ShownNames<'static> = Box::new(|name| name.starts_with(b"sys."));
    assert_eq!(search("mem", 9, Some(of_sys)).await, ("sys.mem".to_owned(), 1));
}

async fn both(engine: &EngineHandle, name: &str) -> Option<u64> {
    engine.uids().uid_of(UidKind::Tagv, name).await.ok().map(tsd_model::Uid::to_number)
}

#[tokio::test]
async fn renamed_name_is_not_cached() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=old", 1, 1).await.unwrap();
    engine.rename_uid(UidKind::Tagv, "old", "new").await.unwrap();
    assert_eq!((both(&engine, "old").await, both(&engine, "new").await), (None, Some(1)));
    put_one(&engine, "m", "host=old", 1, 1).await.unwrap();
    assert_eq!(both(&engine, "old").await, Some(2), "the old name is new");
    assert!(matches!(
        engine.rename_uid(UidKind::Tagv, "old", "new").await,
        Err(UidError::NameTaken { .. })
    ));
    assert!(matches!(
        engine.uids().assign(UidKind::Tagv, "a b").await,
        Err(UidError::IllegalName { character: Some(' '), .. })
    ));
    assert_eq!(dump(&store, &uid_table()).await.iter().filter(|c| c.contains("tagv")).count(), 5);
}

#[tokio::test]
async fn too_many_pending_names_are_throttled() {
    let store = store();
    let mut settings = config();
    settings.uids.max_pending = 3;
    let engine = start(settings, &store);
    let mut session = engine.ingest_session(NameText::Utf8);
    for i in 0..6 {
        put(&mut session, "m", &format!("host={i}"), 1, 1, i).unwrap();
    }
    let report = session.commit().await;
    assert!(report.failures.iter().all(|f| matches!(f.error, PutError::Throttled(_))));
    assert!(!report.failures.is_empty() && report.stored + report.failures.len() == 6);
}

#[tokio::test]
async fn names_beyond_the_rate_wait_and_none_fails() {
    let store = store();
    let mut settings = config();
    settings.uids.max_new_per_second = 20;
    let engine = start(settings, &store);
    let mut session = engine.ingest_session(NameText::Utf8);
    for i in 0..28 {
        put(&mut session, "m", &format!("host={i}"), 1, 1, i).unwrap();
    }
    let report = session.commit().await;
    assert_eq!((report.stored, report.failures.len()), (28, 0), "{:?}", report.failures);
    // Two names begin at once. The others come in batches of twenty and eight, more than a second's worth of names.
    let delayed = &engine.uids().resolver.stats.delayed;
    assert_eq!(delayed.load(std::sync::atomic::Ordering::Relaxed), 28);
}

#[tokio::test]
async fn panicked_assigner_fails_its_points_and_restarts() {
    let store = store();
    let engine = start(config(), &store);
    store.script(Operation::MultiGet, [Fault::Delay(Duration::from_millis(500))]);
    let assigner = &engine.uids().resolver.assigner;
    let (put, ()) = tokio::join!(put_one(&engine, "m", "host=a", 1, 1), async {
        while !store.is_used_up(Operation::MultiGet) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assigner.try_send(UidMessage::Panic).ok().unwrap();
    });
    assert!(matches!(put, Err(PutError::Uid(UidError::Lost))));
    put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
}

#[test]
fn schema_widths_are_used() {
    let table = UidTable {
        storage: store(),
        table: uid_table(),
        schema: TableSchema::try_new(4, 2, 5, 0, 20).unwrap(),
    };
    let cell = |value: &'static [u8]| tsd_model::Cell {
        family: Family::Id,
        qualifier: bytes::Bytes::from_static(b"tagv"),
        value: bytes::Bytes::from_static(value),
        timestamp_ms: 0,
    };
    assert!(table.uid_in(UidKind::Tagv, b"v", &cell(&[0, 0, 0, 0, 1])).is_ok());
    assert!(table.uid_in(UidKind::Tagk, b"v", &cell(&[0, 0, 0, 0, 1])).is_err());
    let Column { row, family, .. } = UidTable::counter(UidKind::Tagv);
    assert_eq!((&row[..], family), (&[0][..], Family::Id));
    let _: Arc<dyn Storage> = table.storage;
}

#[tokio::test]
async fn a_deleted_name_takes_its_uidmeta_along_but_not_what_another_name_has() {
    let store = store();
    let engine = start(config(), &store);
    put_one(&engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
    let put_cell = async |row: &[u8], family, qualifier: &[u8], value: &[u8]| {
        let cell = CellRef { family, qualifier, value, timestamp_ms: None };
        store.put(&uid_table(), CellBatch::single(row, cell).unwrap()).await.unwrap();
    };
    put_cell(&[0, 0, 1], Family::Name, b"metric_meta", b"{}").await;
    put_cell(&[0, 0, 1], Family::Name, b"tagk_meta", b"{}").await;
    let uid = engine.delete_uid(UidKind::Metric, "m").await.unwrap();
    assert_eq!(uid.to_number(), 1);
    let missing = engine.delete_uid(UidKind::Metric, "m").await.unwrap_err();
    assert!(matches!(missing, UidError::NoSuchName { .. }), "{missing}");
    let kept: Vec<_> = cells(&store, &uid_table()).await;
    let of_uid = kept.iter().filter(|(row, _)| *row == [0, 0, 1]);
    let columns: Vec<_> = of_uid.map(|(_, cell)| cell.qualifier.to_vec()).collect();
    assert_eq!(columns, [&b"tagk"[..], b"tagk_meta", b"tagv"]);
    // The name is not cached, and its former UID is not used again.
    put_one(&engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
    assert_eq!(engine.uids().uid_of(UidKind::Metric, "m").await.unwrap().to_number(), 2);
    // Two names share a UID: its stored cells belong to the other name.
    put_cell(b"n", Family::Id, b"metrics", &[0, 0, 2]).await;
    engine.delete_uid(UidKind::Metric, "n").await.unwrap();
    let uid = tsd_model::Uid::from_number(2, 3).unwrap();
    assert_eq!(engine.uids().name_of(UidKind::Metric, uid).await.unwrap(), "m");
    checked_forward(&engine, "m", 2).await;
}

async fn checked_forward(engine: &EngineHandle, name: &str, number: u64) {
    let found = engine.uids().mappings_of_name(Some(UidKind::Metric), name).await.unwrap();
    let numbers: Vec<_> = found.iter().map(|m| tsd_model::Uid::number_of(&m.uid)).collect();
    assert_eq!(numbers, [number], "{name}");
}

#[tokio::test]
async fn assignment_by_the_command_line_accepts_what_can_be_stored() {
    let store = store();
    let mut config = config();
    config.uids.filter =
        Some(WhiteList { metric_patterns: vec!["^x".into()], ..WhiteList::default() });
    let engine = start(config, &store);
    let assign = async |name| engine.uids().get_or_assign(UidKind::Metric, name).await;
    for (name, number) in [("bad$name", 1), ("\u{e4} b", 2), ("bad$name", 1)] {
        assert_eq!(assign(name).await.unwrap().to_number(), number, "{name}");
    }
    // The last name is the row of the counters.
    for name in ["", "\u{4e2d}", "\0"] {
        let refused = assign(name).await.unwrap_err();
        assert!(matches!(refused, UidError::IllegalName { .. }), "{name:?}: {refused}");
    }
    checked_names(&store).await;
}

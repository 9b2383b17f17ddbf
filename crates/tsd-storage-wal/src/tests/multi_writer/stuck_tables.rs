//! One table cannot be flushed while another can.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicU64},
};

use tsd_files::DiskSpace;
use tsd_storage::{HealthImpact, HealthProblem, StorageExt, StoreComponent};

use super::*;
use crate::Damage;

const LIMIT: u64 = 400_000;

fn stuck_config() -> WalConfig {
    WalConfig {
        max_log_bytes: Some(LIMIT),
        max_age: Duration::from_millis(20),
        stuck_after: Duration::ZERO,
        ..config()
    }
}

fn other() -> Table {
    let [_, other] = conformance::tables();
    other
}

/// The errors of a table that is gone permanently, and of a disabled table.
fn errors() -> [StorageError; 2] {
    [StorageError::Backend("no permission".into()), StorageError::Unavailable("disabled".into())]
}

fn fail(backend: &RowFaultBackend, error: &StorageError) {
    backend.failing.lock().push((data(), error.clone()));
}

fn heal(backend: &RowFaultBackend) {
    backend.failing.lock().clear();
}

async fn put_to(store: &Store, table: &Table, key: u32) -> Result<(), StorageError> {
    store.put(table, cells(&key.to_be_bytes(), &[(b"q", &[7; 2_000])])).await
}

/// Puts a row, and retries while it is rejected temporarily.
async fn put_soon(store: &Store, table: &Table, key: u32) {
    while let Err(error) = put_to(store, table, key).await {
        assert_eq!(error.recovery(), tsd_storage::Recovery::RetryLater, "{error}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn keys(store: &impl Storage, table: &Table) -> Vec<u32> {
    let rows = contents(store, table).await;
    rows.iter().map(|(key, _)| u32::from_be_bytes(key.as_ref().try_into().unwrap())).collect()
}

fn survivors(disk: &FaultyDisk) -> Vec<String> {
    let files = disk.contents_without("log.state").into_keys();
    files.filter(|name| name.starts_with("survivors-")).collect()
}

async fn wait_for_survivors(disk: &FaultyDisk) {
    while survivors(disk).is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A store whose data table is stuck: `rows` rows of it are relocated, and as many rows of the other table are
/// flushed.
async fn stuck(rows: u32, error: &StorageError) -> (Store, Arc<RowFaultBackend>, FaultyDisk) {
    let (store, backend, disk) = open_new(stuck_config()).await;
    fail(&backend, error);
    for key in 0..rows {
        put_soon(&store, &data(), key).await;
        put_soon(&store, &other(), key).await;
    }
    wait_for_survivors(&disk).await;
    while gauge(&store, "tsd_wal_closed_segments") > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (store, backend, disk)
}

#[tokio::test]
async fn a_table_that_cannot_be_flushed_is_refused_by_name_and_others_go_on() {
    for error in errors() {
        let (store, backend, disk) = stuck(20, &error).await;
        // Five times the capacity of the log.
        for key in 0..1_000 {
            put_soon(&store, &other(), key).await;
        }
        assert_eq!(gauge(&store, "tsd_wal_backend_unavailable"), 0);
        assert_eq!(gauge(&store, "tsd_wal_stuck_tables"), 1);
        let mut acknowledged = 20;
        let refused = loop {
            match put_to(&store, &data(), acknowledged).await {
                Ok(()) => acknowledged += 1,
                Err(error) => break error,
            }
        };
        let text = refused.to_string();
        assert_eq!(refused.recovery(), tsd_storage::Recovery::RetryLater, "{text}");
        assert!(text.contains(&format!("table {}", data())), "{text}");
        assert!(text.contains("no permission") || text.contains("disabled"), "{text}");
        assert!((60..120).contains(&acknowledged), "half of the log: {acknowledged} rows");
        let problems = store.maintenance().health();
        let is_named =
            |p: &tsd_storage::HealthProblem| p.reason.contains("writes to them are refused");
        assert!(problems.iter().any(is_named), "{problems:?}");
        for key in 1_000..2_000 {
            put_soon(&store, &other(), key).await;
        }
        assert!(gauge(&store, "tsd_wal_log_bytes") <= LIMIT + LIMIT / 4);
        assert_eq!(keys(&store, &data()).await, (0..acknowledged).collect::<Vec<_>>());

        // After a kill, no row is missing, the table is stuck again, and other tables continue at once.
        store.stop().await;
        let disk = disk.after_kill();
        let store = open(&disk, &backend, stuck_config()).await;
        assert_eq!(keys(&store, &data()).await, (0..acknowledged).collect::<Vec<_>>());
        for key in 2_000..3_000 {
            put_soon(&store, &other(), key).await;
        }
        assert!(keys(&*backend, &data()).await.is_empty());

        heal(&backend);
        put_soon(&store, &data(), acknowledged).await;
        flush_and_stop(store).await;
        assert_eq!(keys(&*backend, &data()).await, (0..=acknowledged).collect::<Vec<_>>());
        assert_eq!(keys(&*backend, &other()).await, (0..3_000).collect::<Vec<_>>());
        let files = disk.contents_without("log.state");
        assert!(files.keys().all(|name| name == "commit-time"), "{:?}", files.keys());
        let store = open(&disk, &backend, stuck_config()).await;
        assert_eq!(gauge(&store, "tsd_wal_survivor_bytes"), 0);
        flush_and_stop(store).await;
    }
}

#[tokio::test]
async fn relocated_rows_keep_their_order_with_later_writes_and_deletes() {
    let [error, _] = errors();
    let (store, backend, disk) = stuck(20, &error).await;
    put(&store, &3_u32.to_be_bytes(), b"later").await.unwrap();
    store.delete(&data(), Delete::Row(Bytes::copy_from_slice(&4_u32.to_be_bytes()))).await.unwrap();
    let before = survivors(&disk).len();
    while survivors(&disk).len() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    put(&store, &5_u32.to_be_bytes(), b"last").await.unwrap();
    let expected: Vec<u32> = (0..20).filter(|key| *key != 4).collect();
    for reopened in [false, true] {
        let store = if reopened {
            store.stop().await;
            heal(&backend);
            &open(&disk.after_kill(), &backend, stuck_config()).await
        } else {
            &store
        };
        assert_eq!(keys(store, &data()).await, expected);
        assert_eq!(value(store, &3_u32.to_be_bytes()).await.unwrap(), "later");
        assert_eq!(value(store, &5_u32.to_be_bytes()).await.unwrap(), "last");
        if reopened {
            while store.flush().await.is_err() {}
            store.stop().await;
        }
    }
    assert_eq!(keys(&*backend, &data()).await, expected);
    assert_eq!(value(&*backend, &3_u32.to_be_bytes()).await.unwrap(), "later");
    assert_eq!(value(&*backend, &5_u32.to_be_bytes()).await.unwrap(), "last");
}

#[tokio::test]
async fn a_missing_or_damaged_survivor_file_stops_the_start_without_consent() {
    let [error, _] = errors();
    for is_missing in [true, false] {
        let (store, backend, disk) = stuck(20, &error).await;
        store.stop().await;
        let disk = disk.after_kill();
        let name = survivors(&disk).remove(0);
        if is_missing {
            disk.lose(&name);
        } else {
            disk.edit(&name, |bytes| bytes[100] ^= 1);
        }
        let files = disk.all_contents();
        let opened =
            Store::open_in(stuck_config(), Arc::new(disk.clone()), Arc::clone(&backend)).await;
        let OpenError::Damaged { lost } = opened.err().unwrap() else { panic!("not damaged") };
        assert_eq!((lost[0].what, lost[0].file.ends_with(&name)), (Damage::Survivors, true));
        assert_eq!(disk.all_contents(), files, "nothing was changed");
        let accepted = WalConfig { accept_damage: true, ..stuck_config() };
        let store = open(&disk, &backend, accepted).await;
        let left = keys(&store, &data()).await;
        assert!(left.len() < 20, "{left:?}");
        store.stop().await;
        heal(&backend);
        let store = open(&disk.after_kill(), &backend, stuck_config()).await;
        assert_eq!(keys(&store, &data()).await, left);
        flush_and_stop(store).await;
        assert_eq!(keys(&*backend, &data()).await, left);
    }
}

const RESERVE: u64 = 10 << 20;
/// Space that writes to the log leave free beyond the reserve.
const LOG_MARGIN: u64 = 6 << 20;

/// A store on a disk with this many free bytes. Its memtable has 400 rows of 2000 bytes of a working table, and
/// 10 rows of a stuck table. A flush of the memtable has been requested.
async fn on_disk(free: &Arc<AtomicU64>) -> (Arc<Store>, Arc<RowFaultBackend>, FaultyDisk) {
    let probe = Arc::clone(free);
    let probe = move || Ok(probe.load(Ordering::Relaxed));
    let space = Some(Arc::new(DiskSpace::with_probe("/data", RESERVE, probe)));
    let config = WalConfig { stuck_after: Duration::ZERO, space, ..config() };
    free.store(1 << 30, Ordering::Relaxed);
    let (store, backend, disk) = open_new(config).await;
    let store = Arc::new(store);
    for key in 0..400 {
        put_to(&store, &other(), key).await.unwrap();
    }
    for key in 0..10 {
        put_to(&store, &data(), key).await.unwrap();
    }
    let [error, _] = errors();
    fail(&backend, &error);
    (store, backend, disk)
}

fn request_flush(store: &Arc<Store>) {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.flush().await });
}

fn relocation_problem(store: &Store) -> Option<HealthProblem> {
    store
        .maintenance()
        .health()
        .into_iter()
        .find(|p| p.reason.contains("a file of their own needs"))
}

async fn within_a_minute<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_mins(1), future).await;
    waited.unwrap_or_else(|_| panic!("{what}"))
}

#[tokio::test]
async fn relocation_needs_space_for_the_stuck_rows_not_for_their_memtable() {
    let free = Arc::new(AtomicU64::new(0));
    let (store, backend, disk) = on_disk(&free).await;
    let memtable_bytes = gauge(&store, "tsd_wal_memtable_bytes");
    let usable = 200_000;
    assert!(memtable_bytes > usable, "{memtable_bytes}");
    free.store(RESERVE + LOG_MARGIN + usable, Ordering::Relaxed);
    request_flush(&store);
    within_a_minute("no relocation", wait_for_survivors(&disk)).await;
    let segments = async {
        while gauge(&store, "tsd_wal_closed_segments") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within_a_minute("segments stay", segments).await;
    let written = gauge(&store, "tsd_wal_survivor_bytes");
    assert!((20_000..usable / 2).contains(&written), "{written}");
    assert_eq!(relocation_problem(&store), None);
    assert_eq!(keys(&*store, &data()).await, (0..10).collect::<Vec<_>>());
    assert_eq!(keys(&*backend, &other()).await, (0..400).collect::<Vec<_>>());
    store.stop().await;
}

#[tokio::test]
async fn relocation_may_use_the_reserve_and_tells_what_it_lacks() {
    let free = Arc::new(AtomicU64::new(0));
    let (store, _, disk) = on_disk(&free).await;
    // A quarter of the reserve stays free.
    free.store(RESERVE / 4 + 50_000, Ordering::Relaxed);
    request_flush(&store);
    let problem = async {
        loop {
            if let Some(problem) = relocation_problem(&store) {
                return problem;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let problem = within_a_minute("no problem is told", problem).await;
    assert_eq!((problem.component, problem.impact), (StoreComponent::Disk, HealthImpact::Degraded));
    let text = &problem.reason;
    assert!(
        text.contains("tsd.storage.reserve") && text.contains("2671440 bytes are free"),
        "{text}"
    );
    let needed = text.split("needs ").nth(1).and_then(|rest| rest.split(' ').next());
    let needed: u64 = needed.unwrap().parse().unwrap();
    assert!((20_000 + 65_536..120_000).contains(&needed), "{text}");
    assert!(survivors(&disk).is_empty());
    assert_eq!(keys(&*store, &data()).await, (0..10).collect::<Vec<_>>());

    // Larger segments are removed in return, so the file may use the reserve.
    free.store(RESERVE / 4 + needed, Ordering::Relaxed);
    request_flush(&store);
    within_a_minute("no relocation", wait_for_survivors(&disk)).await;
    let cleared = async {
        while relocation_problem(&store).is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within_a_minute("the problem stays", cleared).await;
    store.stop().await;
}

#[tokio::test]
async fn a_survivor_file_of_an_unknown_version_is_named_and_no_consent_opens_it() {
    let [error, _] = errors();
    let (store, backend, disk) = stuck(20, &error).await;
    store.stop().await;
    let disk = disk.after_kill();
    let name = survivors(&disk).remove(0);
    disk.edit(&name, |bytes| {
        bytes[3] = b'2';
        let crc = crc32c::crc32c(&bytes[..12]).to_be_bytes();
        bytes[12..16].copy_from_slice(&crc);
    });
    let before = disk.all_contents();
    for accept_damage in [false, true] {
        let config = WalConfig { accept_damage, ..stuck_config() };
        let opened = Store::open_in(config, Arc::new(disk.clone()), Arc::clone(&backend)).await;
        let text = opened.err().unwrap().to_string();
        assert!(text.contains(&format!("{name} has version 2, this release reads 1")), "{text}");
        assert_eq!(disk.all_contents(), before, "nothing is changed");
    }
}

/// Runs with random power cuts while a table is stuck, healed and stuck again. Returns the number of restarts
/// with relocated rows.
async fn check_power_cuts(seed: u64) -> usize {
    let mut rng = TestRng::new(seed);
    let backend = Arc::new(RowFaultBackend::new());
    let mut disk = FaultyDisk::new(seed);
    let mut acknowledged: BTreeSet<(bool, u32)> = BTreeSet::new();
    let (mut tried, mut restarts) = (0_u32, 0);
    for run in 0..5 {
        let opened =
            Store::open_in(stuck_config(), Arc::new(disk.clone()), Arc::clone(&backend)).await;
        let (store, _) = opened.unwrap_or_else(|error| panic!("seed {seed}, run {run}: {error}"));
        for is_data in [true, false] {
            let table = if is_data { data() } else { other() };
            let found = keys(&store, &table).await;
            let missing: Vec<_> = acknowledged
                .iter()
                .filter(|(of_data, key)| *of_data == is_data && !found.contains(key))
                .collect();
            assert!(missing.is_empty(), "seed {seed}, run {run}: {missing:?} of {table}");
        }
        if rng.chance(60) {
            heal(&backend);
            fail(&backend, &errors()[rng.below(2) as usize]);
        } else {
            heal(&backend);
        }
        let is_cut = rng.chance(70);
        if is_cut {
            disk.cut_power_after(5 + rng.below(250));
        }
        for _ in 0..20 + rng.below(60) {
            tried += 1;
            let is_data = rng.chance(50);
            let table = if is_data { data() } else { other() };
            if put_to(&store, &table, tried).await.is_ok() {
                acknowledged.insert((is_data, tried));
            }
            if rng.chance(20) {
                tokio::time::sleep(Duration::from_millis(rng.below(30))).await;
            }
        }
        store.stop().await;
        disk = if is_cut { disk.after_power_cut() } else { disk.after_kill() };
        restarts += usize::from(!survivors(&disk).is_empty());
    }
    heal(&backend);
    let store = open(&disk, &backend, stuck_config()).await;
    while store.flush().await.is_err() {}
    for is_data in [true, false] {
        let table = if is_data { data() } else { other() };
        let found = keys(&*backend, &table).await;
        let missing =
            acknowledged.iter().filter(|(of, key)| *of == is_data && !found.contains(key));
        assert_eq!(missing.count(), 0, "seed {seed}: in the backend");
    }
    store.stop().await;
    assert!(survivors(&disk).is_empty(), "seed {seed}");
    restarts
}

#[tokio::test]
async fn power_cuts_while_rows_are_relocated_lose_nothing() {
    let mut restarts = 0;
    for seed in 0..25 {
        restarts += check_power_cuts(seed).await;
    }
    assert!(restarts > 20, "{restarts} restarts with relocated rows");
}

//! Random operations have the same results as with the memory store.

use proptest::prelude::*;

use super::{
    model::{Model, Operation},
    *,
};

#[derive(Clone, Copy, Debug)]
enum StoreOperation {
    Write(u64),
    Flush,
    Reopen,
    Kill,
    Scan(u64),
}

fn step() -> impl Strategy<Value = StoreOperation> {
    prop_oneof![
        20 => any::<u64>().prop_map(StoreOperation::Write),
        2 => Just(StoreOperation::Flush),
        1 => Just(StoreOperation::Reopen),
        1 => Just(StoreOperation::Kill),
        3 => any::<u64>().prop_map(StoreOperation::Scan),
    ]
}

fn scan_of(seed: u64) -> Scan {
    let mut rng = TestRng::new(seed);
    let mut key = || Bytes::from(format!("r{}", rng.below(6)));
    let (start, stop) = (key(), key());
    let wide = rng.chance(50);
    Scan {
        start: if wide { Bytes::new() } else { start },
        stop: if rng.chance(50) { Bytes::new() } else { stop },
        family: rng.chance(30).then_some(Family::T),
        qualifier: rng.chance(20).then(|| Bytes::from_static(b"odd1")),
        limit: rng.chance(30).then(|| rng.below(5) as usize),
        batch_rows: rng.chance(50).then(|| 1 + rng.below(3) as usize),
        ..Scan::default()
    }
}

async fn scanned(store: &impl Storage, scan: Scan) -> Vec<(Bytes, Vec<Cell>)> {
    let mut scanner = store.scan(&data(), scan);
    let mut rows = Vec::new();
    while let Some(batch) = scanner.next_rows().await.unwrap() {
        rows.extend(batch.into_iter().map(|row| (row.key.clone(), row.into_cells().unwrap())));
    }
    without_times(rows)
}

async fn compare(steps: Vec<StoreOperation>, memtable_bytes: usize) {
    let memory = MemoryStorage::new(conformance::tables()).with_clock(clock);
    let backend = memory_backend();
    let mut disk = FaultyDisk::new(1);
    let config = || WalConfig { memtable_bytes, ..small(Path::new("faulty")) };
    let open = async |disk: &FaultyDisk| {
        let backend = Arc::clone(&backend);
        Store::open_in(config(), Arc::new(disk.clone()), backend).await.unwrap().0
    };
    let mut store = open(&disk).await;
    let mut model = Model::default();
    for step in steps {
        match step {
            StoreOperation::Write(seed) => {
                let operation = Operation::random("r", &mut TestRng::new(seed), &model);
                model.apply(&operation);
                operation.run(&memory).await.unwrap();
                operation.run(&store).await.unwrap();
            }
            StoreOperation::Flush => store.flush().await.unwrap(),
            StoreOperation::Reopen => {
                store.stop().await;
                store = open(&disk).await;
            }
            StoreOperation::Kill => {
                store.stop().await;
                disk = disk.after_kill();
                store = open(&disk).await;
            }
            StoreOperation::Scan(seed) => {
                let scan = scan_of(seed);
                assert_eq!(scanned(&store, scan.clone()).await, scanned(&memory, scan).await);
            }
        }
    }
    let expected = without_times(contents(&memory, &data()).await);
    assert_eq!(without_times(contents(&store, &data()).await), expected);
    store.flush().await.unwrap();
    assert_eq!(without_times(contents(&*backend, &data()).await), expected);
    store.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn results_equal_those_of_the_memory_store(
        steps in prop::collection::vec(step(), 1..60),
        memtable_bytes in prop_oneof![Just(1_usize), Just(100_000), Just(1 << 30)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(compare(steps, memtable_bytes));
    }
}

//! Random power cuts: acknowledged writes survive, and writes are atomic.

use super::{
    model::{Model, Operation},
    *,
};

/// A writer with its own rows, which executes one operation at a time.
struct Writer {
    owner: String,
    rng: TestRng,
    model: Model,
    /// Operations that failed since the last success. The log may contain them.
    unknown: Vec<Operation>,
}

impl Writer {
    fn new(number: u64, seed: u64) -> Self {
        Self {
            owner: format!("w{number}-"),
            rng: TestRng::new(seed ^ (number << 32)),
            model: Model::default(),
            unknown: Vec::new(),
        }
    }

    /// Executes up to `operations` operations, or until the store fails.
    async fn work(&mut self, store: &Store, operations: u64) {
        for _ in 0..operations {
            let operation = Operation::random(&self.owner, &mut self.rng, &self.model);
            match operation.run(store).await {
                Ok(()) => {
                    self.model.apply(&operation);
                    if operation.always_writes() {
                        self.unknown.clear();
                    }
                }
                Err(StorageError::DiskFull) => {}
                Err(_) => {
                    // Not visible to readers, but it may be in the log.
                    self.unknown.push(operation);
                    if self.rng.chance(50) {
                        return;
                    }
                }
            }
        }
    }

    /// Checks the rows after a restart, and continues with them.
    async fn check(&mut self, store: &Store, context: &str) {
        let found = Model::read(store, &self.owner).await;
        let mut allowed = vec![self.model.clone()];
        for operation in self.unknown.drain(..) {
            for mut with in allowed.clone() {
                with.apply(&operation);
                allowed.push(with);
            }
        }
        if !allowed.contains(&found) {
            let difference = found.difference(&self.model);
            panic!(
                "{context}: {} matches none of {} states: {difference}",
                self.owner,
                allowed.len()
            );
        }
        for (row, qualifier) in found.0.keys() {
            let get = Get::column(row.clone(), Family::T, qualifier.clone());
            let read = store.get(&data(), get).await.unwrap().unwrap();
            let value = &read.into_cells().unwrap()[0].value;
            assert_eq!(Some(value), found.0.get(&(row.clone(), qualifier.clone())));
        }
        self.model = found;
    }
}

/// Several runs on one disk, each with a random end.
async fn check_runs(seed: u64) {
    let mut rng = TestRng::new(seed);
    let mut disk = FaultyDisk::new(seed);
    let memory = MemoryStorage::new(conformance::tables()).with_clock(clock).with_log_mark();
    let backend = Arc::new(memory);
    let mut writers: Vec<Writer> = (0..3).map(|number| Writer::new(number, seed)).collect();
    for run in 0..4 {
        let context = format!("seed {seed}, run {run}");
        let config = WalConfig {
            memtable_bytes: [1, 70_000, 300_000, 1 << 30][rng.below(4) as usize],
            segment_bytes: [8_192, 32_768, 100_000][rng.below(3) as usize],
            // One to four small writes at once.
            budget: ByteBudget::new(640 * (1 + rng.below(4) as usize)),
            ..small(Path::new("faulty"))
        };
        let opened = Store::open_in(config, Arc::new(disk.clone()), Arc::clone(&backend)).await;
        let (store, _) = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
        for writer in &mut writers {
            writer.check(&store, &context).await;
        }
        let kill = rng.chance(30);
        if !kill {
            disk.cut_power_after(1 + rng.below(120));
        }
        if rng.chance(30) {
            disk.set_sync_failures(10);
        }
        if rng.chance(20) {
            disk.set_free_bytes(Some(rng.below(20_000) as usize));
        }
        let operations = 5 + rng.below(30);
        let work = writers.iter_mut().map(|writer| writer.work(&store, operations));
        futures_util::future::join_all(work).await;
        if rng.chance(20) {
            // Usually fails, because the power is off.
            let _ = store.flush().await;
        }
        store.stop().await;
        disk = if kill { disk.after_kill() } else { disk.after_power_cut() };
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_and_writes_are_atomic() {
    for seed in 0..75 {
        check_runs(seed).await;
    }
}

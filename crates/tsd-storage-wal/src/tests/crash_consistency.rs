//! The power is cut at random moments, again and again: what was acknowledged is there, and nothing
//! is there in part.

use super::{
    model::{Model, Operation},
    *,
};

/// Somebody who writes rows nobody else writes, one operation at a time.
struct Writer {
    owner: String,
    dice: Dice,
    model: Model,
    /// Operations that failed since the last that did not: the log may have them.
    unknown: Vec<Operation>,
}

impl Writer {
    fn new(number: u64, seed: u64) -> Self {
        Self {
            owner: format!("w{number}-"),
            dice: Dice::new(seed ^ (number << 32)),
            model: Model::default(),
            unknown: Vec::new(),
        }
    }

    /// Runs operations until the store fails or there were enough.
    async fn work(&mut self, store: &Store, operations: u64) {
        for _ in 0..operations {
            let operation = Operation::random(&self.owner, &mut self.dice, &self.model);
            match operation.run(store).await {
                Ok(()) => {
                    self.model.apply(&operation);
                    if operation.always_writes() {
                        self.unknown.clear();
                    }
                }
                Err(StorageError::DiskFull) => {}
                Err(_) => {
                    // What failed is not seen by readers, though it may turn out to be in the log.
                    self.unknown.push(operation);
                    if self.dice.chance(50) {
                        return;
                    }
                }
            }
        }
    }

    /// Checks what is there after a restart, and goes on from that.
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
            panic!("{context}: {} is unlike any of {}: {difference}", self.owner, allowed.len());
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

/// One disk through several lives. How each ends is up to the dice.
async fn lives(seed: u64) {
    let mut dice = Dice::new(seed);
    let mut disk = FaultyDisk::new(seed);
    let backend = backend();
    let mut writers: Vec<Writer> = (0..3).map(|number| Writer::new(number, seed)).collect();
    for life in 0..4 {
        let context = format!("seed {seed}, life {life}");
        let config = WalConfig {
            memtable_bytes: [1, 70_000, 300_000, 1 << 30][dice.roll(4) as usize],
            segment_bytes: [8_192, 32_768, 100_000][dice.roll(3) as usize],
            queue_entries: 1 + dice.roll(4) as usize,
            ..small(Path::new("faulty"))
        };
        let opened = Store::open_in(config, Arc::new(disk.clone()), Arc::clone(&backend)).await;
        let (store, _) = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
        for writer in &mut writers {
            writer.check(&store, &context).await;
        }
        let kill = dice.chance(30);
        if !kill {
            disk.cut_power_after(1 + dice.roll(120));
        }
        if dice.chance(30) {
            disk.set_sync_failures(10);
        }
        if dice.chance(20) {
            disk.set_room(Some(dice.roll(20_000) as usize));
        }
        let operations = 5 + dice.roll(30);
        let work = writers.iter_mut().map(|writer| writer.work(&store, operations));
        futures_util::future::join_all(work).await;
        if dice.chance(20) {
            // Often fails, the power being off.
            let _ = store.flush().await;
        }
        store.stop().await;
        disk = if kill { disk.after_kill() } else { disk.after_power_cut() };
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_and_nothing_is_there_in_part() {
    for seed in 0..75 {
        lives(seed).await;
    }
}

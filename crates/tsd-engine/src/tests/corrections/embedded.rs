//! Histories on the embedded store and the memory store.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use tempfile::TempDir;
use tsd_model::TableSchema;
use tsd_storage::{FlushTarget, MemoryStorage, Storage};
use tsd_storage_embedded::{EmbeddedConfig, EmbeddedStorage, EmbeddedTable};
use tsd_storage_wal::{WalConfig, WalStorage};

use super::{Ending, Mode, TestStores, check_seeds, history::Rng, log_segments, run::table};

/// The clock of all stores. Histories run one after the other.
static NOW_MS: AtomicI64 = AtomicI64::new(0);
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const START_MS: i64 = 1_400_000_000_000;

fn clock() -> i64 {
    NOW_MS.load(Ordering::Relaxed)
}

/// A log over a backend, as one daemon.
struct LoggedStores<B> {
    directory: TempDir,
    memtable_bytes: usize,
    open_backend: fn(&TempDir) -> Arc<B>,
    /// A backend in memory, kept across restarts.
    kept: Option<Arc<B>>,
    store: Option<Arc<WalStorage<B>>>,
}

impl<B: FlushTarget> LoggedStores<B> {
    async fn new(rng: &mut Rng, open_backend: fn(&TempDir) -> Arc<B>, is_kept: bool) -> Self {
        NOW_MS.store(START_MS, Ordering::Relaxed);
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let kept = is_kept.then(|| open_backend(&directory));
        // With one byte each commit rotates the memtable.
        let memtable_bytes = rng.pick(&[1, 1 << 20]);
        let mut stores = Self { directory, memtable_bytes, open_backend, kept, store: None };
        stores.open().await;
        stores
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    async fn open(&mut self) {
        let memtable_bytes = self.memtable_bytes;
        let config = WalConfig { memtable_bytes, clock, ..WalConfig::new(self.log()) };
        let backend = self.kept.clone().unwrap_or_else(|| (self.open_backend)(&self.directory));
        self.store = Some(Arc::new(WalStorage::open(config, backend).await.unwrap().0));
    }
}

impl<B: FlushTarget> TestStores for LoggedStores<B> {
    fn daemons(&self) -> usize {
        1
    }

    fn store(&self, _: usize) -> Arc<dyn Storage> {
        Arc::<WalStorage<B>>::clone(self.store.as_ref().unwrap())
    }

    async fn restart(&mut self, _: usize, how: Ending) {
        let store = self.store.take().unwrap();
        match how {
            Ending::Clean if self.kept.is_none() => store.close().await.unwrap(),
            Ending::Clean => store.flush().await.unwrap(),
            Ending::Kill => {}
            Ending::KillAfterFlush => {
                // With small memtables, rows are flushed during the copy. The copy has all older rows only if every
                // memtable is flushed.
                if self.memtable_bytes == 1 {
                    store.flush().await.unwrap();
                }
                let segments = log_segments(&self.log());
                store.flush().await.unwrap();
                store.stop().await;
                for (path, bytes) in segments {
                    fs::write(path, bytes).unwrap();
                }
            }
        }
        store.stop().await;
        drop(store);
        self.open().await;
    }

    fn move_clock(&mut self, by_ms: i64) {
        NOW_MS.fetch_add(by_ms, Ordering::Relaxed);
    }

    async fn end(self) {
        if let Some(store) = &self.store {
            store.stop().await;
        }
    }
}

/// The memory store alone. It survives every restart.
struct MemoryStores(Arc<MemoryStorage>);

impl TestStores for MemoryStores {
    fn daemons(&self) -> usize {
        1
    }

    fn store(&self, _: usize) -> Arc<dyn Storage> {
        Arc::<MemoryStorage>::clone(&self.0)
    }

    async fn restart(&mut self, _: usize, _: Ending) {}

    fn move_clock(&mut self, by_ms: i64) {
        NOW_MS.fetch_add(by_ms, Ordering::Relaxed);
    }

    async fn end(self) {}
}

fn memory(_: &TempDir) -> Arc<MemoryStorage> {
    Arc::new(MemoryStorage::new([table()]).with_clock(clock))
}

fn embedded(directory: &TempDir) -> Arc<EmbeddedStorage> {
    let path = directory.path().join("store");
    let tables = vec![EmbeddedTable::data(table())];
    let mut config = EmbeddedConfig::new(path, TableSchema::opentsdb_default(), tables);
    (config.cache_bytes, config.read_threads) = (1 << 20, 1);
    config.clock = clock;
    Arc::new(EmbeddedStorage::open(&config).unwrap())
}

const MODES: [Mode; 5] = [Mode::Newest, Mode::Refuse, Mode::Largest, Mode::Smallest, Mode::Appends];

#[tokio::test]
async fn an_acknowledged_correction_is_read_from_the_log_over_the_memory_store() {
    let _one = ONE_AT_A_TIME.lock().await;
    for mode in MODES {
        check_seeds(mode, 30, async |rng| LoggedStores::new(rng, memory, true).await).await;
    }
}

#[tokio::test]
async fn an_acknowledged_correction_is_read_from_the_embedded_store() {
    let _one = ONE_AT_A_TIME.lock().await;
    for mode in MODES {
        check_seeds(mode, 8, async |rng| LoggedStores::new(rng, embedded, false).await).await;
    }
}

#[tokio::test]
async fn an_acknowledged_correction_is_read_from_the_memory_store() {
    let _one = ONE_AT_A_TIME.lock().await;
    for mode in MODES {
        check_seeds(mode, 400, async |_| {
            NOW_MS.store(START_MS, Ordering::Relaxed);
            MemoryStores(memory(&tempfile::tempdir().unwrap()))
        })
        .await;
    }
}

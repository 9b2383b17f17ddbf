//! The trees of a store, behind the storage traits.

use parking_lot::Mutex;
use std::{collections::BTreeMap, fs, sync::Arc};

use bytes::Bytes;
use lsm_tree::{AbstractTree, Cache, DescriptorTable};
use tsd_files::{OpenedDirectory, check_directory, removed_file};
use tsd_storage::{
    ClockMs, DirectBackend, DirectStore, DirectTable, HealthImpact, HealthProblem, LogMark,
    PinnedFiles, QuarantinedFile, StorageError, StoreComponent, Table, Verifier,
};

use crate::{
    LsmConfig,
    compaction_signal::CompactionSignal,
    compactor::Compactor,
    directory::Directory,
    manifest::CURRENT,
    metrics::describe_metrics,
    pin::{pin_lists, pin_tree},
    quarantine::Quarantine,
    table::{TableContext, TableStore},
    unknown_version::unknown_version,
    verifier::TreeVerifier,
};

/// Limit on reported problems; the metric of files in quarantine counts all files.
const MAX_PROBLEMS: usize = 32;

/// A separate store of small tables in trees.
pub type LsmStorage = DirectStore<LsmTables>;

/// Small tables, each in a tree. Damaged files are quarantined, also at the start.
#[derive(Debug)]
pub struct LsmTables {
    tables: BTreeMap<Table, Arc<TableStore>>,
    signal: Arc<CompactionSignal>,
    cache: CacheHandle,
    quarantine: Arc<StoreQuarantine>,
    // Dropped in this order.
    compactor: Mutex<Option<Compactor>>,
    /// Directories of the trees.
    trees: Vec<OpenedDirectory>,
    directory: Directory,
}

/// The quarantine with the trees of the open tables.
#[derive(Debug)]
struct StoreQuarantine {
    files: Arc<Quarantine>,
    trees: BTreeMap<Table, String>,
}

impl tsd_storage::Quarantine for StoreQuarantine {
    fn files(&self) -> Vec<QuarantinedFile> {
        self.files.files()
    }

    fn accept(&self, name: &str) -> Result<bool, StorageError> {
        self.files.accept(name)
    }

    fn has_unchecked_loss(&self, table: &Table) -> bool {
        self.trees.get(table).is_some_and(|tree| self.files.is_noted(tree))
    }

    fn loss_checked(&self, table: &Table) -> Result<(), StorageError> {
        let Some(tree) = self.trees.get(table) else { return Ok(()) };
        self.files.forget(tree).map_err(|source| StorageError::io("noting a check", source))
    }

    fn note_loss(&self) -> Result<(), StorageError> {
        let failed = |source| StorageError::io("noting an accepted loss", source);
        self.trees.values().try_for_each(|tree| self.files.note(tree)).map_err(failed)
    }
}

struct CacheHandle(Arc<Cache>);

impl std::fmt::Debug for CacheHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("bytes", &self.0.size()).finish()
    }
}

impl LsmTables {
    /// Numbers of the manifests of all tables, which are durable.
    pub fn manifest_numbers(&self) -> impl Iterator<Item = (&Table, u64)> {
        self.tables.iter().map(|(name, table)| (name, table.tree().current_version().id()))
    }
}

#[cfg(test)]
impl LsmTables {
    #[expect(clippy::indexing_slicing, reason = "tests")]
    pub(crate) fn table(&self, table: &Table) -> Arc<TableStore> {
        Arc::clone(&self.tables[table])
    }
}

impl DirectBackend for LsmTables {
    type Config = LsmConfig;

    fn open(config: &LsmConfig) -> Result<Self, StorageError> {
        describe_metrics();
        // Checked before anything is changed.
        if let Some(unknown) = unknown_version(&config.dir)? {
            return Err(unknown.into());
        }
        let directory = Directory::open(&config.dir)?;
        let cache = Arc::new(Cache::with_capacity_bytes(config.cache_bytes));
        let signal = Arc::new(CompactionSignal::default());
        let quarantine = Arc::new(Quarantine::open(directory.path())?);
        let context = TableContext {
            cache: Arc::clone(&cache),
            files: Arc::new(DescriptorTable::new(config.open_files)),
            space: Arc::clone(&config.space),
            signal: Arc::clone(&signal),
            quarantine: Arc::clone(&quarantine),
        };
        let mut tables = BTreeMap::new();
        for name in &config.tables {
            let (path, is_known) = (directory.tree_path(name), directory.has_created(name));
            let table = TableStore::open(path, name, is_known, context.clone())?;
            tables.insert(name.clone(), Arc::new(table));
        }
        directory.register(&config.tables)?;
        let mut opened = Vec::new();
        for name in &config.tables {
            let path = directory.tree_path(name);
            let failed = |source| StorageError::io(format!("opening {}", path.display()), source);
            opened.push(OpenedDirectory::open(&path).map_err(failed)?);
        }
        let trees = config.tables.iter().map(|name| (name.clone(), name.file_name()));
        let quarantine = Arc::new(StoreQuarantine { files: quarantine, trees: trees.collect() });
        let compactor =
            Compactor::start(tables.values().cloned().collect(), Arc::clone(&signal))
                .map_err(|source| StorageError::io("starting the store's threads", source))?;
        // The previous process may have stopped before a compaction.
        signal.request();
        tracing::debug!(dir = %directory.path().display(), "store opened");
        let (cache, compactor) = (CacheHandle(cache), Mutex::new(Some(compactor)));
        Ok(Self { tables, signal, cache, quarantine, compactor, trees: opened, directory })
    }

    fn options(config: &LsmConfig) -> (usize, ClockMs) {
        (config.read_threads, config.clock)
    }

    fn tables(&self) -> BTreeMap<Table, Arc<dyn DirectTable>> {
        let shared = |table: &Arc<TableStore>| Arc::clone(table) as Arc<dyn DirectTable>;
        self.tables.iter().map(|(name, table)| (name.clone(), shared(table))).collect()
    }

    fn stop(&self) {
        drop(self.compactor.lock().take());
    }

    fn release(&self) -> Result<(), StorageError> {
        self.directory.unlock()
    }

    fn health(&self) -> Vec<HealthProblem> {
        let mut problems = Vec::new();
        let quarantined = self.quarantine.files.records();
        for record in &quarantined {
            let impact =
                if record.is_loss() { HealthImpact::SomeReadsFail } else { HealthImpact::Degraded };
            problems.push(HealthProblem::new(StoreComponent::Data, impact, record.to_string()));
        }
        for table in self.tables.values() {
            for (file, what) in table.damaged_files() {
                if quarantined.iter().any(|record| record.file == file) {
                    continue;
                }
                let reason = format!("store file {file} is damaged ({what})");
                let impact = HealthImpact::SomeReadsFail;
                problems.push(HealthProblem::new(StoreComponent::Data, impact, reason));
            }
        }
        for (table, error) in self.signal.failures() {
            let reason = format!("LSM compaction of table {table}: {error}");
            let impact = HealthImpact::Degraded;
            problems.push(HealthProblem::new(StoreComponent::Compaction, impact, reason));
        }
        problems.truncate(MAX_PROBLEMS);
        problems
    }

    fn quarantine(&self) -> Arc<dyn tsd_storage::Quarantine> {
        Arc::clone(&self.quarantine) as Arc<dyn tsd_storage::Quarantine>
    }

    fn verifier(&self) -> Arc<dyn Verifier> {
        let tables = self.tables.clone();
        Arc::new(TreeVerifier::new(tables, Arc::clone(&self.quarantine.files), &self.directory))
    }

    fn pin_files(&self) -> Result<PinnedFiles, StorageError> {
        let names: Vec<Table> = self.tables.keys().cloned().collect();
        let mut pinned = pin_lists(self.directory.path(), &names, &self.quarantine.files);
        for table in self.tables.values() {
            let tree = pin_tree(table)?;
            pinned.files.extend(tree.files);
        }
        self.directory.path().clone_into(&mut pinned.root);
        Ok(pinned)
    }

    fn check_files(&self) -> Result<(), StorageError> {
        self.directory.check()?;
        for tree in &self.trees {
            check_directory(tree)?;
            let current = tree.path().join(CURRENT);
            if matches!(fs::exists(&current), Ok(false)) {
                return Err(removed_file(&current));
            }
        }
        self.directory.keep_log_mark()
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let sum = |of: fn(&TableStore) -> u64| {
            self.tables.values().map(|table| of(table)).sum::<u64>() as f64
        };
        let quarantined = self.quarantine.files.records();
        vec![
            ("tsd_lsm_disk_bytes", sum(|t| t.tree().disk_space())),
            ("tsd_lsm_l0_runs", sum(|t| t.tree().l0_run_count() as u64)),
            ("tsd_lsm_quarantined_files", quarantined.len() as f64),
            ("tsd_lsm_quarantined_bytes", quarantined.iter().map(|f| f.bytes).sum::<u64>() as f64),
            ("tsd_lsm_compaction_steps_total", self.signal.steps() as f64),
            ("tsd_lsm_cache_bytes", self.cache.0.size() as f64),
            ("tsd_lsm_cache_capacity_bytes", self.cache.0.capacity() as f64),
        ]
    }

    fn log_mark(&self) -> Result<LogMark, StorageError> {
        self.directory.log_mark()
    }

    fn set_log_mark(&self, mark: Bytes) -> Result<(), StorageError> {
        self.directory.set_log_mark(mark)
    }
}

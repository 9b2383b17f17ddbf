//! One table: its tree and the tree's configuration.
//!
//! The tree has no operation to replace a damaged file ([`crate::repair`]), so its directory is
//! changed and opened again as a new tree. Reads in progress keep the files of the old tree.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    convert::Infallible,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, SequenceNumberCounter,
    config::{BlockSizePolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy},
};
use tsd_files::{DiskSpace, is_medium_error};
use tsd_storage::{ReadVersion, StorageError, Table};

use crate::{
    compaction_signal::CompactionSignal,
    error::tree_error,
    file_format::{BLOCK_BYTES, FILTER},
    manifest::{FileCheckError, Manifest, check_file},
    metrics::TableMetrics,
    quarantine::Quarantine,
    repair::{Replacement, TreeDir, repair_error},
};

/// A table. The tree has no memtable, so each version of it is a snapshot.
pub(crate) struct TableStore {
    pub(crate) name: Table,
    /// Directory of the tree.
    path: PathBuf,
    tree: RwLock<AnyTree>,
    /// Next sequence number of the tree.
    pub(crate) seqno: SequenceNumberCounter,
    /// Number of visible writes.
    pub(crate) writes: AtomicU64,
    /// Owned by the single writer.
    pub(crate) write: Mutex<()>,
    /// Owned while a compaction writes files.
    pub(crate) compacting: Mutex<()>,
    outputs: Mutex<Outputs>,
    /// Set after a failure until its partial outputs are removed.
    has_partial_outputs: AtomicBool,
    suspects: Mutex<Suspects>,
    /// Files without space to reclaim.
    pub(crate) reclaimed: Mutex<Reclaimed>,
    context: TableContext,
    pub(crate) metrics: TableMetrics,
}

/// The files that were part of a version of the tree.
#[derive(Debug, Default)]
struct Outputs {
    complete: HashSet<u64>,
    /// Version of the last copy of the manifest.
    copied_version: Option<u64>,
}

/// Files to be verified, and replaced if they are damaged.
#[derive(Clone, Debug, Default)]
struct Suspects {
    /// Files that a read found damaged, with the problem.
    damaged: BTreeMap<u64, String>,
    /// Inputs of a failed compaction.
    inputs: BTreeSet<u64>,
}

/// Results of a repair of suspects.
struct Repaired {
    replaced: usize,
    /// Number of intact files, though a read of them failed.
    intact: usize,
}

impl std::fmt::Debug for TableStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableStore").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Files with little to free, by id, with the files with deletes that were known at the check.
#[derive(Debug, Default)]
pub(crate) struct Reclaimed(pub(crate) HashMap<u64, BTreeSet<u64>>);

/// Resources shared by the tables of a store.
#[derive(Clone)]
pub(crate) struct TableContext {
    pub(crate) cache: Arc<Cache>,
    pub(crate) files: Arc<DescriptorTable>,
    pub(crate) space: Arc<DiskSpace>,
    pub(crate) signal: Arc<CompactionSignal>,
    pub(crate) quarantine: Arc<Quarantine>,
}

impl TableStore {
    /// Opens the tree of a table, or creates it. `is_known` says that it was created before, so
    /// that a missing tree is a loss.
    pub(crate) fn open(
        path: PathBuf,
        name: &Table,
        is_known: bool,
        context: TableContext,
    ) -> Result<Self, StorageError> {
        let dir = TreeDir { dir: &path, quarantine: &context.quarantine };
        dir.prepare(is_known)?;
        let is_new = !path.exists();
        let seqno = SequenceNumberCounter::default();
        let tree =
            open_tree(&path, &seqno, &context).map_err(|e| tree_error("opening", name, e))?;
        if let Some(parent) = path.parent().filter(|_| is_new) {
            // The tree has synced its own directory; its creation is listed next.
            let synced = File::open(parent).and_then(|parent| parent.sync_all());
            synced.map_err(|source| {
                StorageError::io(format!("creating {}", path.display()), source)
            })?;
        }
        // Above every stored number.
        seqno.set(tree.get_highest_seqno().map_or(1, |highest| highest + 1));
        let table = Self {
            name: name.clone(),
            path,
            tree: RwLock::new(tree),
            seqno,
            writes: AtomicU64::new(0),
            write: Mutex::default(),
            compacting: Mutex::default(),
            outputs: Mutex::default(),
            has_partial_outputs: AtomicBool::new(false),
            suspects: Mutex::default(),
            reclaimed: Mutex::default(),
            context,
            metrics: TableMetrics::new(name.as_str()),
        };
        table.version_changed();
        Ok(table)
    }

    pub(crate) fn tree(&self) -> AnyTree {
        self.tree.read().clone()
    }

    pub(crate) fn space(&self) -> &Arc<DiskSpace> {
        &self.context.space
    }

    /// True if the store is being closed.
    pub(crate) fn is_stopping(&self) -> bool {
        self.signal().is_stopped()
    }

    pub(crate) fn signal(&self) -> &CompactionSignal {
        &self.context.signal
    }

    pub(crate) fn dir(&self) -> TreeDir<'_> {
        TreeDir { dir: &self.path, quarantine: &self.context.quarantine }
    }

    /// Version for a row compaction that is planned from a later read.
    pub(crate) fn read_version(&self) -> ReadVersion {
        ReadVersion(Some(self.writes.load(Ordering::Acquire)))
    }

    pub(crate) fn failed(&self, doing: &str) -> impl Fn(lsm_tree::Error) -> StorageError {
        move |error| tree_error(doing, &self.name, error)
    }

    /// Fails if entries of the range of tree keys were lost with a damaged file.
    pub(crate) fn check_losses(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.context.quarantine.check(name, start, end)
    }

    /// Records the files of the current version, after each change of it.
    pub(crate) fn version_changed(&self) {
        let mut outputs = self.outputs.lock();
        let manifest = Manifest::of_tree(&self.tree());
        outputs.complete.extend(manifest.files().map(|file| file.id));
        if outputs.copied_version != Some(manifest.version) {
            match manifest.write_copy(&self.path) {
                Ok(()) => outputs.copied_version = Some(manifest.version),
                // The copy is needed only for a damaged manifest, and the next copy replaces it.
                Err(error) => {
                    tracing::debug!(table = %self.name, %error, "the manifest was not copied");
                }
            }
        }
    }

    /// Notes the files of a failed write, which are not part of the tree.
    pub(crate) fn note_partial_outputs(&self) {
        self.has_partial_outputs.store(true, Ordering::Release);
    }

    pub(crate) fn has_partial_outputs(&self) -> bool {
        self.has_partial_outputs.load(Ordering::Acquire)
    }

    /// Removes the files of failed writes. No other write may be in progress, hence the guards.
    pub(crate) fn remove_partial_outputs(
        &self,
        _writer: &MutexGuard<'_, ()>,
        _compacting: &MutexGuard<'_, ()>,
    ) {
        self.version_changed();
        let mut outputs = self.outputs.lock();
        let dir = self.dir();
        let Ok(ids) = dir.file_ids() else { return };
        outputs.complete.retain(|id| ids.contains(id));
        self.has_partial_outputs.store(false, Ordering::Release);
        for id in ids.into_iter().filter(|id| !outputs.complete.contains(id)) {
            if let Err(error) = fs::remove_file(dir.file_path(id)) {
                tracing::warn!(table = %self.name, id, %error, "a partial file was not removed");
                self.note_partial_outputs();
            }
        }
    }

    /// Ids of the files on disk that were never part of the tree.
    #[cfg(test)]
    pub(crate) fn partial_outputs(&self) -> Vec<u64> {
        let mut ids = self.dir().file_ids().unwrap_or_default();
        let outputs = self.outputs.lock();
        ids.retain(|id| !outputs.complete.contains(id));
        ids
    }

    fn suspects(&self) -> MutexGuard<'_, Suspects> {
        self.suspects.lock()
    }

    /// Marks an unreadable file for repair, and returns the error of the read.
    pub(crate) fn report_damage(&self, id: u64, what: &str) -> StorageError {
        let file = format!("{}/tables/{id}", self.dir().name());
        self.metrics.damaged_reads.increment(1);
        let known = self.suspects().damaged.insert(id, what.to_owned()).is_some();
        if !known {
            tracing::error!(table = %self.name, file, what, "a store file is damaged");
            self.signal().request();
        }
        StorageError::Damaged(Arc::from(format!("store file {file} is damaged ({what})")))
    }

    /// Replaces a file that a verification found damaged.
    pub(crate) fn replace_damaged(&self, id: u64, what: &str) -> Result<(), StorageError> {
        self.suspects().damaged.insert(id, what.to_owned());
        self.repair()
    }

    /// Writes the manifest and its copy anew.
    pub(crate) fn rewrite_manifest(&self) -> Result<(), StorageError> {
        let _compacting = self.compacting.lock();
        let writer = self.writer();
        self.replace(&writer, &self.tree(), Vec::new())
    }

    /// True if the file is to be verified.
    pub(crate) fn is_suspect(&self, id: u64) -> bool {
        let suspects = self.suspects();
        suspects.damaged.contains_key(&id) || suspects.inputs.contains(&id)
    }

    /// Marks the inputs of a failed compaction for verification.
    pub(crate) fn suspect_inputs(&self, ids: impl IntoIterator<Item = u64>) {
        self.suspects().inputs.extend(ids);
    }

    pub(crate) fn has_suspects(&self) -> bool {
        let suspects = self.suspects();
        !suspects.damaged.is_empty() || !suspects.inputs.is_empty()
    }

    /// Paths of damaged files that are not replaced yet, with the problem.
    pub(crate) fn damaged_files(&self) -> Vec<(String, String)> {
        let tree = self.dir().name();
        let suspects = self.suspects();
        let damaged = suspects.damaged.iter();
        damaged.map(|(id, what)| (format!("{tree}/tables/{id}"), what.clone())).collect()
    }

    /// Verifies the suspects and replaces damaged files. Called by the compactor's thread. Fails if
    /// a file could not be read and is intact now.
    pub(crate) fn repair(&self) -> Result<(), StorageError> {
        let suspects = self.suspects().clone();
        // So that a flush does not remove the new files as partial outputs.
        let compacting = self.compacting.lock();
        let repaired = self.repair_suspects(&suspects, &compacting);
        if self.has_partial_outputs() {
            self.remove_partial_outputs(&self.writer(), &compacting);
        }
        drop(compacting);
        let Repaired { replaced, intact } = repaired?;
        let mut current = self.suspects();
        current.damaged.retain(|id, _| !suspects.damaged.contains_key(id));
        current.inputs.retain(|id| !suspects.inputs.contains(id));
        drop(current);
        if intact > 0 && replaced == 0 {
            let text = format!("files of table {} could not be read, but are intact", self.name);
            return Err(StorageError::Backend(text.into()));
        }
        Ok(())
    }

    fn repair_suspects(
        &self,
        suspects: &Suspects,
        _compacting: &MutexGuard<'_, ()>,
    ) -> Result<Repaired, StorageError> {
        let tree = self.tree();
        let failed = |error| repair_error(&self.path, error);
        let mut replacements: Vec<Replacement> = Vec::new();
        let mut intact = 0;
        for file in Manifest::of_tree(&tree).files() {
            if !suspects.damaged.contains_key(&file.id) && !suspects.inputs.contains(&file.id) {
                continue;
            }
            let path = self.dir().file_path(file.id);
            let checked = check_file(&path, file.checksum, &mut |_| Ok::<(), Infallible>(()));
            match checked {
                Ok(()) => {
                    intact += 1;
                    continue;
                }
                Err(FileCheckError::Io(e))
                    if e.kind() != std::io::ErrorKind::NotFound && !is_medium_error(&e) =>
                {
                    return Err(failed(e));
                }
                Err(_) => {}
            }
            self.space().check(fs::metadata(&path).map_or(0, |metadata| metadata.len()))?;
            let id = tree.get_next_table_id();
            // Until the new file is part of the tree.
            self.note_partial_outputs();
            replacements.push(self.dir().replacement(file, id).map_err(failed)?);
        }
        let replaced = replacements.len();
        if replaced > 0 {
            self.replace(&self.writer(), &tree, replacements)?;
        }
        Ok(Repaired { replaced, intact })
    }

    /// Replaces files of the tree. The caller ensures that no compaction runs.
    pub(crate) fn replace(
        &self,
        _writer: &MutexGuard<'_, ()>,
        tree: &AnyTree,
        replacements: Vec<Replacement>,
    ) -> Result<(), StorageError> {
        let failed = |error| repair_error(&self.path, error);
        let replaced: Vec<u64> = replacements.iter().map(|replacement| replacement.id).collect();
        let mut manifest = Manifest::of_tree(tree);
        for replacement in replacements {
            self.dir().apply(&mut manifest, replacement).map_err(failed)?;
        }
        self.dir().write(&mut manifest).map_err(failed)?;
        let next_id = tree.next_table_id();
        let opened = open_tree(&self.path, &self.seqno, &self.context);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // The old tree stays open, so the next start uses its files.
                self.dir().write(&mut Manifest::of_tree(tree)).map_err(failed)?;
                return Err(self.failed("opening")(error));
            }
        };
        // A file that a read in progress keeps open is removed later, by its number, which no new
        // file may have.
        while opened.next_table_id() < next_id {
            opened.get_next_table_id();
        }
        *self.tree.write() = opened;
        self.version_changed();
        // An open descriptor would keep the space of a removed file.
        for id in replaced {
            self.context.files.remove_for_table(&(tree.id(), id).into());
        }
        Ok(())
    }
}

fn open_tree(
    path: &Path,
    seqno: &SequenceNumberCounter,
    context: &TableContext,
) -> lsm_tree::Result<AnyTree> {
    Config::new(path, seqno.clone(), SequenceNumberCounter::default())
        .use_cache(Arc::clone(&context.cache))
        .use_descriptor_table(Some(Arc::clone(&context.files)))
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(FILTER)))
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
        // A single block could exceed the cache: a million UIDs have a filter of 2 MB, which each
        // get would read from the disk.
        .index_block_partitioning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PinningPolicy::all(true))
        .open()
}

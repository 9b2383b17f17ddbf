//! Verifies the trees: manifests with their copies, and every file against its checksum.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tsd_files::is_medium_error;
use tsd_storage::{LogMark, RepairAction, StorageError, Table, Verifier, VerifyFinding, VerifyRun};

use crate::{
    directory::{Directory, existing_tables, list_file, recorded_log_mark},
    manifest::{FileCheckError, Manifest, ManifestError, TABLES, TreeFile, check_file},
    quarantine::{KeyRange, Quarantine, QuarantineRecord, read_records},
    table::TableStore,
};

/// Most reads of a manifest that is being replaced.
const ATTEMPTS: usize = 3;

/// Verifies open trees.
#[derive(Debug)]
pub(crate) struct TreeVerifier {
    tables: BTreeMap<Table, Arc<TableStore>>,
    quarantine: Arc<Quarantine>,
    path: PathBuf,
}

impl TreeVerifier {
    pub(crate) fn new(
        tables: BTreeMap<Table, Arc<TableStore>>,
        quarantine: Arc<Quarantine>,
        directory: &Directory,
    ) -> Self {
        Self { tables, quarantine, path: directory.path().to_owned() }
    }

    fn store(&self, table: &Table) -> Result<&Arc<TableStore>, StorageError> {
        self.tables.get(table).ok_or_else(|| StorageError::NoSuchTable(table.clone()))
    }
}

impl Verifier for TreeVerifier {
    fn verify(&self, run: &VerifyRun) -> Result<(), StorageError> {
        let manifests: Vec<_> = self
            .tables
            .iter()
            .map(|(name, table)| (name, table, Manifest::of_tree(&table.tree())))
            .collect();
        for (_, table, manifest) in &manifests {
            run.plan(planned_bytes(table.dir().dir, manifest));
        }
        verify_list(&self.path, run)?;
        for record in self.quarantine.records() {
            report_record(&self.path, &record, run);
        }
        for (name, table, manifest) in manifests {
            let dir = table.dir().dir;
            let check = TreeCheck { table: name, dir, is_known: true, store: Some(table), run };
            check.manifest();
            check.files(&manifest)?;
        }
        Ok(())
    }

    fn repair(&self, action: &RepairAction) -> Result<(), StorageError> {
        match action {
            RepairAction::AcceptLoss { name } => {
                self.quarantine.accept(name)?;
            }
            RepairAction::SalvageFile { table, file, what } => {
                let store = self.store(table)?;
                store.replace_damaged(*file, what)?;
                let path = format!("{}/{TABLES}/{file}", table.file_name());
                for record in self.quarantine.records() {
                    if record.file == path {
                        self.quarantine.accept(&record.name)?;
                    }
                }
            }
            RepairAction::RewriteManifest { table } => self.store(table)?.rewrite_manifest()?,
            _ => {}
        }
        Ok(())
    }
}

/// Verifies the trees in a directory that no process has open. Read-only. The caller has checked for files of
/// another release, which look damaged ([`unknown_version`](crate::unknown_version())).
///
/// # Errors
///
/// An error of the disk, files of another version, or [`StorageError::Closed`] if the run was stopped.
pub fn verify_directory(path: &Path, run: &VerifyRun) -> Result<(), StorageError> {
    let failed = |source| StorageError::io(format!("reading {}", path.display()), source);
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    let mut trees = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(table) = Table::of_file_name(&name).filter(|_| entry.path().is_dir()) {
            trees.push((table, entry.path()));
        }
    }
    // A restored snapshot lists empty tables without trees, until a log has flushed to it.
    let has_mark = recorded_log_mark(path)? != LogMark::Absent;
    let known = if has_mark { existing_tables(path)? } else { Vec::new() };
    for table in &known {
        if !trees.iter().any(|(other, _)| other == table) {
            trees.push((table.clone(), path.join(table.file_name())));
        }
    }
    trees.sort();
    let manifests: Vec<_> = trees
        .into_iter()
        .map(|(table, dir)| {
            let manifest = Manifest::read(&dir).ok().or_else(|| Manifest::read_copy(&dir));
            let manifest = manifest.unwrap_or_default();
            run.plan(planned_bytes(&dir, &manifest));
            (table, dir, manifest)
        })
        .collect();
    verify_list(path, run)?;
    for record in read_records(path).map_err(failed)? {
        report_record(path, &record, run);
    }
    for (table, dir, manifest) in &manifests {
        let check = TreeCheck { table, dir, is_known: known.contains(table), store: None, run };
        check.manifest();
        check.files(manifest)?;
    }
    Ok(())
}

fn planned_bytes(dir: &Path, manifest: &Manifest) -> u64 {
    let path = |file: &TreeFile| dir.join(TABLES).join(file.id.to_string());
    manifest.files().map(|file| fs::metadata(path(file)).map_or(0, |file| file.len())).sum()
}

fn verify_list(path: &Path, run: &VerifyRun) -> Result<(), StorageError> {
    let list = list_file(path);
    if list.read()?.is_none() {
        report(
            run,
            list.path(),
            "its checksum is wrong",
            "nothing: the next start makes it again",
            Some(RepairAction::Reopen),
        );
    }
    Ok(())
}

fn report(run: &VerifyRun, file: &Path, what: &str, cost: &str, action: Option<RepairAction>) {
    let (file, what, cost) = (file.display().to_string(), what.to_owned(), cost.to_owned());
    run.report(VerifyFinding { file, what, cost, action });
}

fn report_record(path: &Path, record: &QuarantineRecord, run: &VerifyRun) {
    let cost = if record.is_loss() {
        "cells of the table are lost; reads of them fail until the loss is accepted"
    } else {
        "nothing: it was rebuilt"
    };
    let what = format!("{}; it is in quarantine as {}", record.what, record.name);
    let action = RepairAction::AcceptLoss { name: record.name.clone() };
    report(run, &path.join(&record.file), &what, cost, Some(action));
}

/// The check of one tree.
struct TreeCheck<'a> {
    table: &'a Table,
    dir: &'a Path,
    /// True if the tree was created before.
    is_known: bool,
    /// The table, if it is open.
    store: Option<&'a TableStore>,
    run: &'a VerifyRun,
}

impl TreeCheck<'_> {
    fn manifest(&self) {
        if self.is_known && !self.dir.exists() {
            let cost = "all cells of the table; after the next start reads of them fail until the loss is accepted";
            report(self.run, self.dir, "it is missing", cost, Some(RepairAction::Reopen));
            return;
        }
        let copy = Manifest::read_copy(self.dir);
        let mut read = Manifest::read(self.dir);
        for _ in 1..ATTEMPTS {
            if read.is_ok() || self.store.is_none() {
                break;
            }
            read = Manifest::read(self.dir);
        }
        let (file, what) = match read {
            Ok(_) => {
                // A tree that was never written has no copy.
                let is_missing = copy.is_none() && Manifest::read_copy(self.dir).is_none();
                if is_missing && Manifest::read(self.dir).is_ok_and(|m| m.files().next().is_some())
                {
                    let action = self.manifest_action();
                    let cost = "nothing: the manifest has everything";
                    let what = "the copy of the manifest is missing or damaged";
                    report(self.run, &self.dir.join("FILES"), what, cost, Some(action));
                }
                return;
            }
            Err(ManifestError::Missing) if !self.is_known && !self.dir.join(TABLES).exists() => {
                return;
            }
            Err(ManifestError::Missing) => ("current".to_owned(), "it is missing".to_owned()),
            Err(ManifestError::Damaged { file, what }) => (file, what),
            Err(ManifestError::UnknownVersion(error)) => ("current".to_owned(), error.to_string()),
            Err(ManifestError::Io(error)) => ("current".to_owned(), error.to_string()),
        };
        let cost = if self.store.is_some() || copy.is_some() {
            "nothing: the copy has everything"
        } else {
            "all cells of the table; the next start keeps its files in quarantine"
        };
        report(self.run, &self.dir.join(file), &what, cost, Some(self.manifest_action()));
    }

    fn manifest_action(&self) -> RepairAction {
        match self.store {
            Some(_) => RepairAction::RewriteManifest { table: self.table.clone() },
            None => RepairAction::Reopen,
        }
    }

    fn files(&self, manifest: &Manifest) -> Result<(), StorageError> {
        for file in manifest.files() {
            let path = self.dir.join(TABLES).join(file.id.to_string());
            let checked = check_file(&path, file.checksum, &mut |bytes| self.run.read(bytes));
            let what = match checked {
                Ok(()) => continue,
                Err(FileCheckError::Mismatch) => "its checksum is wrong",
                Err(FileCheckError::Ended(error)) => return Err(error),
                Err(FileCheckError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                    "the file is missing"
                }
                Err(FileCheckError::Io(error)) if is_medium_error(&error) => {
                    "the disk cannot read it"
                }
                Err(FileCheckError::Io(source)) => {
                    return Err(StorageError::io(format!("reading {}", path.display()), source));
                }
            };
            if self.is_live(file) {
                let (table, number) = (self.table.clone(), file.id);
                let action =
                    RepairAction::SalvageFile { table, file: number, what: what.to_owned() };
                report(self.run, &path, what, &cost(file), Some(action));
            }
        }
        Ok(())
    }

    /// True if the file is still part of the tree.
    fn is_live(&self, file: &TreeFile) -> bool {
        self.store.is_none_or(|store| {
            Manifest::of_tree(&store.tree()).files().any(|other| other.id == file.id)
        })
    }
}

fn cost(file: &TreeFile) -> String {
    let rows = file.range.clone().map(|(start, end)| KeyRange { start, end: Some(end) }.rows());
    let key = |key: Option<bytes::Bytes>| key.map(|key| tsd_model::to_hex(&key));
    match rows.map(|rows| (key(rows.first), key(rows.last))) {
        Some((Some(first), Some(last))) => {
            format!("the cells of damaged blocks, of rows {first} to {last}; reads of them fail")
        }
        _ => "the cells of damaged blocks; reads of them fail".to_owned(),
    }
}

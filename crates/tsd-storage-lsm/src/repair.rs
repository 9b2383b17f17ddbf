//! Replaces damaged files of a tree, so that it opens, flushes and compacts without them.
//!
//! The tree stops at the first damaged file: it does not open, and it retries the same compaction
//! for ever. So repair quarantines a damaged file ([`crate::quarantine`]), copies its intact data
//! ([`crate::salvage`]) to a new file in its place, and records the lost key ranges.

use std::{
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use lsm_tree::{Cache, Checksum};
use tsd_files::{DiskReader, ReadVia, Reread, is_medium_error, read_repeatedly};
use tsd_storage::StorageError;

use crate::{
    manifest::{Manifest, ManifestError, TABLES, TreeFile, newest_version},
    quarantine::{KeyRange, Quarantine, QuarantineRecord},
    salvage::{self, NewFile, Salvaged},
};

/// The directory of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeDir<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) quarantine: &'a Quarantine,
}

/// A file and its replacement.
#[derive(Debug)]
pub(crate) struct Replacement {
    pub(crate) id: u64,
    /// The record of the damage; `None` if the file is removed permanently.
    pub(crate) record: Option<QuarantineRecord>,
    pub(crate) by: Option<TreeFile>,
}

/// The error of a failed replacement.
pub(crate) fn repair_error(dir: &Path, error: io::Error) -> StorageError {
    StorageError::io(format!("repairing {}", dir.display()), error)
}

impl TreeDir<'_> {
    /// Name of the directory: the first component of the paths of its files.
    pub(crate) fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(crate) fn file_path(&self, id: u64) -> PathBuf {
        self.dir.join(TABLES).join(id.to_string())
    }

    /// Makes the tree openable: restores a damaged manifest, and replaces missing files and files
    /// with damaged metadata. Damaged blocks are found by later reads. `is_known` says that the
    /// tree was created before, so that a missing tree is a complete loss.
    pub(crate) fn prepare(&self, is_known: bool) -> Result<(), StorageError> {
        self.try_prepare(is_known).map_err(|error| repair_error(self.dir, error))
    }

    fn try_prepare(&self, is_known: bool) -> io::Result<()> {
        if !self.dir.exists() {
            return if is_known {
                self.lose(self.name(), "it is missing".to_owned())
            } else {
                Ok(())
            };
        }
        self.move_unknown_files()?;
        let copy = Manifest::read_copy(self.dir);
        let (mut manifest, mut changed) = match (Manifest::read(self.dir), &copy) {
            (Ok(manifest), _) => (manifest, false),
            (Err(ManifestError::Io(error)), _) => return Err(error),
            (Err(ManifestError::UnknownVersion(unknown)), _) => return Err(unknown.into()),
            (Err(error), Some(copy)) => (self.restore(copy.clone(), error)?, true),
            (Err(_), None) if !is_known && self.file_ids()?.is_empty() => {
                return self.start_again();
            }
            (Err(error), None) => return self.set_tree_aside(error),
        };
        if let Some(copy) = &copy {
            manifest.set_ranges(copy);
        }
        let mut next_id = self.file_ids()?.into_iter().chain(manifest.files().map(|f| f.id)).max();
        let mut damaged = Vec::new();
        for (level, runs) in manifest.levels.iter().enumerate() {
            for file in runs.iter().flatten() {
                if self.open_repeatedly(file, level < 2, level < 1).is_err() {
                    damaged.push(file.clone());
                }
            }
        }
        for file in damaged {
            let id = next_id.map_or(0, |id| id + 1);
            next_id = Some(id);
            let replacement = match self.replacement(&file, id) {
                Ok(replacement) => replacement,
                // The store also opens on a full disk.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    let _ = fs::remove_file(self.file_path(id));
                    self.without_copy(&file, &error)
                }
                Err(error) => return Err(error),
            };
            self.apply(&mut manifest, replacement)?;
            changed = true;
        }
        if changed {
            self.write(&mut manifest)?;
        }
        Ok(())
    }

    /// As [`Self::open`]. Repeats it past the page cache if the disk failed or the file looks
    /// damaged.
    fn open_repeatedly(
        &self,
        file: &TreeFile,
        pin_index: bool,
        pin_filter: bool,
    ) -> lsm_tree::Result<lsm_tree::Table> {
        let path = self.file_path(file.id);
        let open = |via| {
            if via == ReadVia::Disk {
                forget(&path);
            }
            self.open(file, pin_index, pin_filter)
        };
        read_repeatedly(&path.display().to_string(), open, reread)
    }

    /// Opens a file like the tree.
    fn open(
        &self,
        file: &TreeFile,
        pin_index: bool,
        pin_filter: bool,
    ) -> lsm_tree::Result<lsm_tree::Table> {
        let open = || {
            lsm_tree::Table::recover(
                self.file_path(file.id),
                Checksum::from_raw(file.checksum),
                file.seqno,
                u64::MAX,
                Arc::new(Cache::with_capacity_bytes(0)),
                None,
                pin_filter,
                pin_index,
            )
        };
        match catch_unwind(AssertUnwindSafe(open)) {
            Ok(Ok(table)) if table.id() == file.id => Ok(table),
            Ok(Err(error)) => Err(error),
            Ok(Ok(_)) | Err(_) => Err(lsm_tree::Error::Unrecoverable),
        }
    }

    /// Copies the intact data of a damaged file to the new file `id`.
    pub(crate) fn replacement(&self, file: &TreeFile, id: u64) -> io::Result<Replacement> {
        let range = file.range.clone().or_else(|| {
            let range = &self.open(file, false, false).ok()?.metadata.key_range;
            Some((range.min().to_vec(), range.max().to_vec()))
        });
        let new = NewFile { path: self.file_path(id), id };
        let Salvaged { what, lost, copy, range } =
            salvage::salvage(&self.file_path(file.id), range.as_ref(), new).map_err(io_error)?;
        let by = copy.map(|checksum| TreeFile { id, checksum, seqno: file.seqno, range });
        Ok(Replacement { id: file.id, record: Some(self.record(file, what, lost)), by })
    }

    /// A replacement without disk space: the whole file is lost until an operator puts it back.
    fn without_copy(&self, file: &TreeFile, error: &io::Error) -> Replacement {
        let lost = match &file.range {
            Some((first, last)) => {
                KeyRange { start: first.clone(), end: Some(salvage::after(last)) }
            }
            None => KeyRange::default(),
        };
        let what = format!("its intact part could not be copied: {error}");
        Replacement { id: file.id, record: Some(self.record(file, what, vec![lost])), by: None }
    }

    fn record(&self, file: &TreeFile, what: String, lost: Vec<KeyRange>) -> QuarantineRecord {
        let tree = self.name();
        QuarantineRecord {
            name: format!("{tree}-{}", file.id),
            file: format!("{tree}/{TABLES}/{}", file.id),
            what,
            bytes: 0,
            checksum: file.checksum,
            kept: false,
            lost,
        }
    }

    /// Quarantines the damaged file and changes the manifest in memory.
    pub(crate) fn apply(
        &self,
        manifest: &mut Manifest,
        Replacement { id, record, by }: Replacement,
    ) -> io::Result<()> {
        if let Some(record) = record {
            self.quarantine.add(record, Some(&self.file_path(id)))?;
        }
        manifest.replace(id, by.as_ref());
        Ok(())
    }

    /// Makes the changed manifest the current one.
    pub(crate) fn write(&self, manifest: &mut Manifest) -> io::Result<()> {
        manifest.version = newest_version(self.dir).unwrap_or(0).max(manifest.version) + 1;
        manifest.write(self.dir)?;
        manifest.write_copy(self.dir)
    }

    /// Uses the copy of a manifest that is damaged.
    fn restore(&self, copy: Manifest, error: ManifestError) -> io::Result<Manifest> {
        let (file, what) = describe(error);
        let tree = self.name();
        let kept = self.dir.join(&file);
        let record = QuarantineRecord {
            name: format!("{tree}-{file}"),
            file: format!("{tree}/{file}"),
            what: format!("manifest: {what}"),
            bytes: 0,
            checksum: 0,
            kept: false,
            lost: Vec::new(),
        };
        self.quarantine.add(record, Some(&kept))?;
        // Files newer than the copy: the files that they replaced are unknown.
        let newest = copy.files().map(|file| file.id).max();
        if newest_version(self.dir).is_some_and(|version| version > copy.version) {
            for id in self.file_ids()? {
                if newest.is_some_and(|newest| id <= newest) {
                    continue;
                }
                let file = TreeFile { id, checksum: 0, seqno: 0, range: None };
                // An output that was never completed cannot be opened.
                let Ok(table) = self.open(&file, false, false) else { continue };
                let range = &table.metadata.key_range;
                let lost = KeyRange {
                    start: range.min().to_vec(),
                    end: Some(salvage::after(range.max())),
                };
                let what = "its place in the tree was lost with the manifest".to_owned();
                self.quarantine
                    .add(self.record(&file, what, vec![lost]), Some(&self.file_path(id)))?;
            }
        }
        Ok(copy)
    }

    /// Quarantines a tree whose list of files is lost, and starts a new tree.
    fn set_tree_aside(&self, error: ManifestError) -> io::Result<()> {
        let (file, what) = describe(error);
        let file = format!("{}/{file}", self.name());
        self.lose(file, format!("manifest: {what}, and there is no copy"))
    }

    /// Records the loss of the whole tree, and quarantines its remaining files.
    fn lose(&self, file: String, what: String) -> io::Result<()> {
        let record = QuarantineRecord {
            name: format!("{}-tree", self.name()),
            file,
            what,
            bytes: 0,
            checksum: newest_version(self.dir).unwrap_or(0).into(),
            kept: false,
            lost: vec![KeyRange::default()],
        };
        self.quarantine.add(record, Some(self.dir))?;
        Ok(())
    }

    /// Starts again after an interrupted creation of the tree.
    fn start_again(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Ids of the data files on disk, whether part of the tree or not.
    pub(crate) fn file_ids(&self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(self.dir.join(TABLES)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut ids = Vec::new();
        for entry in entries {
            ids.extend(file_id(&entry?.file_name()));
        }
        Ok(ids)
    }

    /// Moves unknown files away, since the tree does not open with a file that it did not write.
    fn move_unknown_files(&self) -> io::Result<()> {
        let entries = match fs::read_dir(self.dir.join(TABLES)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() || file_id(&entry.file_name()).is_none() {
                self.quarantine.move_unknown_file(&self.name(), &entry.path())?;
            }
        }
        Ok(())
    }
}

/// The id in the name of a data file.
fn file_id(name: &std::ffi::OsStr) -> Option<u64> {
    let name = name.to_str()?;
    let id: u64 = name.parse().ok()?;
    (id.to_string() == name).then_some(id)
}

fn describe(error: ManifestError) -> (String, String) {
    match error {
        ManifestError::Missing => ("current".to_owned(), "it is missing".to_owned()),
        ManifestError::Damaged { file, what } => (file, what),
        ManifestError::UnknownVersion(unknown) => ("current".to_owned(), unknown.to_string()),
        ManifestError::Io(error) => ("current".to_owned(), error.to_string()),
    }
}

fn io_error(error: lsm_tree::Error) -> io::Error {
    match error {
        lsm_tree::Error::Io(error) => error,
        error => io::Error::other(format!("{error:?}")),
    }
}

/// Drops a file from the page cache, so that the next read is from the disk.
pub(crate) fn forget(path: &Path) {
    // The following reads report errors.
    let _ = DiskReader::open(path).and_then(|file| file.forget(0, 0));
}

/// Decides whether a repeated read of a tree may succeed.
pub(crate) fn reread(error: &lsm_tree::Error) -> Reread {
    match error {
        lsm_tree::Error::Io(error) => Reread::after(error),
        _ => Reread::AtOnce,
    }
}

/// True if a file of the tree is damaged, missing, truncated or unreadable.
pub(crate) fn is_damage(error: &lsm_tree::Error) -> bool {
    match error {
        lsm_tree::Error::Io(error) => {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
                || is_medium_error(error)
        }
        _ => true,
    }
}

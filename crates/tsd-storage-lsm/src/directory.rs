//! The directory of a store: its lock file and the list of its tables.
//!
//! A table is listed after its tree was created durably, so a listed table without a tree has lost its tree. A
//! damaged list is rebuilt from the configured tables.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tsd_files::{DirectoryLock, LockError, check_directory, read_file};
use tsd_storage::{LogMark, StorageError, Table};

use crate::{
    manifest::{Manifest, ManifestError, replace_file},
    table_list::TableListFile,
};

/// File that lists the tables.
pub(crate) const TABLES_FILE: &str = "TABLES";
/// File with the mark of the log in front.
const LOG_MARK_FILE: &str = "LOG";
const VERSION_LINE: &str = "saltern lsm 2";

/// A locked directory; dropping it unlocks it.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: DirectoryLock,
    /// The tables that were listed when it was opened.
    listed: Vec<Table>,
    /// True if a log has flushed to the store before. A restored snapshot lists empty tables without trees.
    has_mark: bool,
    /// The last mark of the log, to write its file again if that was removed.
    mark: Mutex<LogMark>,
}

impl Directory {
    /// Creates the directory if missing, locks it and reads the list of tables.
    pub(crate) fn open(path: &Path) -> Result<Self, StorageError> {
        let failed = |source| StorageError::io(format!("opening {}", path.display()), source);
        fs::create_dir_all(path).map_err(failed)?;
        let lock = DirectoryLock::acquire(path, "LOCK").map_err(|error| match error {
            LockError::InUse { .. } => StorageError::Backend(Arc::from(format!(
                "{} is in use by another process",
                path.display()
            ))),
            LockError::Io(source) => failed(source),
        })?;
        let listed = list_file(path).read_or_begin()?;
        let mark = recorded_log_mark(path)?;
        let has_mark = mark != LogMark::Absent;
        Ok(Self { path: path.to_owned(), lock, listed, has_mark, mark: Mutex::new(mark) })
    }

    /// True if the tree of the table was created before.
    pub(crate) fn has_created(&self, table: &Table) -> bool {
        self.has_mark && self.listed.contains(table)
    }

    /// Adds new tables to the list, whose trees are durable.
    pub(crate) fn register(&self, tables: &[Table]) -> Result<(), StorageError> {
        let mut all = self.listed.clone();
        all.extend(tables.iter().filter(|table| !self.listed.contains(table)).cloned());
        list_file(&self.path).write(&all)
    }

    /// Unlocks the directory. Nothing may be written to it afterwards.
    pub(crate) fn unlock(&self) -> Result<(), StorageError> {
        let failed =
            |source| StorageError::io(format!("unlocking {}", self.path.display()), source);
        self.lock.unlock().map_err(failed)
    }

    /// Fails if the directory was removed or replaced.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        check_directory(self.lock.directory())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the tree of a table.
    pub(crate) fn tree_path(&self, table: &Table) -> PathBuf {
        table_path(&self.path, table)
    }

    /// The mark of the log in front.
    pub(crate) fn log_mark(&self) -> Result<LogMark, StorageError> {
        recorded_log_mark(&self.path)
    }

    /// Records a mark of the log atomically and durably.
    pub(crate) fn set_log_mark(&self, mark: Bytes) -> Result<(), StorageError> {
        let mut last = self.mark.lock();
        self.write_log_mark(&mark)?;
        *last = LogMark::Recorded(mark);
        Ok(())
    }

    /// Writes the last mark of the log again if its file was removed. Without the mark, the next start takes the
    /// log for the log of another store.
    pub(crate) fn keep_log_mark(&self) -> Result<(), StorageError> {
        // A mark that is being written is checked the next time.
        let Some(last) = self.mark.try_lock() else { return Ok(()) };
        let LogMark::Recorded(mark) = &*last else { return Ok(()) };
        let path = log_mark_file(&self.path);
        if matches!(fs::exists(&path), Ok(false)) {
            tracing::error!(file = %path.display(), "a file of the open store was removed; it is written again");
            self.write_log_mark(mark)?;
        }
        Ok(())
    }

    fn write_log_mark(&self, mark: &[u8]) -> Result<(), StorageError> {
        let path = log_mark_file(&self.path);
        replace_file(&path, mark, true)
            .map_err(|source| StorageError::io(format!("writing {}", path.display()), source))
    }
}

/// The tables of the store in a directory, in the order of their creation, for tools that open a store with its
/// existing tables. Empty for a missing store or a damaged list.
///
/// # Errors
///
/// [`StorageError::UnknownVersion`] if another release wrote the list, or an error of the disk.
pub fn existing_tables(path: &Path) -> Result<Vec<Table>, StorageError> {
    Ok(list_file(path).read()?.unwrap_or_default())
}

/// The list of the tables in a directory.
pub(crate) fn list_file(path: &Path) -> TableListFile {
    TableListFile::new(path.join(TABLES_FILE), VERSION_LINE)
}

/// Path of the file with the mark of the log in front of the store in a directory.
#[must_use]
pub fn log_mark_file(path: &Path) -> PathBuf {
    path.join(LOG_MARK_FILE)
}

/// The mark of the log in front of the store in a directory.
///
/// # Errors
///
/// An error of the disk.
pub fn recorded_log_mark(path: &Path) -> Result<LogMark, StorageError> {
    let path = log_mark_file(path);
    match read_file(&path) {
        Ok(bytes) => Ok(LogMark::Recorded(bytes.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LogMark::Absent),
        Err(error) => Err(StorageError::io(format!("reading {}", path.display()), error)),
    }
}

/// The directory of the tree of a table of the store in a directory.
#[must_use]
pub fn table_path(path: &Path, table: &Table) -> PathBuf {
    path.join(table.file_name())
}

/// Number of the manifest of a table of the store in a directory. It grows with each change of the tree. `None`
/// for a missing tree or a damaged manifest, which the start of the tree repairs.
///
/// # Errors
///
/// [`StorageError::UnknownVersion`] if another release wrote it, or an error of the disk.
pub fn stored_manifest_number(path: &Path, table: &Table) -> Result<Option<u64>, StorageError> {
    let tree = table_path(path, table);
    match Manifest::read(&tree) {
        Ok(manifest) => Ok(Some(manifest.version)),
        Err(ManifestError::Missing | ManifestError::Damaged { .. }) => Ok(None),
        Err(ManifestError::UnknownVersion(unknown)) => Err(unknown.into()),
        Err(ManifestError::Io(source)) => {
            Err(StorageError::io(format!("reading {}", tree.display()), source))
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn directory_is_locked_while_open() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::open(dir.path()).unwrap();
        let second = Directory::open(dir.path()).unwrap_err();
        assert!(second.to_string().ends_with("is in use by another process"));
        drop(first);
        Directory::open(dir.path()).unwrap();
    }

    #[test]
    fn last_mark_of_the_log_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        assert_eq!(directory.log_mark().unwrap(), LogMark::Absent);
        for mark in [&b"first"[..], b"second"] {
            directory.set_log_mark(mark.into()).unwrap();
            let recorded = LogMark::Recorded(mark.into());
            assert_eq!(directory.log_mark().unwrap(), recorded);
            fs::remove_file(log_mark_file(dir.path())).unwrap();
            directory.keep_log_mark().unwrap();
            assert_eq!(directory.log_mark().unwrap(), recorded);
        }
        assert_eq!(existing_tables(dir.path()).unwrap(), []);
    }

    #[test]
    fn tables_are_listed_in_the_order_of_their_creation() {
        let dir = tempfile::tempdir().unwrap();
        let [meta, uid] = ["tsdb-meta", "tsdb-uid"].map(Table::new);
        let open = |tables: &[Table]| Directory::open(dir.path())?.register(tables);
        open(std::slice::from_ref(&uid)).unwrap();
        open(&[meta.clone(), uid.clone()]).unwrap();
        assert_eq!(existing_tables(dir.path()).unwrap(), [uid, meta]);
        let mut text = String::from("saltern lsm 9\n");
        crate::checksum::seal(&mut text);
        fs::write(dir.path().join("TABLES"), text).unwrap();
        assert!(open(&[]).is_err());
    }

    #[test]
    fn a_damaged_list_of_tables_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let tables = ["meta", "uid"].map(Table::new);
        let open = || Directory::open(dir.path()).unwrap().register(&tables).unwrap();
        open();
        let path = dir.path().join("TABLES");
        let intact = fs::read(&path).unwrap();
        for at in 0..intact.len() {
            let mut bytes = intact.clone();
            *bytes.get_mut(at).unwrap() ^= 0x10;
            fs::write(&path, bytes).unwrap();
            open();
            assert_eq!(fs::read(&path).unwrap(), intact, "{at}");
        }
        fs::write(&path, intact.get(..7).unwrap()).unwrap();
        open();
        assert_eq!(fs::read(&path).unwrap(), intact);
    }
}

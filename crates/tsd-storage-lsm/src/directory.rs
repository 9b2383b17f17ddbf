//! The directory of a store: its lock file and the list of its tables.
//!
//! A table is listed after its tree was created, durably. So a listed table without a tree has lost it. A
//! damaged list is made again from the configured tables.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

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
    lock: File,
    /// The tables that were listed when it was opened.
    listed: Vec<Table>,
    /// True if a log has flushed to the store before. A restored snapshot lists empty tables without trees.
    has_mark: bool,
}

impl Directory {
    /// Creates the directory if missing, locks it and reads the list of tables.
    pub(crate) fn open(path: &Path) -> Result<Self, StorageError> {
        let failed = |source| StorageError::io(format!("opening {}", path.display()), source);
        fs::create_dir_all(path).map_err(failed)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("LOCK"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StorageError::Backend(Arc::from(format!(
                    "{} is in use by another process",
                    path.display()
                ))));
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let listed = list_file(path).read_or_begin()?;
        let has_mark = recorded_log_mark(path)? != LogMark::Absent;
        Ok(Self { path: path.to_owned(), lock, listed, has_mark })
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

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the tree of a table.
    pub(crate) fn tree_path(&self, table: &Table) -> PathBuf {
        table_path(&self.path, table)
    }

    /// What the log in front has recorded.
    pub(crate) fn log_mark(&self) -> Result<LogMark, StorageError> {
        recorded_log_mark(&self.path)
    }

    /// Records a mark of the log, atomically and durably.
    pub(crate) fn set_log_mark(&self, mark: &[u8]) -> Result<(), StorageError> {
        let path = log_mark_file(&self.path);
        replace_file(&path, mark, true)
            .map_err(|source| StorageError::io(format!("writing {}", path.display()), source))
    }
}

/// The tables of the store in a directory, in the order of their creation; empty if there is no store,
/// or its list is damaged. For tools that open a store with its existing tables.
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

/// Path of the file with what the log in front of the store in a directory has recorded.
#[must_use]
pub fn log_mark_file(path: &Path) -> PathBuf {
    path.join(LOG_MARK_FILE)
}

/// What the log in front of the store in a directory has recorded.
///
/// # Errors
///
/// An error of the disk.
pub fn recorded_log_mark(path: &Path) -> Result<LogMark, StorageError> {
    let path = log_mark_file(path);
    match fs::read(&path) {
        Ok(bytes) => Ok(LogMark::Recorded(bytes.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LogMark::Absent),
        Err(error) => Err(StorageError::io(format!("reading {}", path.display()), error)),
    }
}

/// The directory of the tree of a table of the store in a directory.
#[must_use]
pub fn table_path(path: &Path, table: &Table) -> PathBuf {
    path.join(tree_name(table))
}

/// Number of the manifest of a table of the store in a directory. It grows with each change of the tree. `None` if
/// there is no tree, or its manifest is damaged, which its start looks into.
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

/// Name of the directory of a table's tree.
pub(crate) fn tree_name(table: &Table) -> String {
    file_name(table.as_str())
}

/// The table of a tree, by the name of the tree's directory.
pub(crate) fn table_of(tree: &str) -> Table {
    let mut bytes = Vec::with_capacity(tree.len());
    let mut rest = tree.strip_prefix("t.").unwrap_or(tree).bytes();
    while let Some(byte) = rest.next() {
        let mut nibble = || char::from(rest.next()?).to_digit(16);
        match byte {
            b'%' => bytes.extend(nibble().zip(nibble()).map(|(high, low)| (high << 4 | low) as u8)),
            byte => bytes.push(byte),
        }
    }
    Table::new(&String::from_utf8_lossy(&bytes))
}

/// A table name as a file name: with the prefix `t.`, which avoids collisions with other files, and
/// with special characters in hexadecimal.
fn file_name(table: &str) -> String {
    let mut name = String::from("t.");
    for byte in table.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            name.push(char::from(byte));
        } else {
            name.push('%');
            for nibble in [byte >> 4, byte & 0x0F] {
                name.extend(char::from_digit(u32::from(nibble), 16));
            }
        }
    }
    name
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
            directory.set_log_mark(mark).unwrap();
            let recorded = LogMark::Recorded(mark.to_vec().into());
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

    #[test]
    fn table_names_are_escaped_in_file_names() {
        assert_eq!(file_name("tsdb-uid"), "t.tsdb-uid");
        assert_eq!(file_name("ns:tsdb/../x"), "t.ns%3atsdb%2f..%2fx");
        for name in ["tsdb-uid", "ns:tsdb/../x", "\u{e4}%"] {
            assert_eq!(table_of(&file_name(name)).as_str(), name);
        }
    }
}

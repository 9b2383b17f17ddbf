//! The directory of a store: its lock file and the list of its tables.

use std::{
    fs::{self, File, TryLockError},
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use tsd_storage::{LogMark, StorageError, Table};

use crate::{TableLayout, TableSpec};

/// File that lists the tables.
const TABLES_FILE: &str = "TABLES";
/// File with the mark of the log in front.
const LOG_MARK_FILE: &str = "LOG";
const VERSION_LINE: &str = "saltern lsm 1";

/// A locked directory; dropping it unlocks it.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Creates the directory if missing, locks it, checks the layouts of existing tables and adds
    /// new ones.
    pub(crate) fn open(path: &Path, tables: &[TableSpec]) -> Result<Self, StorageError> {
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
        let directory = Self { path: path.to_owned(), lock };
        directory.register(tables)?;
        Ok(directory)
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
    pub(crate) fn tree_path(&self, spec: &TableSpec) -> PathBuf {
        self.path.join(file_name(spec.table.as_str()))
    }

    fn register(&self, tables: &[TableSpec]) -> Result<(), StorageError> {
        let path = self.path.join(TABLES_FILE);
        let (text, existing) = read_tables(&path)?;
        let mut added = text.clone();
        for spec in tables {
            match existing.iter().find(|existing| existing.table == spec.table) {
                Some(existing) if existing.layout == spec.layout => {}
                Some(existing) => {
                    return Err(damaged_file(
                        &path,
                        &format!("table {} has another layout", existing.table),
                    ));
                }
                None => {
                    added.push_str(layout_name(spec.layout));
                    added.push(' ');
                    added.push_str(spec.table.as_str());
                    added.push('\n');
                }
            }
        }
        if added == text {
            return Ok(());
        }
        self.replace_file(&path, added.as_bytes())
            .map_err(|source| StorageError::io(format!("writing {}", path.display()), source))
    }

    /// What the log in front has recorded.
    pub(crate) fn log_mark(&self) -> Result<LogMark, StorageError> {
        let path = self.path.join(LOG_MARK_FILE);
        match fs::read(&path) {
            Ok(bytes) => Ok(LogMark::Recorded(bytes.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(LogMark::Absent),
            Err(error) => Err(StorageError::io(format!("reading {}", path.display()), error)),
        }
    }

    /// Records a mark of the log, atomically and durably.
    pub(crate) fn set_log_mark(&self, mark: &[u8]) -> Result<(), StorageError> {
        let path = self.path.join(LOG_MARK_FILE);
        self.replace_file(&path, mark)
            .map_err(|source| StorageError::io(format!("writing {}", path.display()), source))
    }

    /// Replaces a file atomically.
    fn replace_file(&self, path: &Path, contents: &[u8]) -> std::io::Result<()> {
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(&self.path)?.sync_all()
    }
}

/// Tables of the store in a directory; empty if there is no store.
pub(crate) fn existing_tables(path: &Path) -> Result<Vec<TableSpec>, StorageError> {
    read_tables(&path.join(TABLES_FILE)).map(|(_, tables)| tables)
}

/// Reads the list of tables: its text (of an empty list if there is no file) and its tables.
fn read_tables(path: &Path) -> Result<(String, Vec<TableSpec>), StorageError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => format!("{VERSION_LINE}\n"),
        Err(error) => {
            return Err(StorageError::io(format!("reading {}", path.display()), error));
        }
    };
    let mut lines = text.lines();
    if lines.next() != Some(VERSION_LINE) {
        return Err(damaged_file(path, "written by another version"));
    }
    let mut tables = Vec::new();
    for line in lines {
        let (layout, name) =
            line.split_once(' ').ok_or_else(|| damaged_file(path, "not a table"))?;
        let layout = parse_layout(layout).ok_or_else(|| damaged_file(path, "unknown layout"))?;
        tables.push(TableSpec { table: Table::new(name), layout });
    }
    Ok((text, tables))
}

fn damaged_file(path: &Path, what: &str) -> StorageError {
    StorageError::Damaged(Arc::from(format!("{}: {what}", path.display())))
}

const fn layout_name(layout: TableLayout) -> &'static str {
    match layout {
        TableLayout::Points => "points",
        TableLayout::Cells => "cells",
    }
}

fn parse_layout(name: &str) -> Option<TableLayout> {
    match name {
        "points" => Some(TableLayout::Points),
        "cells" => Some(TableLayout::Cells),
        _ => None,
    }
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
        let first = Directory::open(dir.path(), &[]).unwrap();
        let second = Directory::open(dir.path(), &[]).unwrap_err();
        assert!(second.to_string().ends_with("is in use by another process"));
        drop(first);
        Directory::open(dir.path(), &[]).unwrap();
    }

    #[test]
    fn last_mark_of_the_log_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path(), &[]).unwrap();
        assert_eq!(directory.log_mark().unwrap(), LogMark::Absent);
        for mark in [&b"first"[..], b"second"] {
            directory.set_log_mark(mark).unwrap();
            let recorded = LogMark::Recorded(mark.to_vec().into());
            assert_eq!(directory.log_mark().unwrap(), recorded);
        }
        assert_eq!(existing_tables(dir.path()).unwrap(), []);
    }

    #[test]
    fn layout_of_a_table_is_fixed() {
        let dir = tempfile::tempdir().unwrap();
        let [data, uid] = ["tsdb", "tsdb-uid"].map(Table::new);
        let open = |tables: &[TableSpec]| Directory::open(dir.path(), tables).map(|_| ());
        open(&[TableSpec::points(data.clone())]).unwrap();
        open(&[TableSpec::cells(uid.clone())]).unwrap();
        open(&[TableSpec::cells(uid), TableSpec::points(data.clone())]).unwrap();
        let existing = existing_tables(dir.path()).unwrap();
        assert_eq!(
            existing,
            [TableSpec::points(data.clone()), TableSpec::cells(Table::new("tsdb-uid"))]
        );
        assert!(
            open(&[TableSpec::cells(data)]).unwrap_err().to_string().contains("another layout")
        );
        fs::write(dir.path().join("TABLES"), "saltern lsm 9\n").unwrap();
        assert!(open(&[]).is_err());
    }

    #[test]
    fn table_names_are_escaped_in_file_names() {
        assert_eq!(file_name("tsdb-uid"), "t.tsdb-uid");
        assert_eq!(file_name("ns:tsdb/../x"), "t.ns%3atsdb%2f..%2fx");
    }
}

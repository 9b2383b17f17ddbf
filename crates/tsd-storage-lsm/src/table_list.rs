//! A file that lists tables, one per line.

use std::{
    io,
    path::{Path, PathBuf},
};

use tsd_storage::{StorageError, Table, UnknownVersion};

use crate::sealed_lines::SealedLinesFile;

/// A list of tables in a file, which may be missing.
#[derive(Clone, Debug)]
pub struct TableListFile(SealedLinesFile);

impl TableListFile {
    /// The list at a path; its first line is `version_line`.
    #[must_use]
    pub const fn new(path: PathBuf, version_line: &'static str) -> Self {
        Self(SealedLinesFile::new(path, version_line))
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Reads the tables; empty for a missing file, `None` for a damaged list.
    ///
    /// # Errors
    ///
    /// [`StorageError::UnknownVersion`] if another release wrote the list, or an error of the disk.
    pub fn read(&self) -> Result<Option<Vec<Table>>, StorageError> {
        let lines = self.0.read()?;
        Ok(lines.map(|lines| lines.iter().map(|name| Table::new(name)).collect()))
    }

    /// Reads the tables. A damaged list is logged and counts as empty; the next [`Self::write`]
    /// replaces it.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_or_begin(&self) -> Result<Vec<Table>, StorageError> {
        let tables = self.read()?;
        if tables.is_none() {
            tracing::error!(file = %self.path().display(), "the list of tables is damaged; it is made again");
        }
        Ok(tables.unwrap_or_default())
    }

    /// Replaces the tables of the list durably.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    pub fn write(&self, tables: &[Table]) -> Result<(), StorageError> {
        self.0.write(tables.iter().map(Table::as_str))
    }

    /// The contents of the file with these tables.
    pub(crate) fn text(&self, tables: &[Table]) -> String {
        self.0.text(tables.iter().map(Table::as_str))
    }

    /// The error of the list if another release has written it.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    pub fn unknown_version(&self) -> io::Result<Option<UnknownVersion>> {
        self.0.unknown_version()
    }
}

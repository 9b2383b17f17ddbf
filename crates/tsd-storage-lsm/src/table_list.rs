//! A file that lists tables: a line with its version, a line for each table, and a checksum.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tsd_storage::{StorageError, Table, UnknownVersion};

use crate::{
    checksum,
    manifest::{replace_file, unknown_text},
};

/// A list of tables in a file, which may be missing.
#[derive(Clone, Debug)]
pub struct TableListFile {
    path: PathBuf,
    version_line: &'static str,
}

impl TableListFile {
    /// The list at a path; its first line is `version_line`.
    #[must_use]
    pub const fn new(path: PathBuf, version_line: &'static str) -> Self {
        Self { path, version_line }
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the tables, none if there is no file; `None` if the list is damaged.
    ///
    /// # Errors
    ///
    /// [`StorageError::UnknownVersion`] if another release wrote the list, or an error of the disk.
    pub fn read(&self) -> Result<Option<Vec<Table>>, StorageError> {
        let text = match fs::read(&self.path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
            Err(error) => {
                return Err(StorageError::io(format!("reading {}", self.path.display()), error));
            }
        };
        let Some(body) = checksum::unseal(&text) else { return Ok(None) };
        let mut lines = body.lines();
        if lines.next() != Some(self.version_line) {
            return UnknownVersion::of_text(self.path.display(), body, self.version_line)
                .map_or(Ok(None), |unknown| Err(unknown.into()));
        }
        Ok(Some(lines.map(Table::new).collect()))
    }

    /// Reads the tables; none of a damaged list, which is logged and made again by the next [`Self::write`].
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_or_begin(&self) -> Result<Vec<Table>, StorageError> {
        let tables = self.read()?;
        if tables.is_none() {
            tracing::error!(file = %self.path.display(), "the list of tables is damaged; it is made again");
        }
        Ok(tables.unwrap_or_default())
    }

    /// Makes these the tables of the list, durably.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    pub fn write(&self, tables: &[Table]) -> Result<(), StorageError> {
        let text = self.text(tables);
        if fs::read(&self.path).is_ok_and(|stored| stored == text.as_bytes()) {
            return Ok(());
        }
        replace_file(&self.path, text.as_bytes(), true)
            .map_err(|source| StorageError::io(format!("writing {}", self.path.display()), source))
    }

    /// The contents of the file with these tables.
    pub(crate) fn text(&self, tables: &[Table]) -> String {
        let mut text = format!("{}\n", self.version_line);
        for table in tables {
            text.push_str(table.as_str());
            text.push('\n');
        }
        checksum::seal(&mut text);
        text
    }

    /// The error of the list if another release has written it.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    pub fn unknown_version(&self) -> io::Result<Option<UnknownVersion>> {
        unknown_text(&self.path, self.version_line)
    }
}

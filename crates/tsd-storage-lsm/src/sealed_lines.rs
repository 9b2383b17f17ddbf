//! A file of lines with a version and a checksum, for short lists that are replaced as a whole.
//!
//! Callers define the meaning of the lines.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tsd_files::read_file;
use tsd_storage::{StorageError, UnknownVersion};

use crate::{
    checksum,
    manifest::{replace_file, unknown_text},
};

/// A file of lines, which may be missing.
#[derive(Clone, Debug)]
pub struct SealedLinesFile {
    path: PathBuf,
    version_line: &'static str,
}

impl SealedLinesFile {
    /// The file at a path; its first line is `version_line`.
    #[must_use]
    pub const fn new(path: PathBuf, version_line: &'static str) -> Self {
        Self { path, version_line }
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the lines between version and checksum; empty for a missing file, `None` for a damaged
    /// file.
    ///
    /// # Errors
    ///
    /// [`StorageError::UnknownVersion`] if another release wrote the file, or an error of the disk.
    pub fn read(&self) -> Result<Option<Vec<String>>, StorageError> {
        let text = match read_file(&self.path) {
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
        Ok(Some(lines.map(str::to_owned).collect()))
    }

    /// Replaces the lines of the file durably, if they differ.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    pub fn write<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> Result<(), StorageError> {
        let text = self.text(lines);
        if fs::read(&self.path).is_ok_and(|stored| stored == text.as_bytes()) {
            return Ok(());
        }
        replace_file(&self.path, text.as_bytes(), true)
            .map_err(|source| StorageError::io(format!("writing {}", self.path.display()), source))
    }

    /// The contents of the file with these lines.
    pub(crate) fn text<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> String {
        let mut text = format!("{}\n", self.version_line);
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        checksum::seal(&mut text);
        text
    }

    /// The error of the file if another release has written it.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    pub fn unknown_version(&self) -> io::Result<Option<UnknownVersion>> {
        unknown_text(&self.path, self.version_line)
    }
}

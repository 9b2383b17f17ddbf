//! Small properties files next to the data, which describe it.
//!
//! They decide whether the data may be opened, so they are written atomically and durably.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::config::{PropertiesError, Property, parse_properties};

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PropertiesFileError {
    /// I/O error.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// It is not a properties file.
    #[error("{} is damaged; restore the file from a copy", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Parse error.
        source: PropertiesError,
    },
}

/// The content of a file.
#[derive(Debug)]
pub(crate) struct PropertiesFile {
    properties: Vec<Property>,
}

impl PropertiesFile {
    /// Reads a file; `None` if it does not exist.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, PropertiesFileError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(PropertiesFileError::Io { path: path.to_owned(), source }),
        };
        let malformed = |source| PropertiesFileError::Malformed { path: path.to_owned(), source };
        Ok(Some(Self { properties: parse_properties(&text).map_err(malformed)? }))
    }

    /// The last value of a key.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        let found = self.properties.iter().rev().find(|property| property.key == key);
        found.map(|property| property.value.trim())
    }
}

/// Writes a file atomically and durably.
pub(crate) fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_added_extension("new");
    fs::write(&new, text)?;
    File::open(&new)?.sync_all()?;
    fs::rename(&new, path)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    File::open(above.unwrap_or(Path::new(".")))?.sync_all()
}

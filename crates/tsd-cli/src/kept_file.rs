//! Small files of properties beside the data, which say what the data is.
//!
//! What they say decides whether data may be opened at all, so one is there whole or not at all.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::config::{PropertiesError, Property, parse_properties};

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum KeptFileError {
    /// The system refused.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no properties file.
    #[error("{} is damaged", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where.
        source: PropertiesError,
    },
}

/// What a file says.
#[derive(Debug)]
pub(crate) struct KeptFile {
    properties: Vec<Property>,
}

impl KeptFile {
    /// Reads a file; `None` where there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, KeptFileError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(KeptFileError::Io { path: path.to_owned(), source }),
        };
        match parse_properties(&text) {
            Ok(properties) => Ok(Some(Self { properties })),
            Err(source) => Err(KeptFileError::Malformed { path: path.to_owned(), source }),
        }
    }

    /// Writes a file whole or not at all, durably.
    pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
        let mut part = path.as_os_str().to_owned();
        part.push(".new");
        fs::write(&part, text)?;
        File::open(&part)?.sync_all()?;
        fs::rename(&part, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }

    /// The last value of a key.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        let found = self.properties.iter().rev().find(|property| property.key == key);
        found.map(|property| property.value.trim())
    }
}

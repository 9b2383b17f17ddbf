//! The embedded store's directory, and the shape of keys it remembers.
//!
//! Widths and salting are part of every key. A store opened under others would find nothing and
//! mix two kinds of rows, so the directory keeps the ones it was made with, and they win over
//! defaults; a configuration that says otherwise is refused.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tsd_model::{SchemaError, TableSchema};

use crate::config::{Config, PropertiesError, StorageSettings, parse_properties};

/// File that holds the shape.
const SCHEMA_FILE: &str = "schema.conf";
const VERSION_KEY: &str = "format.version";
const VERSION: u64 = 1;

/// A directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirectoryError {
    /// The system refused.
    #[error("cannot use the data directory {}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The schema file is no properties file.
    #[error("{} is damaged", path.display())]
    Malformed {
        /// The schema file.
        path: PathBuf,
        /// Where.
        source: PropertiesError,
    },
    /// The schema file lacks a key or has no number there.
    #[error("{} is damaged: no number for {key}", path.display())]
    MissingKey {
        /// The schema file.
        path: PathBuf,
        /// The key.
        key: &'static str,
    },
    /// A later version wrote the directory.
    #[error("{} was written by a later version (format {found}; this one knows {VERSION})", path.display())]
    LaterVersion {
        /// The directory.
        path: PathBuf,
        /// The version found.
        found: u64,
    },
    /// The schema file asks for a shape that cannot be.
    #[error("{} is damaged", path.display())]
    Schema {
        /// The schema file.
        path: PathBuf,
        /// What is wrong.
        source: SchemaError,
    },
    /// The configuration contradicts the directory.
    #[error(
        "{key} = {wanted} contradicts the data directory {}, which was made with {stored} and \
         cannot change; drop the setting or use another directory", path.display()
    )]
    Contradiction {
        /// The directory.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// What the configuration says.
        wanted: u64,
        /// What the directory was made with.
        stored: u64,
    },
    /// There is data but no schema file.
    #[error(
        "{} holds data but no {SCHEMA_FILE}: restore the file, or move the data away",
        path.display()
    )]
    SchemaLost {
        /// The directory.
        path: PathBuf,
    },
}

/// An embedded store's directory, ready to be opened.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    path: PathBuf,
    schema: TableSchema,
}

impl DataDirectory {
    /// Creates the directory where it is new, and settles the shape of keys.
    pub fn prepare(
        settings: &StorageSettings,
        config: &Config,
    ) -> Result<Self, DataDirectoryError> {
        let path = settings.data_directory.clone();
        let io = |source| DataDirectoryError::Io { path: path.clone(), source };
        fs::create_dir_all(&path).map_err(io)?;
        let directory = Self { path: path.clone(), schema: settings.schema };
        let stored = match directory.read_schema()? {
            Some(stored) => stored,
            None if directory.log().exists() || directory.store().exists() => {
                return Err(DataDirectoryError::SchemaLost { path });
            }
            None => {
                directory.write_schema().map_err(io)?;
                // Another process may have been faster; its file is the one that counts.
                directory.read_schema()?.unwrap_or(settings.schema)
            }
        };
        for ((key, wanted), (_, stored)) in
            numbers(&settings.schema).into_iter().zip(numbers(&stored))
        {
            // Without salt the number of buckets shapes no key.
            let shapes_keys = key != "tsd.storage.salt.buckets" || settings.schema.salt_width() > 0;
            if wanted != stored && config.is_set(key) && shapes_keys {
                return Err(DataDirectoryError::Contradiction { path, key, wanted, stored });
            }
        }
        Ok(Self { path, schema: stored })
    }

    /// The shape of keys in this directory.
    #[must_use]
    pub const fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Directory of the write-ahead log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Directory of the log-structured merge tree.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    fn read_schema(&self) -> Result<Option<TableSchema>, DataDirectoryError> {
        let path = self.path.join(SCHEMA_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(DataDirectoryError::Io { path, source }),
        };
        let properties = parse_properties(&text)
            .map_err(|source| DataDirectoryError::Malformed { path: path.clone(), source })?;
        let number = |key: &'static str| {
            properties
                .iter()
                .rev()
                .find(|p| p.key == key)
                .and_then(|p| p.value.trim().parse::<u64>().ok())
                .ok_or_else(|| DataDirectoryError::MissingKey { path: path.clone(), key })
        };
        let found = number(VERSION_KEY)?;
        if found > VERSION {
            return Err(DataDirectoryError::LaterVersion { path: self.path.clone(), found });
        }
        let width = |key| number(key).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        TableSchema::try_new(
            width("tsd.storage.uid.width.metric")?,
            width("tsd.storage.uid.width.tagk")?,
            width("tsd.storage.uid.width.tagv")?,
            width("tsd.storage.salt.width")?,
            u32::try_from(number("tsd.storage.salt.buckets")?).unwrap_or(0),
        )
        .map(Some)
        .map_err(|source| DataDirectoryError::Schema { path: path.clone(), source })
    }

    /// Writes the file whole or not at all, and never over another.
    fn write_schema(&self) -> io::Result<()> {
        let mut text =
            String::from("# The shape of every key in this directory, fixed when it was made.\n");
        text.push_str(&format!("{VERSION_KEY} = {VERSION}\n"));
        for (key, value) in numbers(&self.schema) {
            text.push_str(&format!("{key} = {value}\n"));
        }
        let whole = self.path.join(SCHEMA_FILE);
        let part = self.path.join(format!("{SCHEMA_FILE}.{}", std::process::id()));
        fs::write(&part, text)?;
        fs::File::open(&part)?.sync_all()?;
        let linked = match fs::hard_link(&part, &whole) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
        fs::remove_file(&part)?;
        linked?;
        fs::File::open(&self.path)?.sync_all()
    }
}

fn numbers(schema: &TableSchema) -> [(&'static str, u64); 5] {
    [
        ("tsd.storage.uid.width.metric", schema.metric_width() as u64),
        ("tsd.storage.uid.width.tagk", schema.tagk_width() as u64),
        ("tsd.storage.uid.width.tagv", schema.tagv_width() as u64),
        ("tsd.storage.salt.width", schema.salt_width() as u64),
        ("tsd.storage.salt.buckets", u64::from(schema.salt_buckets())),
    ]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::Settings;

    fn prepare(path: &Path, text: &str) -> Result<DataDirectory, DataDirectoryError> {
        let mut config = Config::new();
        config.add_file(Path::new("f"), text.as_bytes()).unwrap();
        config.set_flag("--data", "tsd.storage.data_directory", path.to_str().unwrap());
        let settings = Settings::from_config(&config).unwrap();
        DataDirectory::prepare(&settings.storage, &config)
    }

    #[test]
    fn a_directory_remembers_its_shape() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/data");
        let made =
            prepare(&path, "tsd.storage.salt.width=2\ntsd.storage.uid.width.tagv=4").unwrap();
        let opened = prepare(&path, "").unwrap();
        assert_eq!(made.schema(), opened.schema());
        assert_eq!(opened.schema().tagv_width(), 4);
    }

    #[test]
    fn a_contradiction_names_the_key() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), "").unwrap();
        let error = prepare(dir.path(), "tsd.storage.salt.width = 0").unwrap_err().to_string();
        assert!(error.starts_with("tsd.storage.salt.width = 0 contradicts"), "{error}");
        assert!(error.contains("made with 1"), "{error}");
    }

    #[test]
    fn buckets_are_free_where_keys_are_not_salted() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), "tsd.storage.salt.width=0").unwrap();
        prepare(dir.path(), "tsd.storage.salt.width=0\ntsd.storage.salt.buckets=7").unwrap();
    }

    #[test]
    fn data_without_its_schema_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = prepare(dir.path(), "").unwrap();
        fs::create_dir(made.log()).unwrap();
        fs::remove_file(dir.path().join(SCHEMA_FILE)).unwrap();
        let error = prepare(dir.path(), "").unwrap_err();
        assert!(matches!(error, DataDirectoryError::SchemaLost { .. }));
    }

    #[test]
    fn damage_and_later_versions_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(SCHEMA_FILE);
        fs::write(&file, "format.version = 2").unwrap();
        let error = prepare(dir.path(), "").unwrap_err();
        assert!(matches!(error, DataDirectoryError::LaterVersion { found: 2, .. }));
        fs::write(&file, "format.version = 1\ntsd.storage.uid.width.metric = x").unwrap();
        let error = prepare(dir.path(), "").unwrap_err();
        assert!(matches!(error, DataDirectoryError::MissingKey { .. }));
    }
}

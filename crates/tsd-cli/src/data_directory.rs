//! The embedded store's directory, and the shape of keys it remembers.
//!
//! Widths and salting are part of every key. A store opened under others would find nothing and
//! mix two kinds of rows, so the directory keeps the ones it was made with, and they win over
//! defaults; a configuration that says otherwise is refused.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use tsd_model::{SchemaError, TableSchema};

use crate::{
    config::{Config, StorageSettings},
    kept_file::{KeptFile, KeptFileError},
};

/// File that holds the shape.
const SCHEMA_FILE: &str = "schema.conf";
const LOCK_FILE: &str = "lock";
const VERSION_KEY: &str = "format.version";
const VERSION: u64 = 1;

/// A directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DataDirectoryError {
    /// The system refused.
    #[error("cannot use the data directory {}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The schema file cannot be read, or is none.
    #[error(transparent)]
    File(#[from] KeptFileError),
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
    /// Another process has the directory.
    #[error(
        "the data directory {} is in use by {owner}; reach a running daemon over HTTP", path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// `process N`, or what is known of it.
        owner: String,
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

/// An embedded store's directory, locked and ready to be opened.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
    schema: TableSchema,
    // Locked for as long as it is open.
    _lock: File,
}

impl DataDirectory {
    /// Creates the directory where it is new, locks it, and settles the shape of keys.
    pub(crate) fn prepare(
        settings: &StorageSettings,
        config: &Config,
    ) -> Result<Self, DataDirectoryError> {
        let path = settings.data_directory.clone();
        let io = |source| DataDirectoryError::Io { path: path.clone(), source };
        fs::create_dir_all(&path).map_err(io)?;
        let mut directory =
            Self { path: path.clone(), schema: settings.schema, _lock: lock(&path)? };
        let stored = match directory.read_schema()? {
            Some(stored) => stored,
            None if directory.log().exists() || directory.store().exists() => {
                return Err(DataDirectoryError::SchemaLost { path });
            }
            None => {
                directory.write_schema().map_err(io)?;
                settings.schema
            }
        };
        for ((key, wanted), (_, stored)) in
            numbers(settings.schema).into_iter().zip(numbers(stored))
        {
            // Without salt the number of buckets shapes no key.
            let shapes_keys = key != "tsd.storage.salt.buckets" || settings.schema.salt_width() > 0;
            if wanted != stored && config.is_set(key) && shapes_keys {
                return Err(DataDirectoryError::Contradiction { path, key, wanted, stored });
            }
        }
        directory.schema = stored;
        Ok(directory)
    }

    /// The shape of keys in this directory.
    #[must_use]
    pub(crate) const fn schema(&self) -> TableSchema {
        self.schema
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Directory of the write-ahead log.
    #[must_use]
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Directory of the log-structured merge tree.
    #[must_use]
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    fn read_schema(&self) -> Result<Option<TableSchema>, DataDirectoryError> {
        let path = self.path.join(SCHEMA_FILE);
        let Some(file) = KeptFile::read(&path)? else { return Ok(None) };
        let number = |key: &'static str| {
            file.value(key)
                .and_then(|value| value.parse::<u64>().ok())
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

    fn write_schema(&self) -> io::Result<()> {
        let keys = numbers(self.schema).map(|(key, n)| format!("{key} = {n}\n")).concat();
        let text = format!(
            "# The shape of every key in this directory, fixed when it was made.\n\
             {VERSION_KEY} = {VERSION}\n{keys}"
        );
        KeptFile::write(&self.path.join(SCHEMA_FILE), &text)
    }
}

/// Takes the lock, and leaves the number of this process for whoever finds it taken.
fn lock(directory: &Path) -> Result<File, DataDirectoryError> {
    let path = directory.join(LOCK_FILE);
    let io = |source| DataDirectoryError::Io { path: path.clone(), source };
    let mut file = File::options()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(source)) => return Err(io(source)),
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let known = file.read_to_string(&mut owner).is_ok() && !owner.is_empty();
            return Err(DataDirectoryError::InUse {
                path: directory.to_owned(),
                owner: if known { owner } else { "another process".to_owned() },
            });
        }
    }
    file.set_len(0).map_err(io)?;
    file.write_all(format!("process {}", std::process::id()).as_bytes()).map_err(io)?;
    Ok(file)
}

fn numbers(schema: TableSchema) -> [(&'static str, u64); 5] {
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
        let schema = made.schema();
        // Its lock goes with it.
        drop(made);
        let opened = prepare(&path, "").unwrap();
        assert_eq!(schema, opened.schema());
        assert_eq!(opened.schema().tagv_width(), 4);
    }

    #[test]
    fn the_lock_names_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let held = prepare(dir.path(), "").unwrap();
        let error = prepare(dir.path(), "").unwrap_err().to_string();
        assert!(error.contains(&format!("in use by process {};", std::process::id())), "{error}");
        drop(held);
        prepare(dir.path(), "").unwrap();
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
        let log = prepare(dir.path(), "").unwrap().log();
        fs::create_dir(log).unwrap();
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

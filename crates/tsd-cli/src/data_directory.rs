//! The data directory of the embedded store: its lock and its recorded key layout.
//!
//! UID widths and salting are part of every key. A store opened with a different layout would find no rows and mix
//! two layouts. So the directory records its layout at creation. The record overrides defaults; a contradicting
//! configuration is rejected.

use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use tsd_files::{DirectoryLock, LockError, SNAPSHOT_LIST};
use tsd_model::{SchemaError, TableSchema};

use crate::{
    config::{Config, ConfigError, StorageSettings},
    properties_file::{PropertiesFile, PropertiesFileError, replace_file},
};

/// File with the key layout.
const SCHEMA_FILE: &str = "schema.conf";
/// The process that has the directory open locks this file.
pub(crate) const LOCK_FILE: &str = "lock";
/// Directory of a running restore. While it exists, the data directory has no store.
pub(crate) const RESTORING: &str = "restoring";
/// Entries that make up a data directory, without its lock.
pub(crate) const PARTS: [&str; 3] = ["log", SCHEMA_FILE, "store"];
/// Records that a store was opened here, so that a missing store is a loss. `rm -rf DIRECTORY/*` keeps this file.
pub(crate) const MARK_FILE: &str = ".tsdb-store";
const VERSION_KEY: &str = "format.version";
/// Version of the directory. Version 1 had the points in the trees of the small tables.
const VERSION: u64 = 2;
/// Key of the checksum of the numbers; directories of earlier versions have none.
const CHECK_KEY: &str = "format.check";

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DataDirectoryError {
    /// I/O error.
    #[error("cannot use the data directory {}{}", path.display(), way_out(source))]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// There is no data directory.
    #[error(transparent)]
    Missing(ConfigError),
    /// The schema file cannot be read.
    #[error(transparent)]
    File(#[from] PropertiesFileError),
    /// The schema file has no valid number for a key.
    #[error("{} is damaged: no number for {key}; restore the file from a copy", path.display())]
    MissingKey {
        /// The schema file.
        path: PathBuf,
        /// The key.
        key: &'static str,
    },
    /// A later version wrote the directory.
    #[error(
        "{} has version {found}, this release reads {VERSION}: start the release that wrote it, or restore the file \
         from a copy if it is damaged", path.display()
    )]
    LaterVersion {
        /// The schema file.
        path: PathBuf,
        /// The version found.
        found: u64,
    },
    /// An earlier version wrote the directory.
    #[error(
        "{} was written by an earlier version (format {found}; this version supports only {VERSION}), or is damaged. \
         If it is damaged, restore it from a copy. The data directory was not changed. To keep its points, use \
         another directory (--data), and put them there with the version that wrote them", path.display()
    )]
    EarlierVersion {
        /// The schema file.
        path: PathBuf,
        /// The version found.
        found: u64,
    },
    /// The numbers of the schema file do not match its checksum.
    #[error(
        "{} is damaged: its numbers do not match {CHECK_KEY}; restore the file from a copy, or remove the line \
         {CHECK_KEY} if all numbers are right", path.display()
    )]
    WrongCheck {
        /// The schema file.
        path: PathBuf,
    },
    /// The schema file has an invalid layout.
    #[error("{} is damaged; restore the file from a copy", path.display())]
    Schema {
        /// The schema file.
        path: PathBuf,
        /// The error.
        source: SchemaError,
    },
    /// The configuration contradicts the directory.
    #[error(
        "{key} = {wanted} contradicts the data directory {}, which was created with {stored} and \
         cannot change; remove the setting or use another directory", path.display()
    )]
    Contradiction {
        /// The directory.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// The configured value.
        wanted: u64,
        /// The recorded value.
        stored: u64,
    },
    /// Another process uses the directory.
    #[error(
        "the data directory {} is in use by {owner}{}; stop it, or use another directory (--data)",
        path.display(), url.as_ref().map(|url| format!(", which serves {url}")).unwrap_or_default()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// `process N`, or a general description.
        owner: String,
        /// URL of the daemon; `None` if the owner is a tool, or a daemon that does not serve yet.
        url: Option<String>,
    },
    /// A restore is running or was interrupted.
    #[error(
        "a snapshot is being restored to {}, or its restore was interrupted; if it was, repeat `tsdb restore`",
        path.display()
    )]
    Restoring {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is a snapshot, which a store would change.
    #[error(
        "{} is a snapshot, not a data directory; `tsdb restore` makes a data directory from it", path.display()
    )]
    IsSnapshot {
        /// The directory.
        path: PathBuf,
    },
    /// The store of this directory is missing.
    #[error(
        "{} has no store, but {MARK_FILE} records that a store was opened here; put {} back (is its disk mounted?), \
         restore a snapshot, or start with --accept-damage to create an empty store", path.display(), missing.join(" \
         and ")
    )]
    StoreLost {
        /// The directory.
        path: PathBuf,
        /// The missing entries.
        missing: Vec<&'static str>,
    },
    /// The directory has data without a schema file.
    #[error(
        "{} has data but no {SCHEMA_FILE}; restore the file, or move the data elsewhere",
        path.display()
    )]
    SchemaLost {
        /// The directory.
        path: PathBuf,
    },
}

/// Adds advice to the error that a daemon has the store open.
pub(crate) fn explain_use(error: anyhow::Error, way_out: &'static str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(DataDirectoryError::InUse { .. }) => error.context(way_out),
        _ => error,
    }
}

/// A locked data directory.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
    schema: TableSchema,
    lock: DirectoryLock,
}

impl DataDirectory {
    /// Locks the directory and reads the key layout. If the directory is new, creates it and records
    /// the layout, or fails without touching anything if `create` is false.
    pub(crate) fn prepare(
        settings: &StorageSettings,
        config: &Config,
        create: bool,
    ) -> Result<Self, DataDirectoryError> {
        let path = settings.data_directory.clone();
        let io = |source| DataDirectoryError::Io { path: path.clone(), source };
        if path.join(RESTORING).exists() {
            return Err(DataDirectoryError::Restoring { path });
        }
        if path.join(SNAPSHOT_LIST).exists() {
            return Err(DataDirectoryError::IsSnapshot { path });
        }
        let is_new = || !PARTS.iter().any(|name| path.join(name).exists());
        if !create && is_new() {
            let expected = "there is no data here; expected a directory that `tsdb tsd` or `tsdb \
                            import --create` has created";
            let error = config.bad_value("tsd.storage.data_directory", expected);
            return Err(DataDirectoryError::Missing(error));
        }
        if !settings.accept_damage && path.join(MARK_FILE).exists() && !path.join("store").exists()
        {
            let missing = PARTS.into_iter().filter(|part| !path.join(part).exists()).collect();
            return Err(DataDirectoryError::StoreLost { path, missing });
        }
        // Before any change, even of the lock file.
        check_version(&path.join(SCHEMA_FILE))?;
        fs::create_dir_all(&path).map_err(io)?;
        let mut directory =
            Self { path: path.clone(), schema: settings.schema, lock: lock(&path)? };
        let stored = match directory.read_schema()? {
            Some(stored) => stored,
            None if directory.log().exists() || directory.store().exists() => {
                return Err(DataDirectoryError::SchemaLost { path });
            }
            None => {
                write_schema(&path, settings.schema).map_err(io)?;
                settings.schema
            }
        };
        for ((key, wanted), (_, stored)) in
            numbers(settings.schema).into_iter().zip(numbers(stored))
        {
            // Without salt the number of buckets is not part of the layout.
            let shapes_keys = key != "tsd.storage.salt.buckets" || settings.schema.salt_width() > 0;
            if wanted != stored && config.is_set(key) && shapes_keys {
                return Err(DataDirectoryError::Contradiction { path, key, wanted, stored });
            }
        }
        directory.schema = stored;
        Ok(directory)
    }

    /// The key layout of this directory.
    #[must_use]
    pub(crate) const fn schema(&self) -> TableSchema {
        self.schema
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the URL of this daemon into the lock file, for tools that find the directory in use.
    pub(crate) fn publish(&self, url: &str) -> io::Result<()> {
        write_owner(self.lock.file(), Some(url))
    }

    /// Records that a store was opened in this directory. Directories of earlier releases lack this record.
    pub(crate) fn mark_opened(&self) -> io::Result<()> {
        let path = self.path.join(MARK_FILE);
        if path.exists() {
            return Ok(());
        }
        let text = "# A store was opened in this directory. Without the store the daemon does not start.\n";
        replace_file(&path, text)
    }

    /// The file of the key layout.
    #[must_use]
    pub(crate) fn schema_file(&self) -> PathBuf {
        self.path.join(SCHEMA_FILE)
    }

    /// Directory of the write-ahead log.
    #[must_use]
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Directory of the store.
    #[must_use]
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    fn read_schema(&self) -> Result<Option<TableSchema>, DataDirectoryError> {
        let path = self.schema_file();
        let Some(file) = PropertiesFile::read(&path)? else { return Ok(None) };
        let number = |key: &'static str| {
            file.value(key)
                .and_then(|value| value.parse::<u64>().ok())
                .ok_or_else(|| DataDirectoryError::MissingKey { path: path.clone(), key })
        };
        let found = number(VERSION_KEY)?;
        let width = |key| number(key).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let schema = TableSchema::try_new(
            width("tsd.storage.uid.width.metric")?,
            width("tsd.storage.uid.width.tagk")?,
            width("tsd.storage.uid.width.tagv")?,
            width("tsd.storage.salt.width")?,
            u32::try_from(number("tsd.storage.salt.buckets")?).unwrap_or(0),
        );
        if let Some(check) = file.value(CHECK_KEY) {
            let is_right = schema.as_ref().is_ok_and(|schema| check == checksum(*schema));
            if !is_right || found != VERSION {
                return Err(DataDirectoryError::WrongCheck { path });
            }
        }
        schema.map(Some).map_err(|source| DataDirectoryError::Schema { path, source })
    }
}

impl Drop for DataDirectory {
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

/// Records the key layout in a directory.
pub(crate) fn write_schema(directory: &Path, schema: TableSchema) -> io::Result<()> {
    let (keys, check) = (lines_of(schema), checksum(schema));
    let text = format!(
        "# Key layout of this directory, fixed at its creation.\n\
         {VERSION_KEY} = {VERSION}\n{keys}{CHECK_KEY} = {check}\n"
    );
    replace_file(&directory.join(SCHEMA_FILE), &text)
}

/// Fails if another version wrote the directory. An unreadable file, or a file without a number, is reported later.
fn check_version(path: &Path) -> Result<(), DataDirectoryError> {
    let Ok(Some(file)) = PropertiesFile::read(path) else { return Ok(()) };
    let found = file.value(VERSION_KEY).and_then(|value| value.parse::<u64>().ok());
    let path = path.to_owned();
    match found {
        Some(found) if found > VERSION => Err(DataDirectoryError::LaterVersion { path, found }),
        Some(found) if found < VERSION => Err(DataDirectoryError::EarlierVersion { path, found }),
        _ => Ok(()),
    }
}

/// Acquires the lock, and writes the process id into the file for the errors of other processes.
pub(crate) fn lock(directory: &Path) -> Result<DirectoryLock, DataDirectoryError> {
    let io = |source| DataDirectoryError::Io { path: directory.join(LOCK_FILE), source };
    let lock = DirectoryLock::acquire(directory, LOCK_FILE).map_err(|error| match error {
        LockError::Io(source) => io(source),
        LockError::InUse { text } => {
            let mut lines = text.lines().filter(|line| !line.is_empty()).map(str::to_owned);
            DataDirectoryError::InUse {
                path: directory.to_owned(),
                owner: lines.next().unwrap_or_else(|| "another process".to_owned()),
                url: lines.next(),
            }
        }
    })?;
    write_owner(lock.file(), None).map_err(io)?;
    Ok(lock)
}

/// Writes this process and its URL into its lock file. Ignores a full disk: only the errors of other processes need
/// the text, and the daemon must start for reads.
pub(crate) fn write_owner(mut file: &File, url: Option<&str>) -> io::Result<()> {
    let text = format!("process {}\n{}", std::process::id(), url.unwrap_or_default());
    file.seek(SeekFrom::Start(0))?;
    // Overwriting in place needs no space.
    match file.write_all(text.as_bytes()).and_then(|()| file.set_len(text.len() as u64)) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        written => written,
    }
}

/// Advice for the operator about an error.
fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (give this user write permission, or name another directory with --data)"
        }
        io::ErrorKind::StorageFull => " (free some space on its disk)",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            " (it is a file; name a directory with --data)"
        }
        _ => "",
    }
}

/// The keys of a layout with their numbers.
pub(crate) fn numbers(schema: TableSchema) -> [(&'static str, u64); 5] {
    [
        ("tsd.storage.uid.width.metric", schema.metric_width() as u64),
        ("tsd.storage.uid.width.tagk", schema.tagk_width() as u64),
        ("tsd.storage.uid.width.tagv", schema.tagv_width() as u64),
        ("tsd.storage.salt.width", schema.salt_width() as u64),
        ("tsd.storage.salt.buckets", u64::from(schema.salt_buckets())),
    ]
}

fn lines_of(schema: TableSchema) -> String {
    numbers(schema).map(|(key, n)| format!("{key} = {n}\n")).concat()
}

/// FNV-1a of the numbers as 16 hexadecimal digits, so that a changed digit cannot select another key layout.
fn checksum(schema: TableSchema) -> String {
    let hash = lines_of(schema).bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::Settings;

    fn prepare(path: &Path, text: &str) -> Result<DataDirectory, DataDirectoryError> {
        let mut config = Config::default();
        config.add_file(Path::new("f"), text.as_bytes()).unwrap();
        config.set_flag("--data", "tsd.storage.data_directory", path.to_str().unwrap());
        let settings = Settings::from_config(&config).unwrap();
        DataDirectory::prepare(&settings.storage, &config, true)
    }

    #[test]
    fn a_directory_records_its_key_layout() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/data");
        let made =
            prepare(&path, "tsd.storage.salt.width=2\ntsd.storage.uid.width.tagv=4").unwrap();
        let schema = made.schema();
        // Releases the lock.
        drop(made);
        let opened = prepare(&path, "").unwrap();
        assert_eq!(schema, opened.schema());
        assert_eq!(opened.schema().tagv_width(), 4);
    }

    #[test]
    fn a_flipped_bit_of_the_key_layout_is_an_error_or_harmless() {
        let dir = tempfile::tempdir().unwrap();
        let schema = prepare(dir.path(), "tsd.storage.salt.width=1").unwrap().schema();
        let path = dir.path().join(SCHEMA_FILE);
        let intact = fs::read(&path).unwrap();
        let mut errors = 0;
        for at in 0..intact.len() {
            for bit in 0..8 {
                let mut bytes = intact.clone();
                *bytes.get_mut(at).unwrap() ^= 1 << bit;
                fs::write(&path, bytes).unwrap();
                match prepare(dir.path(), "") {
                    Ok(opened) => assert_eq!(opened.schema(), schema, "byte {at}, bit {bit}"),
                    Err(error) => {
                        errors += 1;
                        assert!(error.to_string().contains(SCHEMA_FILE), "{error}");
                    }
                }
            }
        }
        assert!(errors > 100, "{errors}");
        // As an earlier version wrote it.
        let text = String::from_utf8(intact).unwrap();
        let without: String =
            text.split_inclusive('\n').filter(|line| !line.starts_with(CHECK_KEY)).collect();
        fs::write(&path, without).unwrap();
        assert_eq!(prepare(dir.path(), "").unwrap().schema(), schema);
    }

    #[test]
    fn a_tool_creates_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().join("tsdb-dta"), dir.path().to_owned()] {
            let mut config = Config::default();
            config.set_flag("--data", "tsd.storage.data_directory", path.to_str().unwrap());
            let settings = Settings::from_config(&config).unwrap();
            let error = DataDirectory::prepare(&settings.storage, &config, false).unwrap_err();
            let start = format!("tsd.storage.data_directory = {path:?} (--data): there is no data");
            assert!(error.to_string().starts_with(&start), "{error}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was created");
        }
        drop(prepare(dir.path(), "").unwrap());
        let mut config = Config::default();
        config.set_flag("--data", "tsd.storage.data_directory", dir.path().to_str().unwrap());
        let settings = Settings::from_config(&config).unwrap();
        DataDirectory::prepare(&settings.storage, &config, false).unwrap();
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
        assert!(error.contains("created with 1"), "{error}");
    }

    #[test]
    fn buckets_may_change_without_salt() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), "tsd.storage.salt.width=0").unwrap();
        prepare(dir.path(), "tsd.storage.salt.width=0\ntsd.storage.salt.buckets=7").unwrap();
    }

    #[test]
    fn data_without_its_schema_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let log = prepare(dir.path(), "").unwrap().log();
        fs::create_dir(log).unwrap();
        fs::remove_file(dir.path().join(SCHEMA_FILE)).unwrap();
        let error = prepare(dir.path(), "").unwrap_err();
        assert!(matches!(error, DataDirectoryError::SchemaLost { .. }));
    }

    #[test]
    fn damage_and_other_versions_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(SCHEMA_FILE);
        fs::write(&file, "format.version = 3").unwrap();
        let error = prepare(dir.path(), "").unwrap_err();
        assert!(matches!(error, DataDirectoryError::LaterVersion { found: 3, .. }));
        fs::write(&file, "format.version = 1").unwrap();
        let error = prepare(dir.path(), "").unwrap_err();
        assert!(matches!(error, DataDirectoryError::EarlierVersion { found: 1, .. }));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was created");
        fs::write(&file, "format.version = 2\ntsd.storage.uid.width.metric = x").unwrap();
        let error = prepare(dir.path(), "").unwrap_err();
        assert!(matches!(error, DataDirectoryError::MissingKey { .. }));
    }
}

//! Detects a missing log in front of HBase.
//!
//! The log knows which of its segments must exist, but cannot detect that its directory was removed, and HBase,
//! unlike the embedded store, has no record of the log. So the file `hbase-log.mark` next to the directory names the
//! log while it may hold acknowledged points. The daemon writes the file before the log takes its first point, and
//! removes it when the log is closed empty.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tsd_storage_wal::log_id;

use crate::properties_file::{PropertiesFile, PropertiesFileError, replace_file};

const ID: &str = "log.id";

/// A log is missing or cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LogMarkError {
    /// I/O error.
    #[error("cannot use {}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The mark cannot be read.
    #[error(transparent)]
    File(#[from] PropertiesFileError),
    /// The log is missing.
    #[error(
        "the log in {} is missing: according to {} it may hold acknowledged points that HBase does not have yet; put \
         the directory back, or start with --accept-damage to continue without the lost points",
        directory.display(), mark.display()
    )]
    Missing {
        /// Directory of the log.
        directory: PathBuf,
        /// The mark.
        mark: PathBuf,
    },
}

/// Fails if the log is missing, or if another log is in its place.
pub(super) fn check(directory: &Path, accept_damage: bool) -> Result<(), LogMarkError> {
    let mark = mark_of(directory);
    let Some(file) = PropertiesFile::read(&mark)? else { return Ok(()) };
    let found = log_id(directory).map_err(io_error(directory))?;
    if found.is_some_and(|found| file.value(ID) == Some(&render(found))) {
        return Ok(());
    }
    let missing = LogMarkError::Missing { directory: directory.to_owned(), mark };
    if accept_damage {
        tracing::error!("{missing}; the loss was accepted");
        return Ok(());
    }
    Err(missing)
}

/// Records that the open log in `directory` may hold acknowledged points from now on.
pub(super) fn begin(directory: &Path) -> Result<(), LogMarkError> {
    let Some(id) = log_id(directory).map_err(io_error(directory))? else { return Ok(()) };
    let mark = mark_of(directory);
    let text = format!(
        "# The log in {} may hold acknowledged points. Without it the daemon does not start.\n\
         {ID} = {}\n",
        directory.display(),
        render(id)
    );
    replace_file(&mark, &text).map_err(io_error(&mark))
}

/// Records that the log was closed empty.
pub(super) fn end(directory: &Path) -> Result<(), LogMarkError> {
    let mark = mark_of(directory);
    match fs::remove_file(&mark) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(&mark)(error)),
        _ => Ok(()),
    }
}

fn mark_of(directory: &Path) -> PathBuf {
    directory.with_extension("mark")
}

fn render(id: u128) -> String {
    format!("{id:032x}")
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> LogMarkError {
    let path = path.to_owned();
    move |source| LogMarkError::Io { path, source }
}

//! Inspects a log directory without opening the log.

use std::path::Path;

use tsd_files::read_file;

use crate::{
    log::{STATE_FILE, newest_state, segment_of_name},
    survivors::survivor_of_name,
    unknown_version::unknown_version,
};

/// True if the directory contains a non-empty log; false if the directory does not exist.
///
/// # Errors
///
/// Fails if the directory cannot be read.
pub fn holds_log(directory: &Path) -> std::io::Result<bool> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let is_of_log =
            |name: &str| segment_of_name(name).or_else(|| survivor_of_name(name)).is_some();
        if name.to_str().is_some_and(is_of_log) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The random number of the log in a directory; `None` without a log, or if its state file is damaged. A log gets
/// its number when it is first opened.
///
/// # Errors
///
/// If the directory cannot be read, or another release wrote a file of it, which the error names.
pub fn log_id(directory: &Path) -> std::io::Result<Option<u128>> {
    if let Some(unknown) = unknown_version(directory)? {
        return Err(unknown.into());
    }
    match read_file(&directory.join(STATE_FILE)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        bytes => Ok(newest_state(&bytes?).map(|(_, state)| state.id)),
    }
}

//! Finds files of a log that another release has written.
//!
//! This runs before any other file is read, because records of such a file look like damage, or like an
//! interrupted creation.

use std::{io, path::Path, sync::Arc};

use tsd_files::DiskDir;
use tsd_storage::{LogMark, UnknownVersion};

use crate::{
    files::LogDir,
    log::{unknown_mark, unknown_segment, unknown_state},
    survivors,
};

/// The first file of another release in the directory of a log; `None` without such a file. Changes nothing.
///
/// # Errors
///
/// An error of the disk.
pub fn unknown_version(directory: &Path) -> io::Result<Option<UnknownVersion>> {
    if !directory.exists() {
        return Ok(None);
    }
    let dir: Arc<dyn LogDir> = Arc::new(DiskDir::unlocked(directory)?);
    unknown_file(&*dir)
}

/// The error of a store's mark in `file` that another release has recorded; `None` for other marks.
#[must_use]
pub fn unknown_mark_version(mark: &LogMark, file: &Path) -> Option<UnknownVersion> {
    let LogMark::Recorded(bytes) = mark else { return None };
    unknown_mark(bytes, file)
}

/// As [`unknown_version`].
pub(crate) fn unknown_file(dir: &dyn LogDir) -> io::Result<Option<UnknownVersion>> {
    if let Some(unknown) = unknown_segment(dir)? {
        return Ok(Some(unknown));
    }
    match unknown_state(dir)? {
        None => survivors::unknown_version(dir),
        unknown => Ok(unknown),
    }
}

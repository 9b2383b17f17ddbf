//! Files of a log that another release has written.
//!
//! They are looked for before anything else is read: to this release the records of such a file look
//! like damage, or like a file whose creation was interrupted.

use std::{io, path::Path, sync::Arc};

use tsd_storage::{DiskDir, LogMark, UnknownVersion};

use crate::{
    files::LogDir,
    log::{unknown_mark, unknown_segment, unknown_state},
    survivors,
};

/// The first file of another release in the directory of a log; `None` if there is none. Changes nothing.
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

/// The error of a mark, of the store in `file`, that another release has recorded; `None` if it is none.
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

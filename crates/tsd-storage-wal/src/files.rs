//! The directory of a log.

use std::path::Path;

use tsd_files::LockError;
pub(crate) use tsd_files::{DiskDir, StoreDir as LogDir, StoreFile as LogFile};

use crate::OpenError;

/// Creates the directory if it is missing, and locks it.
pub(crate) fn lock(path: &Path) -> Result<DiskDir, OpenError> {
    let directory = path.to_path_buf();
    DiskDir::lock(path).map_err(|error| match error {
        LockError::InUse { text } => OpenError::InUse { directory, pid: text.trim().parse().ok() },
        LockError::Io(source) => OpenError::Io { directory, source },
    })
}

#[cfg(test)]
pub(crate) mod faulty {
    pub(crate) use tsd_files::{FaultyDisk, TestRng};
}

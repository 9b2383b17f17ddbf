//! A segment that accepts no more records.

use std::io;

use tsd_files::check_file;
use tsd_storage::StorageError;

use super::segment::segment_name;
use crate::files::LogDir;

/// A segment that is removed after the flush of its memtable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosedSegment {
    pub(crate) number: u64,
    /// Minimum length of the file, bytes.
    pub(crate) file_len: u64,
    /// True if the damage of the segment was accepted. Such a segment is renamed instead of removed, because its
    /// bytes may still be useful.
    pub(crate) damaged: bool,
}

impl ClosedSegment {
    /// Fails if the file was removed or shortened.
    pub(crate) fn check(&self, dir: &dyn LogDir) -> Result<(), StorageError> {
        let name = segment_name(self.number);
        check_file(dir, &name)?;
        let len = dir.open_reader(&name).and_then(|file| file.size());
        // If the size cannot be read now, the next check reads it.
        if let Ok(len) = len
            && len < self.file_len
        {
            let (path, had) = (dir.path().join(name), self.file_len);
            let text = format!(
                "{} has {len} bytes, but had {had}: it was shortened while the log is open; its rows are flushed \
                 from memory, find out what has shortened it",
                path.display()
            );
            return Err(StorageError::Unavailable(text.into()));
        }
        Ok(())
    }

    /// Removes the segment durably. Renames it instead if it is damaged.
    pub(crate) fn remove(self, dir: &dyn LogDir) -> io::Result<()> {
        let name = segment_name(self.number);
        let removed = if self.damaged {
            dir.rename(&name, &format!("{name}.damaged"))
        } else {
            dir.remove(&name)
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => dir.sync(),
        }
    }
}

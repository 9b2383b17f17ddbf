//! The file system operations that the log needs.
//!
//! They are traits, so that tests can use a disk that fills up, tears writes and loses unsynced
//! bytes.

mod disk;
#[cfg(test)]
pub(crate) mod faulty;

use std::{fmt, io, path::Path};

pub(crate) use self::disk::DiskDir;

/// The directory of a log.
pub(crate) trait LogDir: fmt::Debug + Send + Sync {
    /// Its path, for messages.
    fn path(&self) -> &Path;

    /// Names of the files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Reads up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>>;

    /// Creates a file that must not exist. Its name is durable after [`Self::sync`].
    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>>;

    /// Opens an existing file for writes.
    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>>;

    /// Truncates a file, durably.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;

    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes created, renamed and removed names durable.
    fn sync(&self) -> io::Result<()>;

    /// Releases the lock of the directory. Nothing is written to it any more.
    fn release(&self);
}

/// A file that is being written.
pub(crate) trait LogFile: fmt::Debug + Send {
    /// Writes all of `bytes` at `offset`. After an error any part of them may be written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the written bytes durable. After an error it is unknown which bytes since the last
    /// success are durable, and a second call proves nothing: the system may have dropped them.
    fn sync_data(&mut self) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
}

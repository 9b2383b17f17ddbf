//! The little that the log needs of a file system.
//!
//! Two traits, so that tests can put a disk under the log that fills up, tears writes and forgets
//! what was not synced.

mod disk;
#[cfg(test)]
pub(crate) mod faulty;

use std::{fmt, io, path::Path};

pub(crate) use self::disk::{DiskDir, LockError};

/// A directory of log segments.
pub(crate) trait LogDir: fmt::Debug + Send + Sync {
    /// Where it is, for messages.
    fn path(&self) -> &Path;

    /// Names of the files in it, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Reads up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>>;

    /// Makes a file that must not exist yet. Its name is durable after [`Self::sync`].
    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>>;

    /// Cuts a file, durably.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;

    /// Gives a file another name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names durable: files made, renamed and removed.
    fn sync(&self) -> io::Result<()>;

    /// Gives the directory up to whoever wants it next. Nothing is written to it any more.
    fn release(&self);
}

/// A segment that is being written.
pub(crate) trait LogFile: fmt::Debug + Send {
    /// Writes all of `bytes` at `offset`. After an error any part of them may be there.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written durable. After an error nothing is known of what was written since
    /// the last success, and calling again proves nothing: the system may have dropped it.
    fn sync_data(&mut self) -> io::Result<()>;

    /// Cuts or extends (with zeros) the file.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
}

//! The file system operations of a store that keeps files of its own.
//!
//! They are traits, so that tests can use a disk that fills up, tears writes and loses unsynced
//! bytes.

mod disk;
#[cfg(any(test, feature = "testing"))]
mod faulty;

use std::{fmt, io, path::Path};

pub use self::disk::{DiskDir, LockError};
#[cfg(any(test, feature = "testing"))]
pub use self::faulty::{FaultyDisk, TestRng};

/// A directory of a store. Names are those of its files; it has no subdirectories.
pub trait StoreDir: fmt::Debug + Send + Sync {
    /// Its path, for messages.
    fn path(&self) -> &Path;

    /// Names of the files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Reads up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>>;

    /// Creates a file that must not exist. Its name is durable after [`Self::sync`].
    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>>;

    /// Opens an existing file for writes.
    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>>;

    /// Opens an existing file for reads, which also work after it was removed.
    fn open_reader(&self, name: &str) -> io::Result<Box<dyn StoreFileReader>>;

    /// Truncates a file, durably.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;

    /// Renames a file; replaces an existing one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes created, renamed and removed names durable.
    fn sync(&self) -> io::Result<()>;

    /// Releases the lock of the directory, if it has one. Nothing is written to it any more.
    fn release(&self);
}

/// A file that is being written.
pub trait StoreFile: fmt::Debug + Send {
    /// Writes all of `bytes` at `offset`. After an error any part of them may be written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the written bytes durable. After an error it is unknown which bytes since the last
    /// success are durable, and a second call proves nothing: the system may have dropped them.
    fn sync_data(&mut self) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Makes all bytes from `offset` on zeros, without a change of the length. Needs no space.
    fn zero_from(&mut self, offset: u64) -> io::Result<()>;
}

/// A file that is open for reads.
pub trait StoreFileReader: fmt::Debug + Send + Sync {
    /// Size of the file, bytes.
    fn size(&self) -> io::Result<u64>;

    /// Fills `bytes` from `offset`; [`io::ErrorKind::UnexpectedEof`] if the file is shorter.
    fn read_exact_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

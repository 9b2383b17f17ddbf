//! The file system operations of a store that keeps its own files.
//!
//! They are traits, so that tests can use a disk that fills up, tears writes and loses unsynced
//! bytes.

use std::{fmt, io, path::Path, time::SystemTime};

use crate::reread::{ReadVia, read_past_errors};

/// A directory of a store, without subdirectories. Names are file names.
pub trait StoreDir: fmt::Debug + Send + Sync {
    /// Path of the directory, for messages.
    fn path(&self) -> &Path;

    /// Fails if the path no longer leads to the directory: a write by name would go elsewhere.
    fn check_place(&self) -> io::Result<()> {
        Ok(())
    }

    /// When a file was last created, renamed or removed; `None` if the directory does not tell.
    fn changed_at(&self) -> Option<SystemTime> {
        None
    }

    /// True if it has a file of this name.
    fn contains(&self, name: &str) -> io::Result<bool> {
        Ok(self.list()?.iter().any(|file| file == name))
    }

    /// Names of the files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Reads up to `len` bytes from `offset`; fewer only at the end of the file. Transient errors of the disk are
    /// retried.
    fn read(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        read_past_errors(name, || self.read_via(ReadVia::PageCache, name, offset, len))
    }

    /// As [`Self::read`], once.
    fn read_via(&self, via: ReadVia, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>>;

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

    /// Releases the lock of the directory, if it has one. The caller writes nothing afterwards.
    fn release(&self);
}

/// A file that is being written.
pub trait StoreFile: fmt::Debug + Send {
    /// Writes all of `bytes` at `offset`. After an error any part of them may be written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the written bytes durable. After an error it is unknown which bytes since the last
    /// success are durable, and a second call proves nothing: the system may have dropped them.
    fn sync_data(&mut self) -> io::Result<()>;

    /// False if the file was removed: its bytes are lost when it is closed.
    fn is_linked(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Truncates the file, or extends it with zeros.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Sets all bytes from `offset` on to zero and keeps the length. Needs no space.
    fn zero_from(&mut self, offset: u64) -> io::Result<()>;
}

/// A file that is open for reads.
pub trait StoreFileReader: fmt::Debug + Send + Sync {
    /// Size of the file, bytes.
    fn size(&self) -> io::Result<u64>;

    /// Fills `bytes` from `offset`; [`io::ErrorKind::UnexpectedEof`] if the file is shorter.
    fn read_exact_via(&self, via: ReadVia, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// As [`Self::read_exact_via`], from the page cache.
    fn read_exact_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_via(ReadVia::PageCache, offset, bytes)
    }
}

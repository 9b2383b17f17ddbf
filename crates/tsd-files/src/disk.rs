//! The real file system.

use parking_lot::Mutex;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    num::NonZeroU64,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::{
    fs::{Advice, FallocateFlags, OFlags},
    io::Errno,
};

use crate::{
    directory_lock::{DirectoryLock, LockError, OpenedDirectory},
    reread::{ReadVia, Reread, is_medium_error, read_repeatedly},
    store_dir::{StoreDir, StoreFile, StoreFileReader},
};

/// Name of the lock file in the directory.
const LOCK: &str = "lock";

/// A directory on disk. A lock lasts until the directory is released or dropped.
#[derive(Debug)]
pub struct DiskDir {
    path: PathBuf,
    opened: OpenedDirectory,
    lock: Mutex<Option<DirectoryLock>>,
}

impl DiskDir {
    /// Creates the directory if it is missing, and locks it.
    ///
    /// # Errors
    ///
    /// [`LockError::InUse`] if another process, or another part of this one, has locked it.
    pub fn lock(path: &Path) -> Result<Self, LockError> {
        fs::create_dir_all(path)?;
        let lock = DirectoryLock::acquire(path, LOCK)?;
        write_process_id(lock.file())?;
        Self::new(path, Some(lock)).map_err(LockError::Io)
    }

    /// Creates the directory if it is missing, without a lock: a parent directory is locked.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn unlocked(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Self::new(path, None)
    }

    fn new(path: &Path, lock: Option<DirectoryLock>) -> io::Result<Self> {
        let opened = OpenedDirectory::open(path)?;
        Ok(Self { path: path.to_path_buf(), opened, lock: Mutex::new(lock) })
    }

    fn open_file(&self, name: &str, options: &OpenOptions) -> io::Result<File> {
        options.open(self.path.join(name))
    }
}

/// Writes the process id, for the error message of another process. A failed write, on a full disk,
/// is ignored: the store must open for reads.
fn write_process_id(mut lock: &File) -> io::Result<()> {
    lock.set_len(0)?;
    let _ = lock.write_all(format!("{}\n", std::process::id()).as_bytes());
    Ok(())
}

impl StoreDir for DiskDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn check_place(&self) -> io::Result<()> {
        self.opened.check()
    }

    fn changed_at(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).and_then(|metadata| metadata.modified()).ok()
    }

    fn contains(&self, name: &str) -> io::Result<bool> {
        fs::exists(self.path.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn read_via(&self, via: ReadVia, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let file = DiskReader::open(&self.path.join(name))?;
        let size = file.size()?.saturating_sub(offset);
        let mut bytes = vec![0; len.min(usize::try_from(size).unwrap_or(usize::MAX))];
        file.read_exact_via(via, offset, &mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        self.check_place()?;
        let file = self.open_file(name, OpenOptions::new().write(true).create_new(true))?;
        Ok(Box::new(DiskFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        Ok(Box::new(DiskFile(self.open_file(name, OpenOptions::new().write(true))?)))
    }

    fn open_reader(&self, name: &str) -> io::Result<Box<dyn StoreFileReader>> {
        Ok(Box::new(DiskReader::open(&self.path.join(name))?))
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        let file = self.open_file(name, OpenOptions::new().write(true))?;
        file.set_len(len)?;
        file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn release(&self) {
        if let Some(lock) = self.lock.lock().take() {
            let _ = lock.unlock();
        }
    }
}

impl Drop for DiskDir {
    fn drop(&mut self) {
        self.release();
    }
}

#[derive(Debug)]
struct DiskFile(File);

impl StoreFile for DiskFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(self.0.metadata()?.nlink() > 0)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn zero_from(&mut self, offset: u64) -> io::Result<()> {
        let len = self.0.metadata()?.len();
        if offset >= len {
            return Ok(());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.0, hole, offset, len - offset) {
            // The file system does not support holes.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.0.set_len(offset)?;
                self.0.set_len(len)
            }
            done => Ok(done?),
        }
    }
}

/// A file on disk that is open for reads.
#[derive(Debug)]
pub struct DiskReader(File);

impl DiskReader {
    /// Alignment of reads past the page cache: a multiple of the sectors of all usual disks.
    const DIRECT_BYTES: u64 = 4_096;

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?))
    }

    /// Drops a range from the page cache, so that the next read is from the disk.
    ///
    /// # Errors
    ///
    /// An error of the file system, for example if it does not support this.
    pub fn forget(&self, offset: u64, len: usize) -> io::Result<()> {
        let len = NonZeroU64::new(len as u64);
        Ok(rustix::fs::fadvise(&self.0, offset, len, Advice::DontNeed)?)
    }

    /// Reads with direct I/O.
    fn read_direct(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        // The file may have been renamed or removed.
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(format!("/proc/self/fd/{}", self.0.as_raw_fd()))?;
        let align = Self::DIRECT_BYTES;
        let start = offset - offset % align;
        let end = offset.saturating_add(bytes.len() as u64).next_multiple_of(align);
        let (len, align) = ((end - start) as usize, align as usize);
        let mut buffer = vec![0; len + align];
        let skipped = buffer.as_ptr().align_offset(align);
        let aligned = buffer.get_mut(skipped..).and_then(|buffer| buffer.get_mut(..len));
        let aligned = aligned.unwrap_or_default();
        let mut filled = 0;
        while let Some(rest) = aligned.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match direct.read_at(rest, start + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // The end of the file.
            if !filled.is_multiple_of(align) {
                break;
            }
        }
        let from = (offset - start) as usize;
        let read = aligned.get(..filled).and_then(|read| read.get(from..from + bytes.len()));
        bytes.copy_from_slice(read.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl StoreFileReader for DiskReader {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_exact_via(&self, via: ReadVia, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if via == ReadVia::Disk {
            // The cached bytes may be wrong, and the next read would get them again.
            let _ = self.forget(offset, bytes.len());
            match self.read_direct(offset, bytes) {
                Err(error)
                    if error.kind() != io::ErrorKind::UnexpectedEof && !is_medium_error(&error) => {
                }
                result => return result,
            }
        }
        self.0.read_exact_at(bytes, offset)
    }
}

/// Reads a whole file; retries errors of the disk.
///
/// # Errors
///
/// An error of the file system.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let read = |via| read_file_via(path, via);
    read_repeatedly(&path.display().to_string(), read, Reread::after)
}

/// Reads a whole file, once.
///
/// # Errors
///
/// An error of the file system.
pub fn read_file_via(path: &Path, via: ReadVia) -> io::Result<Vec<u8>> {
    if via == ReadVia::PageCache {
        return fs::read(path);
    }
    let file = DiskReader::open(path)?;
    let mut bytes = vec![0; usize::try_from(file.size()?).unwrap_or(usize::MAX)];
    file.read_exact_via(via, 0, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn second_lock_fails_with_the_process_id() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new").join("log");
        let locked = DiskDir::lock(&path).unwrap();
        match DiskDir::lock(&path) {
            Err(LockError::InUse { text }) => {
                assert_eq!(text.trim(), std::process::id().to_string());
            }
            other => panic!("in use, not {other:?}"),
        }
        drop(locked);
        DiskDir::lock(&path).unwrap();
    }

    #[test]
    fn files_are_written_read_zeroed_truncated_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let log = DiskDir::lock(dir.path()).unwrap();
        let mut file = log.create("a").unwrap();
        assert!(log.create("a").is_err());
        file.set_len(100).unwrap();
        file.write_at(10, b"hello").unwrap();
        file.sync_data().unwrap();
        assert_eq!(log.read("a", 10, 5).unwrap(), b"hello");
        assert_eq!(log.read("a", 98, 50).unwrap(), [0, 0]);
        assert!(log.read("a", 200, 5).unwrap().is_empty());
        let mut file = log.open("a").unwrap();
        file.zero_from(12).unwrap();
        assert_eq!(log.read("a", 10, 50).unwrap(), [&b"he"[..], &[0; 48]].concat());
        file.zero_from(200).unwrap();
        assert_eq!(log.read("a", 0, 500).unwrap().len(), 100);
        log.truncate("a", 12).unwrap();
        log.rename("a", "b").unwrap();
        log.sync().unwrap();
        let mut names = log.list().unwrap();
        names.sort();
        assert_eq!(names, ["b", LOCK]);
        let reader = log.open_reader("b").unwrap();
        log.remove("b").unwrap();
        assert!(log.read("b", 0, 1).is_err());
        let mut bytes = [0; 2];
        reader.read_exact_at(10, &mut bytes).unwrap();
        assert_eq!((&bytes, reader.size().unwrap()), (b"he", 12));
        for via in [ReadVia::PageCache, ReadVia::Disk] {
            let past_end = reader.read_exact_via(via, 11, &mut bytes).unwrap_err();
            assert_eq!(past_end.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn reads_past_the_page_cache_return_the_same_bytes() {
        // Direct I/O if the file system of the test supports it, else a read after dropping the
        // cache.
        for dir in [tempfile::tempdir(), tempfile::tempdir_in(".")] {
            let dir = dir.unwrap();
            let path = dir.path().join("file");
            let stored: Vec<u8> = (0..20_000_u32).map(|at| (at * 7 % 251) as u8).collect();
            fs::write(&path, &stored).unwrap();
            File::open(&path).unwrap().sync_all().unwrap();
            let reader = DiskReader::open(&path).unwrap();
            for (at, len) in [(0, 1), (1, 4_095), (4_095, 2), (4_096, 8_192), (9_000, 11_000)] {
                let mut bytes = vec![0; len];
                reader.read_exact_via(ReadVia::Disk, at as u64, &mut bytes).unwrap();
                assert_eq!(bytes, stored[at..at + len], "{at} {len}");
            }
        }
    }
}

//! The real file system.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::{fs::FallocateFlags, io::Errno};

use super::{StoreDir, StoreFile, StoreFileReader};

/// Name of the lock file in the directory.
const LOCK: &str = "lock";

/// A directory on disk; a locked one until it is released or dropped.
#[derive(Debug)]
pub struct DiskDir {
    path: PathBuf,
    /// The locked file. The system releases the lock when the process ends.
    lock: Mutex<Option<File>>,
}

/// A directory that was not locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has locked it.
    #[error("the directory is in use")]
    InUse {
        /// Its process id, if known.
        pid: Option<u32>,
    },
    /// The file system failed.
    #[error("locking the directory")]
    Io(#[from] io::Error),
}

impl DiskDir {
    /// Creates the directory if it is missing, and locks it.
    ///
    /// # Errors
    ///
    /// [`LockError::InUse`] if another process, or another part of this one, has locked it.
    pub fn lock(path: &Path) -> Result<Self, LockError> {
        let lock = Self::open_lock(path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::InUse { pid: read_process_id(&lock) });
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        write_process_id(&lock)?;
        Ok(Self { path: path.to_path_buf(), lock: Mutex::new(Some(lock)) })
    }

    /// Creates the directory if it is missing. It is not locked: a directory above it is.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn unlocked(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Ok(Self { path: path.to_path_buf(), lock: Mutex::new(None) })
    }

    fn open_lock(path: &Path) -> io::Result<File> {
        fs::create_dir_all(path)?;
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path.join(LOCK))
    }

    fn open_file(&self, name: &str, options: &OpenOptions) -> io::Result<File> {
        options.open(self.path.join(name))
    }
}

fn read_process_id(mut lock: &File) -> Option<u32> {
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
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

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn read(&self, name: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let file = self.open_file(name, OpenOptions::new().read(true))?;
        let size = file.metadata()?.len().saturating_sub(offset);
        let mut bytes = vec![0; len.min(usize::try_from(size).unwrap_or(usize::MAX))];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        let file = self.open_file(name, OpenOptions::new().write(true).create_new(true))?;
        Ok(Box::new(DiskFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        Ok(Box::new(DiskFile(self.open_file(name, OpenOptions::new().write(true))?)))
    }

    fn open_reader(&self, name: &str) -> io::Result<Box<dyn StoreFileReader>> {
        Ok(Box::new(DiskReader(self.open_file(name, OpenOptions::new().read(true))?)))
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
        if let Some(lock) = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A child process that was forked meanwhile keeps the file open until it executes its program.
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
            // A file system without holes.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.0.set_len(offset)?;
                self.0.set_len(len)
            }
            done => Ok(done?),
        }
    }
}

#[derive(Debug)]
struct DiskReader(File);

impl StoreFileReader for DiskReader {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_exact_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn second_lock_fails_with_the_process_id() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new").join("log");
        let locked = DiskDir::lock(&path).unwrap();
        match DiskDir::lock(&path) {
            Err(LockError::InUse { pid }) => assert_eq!(pid, Some(std::process::id())),
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
        let past_end = reader.read_exact_at(11, &mut bytes).unwrap_err();
        assert_eq!(past_end.kind(), io::ErrorKind::UnexpectedEof);
    }
}

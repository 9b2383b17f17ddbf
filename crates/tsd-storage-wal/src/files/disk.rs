//! The real file system.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::{LogDir, LogFile};
use crate::OpenError;

/// Name of the lock file in the directory.
const LOCK: &str = "lock";

/// A directory on disk, locked until it is released or dropped.
#[derive(Debug)]
pub(crate) struct DiskDir {
    path: PathBuf,
    /// The locked file. The system releases the lock when the process ends.
    lock: Mutex<Option<File>>,
}

impl DiskDir {
    /// Creates the directory if it is missing, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { directory: path.to_path_buf(), source };
        let lock = Self::open_lock(path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = read_process_id(&lock);
                return Err(OpenError::InUse { directory: path.to_path_buf(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        write_process_id(&lock).map_err(failed)?;
        Ok(Self { path: path.to_path_buf(), lock: Mutex::new(Some(lock)) })
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

impl LogDir for DiskDir {
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

    fn create(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        let file = self.open_file(name, OpenOptions::new().write(true).create_new(true))?;
        Ok(Box::new(DiskFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        Ok(Box::new(DiskFile(self.open_file(name, OpenOptions::new().write(true))?)))
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
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[derive(Debug)]
struct DiskFile(File);

impl LogFile for DiskFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
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
            Err(OpenError::InUse { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("in use, not {other:?}"),
        }
        drop(locked);
        DiskDir::lock(&path).unwrap();
    }

    #[test]
    fn files_are_written_read_truncated_and_removed() {
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
        log.truncate("a", 12).unwrap();
        assert_eq!(log.read("a", 0, 50).unwrap().len(), 12);
        log.rename("a", "b").unwrap();
        log.sync().unwrap();
        let mut names = log.list().unwrap();
        names.sort();
        assert_eq!(names, ["b", LOCK]);
        log.remove("b").unwrap();
        assert!(log.read("b", 0, 1).is_err());
    }
}

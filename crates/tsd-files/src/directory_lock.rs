//! A directory in use, identified independently of its path, and its lock.
//!
//! The lock is on the directory itself. A lock on a file alone would be lost with the file, and a second process
//! would lock a new file.

use std::{
    fs::{self, File, Metadata, TryLockError},
    io::{self, Read as _},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// An open directory, which can check whether its path still leads to it.
#[derive(Debug)]
pub struct OpenedDirectory {
    path: PathBuf,
    /// While the file is open, no other directory gets its inode.
    file: File,
    identity: (u64, u64),
}

impl OpenedDirectory {
    /// Opens an existing directory.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let identity = identity(&file.metadata()?);
        Ok(Self { path: path.to_owned(), file, identity })
    }

    /// Path of the directory when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if the path leads elsewhere, because the directory was removed, renamed or mounted over.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`], or the error of following the path.
    pub fn check(&self) -> io::Result<()> {
        let shown = self.path.display();
        let what = match fs::metadata(&self.path) {
            Ok(found) if identity(&found) == self.identity => return Ok(()),
            Ok(_) => "is another one than was opened",
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                "was removed or renamed"
            }
            Err(error) => return Err(error),
        };
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "directory {shown} {what} while the store is open; put it back, or stop this process"
            ),
        ))
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// A directory that was not locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has locked it.
    #[error("the directory is in use")]
    InUse {
        /// The contents of its lock file, which the owner has written.
        text: String,
    },
    /// The file system failed.
    #[error("locking the directory")]
    Io(#[from] io::Error),
}

/// The lock of a directory. The system releases it when the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: OpenedDirectory,
    file: File,
}

impl DirectoryLock {
    /// Locks an existing directory, and the file in it that names the owner to other processes.
    ///
    /// On a file system that does not lock directories (NFS), only the file is locked, which is logged.
    ///
    /// # Errors
    ///
    /// [`LockError::InUse`] if another process, or another part of this one, has locked it.
    pub fn acquire(path: &Path, file_name: &str) -> Result<Self, LockError> {
        let directory = OpenedDirectory::open(path)?;
        let name = path.join(file_name);
        match directory.file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::InUse {
                    text: fs::read_to_string(name).unwrap_or_default(),
                });
            }
            Err(TryLockError::Error(error)) => tracing::warn!(
                directory = %path.display(), %error,
                "the file system does not lock directories, so only the file {file_name} in it is locked: do not \
                 remove it while a process uses the directory"
            ),
        }
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { directory, file }),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                Err(LockError::InUse { text })
            }
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// The locked directory.
    #[must_use]
    pub const fn directory(&self) -> &OpenedDirectory {
        &self.directory
    }

    /// The lock file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Releases the lock, also if a child process that was forked meanwhile has the files open until it executes
    /// its program.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn unlock(&self) -> io::Result<()> {
        // Ignored, since the file system may not lock directories.
        let _ = self.directory.file.unlock();
        self.file.unlock()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Issue 37.
    #[test]
    fn a_directory_stays_locked_without_its_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::acquire(dir.path(), "lock").unwrap();
        fs::remove_file(dir.path().join("lock")).unwrap();
        let second = DirectoryLock::acquire(dir.path(), "lock");
        assert!(matches!(second, Err(LockError::InUse { text }) if text.is_empty()));
        assert!(!dir.path().join("lock").exists());
        lock.unlock().unwrap();
        DirectoryLock::acquire(dir.path(), "lock").unwrap();
    }

    /// Issue 37.
    #[test]
    fn a_directory_is_known_after_it_was_moved_removed_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["a", "b"].map(|name| dir.path().join(name));
        fs::create_dir(&path).unwrap();
        let opened = OpenedDirectory::open(&path).unwrap();
        opened.check().unwrap();
        fs::rename(&path, &other).unwrap();
        assert!(opened.check().unwrap_err().to_string().contains("removed or renamed"));
        fs::create_dir(&path).unwrap();
        assert!(opened.check().unwrap_err().to_string().contains("another one"));
        fs::remove_dir(&path).unwrap();
        fs::rename(&other, &path).unwrap();
        opened.check().unwrap();
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(opened.check().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

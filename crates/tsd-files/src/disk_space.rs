//! Free space on the disk of a store, and the reserve that writes leave free.
//!
//! The log, flushes and compactions share one [`DiskSpace`], so that together they keep the
//! reserve. The reserve is for work that frees space or must not fail: deletes, syncs, and the next
//! start.

use parking_lot::{Mutex, MutexGuard};
use std::{fmt, io, path::PathBuf, sync::Arc};

use tsd_storage::StorageError;

/// Reads the free bytes of a disk.
type Probe = Box<dyn Fn() -> io::Result<u64> + Send + Sync>;

/// Free space of a disk, without a reserve.
pub struct DiskSpace {
    path: PathBuf,
    reserve_bytes: u64,
    probe: Probe,
    /// Bytes promised to writes in progress.
    promised: Mutex<u64>,
}

/// Bytes promised to a write in progress. Drop it after the write.
#[derive(Debug)]
pub struct SpacePermit {
    space: Arc<DiskSpace>,
    bytes: u64,
}

impl fmt::Debug for DiskSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskSpace")
            .field("path", &self.path)
            .field("reserve_bytes", &self.reserve_bytes)
            .finish_non_exhaustive()
    }
}

impl DiskSpace {
    /// The disk of the directory `path`, of which `reserve_bytes` stay free. A reserve of 0
    /// disables the checks: writes use the disk until it is full.
    pub fn new(path: impl Into<PathBuf>, reserve_bytes: u64) -> Self {
        let path = path.into();
        let probe_path = path.clone();
        let probe = move || {
            let stat = rustix::fs::statvfs(&probe_path)?;
            Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
        };
        Self::with_probe(path, reserve_bytes, probe)
    }

    /// As [`Self::new`], with another source of the free bytes. For tests.
    pub fn with_probe(
        path: impl Into<PathBuf>,
        reserve_bytes: u64,
        probe: impl Fn() -> io::Result<u64> + Send + Sync + 'static,
    ) -> Self {
        let path = path.into();
        Self { path, reserve_bytes, probe: Box::new(probe), promised: Mutex::new(0) }
    }

    /// Bytes that writes leave free.
    #[must_use]
    pub const fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Bytes free now, including the reserve.
    ///
    /// # Errors
    ///
    /// Fails if the system does not report the free space.
    pub fn free_bytes(&self) -> Result<u64, StorageError> {
        (self.probe)().map_err(|error| {
            let path = self.path.display();
            StorageError::io(format!("reading the free space at {path}"), error)
        })
    }

    /// Bytes that can be written now, without the reserve and without promised bytes; `u64::MAX`
    /// without a reserve.
    ///
    /// # Errors
    ///
    /// Fails if the system does not report the free space.
    pub fn available_bytes(&self) -> Result<u64, StorageError> {
        self.available(*self.promised())
    }

    /// Fails if writing `bytes` now would use the reserve, without a promise.
    ///
    /// # Errors
    ///
    /// [`StorageError::DiskFull`] if it would.
    pub fn check(&self, bytes: u64) -> Result<(), StorageError> {
        if self.available_bytes()? < bytes { Err(StorageError::DiskFull) } else { Ok(()) }
    }

    /// Promises `bytes` to a write, so that no other write uses them.
    ///
    /// # Errors
    ///
    /// [`StorageError::DiskFull`] if the write would use the reserve.
    pub fn promise(self: &Arc<Self>, bytes: u64) -> Result<SpacePermit, StorageError> {
        let mut promised = self.promised();
        if self.available(*promised)? < bytes {
            return Err(StorageError::DiskFull);
        }
        *promised += bytes;
        drop(promised);
        Ok(SpacePermit { space: Arc::clone(self), bytes })
    }

    /// Promises `bytes` to a write that frees space later, from the reserve if necessary. A quarter
    /// of the reserve stays free.
    ///
    /// # Errors
    ///
    /// [`StorageError::DiskFull`] if fewer bytes are free.
    pub fn promise_from_reserve(self: &Arc<Self>, bytes: u64) -> Result<SpacePermit, StorageError> {
        let mut promised = self.promised();
        let kept = (self.reserve_bytes / 4).saturating_add(*promised);
        if self.reserve_bytes > 0 && self.free_bytes()?.saturating_sub(kept) < bytes {
            return Err(StorageError::DiskFull);
        }
        *promised += bytes;
        drop(promised);
        Ok(SpacePermit { space: Arc::clone(self), bytes })
    }

    /// For flushes of deletes, which free space, after [`Self::check`] has failed. Fails if a write
    /// of `bytes` would leave less than a quarter of the reserve, or if other writes are in
    /// progress.
    ///
    /// # Errors
    ///
    /// [`StorageError::DiskFull`] if it would.
    pub fn check_reserve(&self, bytes: u64) -> Result<(), StorageError> {
        let promised = *self.promised();
        let kept = self.reserve_bytes / 4;
        if promised > 0 || self.free_bytes()? < kept.saturating_add(bytes) {
            return Err(StorageError::DiskFull);
        }
        Ok(())
    }

    fn available(&self, promised: u64) -> Result<u64, StorageError> {
        if self.reserve_bytes == 0 {
            return Ok(u64::MAX);
        }
        let used = self.reserve_bytes.saturating_add(promised);
        Ok(self.free_bytes()?.saturating_sub(used))
    }

    /// The reason for a full disk, for status pages and logs.
    #[must_use]
    pub fn describe(&self) -> String {
        let path = self.path.display();
        let reserve = self.reserve_bytes;
        match self.free_bytes() {
            Ok(free) => format!(
                "the disk of {path} is full: {free} bytes are free, of which {reserve} are \
                 reserved (tsd.storage.reserve)"
            ),
            Err(error) => format!("the free space of {path} is unknown: {error}"),
        }
    }

    // No code panics while it owns the lock, except a probe of a test.
    fn promised(&self) -> MutexGuard<'_, u64> {
        self.promised.lock()
    }
}

impl Drop for SpacePermit {
    fn drop(&mut self) {
        *self.space.promised() -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn space(free: u64, reserve: u64) -> Arc<DiskSpace> {
        Arc::new(DiskSpace::with_probe("/data", reserve, move || Ok(free)))
    }

    #[test]
    fn writes_in_progress_together_keep_the_reserve() {
        let space = space(100, 40);
        let first = space.promise(50).unwrap();
        assert_eq!(space.available_bytes().unwrap(), 10);
        assert!(matches!(space.promise(11), Err(StorageError::DiskFull)));
        let second = space.promise(10).unwrap();
        drop(first);
        assert!(space.promise(51).is_err());
        drop(second);
        assert!(space.promise(60).is_ok());
    }

    #[test]
    fn writes_that_free_space_may_use_the_reserve_but_not_what_is_promised() {
        let space = space(100, 80);
        assert!(space.promise(21).is_err());
        assert!(space.check_reserve(80).is_ok() && space.check_reserve(81).is_err());
        let permit = space.promise_from_reserve(70).unwrap();
        assert!(space.promise_from_reserve(11).is_err());
        assert!(space.check_reserve(1).is_err());
        drop(permit);
        assert!(space.promise_from_reserve(80).is_ok());
    }

    #[test]
    fn without_a_reserve_nothing_is_checked() {
        let space = space(0, 0);
        assert!(space.promise(1 << 40).is_ok());
        assert!(space.promise_from_reserve(1 << 40).is_ok());
        assert_eq!(space.available_bytes().unwrap(), u64::MAX);
    }

    #[test]
    fn free_space_of_a_directory_is_read() {
        let space = DiskSpace::new(std::env::temp_dir(), 1);
        assert!(space.free_bytes().unwrap() > 0);
        assert!(DiskSpace::new("/no/such/directory", 1).free_bytes().is_err());
    }
}

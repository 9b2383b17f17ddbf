//! Files of stores that keep their own: directories and their locks, repeated reads, the reserve of the disk, and
//! snapshots.
//!
//! File system operations are behind [`StoreDir`], so that tests can use a disk that fails (feature `testing`). The
//! format of the files belongs to the stores.

mod critical_thread;
mod directory_lock;
mod disk;
mod disk_space;
#[cfg(any(test, feature = "testing"))]
mod faulty_disk;
mod removed;
mod reread;
mod snapshot;
mod store_dir;

pub use critical_thread::{panic_text, spawn_critical};
pub use directory_lock::{DirectoryLock, LockError, OpenedDirectory};
pub use disk::{DiskDir, DiskReader, read_file, read_file_via};
pub use disk_space::{DiskSpace, SpacePermit};
#[cfg(any(test, feature = "testing"))]
pub use faulty_disk::{FaultyDisk, TestRng};
pub use removed::{check_directory, check_file, check_place, removed_file};
pub use reread::{
    CheckedReadError, ReadVia, Reread, is_medium_error, note_recovered_read, read_checked,
    read_repeatedly,
};
pub use snapshot::{
    ListedFile, SNAPSHOT_LIST, SnapshotError, SnapshotList, SnapshotProgress, SnapshotReport,
    SnapshotRequest, SnapshotTarget, TransferMeter, copy_file, sync_directory,
};
pub use store_dir::{StoreDir, StoreFile, StoreFileReader};

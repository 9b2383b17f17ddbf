//! Snapshots: the files of a store at one moment, linked or copied to another directory.
//!
//! A store pins its files ([`Maintenance::pin_files`](tsd_storage::Maintenance::pin_files)), which takes no
//! longer than listing them. [`SnapshotTarget`] writes them while the store continues. Immutable
//! files are linked if the file system allows it; the store renders small mutable files for the
//! snapshot. A list has each file with its checksum ([`SnapshotList`]) and is written last. Then
//! the directory gets its name, so a directory with that name is a complete snapshot.

mod copy;
mod error;
mod format;
mod list;
mod progress;
mod target;

pub use self::{
    copy::{TransferMeter, copy_file, sync_directory},
    error::SnapshotError,
    format::SNAPSHOT_LIST,
    list::{ListedFile, SnapshotList},
    progress::SnapshotProgress,
    target::{SnapshotReport, SnapshotRequest, SnapshotTarget},
};

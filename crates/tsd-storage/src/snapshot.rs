//! Snapshots: the files of a store at one moment, linked or copied to another directory.
//!
//! A store pins its files ([`Storage::pin_files`](crate::Storage::pin_files)), which takes no longer than
//! to list them; [`SnapshotTarget`] writes them while the store goes on. Immutable files are linked
//! where the file system allows it, small mutable ones are rendered by the store for the snapshot. Each
//! file is in a list with its checksum ([`SnapshotList`]), which is written last; then the directory gets
//! its name. So a directory with that name is a whole snapshot.

mod copy;
mod error;
mod format;
mod list;
mod target;

use std::{
    any::Any,
    fmt,
    fs::File,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

pub use self::{
    copy::{TransferMeter, copy_file, sync_directory},
    error::SnapshotError,
    format::SNAPSHOT_LIST,
    list::{FileChecksum, ListedFile, SnapshotList},
    target::{SnapshotReport, SnapshotRequest, SnapshotTarget},
};

/// The files of a store at one moment. They stay readable until this is dropped.
#[derive(Default)]
pub struct PinnedFiles {
    /// Directory of the store's own files, in or above which no snapshot is written.
    pub root: PathBuf,
    /// The files.
    pub files: Vec<PinnedFile>,
    /// Names of files in quarantine, whose loss was not accepted: the snapshot lacks what they lack.
    pub damaged: Vec<String>,
    pins: Vec<Box<dyn Any + Send + Sync>>,
}

/// A file of a snapshot.
#[derive(Clone, Debug)]
pub struct PinnedFile {
    /// Path below the directory of the snapshot, with `/`.
    pub path: String,
    /// Size, bytes.
    pub bytes: u64,
    /// Checksum that its contents have.
    pub checksum: FileChecksum,
    /// Where its contents are.
    pub source: PinnedSource,
}

/// Where the contents of a file are.
#[derive(Clone, Debug)]
pub enum PinnedSource {
    /// Here.
    Bytes(Vec<u8>),
    /// In an immutable file, which is not removed while the files are pinned.
    Path(PathBuf),
    /// In an immutable open file, whose name may be removed.
    Open {
        /// Its name.
        path: PathBuf,
        /// The file.
        file: Arc<File>,
    },
}

impl fmt::Debug for PinnedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedFiles").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl PinnedFile {
    /// A file that is rendered for the snapshot.
    #[must_use]
    pub fn rendered(path: impl Into<String>, contents: Vec<u8>) -> Self {
        Self {
            path: path.into(),
            bytes: contents.len() as u64,
            checksum: FileChecksum::Crc32c(crc32c::crc32c(&contents)),
            source: PinnedSource::Bytes(contents),
        }
    }
}

impl PinnedFiles {
    /// Keeps a value until this is dropped.
    pub fn pin(&mut self, pin: impl Any + Send + Sync) {
        self.pins.push(Box::new(pin));
    }

    /// Adds the files of a part of the store, below a directory.
    pub fn add(&mut self, directory: &str, other: Self) {
        let files = other.files.into_iter();
        self.files.extend(
            files.map(|file| PinnedFile { path: format!("{directory}/{}", file.path), ..file }),
        );
        self.damaged.extend(other.damaged);
        self.pins.extend(other.pins);
    }

    /// Size of all files, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Progress of a snapshot, which another thread may read, and its cancellation.
#[derive(Debug, Default)]
pub struct SnapshotProgress {
    bytes: AtomicU64,
    total_bytes: AtomicU64,
    cancelled: AtomicBool,
}

impl SnapshotProgress {
    /// Bytes of the files that are linked or copied.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of all files; 0 until they are known.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes of all files.
    pub fn begin(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    /// Ends the snapshot at its next step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl TransferMeter for SnapshotProgress {
    fn moved(&self, bytes: u64) -> Result<(), SnapshotError> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) { Err(SnapshotError::Cancelled) } else { Ok(()) }
    }
}

//! Writes the directory of a snapshot under another name, and renames it when it is complete.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use tsd_model::TableSchema;
use tsd_storage::{FileChecksum, PinnedFile, PinnedFiles, PinnedSource};

use super::{
    copy::{TransferMeter, copy_file, sync_directory},
    error::SnapshotError,
    format::SNAPSHOT_LIST,
    list::{ListedFile, SnapshotList},
    progress::SnapshotProgress,
};

/// Added to the name of a snapshot until it is complete.
const INCOMPLETE: &str = ".incomplete";
/// Distance of the footer's checksum from the end of a part, bytes.
const FOOTER_CRC_FROM_END: u64 = 12;

/// Options of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// Directory of the snapshot: an absolute path; missing or empty.
    pub target: PathBuf,
    /// A former snapshot on the file system of the target. Its equal files are linked if the
    /// store's files cannot be linked.
    pub base: Option<PathBuf>,
    /// Copies files even if they could be linked.
    pub copy: bool,
    /// Takes the snapshot even if the store has damage that was not accepted.
    pub allow_damage: bool,
}

/// A snapshot that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Directory of the snapshot.
    pub target: PathBuf,
    /// Number of files.
    pub files: u64,
    /// Size of all files, bytes.
    pub bytes: u64,
    /// Bytes of files linked to files of the store.
    pub linked_bytes: u64,
    /// Bytes of files linked to files of the former snapshot.
    pub base_bytes: u64,
    /// Bytes of files that were copied.
    pub copied_bytes: u64,
    /// Damaged files of the store, which the snapshot lacks.
    pub damaged: Vec<String>,
    /// Removed leftovers of an interrupted snapshot with the same name.
    pub removed: Option<PathBuf>,
}

/// The directory of a snapshot that is being written. Dropping it removes the files, unless the
/// snapshot was completed.
#[derive(Debug)]
pub struct SnapshotTarget {
    request: SnapshotRequest,
    written: PathBuf,
    removed: Option<PathBuf>,
    /// Locks the directory.
    lock: File,
    is_complete: bool,
}

/// How a file got into a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    Linked,
    LinkedToBase,
    Copied,
}

impl SnapshotTarget {
    /// Creates the directory under another name. Removes the leftovers of an interrupted snapshot
    /// with the same name.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Target`] if the directory is not suitable for a new snapshot,
    /// [`SnapshotError::InProgress`] if a snapshot with this name is being taken, or an error of
    /// the disk.
    pub fn create(request: SnapshotRequest) -> Result<Self, SnapshotError> {
        let target = &request.target;
        let refuse = |what| SnapshotError::Target { path: target.clone(), what };
        if !target.is_absolute() {
            return Err(refuse("the path of a snapshot must be absolute"));
        }
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(refuse("this cannot be the directory of a snapshot"));
        };
        if !parent.is_dir() {
            return Err(refuse("the directory above it does not exist"));
        }
        if !is_missing_or_empty(target).map_err(SnapshotError::io("listing", target))? {
            return Err(refuse(
                "it exists and is not empty; a snapshot gets a directory of its own",
            ));
        }
        let mut incomplete = OsString::from(name);
        incomplete.push(INCOMPLETE);
        let written = parent.join(incomplete);
        let removed = remove_leftover(&written)?;
        fs::create_dir(&written).map_err(SnapshotError::io("creating", &written))?;
        let lock = lock_directory(&written)?;
        Ok(Self { written, removed, lock, is_complete: false, request })
    }

    /// Links or copies the files, and gives the directory its name.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Damage`] for damage that the request does not allow, or an error of the disk.
    pub fn write(
        mut self,
        pinned: &PinnedFiles,
        schema: TableSchema,
        program: &str,
        progress: &SnapshotProgress,
    ) -> Result<SnapshotReport, SnapshotError> {
        self.check(pinned)?;
        let created_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        let base = BaseSnapshot::read(self.request.base.as_deref())?;
        let mut report = SnapshotReport {
            target: self.request.target.clone(),
            files: pinned.files.len() as u64,
            bytes: pinned.bytes(),
            damaged: pinned.damaged.clone(),
            removed: self.removed.take(),
            ..SnapshotReport::default()
        };
        progress.begin(report.bytes);
        for file in &pinned.files {
            let done = match self.transfer(file, &base, progress)? {
                Transfer::Linked => &mut report.linked_bytes,
                Transfer::LinkedToBase => &mut report.base_bytes,
                Transfer::Copied => &mut report.copied_bytes,
            };
            *done += file.bytes;
        }
        let files = pinned.files.iter().map(|file| ListedFile {
            path: file.path.clone(),
            bytes: file.bytes,
            checksum: file.checksum,
        });
        let list = SnapshotList {
            created_ms,
            program: program.to_owned(),
            schema,
            damaged: report.damaged.clone(),
            files: files.collect(),
        };
        let path = self.written.join(SNAPSHOT_LIST);
        write_file(&path, list.render().as_bytes())?;
        sync_directory(&self.written)?;
        let target = &self.request.target;
        fs::rename(&self.written, target).map_err(SnapshotError::io("renaming to", target))?;
        self.is_complete = true;
        let parent = target.parent().unwrap_or(target);
        let synced = File::open(parent).and_then(|opened| opened.sync_all());
        synced.map_err(SnapshotError::io("syncing", parent))?;
        Ok(report)
    }

    fn check(&self, pinned: &PinnedFiles) -> Result<(), SnapshotError> {
        if !pinned.damaged.is_empty() && !self.request.allow_damage {
            return Err(SnapshotError::Damage { files: pinned.damaged.clone() });
        }
        let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let data = pinned.root.parent().filter(|_| pinned.root.is_absolute());
        if data.is_some_and(|data| resolved(&self.written).starts_with(resolved(data))) {
            let what = "it is in the data directory, with which it would be lost";
            return Err(SnapshotError::Target { path: self.request.target.clone(), what });
        }
        Ok(())
    }

    fn transfer(
        &self,
        file: &PinnedFile,
        base: &BaseSnapshot,
        progress: &SnapshotProgress,
    ) -> Result<Transfer, SnapshotError> {
        let to = self.written.join(&file.path);
        let above = to.parent().unwrap_or(&to);
        fs::create_dir_all(above).map_err(SnapshotError::io("creating", above))?;
        let path = match &file.source {
            PinnedSource::Bytes(contents) => {
                write_file(&to, contents)?;
                progress.moved(file.bytes)?;
                return Ok(Transfer::Copied);
            }
            PinnedSource::Path(path) | PinnedSource::Open { path, .. } => path,
        };
        if !self.request.copy && link(path, &to)? {
            progress.moved(file.bytes)?;
            return Ok(Transfer::Linked);
        }
        if let Some(former) = base.equal_file(file)
            && link(&former, &to)?
        {
            progress.moved(file.bytes)?;
            return Ok(Transfer::LinkedToBase);
        }
        let opened;
        let source = if let PinnedSource::Open { file, .. } = &file.source {
            &**file
        } else {
            opened = File::open(path).map_err(SnapshotError::io("opening", path))?;
            &opened
        };
        copy_file((source, path), &to, file.bytes, progress)?;
        Ok(Transfer::Copied)
    }
}

impl Drop for SnapshotTarget {
    fn drop(&mut self) {
        if !self.is_complete {
            // The next snapshot with this name removes the rest.
            let _ = fs::remove_dir_all(&self.written);
        }
        let _ = self.lock.unlock();
    }
}

/// A former snapshot.
#[derive(Debug, Default)]
struct BaseSnapshot {
    directory: PathBuf,
    files: BTreeMap<String, ListedFile>,
}

impl BaseSnapshot {
    fn read(directory: Option<&Path>) -> Result<Self, SnapshotError> {
        let Some(directory) = directory else { return Ok(Self::default()) };
        let list = SnapshotList::read(directory)?;
        let files = list.files.into_iter().map(|file| (file.path.clone(), file)).collect();
        Ok(Self { directory: directory.to_owned(), files })
    }

    /// The file with the same name, size and checksum. The name alone is not enough: after a
    /// restart, a new file may reuse the number of a removed file.
    fn equal_file(&self, file: &PinnedFile) -> Option<PathBuf> {
        let listed = self.files.get(&file.path)?;
        let path = self.directory.join(&file.path);
        let is_equal = (listed.bytes, listed.checksum) == (file.bytes, file.checksum)
            && is_as_listed(&path, listed).unwrap_or(false);
        is_equal.then_some(path)
    }
}

/// True if a file has the listed size and, if it is a part, the listed checksum of its footer.
fn is_as_listed(path: &Path, listed: &ListedFile) -> io::Result<bool> {
    let file = File::open(path)?;
    if file.metadata()?.len() != listed.bytes {
        return Ok(false);
    }
    let FileChecksum::Footer(expected) = listed.checksum else { return Ok(true) };
    let mut crc = [0; 4];
    let Some(at) = listed.bytes.checked_sub(FOOTER_CRC_FROM_END) else { return Ok(false) };
    file.read_exact_at(&mut crc, at)?;
    Ok(u32::from_le_bytes(crc) == expected)
}

/// Links a file. Returns false if it must be copied, because it is on another file system or was
/// removed while open.
fn link(from: &Path, to: &Path) -> Result<bool, SnapshotError> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::AlreadyExists
            ) =>
        {
            Err(SnapshotError::io("linking", to)(error))
        }
        Err(_) => Ok(false),
    }
}

fn write_file(path: &Path, contents: &[u8]) -> Result<(), SnapshotError> {
    let written = File::create_new(path).and_then(|mut file| {
        file.write_all(contents)?;
        file.sync_all()
    });
    written.map_err(SnapshotError::io("writing", path))
}

fn is_missing_or_empty(directory: &Path) -> io::Result<bool> {
    match fs::read_dir(directory) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the leftovers of an interrupted snapshot; returns their path.
fn remove_leftover(written: &Path) -> Result<Option<PathBuf>, SnapshotError> {
    match fs::symlink_metadata(written) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SnapshotError::io("reading", written)(error)),
        Ok(_) => {}
    }
    let _lock = lock_directory(written)?;
    fs::remove_dir_all(written).map_err(SnapshotError::io("removing", written))?;
    Ok(Some(written.to_owned()))
}

/// Locks the directory of a snapshot that is being written.
fn lock_directory(written: &Path) -> Result<File, SnapshotError> {
    let lock = File::open(written).map_err(SnapshotError::io("opening", written))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(SnapshotError::InProgress),
        Err(TryLockError::Error(error)) => Err(SnapshotError::io("locking", written)(error)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Two immutable files, a part and one of a tree, and a rendered one.
    fn pinned(store: &Path, part: &[u8]) -> PinnedFiles {
        fs::create_dir_all(store).unwrap();
        // Length of the footer, its checksum, the magic number.
        let part = [part, &[0; 4], &7_u32.to_le_bytes(), &[1; 8]].concat();
        fs::write(store.join("1.part"), &part).unwrap();
        fs::write(store.join("7"), b"tree").unwrap();
        let file = |name: &str, checksum, bytes| PinnedFile {
            path: format!("store/{name}"),
            bytes,
            checksum,
            source: PinnedSource::Path(store.join(name)),
        };
        let mut tree = file("7", FileChecksum::Xxh3(9), 4);
        let opened = std::sync::Arc::new(File::open(store.join("7")).unwrap());
        tree.source = PinnedSource::Open { path: store.join("7"), file: opened };
        let mut files = PinnedFiles::default();
        store.clone_into(&mut files.root);
        files.files = vec![
            file("1.part", FileChecksum::Footer(7), part.len() as u64),
            tree,
            PinnedFile::rendered("store/manifest", b"state".to_vec()),
        ];
        files
    }

    fn request(target: PathBuf) -> SnapshotRequest {
        SnapshotRequest { target, ..SnapshotRequest::default() }
    }

    fn take(
        request: SnapshotRequest,
        pinned: &PinnedFiles,
    ) -> Result<SnapshotReport, SnapshotError> {
        let schema = TableSchema::opentsdb_default();
        let progress = SnapshotProgress::default();
        SnapshotTarget::create(request)?.write(pinned, schema, "test", &progress)
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn inode(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn immutable_files_are_linked_or_copied_and_equal_ones_of_a_base_are_linked() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("data/store");
        let files = pinned(&store, b"points");
        // Removed while it is open: it is copied.
        fs::remove_file(store.join("7")).unwrap();
        let linked = dir.path().join("linked");
        let report = take(request(linked.clone()), &files).unwrap();
        assert_eq!(
            (report.files, report.linked_bytes, report.copied_bytes, report.base_bytes),
            (3, 22, 9, 0)
        );
        assert_eq!(inode(&linked.join("store/1.part")), inode(&store.join("1.part")));
        assert_eq!(fs::read(linked.join("store/7")).unwrap(), b"tree");
        let list = SnapshotList::read(&linked).unwrap();
        assert_eq!((list.bytes(), list.files.len()), (31, 3));

        let copied = dir.path().join("copied");
        let copy = SnapshotRequest { copy: true, ..request(copied.clone()) };
        let report = take(copy, &files).unwrap();
        assert_eq!((report.copied_bytes, report.linked_bytes), (31, 0));
        assert_ne!(inode(&copied.join("store/1.part")), inode(&store.join("1.part")));

        // A reused number: the same name and size, another footer.
        let base = Some(copied.clone());
        let next = |name| SnapshotRequest {
            copy: true,
            base: base.clone(),
            ..request(dir.path().join(name))
        };
        assert_eq!(take(next("second"), &files).unwrap().base_bytes, 26);
        let mut other = pinned(&store, b"POINTS");
        other.files[0].checksum = FileChecksum::Footer(8);
        assert_eq!(take(next("third"), &other).unwrap().base_bytes, 4);
        // A base that was truncated since.
        File::options().write(true).open(copied.join("store/1.part")).unwrap().set_len(9).unwrap();
        assert_eq!(take(next("fourth"), &files).unwrap().base_bytes, 4);
        fs::remove_file(copied.join(SNAPSHOT_LIST)).unwrap();
        let error = take(next("fifth"), &files).unwrap_err().to_string();
        assert!(error.contains("is no snapshot"), "{error}");
        assert_eq!(
            names(dir.path()),
            ["copied", "data", "fourth", "linked", "second", "third"],
            "what failed left nothing"
        );
    }

    #[test]
    fn a_name_that_is_taken_or_inside_the_data_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let files = pinned(&dir.path().join("data/store"), b"points");
        fs::create_dir(dir.path().join("empty")).unwrap();
        take(request(dir.path().join("empty")), &files).unwrap();
        for (target, text) in [
            (dir.path().join("empty"), "not empty"),
            (dir.path().join("data/backup"), "in the data directory"),
            (dir.path().join("none/backup"), "does not exist"),
            (PathBuf::from("backup"), "must be absolute"),
        ] {
            let error = take(request(target), &files).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        assert_eq!(names(&dir.path().join("data")), ["store"]);
    }

    #[test]
    fn what_an_interrupted_snapshot_left_is_removed_by_the_next_but_not_while_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let files = pinned(&dir.path().join("data/store"), b"points");
        let target = dir.path().join("snapshot");
        let left = dir.path().join("snapshot.incomplete");
        fs::create_dir_all(left.join("store")).unwrap();
        fs::write(left.join("store/1.part"), b"half").unwrap();
        let first = SnapshotTarget::create(request(target.clone())).unwrap();
        let second = SnapshotTarget::create(request(target.clone())).unwrap_err();
        assert!(matches!(second, SnapshotError::InProgress), "{second}");
        let schema = TableSchema::opentsdb_default();
        let report = first.write(&files, schema, "test", &SnapshotProgress::default()).unwrap();
        assert_eq!(report.removed, Some(left.clone()));
        assert!(!left.exists() && target.exists());
    }

    #[test]
    fn damage_needs_consent_and_a_cancelled_snapshot_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = pinned(&dir.path().join("data/store"), b"points");
        let progress = SnapshotProgress::default();
        progress.cancel();
        let target = SnapshotTarget::create(request(dir.path().join("a"))).unwrap();
        let schema = TableSchema::opentsdb_default();
        let cancelled = target.write(&files, schema, "test", &progress).unwrap_err();
        assert!(matches!(cancelled, SnapshotError::Cancelled), "{cancelled}");
        files.damaged = vec!["t.tsdb-7".to_owned()];
        let error = take(request(dir.path().join("a")), &files).unwrap_err().to_string();
        assert!(error.contains("t.tsdb-7") && error.contains("--allow-damage"), "{error}");
        assert_eq!(names(dir.path()), ["data"]);
        let allowed = SnapshotRequest { allow_damage: true, ..request(dir.path().join("a")) };
        take(allowed, &files).unwrap();
        assert_eq!(SnapshotList::read(&dir.path().join("a")).unwrap().damaged, ["t.tsdb-7"]);
    }
}

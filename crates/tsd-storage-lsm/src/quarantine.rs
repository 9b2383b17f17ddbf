//! Damaged files in quarantine, and the key ranges that were lost with them.
//!
//! ```text
//! <dir>/quarantine/<name>.lost    what was damaged, and the lost key ranges
//! <dir>/quarantine/<name>.file    the damaged file; absent if the file was missing
//! <dir>/quarantine/<tree>.accepted  a loss of the tree was accepted, and nobody has checked what
//!                                 depends on the lost entries
//! ```
//!
//! A read of a lost range fails and names the file, because rows may be missing there. After the loss is
//! accepted, reads of the range return the intact rows.

use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::UNIX_EPOCH,
};

use tsd_files::read_file;
use tsd_storage::{LostRows, QuarantinedFile, StorageError, Table, UnknownVersion};

use crate::{
    checksum, key_encoding,
    manifest::{parse_hex, replace_file, unknown_text, write_hex},
};

const DIRECTORY: &str = "quarantine";
const RECORD: &str = "lost";
const DATA: &str = "file";
const ACCEPTED: &str = "accepted";
const HEADER: &str = "saltern quarantine 1";

/// A range of keys of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// First key; empty for all keys up to the end.
    pub(crate) start: Vec<u8>,
    /// The key after the last; `None` for all keys from the start.
    pub(crate) end: Option<Vec<u8>>,
}

impl KeyRange {
    pub(crate) fn rows(&self) -> LostRows {
        let row = |key: &[u8]| Some(key_encoding::decode(key)?.0.into());
        LostRows {
            first: row(&self.start),
            last: self.end.as_deref().and_then(row),
            time_secs: None,
        }
    }

    fn overlaps(&self, start: &[u8], end: Option<&[u8]>) -> bool {
        end.is_none_or(|end| self.start.as_slice() < end)
            && self.end.as_deref().is_none_or(|last| start < last)
    }
}

/// A file in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuarantineRecord {
    /// Name by which the loss is accepted.
    pub(crate) name: String,
    /// Path of the file in the store, relative to the store's directory.
    pub(crate) file: String,
    /// The damage, with its offset.
    pub(crate) what: String,
    /// Size of the damaged file, in bytes; 0 if it was missing.
    pub(crate) bytes: u64,
    /// Checksum that the file should have.
    pub(crate) checksum: u128,
    /// Whether the damaged file was kept.
    pub(crate) kept: bool,
    /// Key ranges whose entries may be lost; empty if all entries were saved.
    pub(crate) lost: Vec<KeyRange>,
}

impl QuarantineRecord {
    /// True if entries may be lost; otherwise the file was rebuilt completely.
    pub(crate) fn is_loss(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Directory of the tree of the file: the first component of the path.
    fn tree(&self) -> &str {
        self.file.split('/').next().unwrap_or_default()
    }

    /// The table of the tree; for a damaged record, the rest of its name.
    fn table(&self) -> Table {
        Table::of_file_name(self.tree()).unwrap_or_else(|| Table::new(self.tree()))
    }

    pub(crate) fn encode(&self) -> String {
        let mut text = format!(
            "{HEADER}\nfile {}\nwhat {}\nbytes {}\nchecksum {:x}\nkept {}\n",
            self.file, self.what, self.bytes, self.checksum, self.kept
        );
        for range in &self.lost {
            text.push_str("lost ");
            write_hex(&mut text, &range.start);
            text.push(' ');
            match &range.end {
                Some(end) => write_hex(&mut text, end),
                None => text.push('*'),
            }
            text.push('\n');
        }
        checksum::seal(&mut text);
        text
    }

    pub(crate) fn parse(name: &str, text: &str) -> Option<Self> {
        let mut lines = checksum::unseal(text)?.lines();
        if lines.next()? != HEADER {
            return None;
        }
        let mut field = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let mut record = Self {
            name: name.to_owned(),
            file: field("file")?.to_owned(),
            what: field("what")?.to_owned(),
            bytes: field("bytes")?.parse().ok()?,
            checksum: u128::from_str_radix(field("checksum")?, 16).ok()?,
            kept: field("kept")?.parse().ok()?,
            lost: Vec::new(),
        };
        for line in lines {
            let (start, end) = line.strip_prefix("lost ")?.split_once(' ')?;
            let end = if end == "*" { None } else { Some(parse_hex(end)?) };
            record.lost.push(KeyRange { start: parse_hex(start)?, end });
        }
        Some(record)
    }

    /// Replaces a damaged record: all of its tree may be lost.
    fn of_damaged_record(name: &str) -> Self {
        let tree = name.rsplit_once('-').map_or(name, |(tree, _)| tree);
        Self {
            name: name.to_owned(),
            file: format!("{tree}/{DIRECTORY}/{name}.{RECORD}"),
            what: "the record of a file in quarantine is damaged".to_owned(),
            bytes: 0,
            checksum: 0,
            kept: false,
            lost: vec![KeyRange::default()],
        }
    }
}

impl std::fmt::Display for QuarantineRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "store file {} is damaged ({}); ", self.file, self.what)?;
        if self.is_loss() {
            f.write_str("its damaged part is lost")?;
        } else {
            f.write_str("it was rebuilt without loss")?;
        }
        write!(f, "; it is in quarantine, `tsdb quarantine accept {}` accepts this", self.name)
    }
}

/// The quarantine of a store.
#[derive(Debug)]
pub(crate) struct Quarantine {
    dir: PathBuf,
    records: RwLock<Vec<Arc<QuarantineRecord>>>,
    /// Number of records with lost ranges: reads of an undamaged store only load this.
    losses: AtomicUsize,
    /// Trees with an accepted loss that was not checked.
    unchecked: RwLock<BTreeSet<String>>,
    /// Serializes changes of the directory.
    accepting: Mutex<()>,
}

/// Notes an accepted loss of rows of a table, in the directory of a store that no process has open, so that
/// its consequences are checked.
///
/// # Errors
///
/// An error of the disk.
pub fn note_loss(path: &Path, table: &Table) -> Result<(), StorageError> {
    let noted = Quarantine::open(path)?.note(&table.file_name());
    noted.map_err(|source| StorageError::io("noting an accepted loss", source))
}

impl Quarantine {
    /// Opens the quarantine of the store in a directory; an absent quarantine is empty.
    pub(crate) fn open(store: &Path) -> Result<Self, StorageError> {
        let dir = store.join(DIRECTORY);
        let failed = |source| StorageError::io(format!("reading {}", dir.display()), source);
        let unchecked = accepted_trees(&dir).map_err(failed)?;
        let records = load(&dir).map_err(failed)?;
        let quarantine = Self {
            dir,
            records: RwLock::default(),
            losses: AtomicUsize::new(0),
            unchecked: RwLock::new(unchecked),
            accepting: Mutex::default(),
        };
        quarantine.change(|all| all.extend(records.into_iter().map(Arc::new)));
        for record in quarantine.records() {
            tracing::warn!("{record}");
        }
        Ok(quarantine)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<QuarantineRecord>>)) {
        let mut records = self.records.write();
        change(&mut records);
        let losses = records.iter().filter(|record| record.is_loss()).count();
        self.losses.store(losses, Ordering::Release);
    }

    /// The files in quarantine whose loss was not accepted yet.
    pub(crate) fn records(&self) -> Vec<Arc<QuarantineRecord>> {
        let records = self.records.read().clone();
        let (removed, rest): (Vec<_>, _) =
            records.into_iter().partition(|record| self.was_removed(record));
        for record in removed {
            // An operator removed one of the two files of the record, which accepts the loss.
            if let Err(error) = self.accept_record(&record) {
                tracing::warn!(name = record.name, %error, "the rest of a file in quarantine was not removed");
            }
        }
        rest
    }

    /// Removes a record and its file, after the loss has been noted.
    fn accept_record(&self, record: &Arc<QuarantineRecord>) -> io::Result<()> {
        if record.is_loss() {
            self.note(record.tree())?;
        }
        let _changing = self.accepting.lock();
        tracing::warn!(name = record.name, file = record.file, "the loss was accepted");
        let removed = remove(&self.dir, &record.name);
        self.change(|records| records.retain(|other| !Arc::ptr_eq(other, record)));
        removed
    }

    /// Notes durably that a loss of entries of a tree was accepted.
    pub(crate) fn note(&self, tree: &str) -> io::Result<()> {
        let _changing = self.accepting.lock();
        fs::create_dir_all(&self.dir)?;
        replace_file(&self.dir.join(format!("{tree}.{ACCEPTED}")), b"", true)?;
        self.unchecked.write().insert(tree.to_owned());
        Ok(())
    }

    /// True if a loss of the tree was accepted and not checked since.
    pub(crate) fn is_noted(&self, tree: &str) -> bool {
        self.unchecked.read().contains(tree)
    }

    /// Ends [`Self::is_noted`], durably.
    pub(crate) fn forget(&self, tree: &str) -> io::Result<()> {
        let _changing = self.accepting.lock();
        ignore_missing(fs::remove_file(self.dir.join(format!("{tree}.{ACCEPTED}"))))?;
        self.unchecked.write().remove(tree);
        Ok(())
    }

    /// The records for an operator.
    pub(crate) fn files(&self) -> Vec<QuarantinedFile> {
        self.records()
            .iter()
            .map(|record| QuarantinedFile {
                name: record.name.clone(),
                file: record.file.clone(),
                table: record.table(),
                what: record.what.clone(),
                bytes: record.bytes,
                since_ms: self.since_ms(record),
                lost: record.lost.iter().map(KeyRange::rows).collect(),
                extent: None,
            })
            .collect()
    }

    /// Names and contents of the quarantine files of a store with the same losses, without the damaged files.
    pub(crate) fn notes(&self) -> Vec<(String, String)> {
        let record = |record: &Arc<QuarantineRecord>| {
            let name = format!("{DIRECTORY}/{}.{RECORD}", record.name);
            (name, QuarantineRecord { kept: false, ..(**record).clone() }.encode())
        };
        let records = self.records();
        let mut notes: Vec<_> =
            records.iter().filter(|record| record.is_loss()).map(record).collect();
        let unchecked = self.unchecked.read();
        notes.extend(
            unchecked.iter().map(|tree| (format!("{DIRECTORY}/{tree}.{ACCEPTED}"), String::new())),
        );
        notes
    }

    /// Accepts the loss of a file; returns false for an unknown name.
    pub(crate) fn accept(&self, name: &str) -> Result<bool, StorageError> {
        let Some(record) = self.records().into_iter().find(|record| record.name == name) else {
            return Ok(false);
        };
        self.accept_record(&record)
            .map_err(|source| StorageError::io(format!("accepting the loss of {name}"), source))?;
        Ok(true)
    }

    /// The time of the record.
    fn since_ms(&self, record: &QuarantineRecord) -> i64 {
        let metadata = fs::metadata(self.dir.join(format!("{}.{RECORD}", record.name)));
        let since = metadata.and_then(|metadata| metadata.modified()).unwrap_or(UNIX_EPOCH);
        since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }

    /// Fails if entries of the range of keys may be lost. `tree` is the directory of the tree.
    pub(crate) fn check(
        &self,
        tree: &str,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        if self.losses.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let lost = self.records().into_iter().find(|record| {
            record.tree() == tree && record.lost.iter().any(|range| range.overlaps(start, end))
        });
        match lost {
            None => Ok(()),
            Some(record) => Err(StorageError::Damaged(Arc::from(record.to_string()))),
        }
    }

    /// Moves a damaged file to the quarantine and records the losses. Durable on return.
    pub(crate) fn add(
        &self,
        mut record: QuarantineRecord,
        source: Option<&Path>,
    ) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let records = self.records();
        // A repair that was interrupted is repeated under the same name.
        let base = record.name.clone();
        for number in 2.. {
            match records.iter().find(|other| other.name == record.name) {
                Some(other) if (&other.file, other.checksum) != (&record.file, record.checksum) => {
                    record.name = format!("{base}.{number}");
                }
                _ => break,
            }
        }
        record.kept = false;
        if let Some(source) = source {
            let kept = self.dir.join(format!("{}.{DATA}", record.name));
            record.kept = keep(source, &kept)?;
            record.bytes = if record.kept { size(&kept) } else { 0 };
        }
        let path = self.dir.join(format!("{}.{RECORD}", record.name));
        replace_file(&path, record.encode().as_bytes(), true)?;
        if let Some(parent) = self.dir.parent() {
            File::open(parent)?.sync_all()?;
        }
        tracing::error!("{record}");
        let record = Arc::new(record);
        self.change(|records| {
            records.retain(|other| other.name != record.name);
            records.push(record);
        });
        Ok(())
    }

    /// Moves a file that the store did not write out of the tree.
    pub(crate) fn move_unknown_file(&self, tree: &str, path: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for number in 1.. {
            let to = self.dir.join(format!("{tree}-stray-{name}.{number}"));
            if !to.exists() {
                tracing::warn!(
                    from = %path.display(), to = %to.display(), "a file that is not of the store was moved"
                );
                return fs::rename(path, to);
            }
        }
        Ok(())
    }

    fn was_removed(&self, record: &QuarantineRecord) -> bool {
        let exists = |suffix: &str| self.dir.join(format!("{}.{suffix}", record.name)).exists();
        !exists(RECORD) || (record.kept && !exists(DATA))
    }
}

/// Links a file, or moves a directory; returns false if the source is missing.
fn keep(source: &Path, kept: &Path) -> io::Result<bool> {
    if kept.is_dir() {
        fs::remove_dir_all(kept)?;
    } else if kept.exists() {
        fs::remove_file(kept)?;
    }
    let done = if source.is_dir() {
        fs::rename(source, kept)
    } else {
        fs::hard_link(source, kept).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Err(error),
            // The file system does not support links.
            _ => fs::copy(source, kept).map(|_| ()),
        })
    };
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Size of a file, or of all files of a directory.
fn size(path: &Path) -> u64 {
    match fs::read_dir(path) {
        Ok(entries) => entries.filter_map(Result::ok).map(|entry| size(&entry.path())).sum(),
        Err(_) => fs::metadata(path).map_or(0, |metadata| metadata.len()),
    }
}

/// Reads the records of the quarantine of a store. Read-only.
pub(crate) fn read_records(store: &Path) -> io::Result<Vec<QuarantineRecord>> {
    load(&store.join(DIRECTORY))
}

/// The first record of another release in the quarantine of a store.
pub(crate) fn unknown_record(store: &Path) -> io::Result<Option<UnknownVersion>> {
    let dir = store.join(DIRECTORY);
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == RECORD)
            && let Some(unknown) = unknown_text(&path, HEADER)?
        {
            return Ok(Some(unknown));
        }
    }
    Ok(None)
}

fn load(dir: &Path) -> io::Result<Vec<QuarantineRecord>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut records = Vec::new();
    for entry in entries {
        let file_name = entry?.file_name();
        let Some(name) = file_name.to_str().and_then(|name| name.strip_suffix(".lost")) else {
            continue;
        };
        let text = read_file(&dir.join(&file_name)).ok();
        let text = text.and_then(|text| String::from_utf8(text).ok()).unwrap_or_default();
        records.push(
            QuarantineRecord::parse(name, &text)
                .unwrap_or_else(|| QuarantineRecord::of_damaged_record(name)),
        );
    }
    records.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(records)
}

/// Trees with an accepted loss that was not checked.
fn accepted_trees(dir: &Path) -> io::Result<BTreeSet<String>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let mut trees = BTreeSet::new();
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        trees.extend(name.strip_suffix(&format!(".{ACCEPTED}")).map(str::to_owned));
    }
    Ok(trees)
}

/// Removes a record, then its file.
fn remove(dir: &Path, name: &str) -> io::Result<()> {
    ignore_missing(fs::remove_file(dir.join(format!("{name}.{RECORD}"))))?;
    let data = dir.join(format!("{name}.{DATA}"));
    ignore_missing(if data.is_dir() { fs::remove_dir_all(data) } else { fs::remove_file(data) })
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn record() -> QuarantineRecord {
        QuarantineRecord {
            name: "t.tsdb-7".into(),
            file: "t.tsdb/tables/7".into(),
            what: "data block at offset 40".into(),
            bytes: 0,
            checksum: 9,
            kept: false,
            lost: vec![KeyRange { start: b"b".to_vec(), end: Some(b"d".to_vec()) }],
        }
    }

    #[test]
    fn only_reads_of_a_lost_range_fail_until_the_loss_is_accepted() {
        let store = tempfile::tempdir().unwrap();
        let file = store.path().join("7");
        fs::write(&file, "damaged").unwrap();
        let quarantine = Quarantine::open(store.path()).unwrap();
        quarantine.add(record(), Some(&file)).unwrap();
        for quarantine in [quarantine, Quarantine::open(store.path()).unwrap()] {
            let check = |tree, start: &[u8], end| quarantine.check(tree, start, end).is_ok();
            assert!(check("t.tsdb", b"a", Some(b"b")));
            assert!(!check("t.tsdb", b"a", Some(b"c")));
            assert!(!check("t.tsdb", b"c", None));
            assert!(check("t.tsdb", b"d", None));
            assert!(check("t.other", b"a", None));
            let error = quarantine.check("t.tsdb", b"", None).unwrap_err().to_string();
            assert!(error.contains("t.tsdb/tables/7"), "{error}");
            assert!(error.contains("data block at offset 40"), "{error}");
            assert_eq!(quarantine.records().first().unwrap().bytes, 7);
        }
        // The same damage again, and damage of a later file of the same name.
        let quarantine = Quarantine::open(store.path()).unwrap();
        quarantine.add(record(), Some(&file)).unwrap();
        quarantine.add(QuarantineRecord { checksum: 1, ..record() }, None).unwrap();
        let names: Vec<_> = quarantine.records().iter().map(|r| r.name.clone()).collect();
        assert_eq!(names, ["t.tsdb-7", "t.tsdb-7.2"]);
        assert!(quarantine.accept("t.tsdb-7.2").unwrap());
        assert!(!quarantine.accept("t.tsdb-7.2").unwrap());
        assert!(!quarantine.accept("../quarantine/t.tsdb-7").unwrap());
        assert!(quarantine.check("t.tsdb", b"c", None).is_err());
        // An operator removed the damaged file.
        fs::remove_file(store.path().join("quarantine/t.tsdb-7.file")).unwrap();
        quarantine.check("t.tsdb", b"c", None).unwrap();
        assert!(quarantine.files().is_empty());
        // Both losses are noted until they are checked.
        let quarantine = Quarantine::open(store.path()).unwrap();
        assert!(quarantine.is_noted("t.tsdb") && !quarantine.is_noted("t.other"));
        quarantine.forget("t.tsdb").unwrap();
        assert!(!Quarantine::open(store.path()).unwrap().is_noted("t.tsdb"));
    }

    #[test]
    fn a_damaged_record_stands_for_the_loss_of_its_tree() {
        let store = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::open(store.path()).unwrap();
        quarantine.add(record(), None).unwrap();
        let path = store.path().join("quarantine/t.tsdb-7.lost");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("lost 62", "lost 63")).unwrap();
        let quarantine = Quarantine::open(store.path()).unwrap();
        assert!(quarantine.check("t.tsdb", b"a", Some(b"b")).is_err());
        assert!(quarantine.check("t.other", b"a", Some(b"b")).is_ok());
    }
}

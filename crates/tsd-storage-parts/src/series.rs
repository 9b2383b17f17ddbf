//! The series index of a table, and its file.
//!
//! The index has every series and day for which the table has rows. Rows are added to it when a log in front
//! accepts them, and again when they are flushed. The index file is written before the part of a flush, so before
//! the log removes the rows. After a kill, the replay adds the rest.
//!
//! ```text
//! series/<table>          text with checksum: widths of the keys, number and length of the file
//! series/<table>.<number> frames: length u32, CRC-32C u32 (little-endian), section of the index
//! ```
//!
//! Bytes beyond the recorded length belong to an incomplete write and are cut off. If the files are missing or
//! damaged, the index is built from the sections ([`build`]). Until the index is complete, queries scan.

use parking_lot::{Mutex, MutexGuard};
use std::{
    fmt::Write as _,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use tsd_files::{StoreDir, StoreFile};
use tsd_model::TableSchema;
use tsd_series_index::{Delta, LoadError, SeriesIndex};
use tsd_storage::{StorageError, Table, UnknownVersion};

pub(crate) mod build;
mod reclaim;

const VERSION_LINE: &str = "saltern series 1";
/// A file is rewritten once it has grown by its initial length and this many bytes.
const MAX_GROWTH_BYTES: u64 = 64 << 20;
/// Suffix of a file that is not completely written.
const NEW_SUFFIX: &str = ".new";
/// Size limit of the state file, which has about 100 bytes.
const MAX_STATE_BYTES: usize = 4_096;
/// Length and checksum of a frame.
const FRAME_HEADER_BYTES: usize = 8;

/// The series index of a table and its file.
#[derive(Debug)]
pub(crate) struct TableSeries {
    pub(crate) index: Arc<SeriesIndex>,
    table: Table,
    file: Mutex<IndexFile>,
    /// Rows that the build visited.
    built_rows: AtomicU64,
    /// Series that were removed because they had no rows left.
    reclaimed: AtomicU64,
}

/// The files of an index: the state file names the one with the index.
#[derive(Debug)]
struct IndexFile {
    dir: Arc<dyn StoreDir>,
    /// Name of the state file.
    name: String,
    state: FileState,
    /// True if series have other numbers than in the file, so that the file must be rewritten.
    is_renumbered: bool,
}

/// The contents of the state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    number: u64,
    bytes: u64,
    /// Length after the last rewrite.
    first_bytes: u64,
}

/// How far the file of an index is written. The position grows with each write, unless the index is rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesIndexPosition {
    /// Number of the file.
    pub file: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// An index and the path of its file; or the path and a description of the damage.
pub(crate) type ReadIndex = Result<(SeriesIndex, String), (String, String)>;

/// Why a file cannot be used.
#[derive(Debug)]
enum Unusable {
    Missing,
    /// Written for keys of other widths.
    OtherSchema,
    /// Written by a release with another format.
    UnknownVersion(UnknownVersion),
    Damaged(String),
    Io(io::Error),
}

impl TableSeries {
    /// Opens the index of a table. `is_empty` is true if the table has no rows.
    pub(crate) fn open(
        dir: Arc<dyn StoreDir>,
        table: &Table,
        schema: TableSchema,
        is_empty: bool,
    ) -> Result<Self, StorageError> {
        let failed = |source| StorageError::io(format!("the series index of {table}"), source);
        let started = Instant::now();
        let name = table.file_name();
        let mut file = IndexFile::new(dir, name);
        let mut index = SeriesIndex::new(schema);
        match file.load(&index) {
            Ok(()) => {
                index.set_complete(true);
                let (size, millis) = (index.size(), started.elapsed().as_millis() as u64);
                let (series, bytes) = (size.series, file.state.bytes);
                tracing::info!(%table, series, bytes, millis, "series index loaded");
            }
            Err(Unusable::Missing) if is_empty => index.set_complete(true),
            Err(why) => {
                index = SeriesIndex::new(schema);
                let file = file.name_of(file.state.number);
                match why {
                    Unusable::Missing => {
                        tracing::info!(%table, "the table has no series index; it is built");
                    }
                    Unusable::OtherSchema => {
                        tracing::warn!(%table, %file, "the series index has other widths; it is built again");
                    }
                    Unusable::Damaged(what) => {
                        tracing::error!(%table, %file, what, "the series index is damaged; it is built again");
                    }
                    Unusable::UnknownVersion(error) => return Err(error.into()),
                    Unusable::Io(error) => {
                        tracing::error!(%table, %file, %error, "the series index cannot be read; it is built again");
                    }
                }
            }
        }
        file.remove_others().map_err(failed)?;
        Ok(Self {
            index: Arc::new(index),
            table: table.clone(),
            file: Mutex::new(file),
            built_rows: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
        })
    }

    /// The path of the file and a description of its damage; `None` if the file is right or not written yet.
    pub(crate) fn check_file(&self) -> Result<Option<(String, String)>, StorageError> {
        let file = self.file();
        if !self.index.is_complete() || file.state.number == 0 {
            return Ok(None);
        }
        let mut again = IndexFile::new(Arc::clone(&file.dir), file.name.clone());
        let read = again.read(*self.index.schema(), &mut |_| Ok(()));
        let wrong = wrong_file(read.map(|_| ()), &self.table)?;
        Ok(wrong.map(|what| (again.path(), what)))
    }

    /// Loads the index of a table that is not open, without any change, to compare it with the parts. If that
    /// fails: the path of the file and a description of its damage.
    pub(crate) fn read_file(
        dir: &Arc<dyn StoreDir>,
        table: &Table,
        schema: TableSchema,
    ) -> Result<ReadIndex, StorageError> {
        let name = table.file_name();
        let mut file = IndexFile::new(Arc::clone(dir), name);
        let index = SeriesIndex::new(schema);
        let read = file.read(schema, &mut |frame| index.load(frame));
        let wrong = wrong_file(read.map(|_| ()), table)?;
        Ok(match wrong {
            Some(what) => Err((file.path(), what)),
            None => Ok((index, file.path())),
        })
    }

    /// The durable position of the file; `None` if it is not written yet.
    pub(crate) fn position(&self) -> Option<SeriesIndexPosition> {
        self.file().state.position()
    }

    /// The position of the index file of a table that is not open; `None` without a readable file.
    pub(crate) fn stored_position(
        dir: &dyn StoreDir,
        table: &Table,
    ) -> io::Result<Option<SeriesIndexPosition>> {
        let text = match dir.read(&table.file_name(), 0, usize::MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => String::from_utf8(text?).ok(),
        };
        let state = text.as_deref().and_then(unseal).and_then(parse_state);
        Ok(state.and_then(|(_, state)| state.position()))
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> String {
        self.file().path()
    }

    /// Removes an index that lacks rows or will lack them: it is older than the table, or the table is opened
    /// without it.
    pub(crate) fn discard(dir: &dyn StoreDir, table: &Table) -> Result<(), StorageError> {
        let name = table.file_name();
        let removed = match is_state(dir, &name) {
            Ok(true) => dir.remove(&name),
            other => other.map(|_| ()),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StorageError::io("removing a series index that is not used", error))
            }
            _ => Ok(()),
        }
    }

    /// Writes changes of the index durably. Does nothing while the index is incomplete, since its first write has
    /// everything.
    pub(crate) fn persist(&self) -> Result<(), StorageError> {
        let mut file = self.file();
        if !self.index.is_complete() {
            return Ok(());
        }
        let FileState { number, bytes, first_bytes } = file.state;
        let all = number == 0 || file.is_renumbered || bytes > 2 * first_bytes + MAX_GROWTH_BYTES;
        self.write(&mut file, all)
    }

    /// Writes the whole index and declares it complete.
    fn complete(&self) -> Result<(), StorageError> {
        let mut file = self.file();
        self.write(&mut file, true)?;
        self.index.set_complete(true);
        Ok(())
    }

    fn write(&self, file: &mut IndexFile, all: bool) -> Result<(), StorageError> {
        let failed = |source| {
            StorageError::io(format!("writing the series index of {}", self.table), source)
        };
        let delta = match self.index.delta(all) {
            Some(delta) => delta,
            // No series are left.
            None if all && file.is_renumbered => Delta::default(),
            None => return Ok(()),
        };
        let schema = *self.index.schema();
        if all { file.replace(&delta, schema) } else { file.append(&delta, schema) }
            .map_err(failed)?;
        file.is_renumbered &= !all;
        self.index.commit(delta);
        Ok(())
    }

    fn file(&self) -> MutexGuard<'_, IndexFile> {
        // The state is set after a successful write, so it is right even after a panic of another thread.
        self.file.lock()
    }

    /// Metrics of the index.
    pub(crate) fn gauges(&self) -> [(&'static str, f64); 5] {
        let size = self.index.size();
        [
            ("tsd_parts_series_index_series", size.series as f64),
            ("tsd_parts_series_index_memory_bytes", size.memory_bytes as f64),
            ("tsd_parts_series_index_complete", f64::from(u8::from(self.index.is_complete()))),
            (
                "tsd_parts_series_index_built_rows_total",
                self.built_rows.load(Ordering::Relaxed) as f64,
            ),
            (
                "tsd_parts_series_index_reclaimed_series_total",
                self.reclaimed.load(Ordering::Relaxed) as f64,
            ),
        ]
    }
}

/// Why a file differs from the written contents; `None` if it is right.
fn wrong_file(read: Result<(), Unusable>, table: &Table) -> Result<Option<String>, StorageError> {
    match read {
        Ok(()) => Ok(None),
        Err(Unusable::Missing) => Ok(Some("it is missing".to_owned())),
        Err(Unusable::OtherSchema) => {
            Ok(Some("it was written for keys of other widths".to_owned()))
        }
        Err(Unusable::Damaged(what)) => Ok(Some(what)),
        Err(Unusable::UnknownVersion(error)) => Err(error.into()),
        Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Some("it is missing".to_owned()))
        }
        Err(Unusable::Io(source)) => {
            Err(StorageError::io(format!("reading the series index of {table}"), source))
        }
    }
}

impl FileState {
    fn position(self) -> Option<SeriesIndexPosition> {
        let Self { number: file, bytes, .. } = self;
        (file > 0).then_some(SeriesIndexPosition { file, bytes })
    }
}

impl IndexFile {
    const fn new(dir: Arc<dyn StoreDir>, name: String) -> Self {
        let state = FileState { number: 0, bytes: 0, first_bytes: 0 };
        Self { dir, name, state, is_renumbered: false }
    }

    /// Path of the file with the index, or of the state file before the first write.
    fn path(&self) -> String {
        let name = match self.state.number {
            0 => self.name.clone(),
            number => self.name_of(number),
        };
        self.dir.path().join(name).display().to_string()
    }

    fn name_of(&self, number: u64) -> String {
        format!("{}.{number}", self.name)
    }

    /// Loads the index and cuts off an incomplete write.
    fn load(&mut self, index: &SeriesIndex) -> Result<(), Unusable> {
        let bytes = self.read(*index.schema(), &mut |frame| index.load(frame))?;
        if bytes > self.state.bytes {
            let name = self.name_of(self.state.number);
            self.dir.truncate(&name, self.state.bytes).map_err(Unusable::Io)?;
        }
        Ok(())
    }

    /// Reads the index, calls `each` with every intact frame and returns the length of the file.
    fn read(
        &mut self,
        schema: TableSchema,
        each: &mut dyn FnMut(&[u8]) -> Result<(), LoadError>,
    ) -> Result<u64, Unusable> {
        let text = match self.dir.read(&self.name, 0, usize::MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Missing),
            Err(error) => return Err(Unusable::Io(error)),
        };
        let state = String::from_utf8(text).ok();
        let state = state.as_deref().and_then(unseal);
        let unknown =
            state.and_then(|text| UnknownVersion::of_text(self.path(), text, VERSION_LINE));
        if let Some(error) = unknown {
            return Err(Unusable::UnknownVersion(error));
        }
        let state = state.and_then(parse_state);
        let Some((stored, state)) = state else {
            return Err(Unusable::Damaged(format!("{} is damaged", self.name)));
        };
        self.state = state;
        if stored != schema_line(schema) {
            return Err(Unusable::OtherSchema);
        }
        let damaged = |what: &str, at: usize| Unusable::Damaged(format!("{what} at byte {at}"));
        let name = self.name_of(state.number);
        let bytes = self.dir.read(&name, 0, usize::MAX).map_err(Unusable::Io)?;
        let Some(mut rest) = bytes.get(..state.bytes as usize) else {
            return Err(damaged("the file ends", bytes.len()));
        };
        while !rest.is_empty() {
            let at = state.bytes as usize - rest.len();
            let (frame, after) = split_frame(rest).ok_or_else(|| damaged("wrong checksum", at))?;
            each(frame).map_err(|error| damaged(&error.to_string(), at))?;
            rest = after;
        }
        Ok(bytes.len() as u64)
    }

    /// Appends a delta.
    fn append(&mut self, delta: &Delta, schema: TableSchema) -> io::Result<()> {
        let mut file = self.dir.open(&self.name_of(self.state.number))?;
        // A failed write leaves a longer file.
        file.set_len(self.state.bytes)?;
        let bytes = write_frames(&mut *file, self.state.bytes, delta)?;
        self.record(FileState { bytes, ..self.state }, schema)
    }

    /// Writes a new file with a delta of everything.
    fn replace(&mut self, delta: &Delta, schema: TableSchema) -> io::Result<()> {
        let number = self.state.number + 1;
        let mut file = self.create(&self.name_of(number))?;
        let bytes = write_frames(&mut *file, 0, delta)?;
        self.record(FileState { number, bytes, first_bytes: bytes }, schema)?;
        // Otherwise, the next start removes it.
        let _ = self.remove_others();
        Ok(())
    }

    /// Creates a file and replaces one that a failed write left.
    fn create(&self, name: &str) -> io::Result<Box<dyn StoreFile>> {
        match self.dir.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.dir.create(name)
    }

    /// Commits a write by recording the new length in the state file.
    fn record(&mut self, state: FileState, schema: TableSchema) -> io::Result<()> {
        let FileState { number, bytes, first_bytes } = state;
        let schema = schema_line(schema);
        let mut text = format!(
            "{VERSION_LINE}\nkeys {schema}\nfile {number}\nbytes {bytes}\nfirst {first_bytes}\n"
        );
        seal(&mut text);
        let new = format!("{}{NEW_SUFFIX}", self.name);
        let mut file = self.create(&new)?;
        file.write_at(0, text.as_bytes())?;
        file.sync_data()?;
        self.dir.rename(&new, &self.name)?;
        self.dir.sync()?;
        self.state = state;
        Ok(())
    }

    /// Removes unused files of the table.
    fn remove_others(&self) -> io::Result<()> {
        for name in self.dir.list()? {
            let number = name.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('.'));
            let number = number.and_then(|number| number.parse::<u64>().ok());
            if number.is_some_and(|number| number != self.state.number)
                && !is_state(&*self.dir, &name)?
            {
                self.dir.remove(&name)?;
            }
        }
        Ok(())
    }
}

/// The first index in a directory that another release has written.
pub(crate) fn unknown_index(dir: &dyn StoreDir) -> io::Result<Option<UnknownVersion>> {
    let names = dir.list()?;
    let mut names: Vec<_> = names
        .iter()
        .filter(|name| Table::of_file_name(name).is_some() && !name.ends_with(NEW_SUFFIX))
        .collect();
    names.sort_unstable();
    for name in names {
        // The frames of an index are not text.
        let text = String::from_utf8(dir.read(name, 0, MAX_STATE_BYTES)?).ok();
        let unknown = text.as_deref().and_then(unseal).and_then(|text| {
            UnknownVersion::of_text(dir.path().join(name).display(), text, VERSION_LINE)
        });
        if unknown.is_some() {
            return Ok(unknown);
        }
    }
    Ok(None)
}

/// True for a state file. With tables named `tsdb` and `tsdb.1`, only the contents distinguish the state file of
/// the second from the first index file of the first.
fn is_state(dir: &dyn StoreDir, name: &str) -> io::Result<bool> {
    let text = String::from_utf8(dir.read(name, 0, MAX_STATE_BYTES)?).ok();
    Ok(text.as_deref().and_then(unseal).is_some())
}

/// Writes frames with their checksums from `at` on and syncs the file. Returns its length.
fn write_frames(file: &mut dyn StoreFile, mut at: u64, delta: &Delta) -> io::Result<u64> {
    for frame in &delta.frames {
        let mut header = (frame.len() as u32).to_le_bytes().to_vec();
        header.extend_from_slice(&crc32c::crc32c(frame).to_le_bytes());
        file.write_at(at, &header)?;
        file.write_at(at + FRAME_HEADER_BYTES as u64, frame)?;
        at += (FRAME_HEADER_BYTES + frame.len()) as u64;
    }
    file.sync_data()?;
    Ok(at)
}

/// Appends a line with the checksum of the text before it.
pub(crate) fn seal(text: &mut String) {
    let sum = crc32c::crc32c(text.as_bytes());
    let _ = writeln!(text, "sum {sum:08x}");
}

/// The text before the line with the checksum; `None` if the checksum is missing or wrong.
pub(crate) fn unseal(text: &str) -> Option<&str> {
    let (body, line) = text.split_at_checked(text.len().checked_sub("sum 00000000\n".len())?)?;
    let mut sealed = body.to_owned();
    seal(&mut sealed);
    sealed.ends_with(line).then_some(body)
}

/// The first frame and the bytes after it; `None` if the frame is damaged. An empty frame is damaged: zeros would
/// be empty frames, whose checksum is 0.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (frame, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    let is_intact = !frame.is_empty() && crc32c::crc32c(frame) == u32::from_le_bytes(*sum);
    is_intact.then_some((frame, rest))
}

fn schema_line(schema: TableSchema) -> String {
    let (metric, tagk, tagv) = (schema.metric_width(), schema.tagk_width(), schema.tagv_width());
    format!("{metric} {tagk} {tagv} {}", schema.salt_width())
}

/// Key widths and state of the file.
fn parse_state(text: &str) -> Option<(&str, FileState)> {
    let mut lines = text.lines();
    lines.next().filter(|line| *line == VERSION_LINE)?;
    let schema = lines.next()?.strip_prefix("keys ")?;
    let mut number = |name: &str| lines.next()?.strip_prefix(name)?.parse().ok();
    let state = FileState {
        number: number("file ")?,
        bytes: number("bytes ")?,
        first_bytes: number("first ")?,
    };
    Some((schema, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 37.
    #[test]
    fn zeros_are_no_frames() {
        assert_eq!(split_frame(&[0; 2 * FRAME_HEADER_BYTES]), None);
    }
}

//! The spool: points that the store rejected, as lines for `tsdb import --spool`.
//!
//! - A point is a line of an import file. Histograms, rolled-up values and names with blanks, which do not fit such a
//!   line, are lines of JSON, as their endpoints accept them.
//! - The directory has one file being written, `refused.part`, and complete files, `refused-TIME-NUMBER.import`.
//! - A file is completed when it is large, when nothing was rejected for a while, and when the daemon stops or starts.
//!   The user imports and removes complete files.
//! - Lines are synced before they count as delivered.
//! - When the files reach their limit, points are dropped and counted.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tsd_engine::{PluginBatch, PluginItem, PointRecord, RecordContent, Rollups};

use super::{
    json_lines::{push_number, push_point},
    sink::{Sink, SinkError, blocking},
};

/// Name of the file being written.
const OPEN_FILE: &str = "refused.part";
const COMPLETE_SUFFIX: &str = ".import";
/// Size at which a file is completed, bytes.
const FILE_BYTES: u64 = 64 << 20;
/// Time without rejected points after which a file is completed.
const QUIET: Duration = Duration::from_secs(30);
/// Maximum bytes of a line, as in an import.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Settings of the spool.
#[derive(Clone, Debug)]
pub struct SpoolConfig {
    /// Directory of the files, created if missing.
    pub directory: PathBuf,
    /// Limit of all files, bytes.
    pub max_bytes: u64,
}

/// Writes rejected points to files.
pub(super) struct Spool {
    /// `None` while a write is in progress, and after it panicked.
    files: Option<SpoolFiles>,
    /// Configuration of rollups, to render rolled-up values.
    rollups: Option<Rollups>,
}

impl Spool {
    pub(super) fn open(config: SpoolConfig, rollups: Option<Rollups>) -> io::Result<Self> {
        Ok(Self { files: Some(SpoolFiles::open(config)?), rollups })
    }

    /// Runs work with the files on a blocking thread.
    async fn with_files<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut SpoolFiles) -> io::Result<T> + Send + 'static,
    ) -> Result<T, SinkError> {
        let Some(mut files) = self.files.take() else {
            return Err(SinkError::Refused(
                "the spool has no open files since a write failed unexpectedly".to_owned(),
            ));
        };
        let both = move || {
            let result = work(&mut files);
            Ok((files, result))
        };
        let (files, result) = blocking(both).await?;
        self.files = Some(files);
        Ok(result?)
    }
}

impl Sink for Spool {
    async fn deliver(&mut self, batch: &PluginBatch) -> Result<u64, SinkError> {
        let (lines, without_form) = render(batch, self.rollups.as_ref());
        let fits = self.with_files(move |files| files.append(lines.as_bytes())).await?;
        if fits {
            Ok(without_form)
        } else {
            Err(SinkError::Refused(
                "the spool is full (tsd.core.storage_exception_handler.max_bytes)".to_owned(),
            ))
        }
    }

    async fn idle(&mut self) {
        let done = self.with_files(|files| match files.last_write {
            Some(last) if last.elapsed() >= QUIET => files.complete(),
            _ => Ok(()),
        });
        if let Err(error) = done.await {
            tracing::warn!(%error, "cannot complete a spool file");
        }
    }

    async fn close(&mut self) {
        if let Err(error) = self.with_files(SpoolFiles::complete).await {
            tracing::warn!(%error, "cannot complete a spool file");
        }
    }
}

/// Renders the lines of a batch. Also returns the number of points without a line.
fn render(batch: &PluginBatch, rollups: Option<&Rollups>) -> (String, u64) {
    let (mut out, mut without_form) = (String::new(), 0);
    for item in batch.items() {
        match item {
            PluginItem::Points(points) => {
                for point in points {
                    without_form += u64::from(!push_line(point, rollups, &mut out));
                }
            }
            PluginItem::Annotation(_) => without_form += 1,
        }
    }
    (out, without_form)
}

/// Appends the line of a point; false if no line can represent it.
fn push_line(point: &PointRecord, rollups: Option<&Rollups>, out: &mut String) -> bool {
    let start = out.len();
    let is_line = push_import_line(point, out) || {
        out.truncate(start);
        push_point(point, rollups, out)
    };
    if is_line && out.len() - start <= MAX_LINE_BYTES {
        return true;
    }
    out.truncate(start);
    false
}

/// Appends `METRIC TIME VALUE TAGK=TAGV ...`; false if an import would read another point from it.
fn push_import_line(point: &PointRecord, out: &mut String) -> bool {
    let RecordContent::Point(value) = point.content() else { return false };
    let metric = point.metric();
    // A brace begins a line of JSON, and a setting may allow other characters in names.
    let mut is_line = !metric.starts_with('{') && !metric.contains([' ', '\n', '\r']);
    // Writing to a string cannot fail.
    let _ = write!(out, "{metric} {} ", point.timestamp());
    // A value in single precision reads back as a double that is stored in the same short form.
    push_number(*value, out);
    for (tagk, tagv) in point.tags() {
        is_line &= !tagk.contains(UNFIT) && !tagv.contains(UNFIT);
        let _ = write!(out, " {tagk}={tagv}");
    }
    out.push('\n');
    is_line
}

/// Characters that delimit tags, keys and values in a line.
const UNFIT: [char; 4] = [' ', '=', '\n', '\r'];

/// The files of a spool.
struct SpoolFiles {
    config: SpoolConfig,
    /// The file being written, and its size.
    open: Option<(File, u64)>,
    last_write: Option<Instant>,
    /// Bytes of all complete files at the last count.
    complete_bytes: u64,
    next_number: u32,
}

impl SpoolFiles {
    fn open(config: SpoolConfig) -> io::Result<Self> {
        fs::create_dir_all(&config.directory)?;
        let mut files =
            Self { config, open: None, last_write: None, complete_bytes: 0, next_number: 1 };
        // Completes the file of an earlier process.
        files.complete()?;
        files.complete_bytes = files.count_complete()?;
        Ok(files)
    }

    /// Appends lines and syncs them; false if they would exceed the limit.
    fn append(&mut self, lines: &[u8]) -> io::Result<bool> {
        let bytes = lines.len() as u64;
        if bytes == 0 {
            return Ok(true);
        }
        let open_bytes = self.open.as_ref().map_or(0, |(_, bytes)| *bytes);
        if self.complete_bytes + open_bytes + bytes > self.config.max_bytes {
            // The user may have imported and removed files.
            self.complete_bytes = self.count_complete()?;
            if self.complete_bytes + open_bytes + bytes > self.config.max_bytes {
                return Ok(false);
            }
        }
        let path = self.config.directory.join(OPEN_FILE);
        let (file, written) = match &mut self.open {
            Some(open) => open,
            none => {
                let file = OpenOptions::new().create(true).append(true).open(path)?;
                // Makes the name of the file durable, too.
                File::open(&self.config.directory)?.sync_all()?;
                none.insert((file, 0))
            }
        };
        if let Err(error) = file.write_all(lines).and_then(|()| file.sync_data()) {
            // Removes a partial line before the next attempt.
            file.set_len(*written)?;
            return Err(error);
        }
        *written += bytes;
        self.last_write = Some(Instant::now());
        if *written >= FILE_BYTES {
            self.complete()?;
        }
        Ok(true)
    }

    /// Renames the file being written, if it exists, to a complete file.
    fn complete(&mut self) -> io::Result<()> {
        let path = self.config.directory.join(OPEN_FILE);
        self.last_write = None;
        self.open = None;
        let bytes = match fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if bytes == 0 {
            return fs::remove_file(path);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let complete = loop {
            let name = format!("refused-{now}-{}{COMPLETE_SUFFIX}", self.next_number);
            self.next_number = self.next_number.wrapping_add(1);
            let path = self.config.directory.join(name);
            if !path.exists() {
                break path;
            }
        };
        fs::rename(path, &complete)?;
        File::open(&self.config.directory)?.sync_all()?;
        self.complete_bytes += bytes;
        tracing::warn!(
            file = %complete.display(),
            bytes,
            "points that the store refused wait for `tsdb import --spool`"
        );
        Ok(())
    }

    fn count_complete(&self) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.config.directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(COMPLETE_SUFFIX) {
                bytes += entry.metadata()?.len();
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn files(directory: &std::path::Path, max_bytes: u64) -> SpoolFiles {
        SpoolFiles::open(SpoolConfig { directory: directory.to_owned(), max_bytes }).unwrap()
    }

    fn names(directory: &std::path::Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn an_unfinished_file_is_completed_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = files(directory.path(), 1_000);
        assert!(spool.append(b"m 1 1 a=b\n").unwrap());
        assert_eq!(names(directory.path()), [OPEN_FILE]);
        drop(spool);
        let _next = files(directory.path(), 1_000);
        let names = names(directory.path());
        assert!(matches!(&names[..], [only] if only.ends_with(COMPLETE_SUFFIX)), "{names:?}");
    }

    #[test]
    fn a_full_spool_has_room_again_when_a_file_was_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = files(directory.path(), 15);
        assert!(spool.append(b"m 1 1 a=b\n").unwrap());
        spool.complete().unwrap();
        assert!(!spool.append(b"m 2 1 a=b\n").unwrap());
        for name in names(directory.path()) {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
        assert!(spool.append(b"m 2 1 a=b\n").unwrap());
    }
}

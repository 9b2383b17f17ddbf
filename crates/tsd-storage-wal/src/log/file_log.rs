//! Implements [`CommitLog`] with files.

use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tsd_files::{check_file, check_place};
use tsd_storage::StorageError;

use super::{
    closed_segment::ClosedSegment,
    record::RecordGroup,
    state_file::STATE_FILE,
    writer::{LogError, LogTail, LogWriter},
};
use crate::{
    WalConfig,
    commit_log::{CommitLog, LogPosition, SectionSize},
    flushed_segments::FlushedSegments,
    local_files::LocalFiles,
    metrics::Metrics,
};

/// Records in the store how much of the log the store contains.
pub(crate) type SetMark = Box<dyn Fn(Bytes) -> Result<(), StorageError> + Send + Sync>;

/// The log in the files of a directory.
pub(crate) struct FileLog {
    files: LocalFiles,
    writer: Mutex<LogWriter>,
    /// Segments of ended sections, each list with the sequence number of the first record after its section.
    ended: Mutex<VecDeque<(u64, Vec<ClosedSegment>)>>,
    /// Locked only by the flusher, for the duration of a removal.
    flushed: Mutex<FlushedSegments>,
    closed_segments: AtomicU64,
    set_mark: SetMark,
    clock: fn() -> i64,
}

impl std::fmt::Debug for FileLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileLog").field("directory", &self.files.dir.path()).finish_non_exhaustive()
    }
}

impl FileLog {
    /// A log with unknown contents; [`Self::continue_at`] must follow.
    pub(crate) fn new(
        files: LocalFiles,
        config: &WalConfig,
        metrics: &Arc<Metrics>,
        set_mark: SetMark,
    ) -> Self {
        let writer = LogWriter::new(
            Arc::clone(&files.dir),
            Arc::clone(metrics),
            config.clock,
            config.segment_bytes,
            Arc::clone(&files.tie),
        );
        Self {
            files,
            writer: Mutex::new(writer),
            ended: Mutex::default(),
            flushed: Mutex::default(),
            closed_segments: AtomicU64::new(0),
            set_mark,
            clock: config.clock,
        }
    }

    /// Continues after a replay, which found these segments.
    pub(crate) fn continue_at(&self, end: LogTail, segments: Vec<ClosedSegment>) {
        self.closed_segments.fetch_add(segments.len() as u64, Ordering::Relaxed);
        self.ended.lock().push_back((end.next_sequence, segments));
        self.writer.lock().continue_at(end);
    }

    fn error(&self, error: LogError) -> StorageError {
        StorageError::io(format!("{} in {}", error.what, self.name()), error.source)
    }
}

impl CommitLog for FileLog {
    fn name(&self) -> String {
        self.files.dir.path().display().to_string()
    }

    fn append(&self, group: &mut RecordGroup) -> Result<(), StorageError> {
        self.writer.lock().append(group).map_err(|error| self.error(error))
    }

    fn probe(&self) -> Result<(), StorageError> {
        self.writer.lock().probe().map_err(|error| self.error(error))
    }

    fn check_files(&self) -> Result<(), StorageError> {
        let dir = &*self.files.dir;
        check_place(dir)?;
        // On a full disk, the file is created later.
        if self.files.tie.has_file() {
            check_file(dir, STATE_FILE)?;
        }
        self.writer.lock().check_files()?;
        // Only the rows of these segments exist nowhere else.
        for (_, segments) in &*self.ended.lock() {
            segments.iter().try_for_each(|segment| segment.check(dir))?;
        }
        Ok(())
    }

    fn section_size(&self) -> SectionSize {
        let writer = self.writer.lock();
        SectionSize {
            bytes: writer.bytes(),
            segment_bytes: writer.segment_len(),
            is_empty: writer.created() == 0,
        }
    }

    fn roll(&self) {
        self.writer.lock().roll();
    }

    fn end_section(&self) -> LogPosition {
        let mut writer = self.writer.lock();
        let sequence = writer.next_sequence();
        let segments = writer.take_segments();
        drop(writer);
        self.closed_segments.fetch_add(segments.len() as u64, Ordering::Relaxed);
        self.ended.lock().push_back((sequence, segments));
        LogPosition { incarnation: 0, sequence }
    }

    fn trim(&self, to: LogPosition, last_commit_ms: i64) -> Result<(), StorageError> {
        let mut flushed = self.flushed.lock();
        let mut ended = self.ended.lock();
        while let Some((end, segments)) = ended.pop_front_if(|(end, _)| *end <= to.sequence) {
            flushed.extend(segments, end);
        }
        drop(ended);
        drop(flushed);
        self.finish_trim(last_commit_ms)
    }

    fn finish_trim(&self, last_commit_ms: i64) -> Result<(), StorageError> {
        let mut flushed = self.flushed.lock();
        if flushed.len() > 0 {
            // Another log may have taken the place of this one.
            check_place(&*self.files.dir)?;
        }
        let before = flushed.len() as u64;
        let removed =
            flushed.remove_all(&self.files, last_commit_ms, (self.clock)(), &self.set_mark);
        let left = flushed.len() as u64;
        self.closed_segments.fetch_sub(before - left, Ordering::Relaxed);
        removed
    }

    fn closed_segments(&self) -> u64 {
        self.closed_segments.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.files.dir.release();
    }
}

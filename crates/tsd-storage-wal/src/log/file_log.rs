//! The log in files as a [`CommitLog`].

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tsd_storage::StorageError;

use super::{
    record::RecordGroup,
    writer::{LogEnd, LogError, LogWriter},
};
use crate::{
    WalConfig,
    commit_log::{CommitLog, LogPosition, SectionSize},
    flushed_segments::{ClosedSegment, FlushedSegments},
    local_files::LocalFiles,
    metrics::Metrics,
};

/// Records in the store what it contains of the log.
pub(crate) type SetMark = Box<dyn Fn(Bytes) -> Result<(), StorageError> + Send + Sync>;

/// The log in the files of a directory.
pub(crate) struct FileLog {
    files: LocalFiles,
    writer: Mutex<LogWriter>,
    /// Segments of ended sections, with the sequence number of the first record after each section.
    ended: Mutex<VecDeque<(u64, Vec<ClosedSegment>)>>,
    /// Locked only by the flusher, as long as a removal takes.
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
    /// A log of which nothing is known yet: [`Self::continue_at`] follows.
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

    /// Continues after a replay: `segments` are those that it has found.
    pub(crate) fn continue_at(&self, end: LogEnd, segments: Vec<ClosedSegment>) {
        self.closed_segments.fetch_add(segments.len() as u64, Ordering::Relaxed);
        lock(&self.ended).push_back((end.next_sequence, segments));
        lock(&self.writer).continue_at(end);
    }

    fn error(&self, error: LogError) -> StorageError {
        StorageError::io(format!("{} in {}", error.what, self.name()), error.source)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CommitLog for FileLog {
    fn name(&self) -> String {
        self.files.dir.path().display().to_string()
    }

    fn append(&self, group: &mut RecordGroup) -> Result<(), StorageError> {
        lock(&self.writer).append(group).map_err(|error| self.error(error))
    }

    fn probe(&self) -> Result<(), StorageError> {
        lock(&self.writer).probe().map_err(|error| self.error(error))
    }

    fn section_size(&self) -> SectionSize {
        let writer = lock(&self.writer);
        SectionSize {
            bytes: writer.bytes(),
            segment_bytes: writer.segment_len(),
            is_empty: writer.created() == 0,
        }
    }

    fn roll(&self) {
        lock(&self.writer).roll();
    }

    fn end_section(&self) -> LogPosition {
        let mut writer = lock(&self.writer);
        let sequence = writer.next_sequence();
        let numbers = writer.take_segments();
        drop(writer);
        let segments: Vec<_> =
            numbers.into_iter().map(|number| ClosedSegment { number, damaged: false }).collect();
        self.closed_segments.fetch_add(segments.len() as u64, Ordering::Relaxed);
        lock(&self.ended).push_back((sequence, segments));
        LogPosition { incarnation: 0, sequence }
    }

    fn trim(&self, to: LogPosition, last_commit_ms: i64) -> Result<(), StorageError> {
        let mut flushed = lock(&self.flushed);
        let mut ended = lock(&self.ended);
        while let Some((end, segments)) = ended.pop_front_if(|(end, _)| *end <= to.sequence) {
            flushed.extend(segments, end);
        }
        drop(ended);
        drop(flushed);
        self.finish_trim(last_commit_ms)
    }

    fn finish_trim(&self, last_commit_ms: i64) -> Result<(), StorageError> {
        let mut flushed = lock(&self.flushed);
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

//! Writes groups of records, and copes with a disk that fails.

use std::{io, sync::Arc};

use super::{
    record::Group,
    segment::{SEGMENT_HEADER, SegmentHeader, segment_name},
};
use crate::{
    files::{LogDir, LogFile},
    metrics::Metrics,
};

/// Where the log goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPosition {
    pub(crate) next_segment: u64,
    pub(crate) next_sequence: u64,
    /// The segment before, and its length.
    pub(crate) previous: (u64, u64),
}

/// Appends to the log. One thread owns it.
#[derive(Debug)]
pub(crate) struct LogWriter {
    dir: Arc<dyn LogDir>,
    metrics: Arc<Metrics>,
    clock: fn() -> i64,
    /// Bytes set aside for a segment at once, which spares a sync the new length.
    reserve: u64,
    position: LogPosition,
    open: Option<OpenSegment>,
}

#[derive(Debug)]
struct OpenSegment {
    segment: u64,
    file: Box<dyn LogFile>,
    /// Bytes that are written.
    len: u64,
    /// Bytes that are synced; a mark may come after.
    synced: u64,
}

/// A group that is not in the log, and why.
#[derive(Debug)]
pub(crate) struct LogError {
    pub(crate) what: &'static str,
    pub(crate) source: io::Error,
}

impl LogError {
    const fn new(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { what, source }
    }
}

impl LogWriter {
    pub(crate) fn new(
        dir: Arc<dyn LogDir>,
        metrics: Arc<Metrics>,
        clock: fn() -> i64,
        reserve: u64,
        position: LogPosition,
    ) -> Self {
        Self { dir, metrics, clock, reserve, position, open: None }
    }

    /// Writes and syncs a group; returns the segment it is in. After an error nothing of the group
    /// is in the log, and the same or another group may be tried.
    pub(crate) fn append(&mut self, group: &mut Group) -> Result<u64, LogError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.open_segment()?,
        };
        match self.append_to(&mut open, group) {
            Ok(()) => {}
            Err(Failure::Write(error)) => {
                // What is there of the group must not be found by a replay.
                if open.cut_back().is_ok() {
                    self.open = Some(open);
                } else {
                    self.abandon(&open);
                }
                return Err(error);
            }
            Err(Failure::Sync(_)) => {
                // The system may have dropped what it could not write and call it clean, so
                // syncing again would succeed and mean nothing. The group goes to a new segment,
                // which says that this one ends before it.
                self.metrics.sync_failures.increment(1);
                self.abandon(&open);
                open = self.open_segment()?;
                if let Err(Failure::Write(error) | Failure::Sync(error)) =
                    self.append_to(&mut open, group)
                {
                    self.discard(&open);
                    return Err(error);
                }
            }
        }
        self.position.next_sequence += group.record_count() as u64;
        let segment = open.segment;
        open.mark(self.position.next_sequence);
        self.open = Some(open);
        Ok(segment)
    }

    /// Ends the open segment; the next group begins another.
    pub(crate) fn end_segment(&mut self) {
        if let Some(open) = self.open.take() {
            self.abandon(&open);
        }
    }

    /// Bytes in the open segment.
    pub(crate) fn segment_len(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.len)
    }

    fn append_to(&self, open: &mut OpenSegment, group: &mut Group) -> Result<(), Failure> {
        group.stamp(self.position.next_sequence, open.len, open.segment);
        let bytes = group.as_bytes();
        open.file
            .write_at(open.len, bytes)
            .map_err(|e| Failure::Write(LogError::new("writing to the log")(e)))?;
        let started = std::time::Instant::now();
        open.file.sync_data().map_err(|e| Failure::Sync(LogError::new("syncing the log")(e)))?;
        self.metrics.sync_seconds.record(started.elapsed());
        self.metrics.bytes.increment(bytes.len() as u64);
        open.len += bytes.len() as u64;
        open.synced = open.len;
        Ok(())
    }

    fn open_segment(&mut self) -> Result<OpenSegment, LogError> {
        let segment = self.position.next_segment;
        // A number is used once, even where the file could not be made or removed.
        self.position.next_segment += 1;
        let (previous, previous_len) = self.position.previous;
        let header = SegmentHeader {
            segment,
            first_sequence: self.position.next_sequence,
            previous,
            previous_len,
            created_ms: (self.clock)(),
        };
        let name = segment_name(segment);
        let file = self.dir.create(&name).map_err(LogError::new("making a log segment"))?;
        let mut open = OpenSegment {
            segment,
            file,
            len: SEGMENT_HEADER as u64,
            synced: SEGMENT_HEADER as u64,
        };
        let made = open
            .file
            .set_len(self.reserve)
            .and_then(|()| open.file.write_at(0, &header.encode()))
            .and_then(|()| open.file.sync_data())
            .and_then(|()| self.dir.sync());
        if let Err(error) = made {
            self.discard(&open);
            return Err(LogError::new("making a log segment")(error));
        }
        self.metrics.segments.increment(1);
        Ok(open)
    }

    /// Leaves a segment as it stands: its successor says how much of it counts.
    fn abandon(&mut self, open: &OpenSegment) {
        self.position.previous = (open.segment, open.synced);
    }

    /// Removes a segment that holds nothing. If it stays, its successor passes over it.
    fn discard(&self, open: &OpenSegment) {
        let name = segment_name(open.segment);
        if let Err(error) = self.dir.remove(&name).and_then(|()| self.dir.sync()) {
            let dir = self.dir.path().display();
            tracing::warn!(%dir, name, %error, "cannot remove an unused log segment");
        }
    }
}

enum Failure {
    Write(LogError),
    Sync(LogError),
}

impl OpenSegment {
    /// Takes back a write that failed, durably.
    fn cut_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.len)?;
        self.file.sync_data()
    }

    /// Notes that all so far is on disk. Unsynced, and no matter if it fails: the next group says
    /// it too.
    fn mark(&mut self, next_sequence: u64) {
        let mark = Group::mark(next_sequence, self.len, self.segment);
        if self.file.write_at(self.len, mark.as_bytes()).is_ok() {
            self.len += mark.as_bytes().len() as u64;
        }
    }
}

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
    /// Segments that were begun since the last [`Self::end_segment`], used or not.
    begun: Vec<u64>,
    /// Bytes of those of them that are ended.
    ended_bytes: u64,
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
        Self {
            dir,
            metrics,
            clock,
            reserve,
            position,
            open: None,
            begun: Vec::new(),
            ended_bytes: 0,
        }
    }

    /// Writes and syncs a group. After an error nothing of the group is in the log, as long as this
    /// process goes on, and another may be tried. After a crash it may turn out to be there all the
    /// same, unless the error is that the disk is full.
    pub(crate) fn append(&mut self, group: &mut Group) -> Result<(), LogError> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.open_segment()?,
        };
        match self.append_to(&mut open, group) {
            Ok(()) => {}
            Err(Failure::Write(error)) => {
                // What is there of the group must not be found by a replay.
                if let Err(source) = open.cut_back() {
                    self.abandon(&open);
                    return Err(LogError::new("taking back a write to the log")(source));
                }
                self.open = Some(open);
                return Err(error);
            }
            Err(Failure::Sync(error)) => {
                // The system may have dropped what it could not write and call it clean, so
                // syncing again would succeed and mean nothing. The group goes to a new segment,
                // which says that this one ends before it.
                self.metrics.sync_failures.increment(1);
                tracing::warn!(segment = open.segment, error = %error.source, "sync failed");
                self.abandon(&open);
                match self.append_to_new(group) {
                    Some(new) => open = new,
                    // Not the second failure: with a full disk the first still leaves it open
                    // whether the group is there after a crash.
                    None => return Err(error),
                }
            }
        }
        self.position.next_sequence += group.record_count() as u64;
        if open.mark(self.position.next_sequence).is_ok() {
            self.open = Some(open);
        } else {
            // Part of a mark may be there. A group over it could be torn into a mixture of both,
            // which nothing tells from damage.
            self.abandon(&open);
        }
        Ok(())
    }

    /// Ends the open segment; the next group begins another. Returns the segments to remove when
    /// what was written since the last time is of no use any more.
    pub(crate) fn end_segment(&mut self) -> Vec<u64> {
        self.roll();
        self.ended_bytes = 0;
        std::mem::take(&mut self.begun)
    }

    /// Ends the open segment; the next group begins another, which is removed together with it.
    pub(crate) fn roll(&mut self) {
        if let Some(open) = self.open.take() {
            self.abandon(&open);
        }
    }

    /// Bytes in the segments begun since the last [`Self::end_segment`].
    pub(crate) fn bytes(&self) -> u64 {
        self.ended_bytes + self.segment_len()
    }

    /// Segments begun since the last [`Self::end_segment`].
    pub(crate) const fn begun(&self) -> usize {
        self.begun.len()
    }

    /// Bytes in the open segment.
    pub(crate) fn segment_len(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.len)
    }

    fn append_to_new(&mut self, group: &mut Group) -> Option<OpenSegment> {
        let mut open = self.open_segment().ok()?;
        let appended = self.append_to(&mut open, group);
        if appended.is_err() {
            self.discard(&open);
        }
        appended.is_ok().then_some(open)
    }

    fn append_to(&self, open: &mut OpenSegment, group: &mut Group) -> Result<(), Failure> {
        group.stamp(self.position.next_sequence, open.synced, open.segment);
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
        self.begun.push(segment);
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
        self.ended_bytes += open.len;
    }

    /// Removes a segment that holds nothing. If it stays, its successor passes over it.
    fn discard(&mut self, open: &OpenSegment) {
        let name = segment_name(open.segment);
        match self.dir.remove(&name).and_then(|()| self.dir.sync()) {
            Ok(()) => self.begun.retain(|begun| *begun != open.segment),
            Err(error) => {
                let dir = self.dir.path().display();
                tracing::warn!(%dir, name, %error, "cannot remove an unused log segment");
            }
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

    /// Notes that all so far is on disk. It is not synced: the next group says it too.
    fn mark(&mut self, next_sequence: u64) -> io::Result<()> {
        let mark = Group::mark(next_sequence, self.len, self.segment);
        self.file.write_at(self.len, mark.as_bytes())?;
        self.len += mark.as_bytes().len() as u64;
        Ok(())
    }
}

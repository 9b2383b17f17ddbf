//! Appends groups of records to the log, and handles failed writes and syncs.

use std::{io, sync::Arc};

use tsd_files::removed_file;
use tsd_storage::StorageError;

use super::{
    closed_segment::ClosedSegment,
    record::RecordGroup,
    segment::{SEGMENT_HEADER, SegmentHeader, segment_name},
};
use crate::{
    files::{LogDir, LogFile},
    log_tie::LogTie,
    metrics::Metrics,
};

/// The position where the log continues after a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogTail {
    pub(crate) next_segment: u64,
    pub(crate) next_sequence: u64,
    /// Number and length of the last segment; (0, 0) without segments.
    pub(crate) previous: (u64, u64),
}

/// The end of the log, to which records are appended. Owned by the committer thread.
#[derive(Debug)]
pub(crate) struct LogWriter {
    dir: Arc<dyn LogDir>,
    metrics: Arc<Metrics>,
    clock: fn() -> i64,
    /// Bytes that are preallocated for a segment, so that a sync need not write the file length.
    preallocated_bytes: u64,
    position: LogTail,
    tie: Arc<LogTie>,
    active: Option<ActiveSegment>,
    /// Segments that were created since the last [`Self::take_segments`], used or not.
    created: Vec<ClosedSegment>,
    /// Bytes of the closed segments among them.
    closed_bytes: u64,
}

#[derive(Debug)]
struct ActiveSegment {
    number: u64,
    file: Box<dyn LogFile>,
    /// Bytes written.
    len: u64,
    /// Bytes synced; an unsynced mark may follow.
    synced: u64,
}

/// A failed append of a group.
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
        preallocated_bytes: u64,
        tie: Arc<LogTie>,
    ) -> Self {
        Self {
            dir,
            metrics,
            clock,
            preallocated_bytes,
            position: LogTail::default(),
            tie,
            active: None,
            created: Vec::new(),
            closed_bytes: 0,
        }
    }

    /// Continues after a replay.
    pub(crate) const fn continue_at(&mut self, end: LogTail) {
        self.position = end;
    }

    /// Writes and syncs a group. After an error, the group is not in the log, and the next group may be appended.
    /// After a crash, however, the failed group may be found in the log, unless the disk was full.
    pub(crate) fn append(&mut self, group: &mut RecordGroup) -> Result<(), LogError> {
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.create_segment()?,
        };
        match self.append_to(&mut active, group) {
            Ok(()) => {}
            Err(AppendFailure::Write(error)) => {
                // A replay must not find a fragment of the group.
                if let Err(source) = active.undo() {
                    self.close(&active);
                    return Err(LogError::new("undoing a write to the log")(source));
                }
                self.active = Some(active);
                return Err(error);
            }
            Err(AppendFailure::Sync(error)) => {
                // The system may have dropped the dirty pages, so a second sync may succeed without having
                // written them. Therefore, the group goes to a new segment, whose header states that this segment
                // ends before the group.
                self.metrics.sync_failures.increment(1);
                tracing::warn!(segment = active.number, error = %error.source, "sync failed");
                self.close(&active);
                match self.append_to_new(group) {
                    Some(new) => active = new,
                    // Returns the first error, even if the second is a full disk: the group may be found after a
                    // crash.
                    None => return Err(error),
                }
            }
        }
        self.position.next_sequence += group.record_count() as u64;
        if active.mark(self.position.next_sequence).is_ok() {
            self.active = Some(active);
        } else {
            // Some of the mark may be written. A torn group over it could not be distinguished from damage.
            self.close(&active);
        }
        Ok(())
    }

    /// Fails if the active segment was removed or truncated, or a closed segment that [`Self::take_segments`] has
    /// not returned yet.
    pub(crate) fn check_files(&self) -> Result<(), StorageError> {
        for segment in &self.created {
            let active = self.active.as_ref().filter(|active| active.number == segment.number);
            let file_len = segment.file_len.max(active.map_or(0, |active| active.len));
            ClosedSegment { file_len, ..*segment }.check(&*self.dir)?;
            if let Some(active) = active
                && matches!(active.file.is_linked(), Ok(false))
            {
                return Err(removed_file(&self.dir.path().join(segment_name(active.number))));
            }
        }
        Ok(())
    }

    /// Writes and syncs a mark that fills some space, to find out whether the log can be written again.
    pub(crate) fn probe(&mut self) -> Result<(), LogError> {
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.create_segment()?,
        };
        let next = self.position.next_sequence;
        let mark = RecordGroup::probe(next, active.synced, active.number);
        let bytes = mark.as_bytes();
        let written = active.file.write_at(active.len, bytes);
        if let Err(error) = written {
            match active.undo() {
                Ok(()) => self.active = Some(active),
                Err(_) => self.close(&active),
            }
            return Err(LogError::new("writing to the log")(error));
        }
        if let Err(error) = active.file.sync_data() {
            self.close(&active);
            return Err(LogError::new("syncing the log")(error));
        }
        active.len += bytes.len() as u64;
        active.synced = active.len;
        self.active = Some(active);
        Ok(())
    }

    /// Closes the active segment. Returns all segments since the last call; they are removed after the flush of
    /// their changes.
    pub(crate) fn take_segments(&mut self) -> Vec<ClosedSegment> {
        self.roll();
        self.closed_bytes = 0;
        std::mem::take(&mut self.created)
    }

    /// Closes the active segment. The next group creates another one.
    pub(crate) fn roll(&mut self) {
        if let Some(active) = self.active.take() {
            self.close(&active);
        }
    }

    /// Total bytes of the segments since the last [`Self::take_segments`].
    pub(crate) fn bytes(&self) -> u64 {
        self.closed_bytes + self.segment_len()
    }

    /// Number of segments since the last [`Self::take_segments`].
    pub(crate) const fn created(&self) -> usize {
        self.created.len()
    }

    /// Sequence number of the next record.
    pub(crate) const fn next_sequence(&self) -> u64 {
        self.position.next_sequence
    }

    /// Bytes of the active segment.
    pub(crate) fn segment_len(&self) -> u64 {
        self.active.as_ref().map_or(0, |active| active.len)
    }

    fn append_to_new(&mut self, group: &mut RecordGroup) -> Option<ActiveSegment> {
        let before = self.tie.state();
        let mut active = self.create_segment().ok()?;
        let appended = self.append_to(&mut active, group);
        // The state of the log names the file, so the state must change before the file may be missing.
        if appended.is_err() && self.tie.segment_discarded(before).is_ok() {
            self.discard(&active);
        }
        appended.is_ok().then_some(active)
    }

    fn append_to(
        &self,
        active: &mut ActiveSegment,
        group: &mut RecordGroup,
    ) -> Result<(), AppendFailure> {
        group.stamp(self.position.next_sequence, active.synced, active.number);
        let bytes = group.as_bytes();
        active
            .file
            .write_at(active.len, bytes)
            .map_err(|e| AppendFailure::Write(LogError::new("writing to the log")(e)))?;
        let started = std::time::Instant::now();
        active
            .file
            .sync_data()
            .map_err(|e| AppendFailure::Sync(LogError::new("syncing the log")(e)))?;
        self.metrics.sync_seconds.record(started.elapsed());
        self.metrics.bytes.increment(bytes.len() as u64);
        active.len += bytes.len() as u64;
        active.synced = active.len;
        Ok(())
    }

    fn create_segment(&mut self) -> Result<ActiveSegment, LogError> {
        let number = self.position.next_segment;
        // A number is used only once, even if the file cannot be created or removed.
        self.position.next_segment += 1;
        let (previous, previous_len) = self.position.previous;
        let header = SegmentHeader {
            segment: number,
            first_sequence: self.position.next_sequence,
            previous,
            previous_len,
            created_ms: (self.clock)(),
            file_len: u32::try_from(self.preallocated_bytes).unwrap_or(0),
        };
        let name = segment_name(number);
        let file = self.dir.create(&name).map_err(LogError::new("creating a log segment"))?;
        // The length is set below.
        self.created.push(ClosedSegment { number, file_len: 0, damaged: false });
        let mut active = ActiveSegment {
            number,
            file,
            len: SEGMENT_HEADER as u64,
            synced: SEGMENT_HEADER as u64,
        };
        let created = active
            .file
            .set_len(self.preallocated_bytes)
            .and_then(|()| active.file.write_at(0, &header.encode()))
            .and_then(|()| active.file.sync_data())
            .and_then(|()| self.dir.sync());
        if let Err(error) = created {
            self.discard(&active);
            return Err(LogError::new("creating a log segment")(error));
        }
        self.set_file_len(number, self.preallocated_bytes);
        // After an error, the state may name the segment, so the file stays, without records.
        self.tie
            .segment_created(number, header.first_sequence, header.created_ms)
            .map_err(LogError::new("recording a log segment"))?;
        Ok(active)
    }

    /// Closes a segment. The header of its successor states its number of valid bytes.
    fn close(&mut self, segment: &ActiveSegment) {
        self.position.previous = (segment.number, segment.synced);
        self.closed_bytes += segment.len;
        self.set_file_len(segment.number, self.preallocated_bytes.max(segment.synced));
    }

    fn set_file_len(&mut self, number: u64, file_len: u64) {
        if let Some(created) = self.created.iter_mut().find(|created| created.number == number) {
            created.file_len = file_len;
        }
    }

    /// Removes a segment without records. If that fails, the header of the successor excludes it.
    fn discard(&mut self, segment: &ActiveSegment) {
        let name = segment_name(segment.number);
        match self.dir.remove(&name).and_then(|()| self.dir.sync()) {
            Ok(()) => self.created.retain(|created| created.number != segment.number),
            Err(error) => {
                let dir = self.dir.path().display();
                tracing::warn!(%dir, name, %error, "cannot remove an unused log segment");
            }
        }
    }
}

enum AppendFailure {
    Write(LogError),
    Sync(LogError),
}

impl ActiveSegment {
    /// Removes a failed write durably. The file keeps its length, which its header states.
    fn undo(&mut self) -> io::Result<()> {
        self.file.zero_from(self.len)?;
        self.file.sync_data()
    }

    /// Writes a mark that all bytes so far are synced. The mark itself is not synced, since the next group states
    /// the same.
    fn mark(&mut self, next_sequence: u64) -> io::Result<()> {
        let mark = RecordGroup::mark(next_sequence, self.len, self.number);
        self.file.write_at(self.len, mark.as_bytes())?;
        self.len += mark.as_bytes().len() as u64;
        Ok(())
    }
}

//! Recovery of a log whose owner is dead, or counts as dead: fence, replay, retire.
//!
//! 1. The recoverer takes the manifest by compare-and-set. So one recoverer works at a time, and the owner
//!    can list no further segment.
//! 2. It fences every listed segment, and only then reads the records.
//! 3. The caller flushes the records, separately from later writes.
//! 4. The recoverer waits until the owner has no lease ([`crate::LeaseWatch`]), then retires the manifest and removes
//!    the segments.
//!
//! Each step may be repeated from the beginning, also by another recoverer if the former one is dead
//! ([`Recovery::taking_over`]).

use std::collections::VecDeque;

use crate::{
    keys::SegmentId,
    manifest::{Manifest, ManifestPhase, Revision},
    manifest_change::{ChangeOutcome, ManifestChange},
    record::LogRecord,
    record_merge::{HoleError, RecordMerge},
    table_request::{TableReply, TableRequest},
};

/// A recovery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovery {
    incarnation: u64,
    by: u64,
    /// A dead recoverer.
    former: Option<u64>,
    /// Number of the revision at which the manifest was seen to stand still.
    still: Option<u64>,
    manifest: Option<Manifest>,
    replaced: Option<Revision>,
    step: RecoveryStep,
    /// One merge for each stream.
    merges: Vec<RecordMerge>,
    ready: Vec<(u8, LogRecord)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RecoveryStep {
    Read,
    Take(ManifestChange),
    Fence(VecDeque<SegmentId>),
    Load(VecDeque<SegmentId>),
    /// All records are read; the caller flushes them.
    Flush,
    Retire(ManifestChange),
    Remove(VecDeque<SegmentId>),
    Forget,
    Done,
}

/// Why a log cannot be recovered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// Another incarnation recovers the log.
    #[error("another node recovers the log of incarnation {incarnation}")]
    Taken {
        /// The owner of the log.
        incarnation: u64,
    },
    /// The manifest has changed, so its owner is alive.
    #[error("incarnation {incarnation} is alive: its manifest has changed")]
    Alive {
        /// The owner of the log.
        incarnation: u64,
    },
    /// A record is missing.
    #[error("stream {stream} of incarnation {incarnation} is damaged")]
    Hole {
        /// The owner of the log.
        incarnation: u64,
        /// The stream.
        stream: usize,
        /// The missing record.
        source: HoleError,
    },
}

impl RecoveryStep {
    fn removal(left: VecDeque<SegmentId>) -> Self {
        if left.is_empty() { Self::Forget } else { Self::Remove(left) }
    }
}

impl Recovery {
    /// Recovers the log of `incarnation` by the incarnation `by`.
    #[must_use]
    pub const fn new(incarnation: u64, by: u64) -> Self {
        Self {
            incarnation,
            by,
            former: None,
            still: None,
            manifest: None,
            replaced: None,
            step: RecoveryStep::Read,
            merges: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// Continues a recovery that the dead recoverer `former` has begun.
    #[must_use]
    pub const fn taking_over(mut self, former: u64) -> Self {
        self.former = Some(former);
        self
    }

    /// Takes the log only if its manifest still has the revision with this number. Otherwise the owner is alive.
    #[must_use]
    pub const fn standing_still(mut self, revision: u64) -> Self {
        self.still = Some(revision);
        self
    }

    /// The owner of the log.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The manifest after the recoverer has taken it.
    #[must_use]
    pub const fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The revision that the recoverer has replaced; `None` until it has taken the manifest.
    #[must_use]
    pub fn replaced(&self) -> Option<Revision> {
        self.replaced.filter(|_| self.manifest.is_some())
    }

    /// Returns the next request; `None` while the caller flushes, and at the end.
    #[must_use]
    pub fn request(&self) -> Option<TableRequest> {
        let (incarnation, by) = (self.incarnation, self.by);
        match &self.step {
            RecoveryStep::Read => Some(TableRequest::ReadManifest { incarnation }),
            RecoveryStep::Take(change) | RecoveryStep::Retire(change) => Some(change.request()),
            RecoveryStep::Fence(left) => {
                let segment = *left.front()?;
                Some(TableRequest::FenceSegment { segment, by })
            }
            RecoveryStep::Load(left) => {
                left.front().map(|segment| TableRequest::ReadSegment { segment: *segment })
            }
            RecoveryStep::Remove(left) => {
                left.front().map(|segment| TableRequest::RemoveSegment { segment: *segment })
            }
            RecoveryStep::Forget => Some(TableRequest::RemoveManifest { incarnation }),
            RecoveryStep::Flush | RecoveryStep::Done => None,
        }
    }

    /// Takes the answer.
    ///
    /// # Errors
    ///
    /// If the log cannot be recovered.
    pub fn reply(&mut self, reply: TableReply) -> Result<(), RecoveryError> {
        match &mut self.step {
            RecoveryStep::Read => {
                if let TableReply::Manifest(found) = reply {
                    self.step = self.found(found)?;
                }
            }
            RecoveryStep::Take(change) | RecoveryStep::Retire(change) => {
                match change.reply(&reply) {
                    None => {}
                    Some(ChangeOutcome::Refused) => return Err(self.taken()),
                    Some(ChangeOutcome::Made) => self.manifest_changed(),
                }
            }
            RecoveryStep::Fence(left) | RecoveryStep::Remove(left) => {
                if reply == TableReply::Applied(true) {
                    left.pop_front();
                    self.settle()?;
                }
            }
            RecoveryStep::Load(left) => {
                if let TableReply::Records(records) = reply {
                    let stream = left.pop_front().map_or(0, |segment| segment.stream);
                    self.merge(stream, records);
                    self.settle()?;
                }
            }
            RecoveryStep::Forget => {
                if reply == TableReply::Applied(true) {
                    self.step = RecoveryStep::Done;
                }
            }
            RecoveryStep::Flush | RecoveryStep::Done => {}
        }
        Ok(())
    }

    /// Returns the records that are next in order, by stream.
    pub fn take_records(&mut self) -> Vec<(u8, LogRecord)> {
        std::mem::take(&mut self.ready)
    }

    /// True once all segments are fenced.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        !matches!(self.step, RecoveryStep::Read | RecoveryStep::Take(_) | RecoveryStep::Fence(_))
    }

    /// True once all records are read: the caller flushes them now.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        matches!(self.step, RecoveryStep::Flush)
    }

    /// True once the log is removed.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.step, RecoveryStep::Done)
    }

    /// Records that the caller has flushed all records.
    pub fn flushed(&mut self) {
        if let (RecoveryStep::Flush, Some(manifest)) = (&self.step, &self.manifest) {
            let mut new = manifest.next(self.by);
            new.phase = ManifestPhase::Retired;
            let expected = Some(manifest.revision);
            self.step = RecoveryStep::Retire(ManifestChange::new(self.incarnation, expected, new));
        }
    }

    fn found(&mut self, found: Option<Manifest>) -> Result<RecoveryStep, RecoveryError> {
        let Some(found) = found else { return Ok(RecoveryStep::Done) };
        let retired = found.phase == ManifestPhase::Retired;
        let writer = found.revision.writer;
        let is_mine = writer == self.by || self.former == Some(writer);
        if found.phase == ManifestPhase::Recovering && !is_mine {
            return Err(self.taken());
        }
        if retired {
            let left = found.segments(self.incarnation).collect();
            self.manifest = Some(found);
            return Ok(RecoveryStep::removal(left));
        }
        let has_changed = |still: u64| found.phase.is_owned() && found.revision.number != still;
        if self.still.is_some_and(has_changed) {
            return Err(RecoveryError::Alive { incarnation: self.incarnation });
        }
        self.replaced = Some(found.revision);
        let mut new = found.next(self.by);
        new.phase = ManifestPhase::Recovering;
        Ok(RecoveryStep::Take(ManifestChange::new(self.incarnation, Some(found.revision), new)))
    }

    fn manifest_changed(&mut self) {
        let (RecoveryStep::Take(change) | RecoveryStep::Retire(change)) = &self.step else {
            return;
        };
        let manifest = change.manifest().clone();
        let segments: VecDeque<SegmentId> = manifest.segments(self.incarnation).collect();
        if manifest.phase == ManifestPhase::Retired {
            self.step = RecoveryStep::removal(segments);
        } else {
            self.merges =
                manifest.streams.iter().map(|of| RecordMerge::new(of.watermark)).collect();
            self.step = if segments.is_empty() {
                RecoveryStep::Flush
            } else {
                RecoveryStep::Fence(segments)
            };
        }
        self.manifest = Some(manifest);
    }

    /// Starts the next step if this one is complete.
    fn settle(&mut self) -> Result<(), RecoveryError> {
        let segments = |of: &Self| {
            let manifest = of.manifest.as_ref();
            manifest.into_iter().flat_map(|manifest| manifest.segments(of.incarnation)).collect()
        };
        match &self.step {
            RecoveryStep::Fence(left) if left.is_empty() => {
                self.step = RecoveryStep::Load(segments(self));
            }
            RecoveryStep::Load(left) if left.is_empty() => {
                self.check_holes()?;
                self.step = RecoveryStep::Flush;
            }
            RecoveryStep::Remove(left) if left.is_empty() => self.step = RecoveryStep::Forget,
            _ => {}
        }
        Ok(())
    }

    fn merge(&mut self, stream: u8, records: Vec<LogRecord>) {
        let Some(merge) = self.merges.get_mut(usize::from(stream)) else { return };
        for record in records {
            self.ready.extend(merge.push(record).into_iter().map(|record| (stream, record)));
        }
    }

    fn check_holes(&self) -> Result<(), RecoveryError> {
        for (stream, merge) in self.merges.iter().enumerate() {
            let hole =
                |source| RecoveryError::Hole { incarnation: self.incarnation, stream, source };
            merge.finish().map_err(hole)?;
        }
        Ok(())
    }

    const fn taken(&self) -> RecoveryError {
        RecoveryError::Taken { incarnation: self.incarnation }
    }
}

#[cfg(test)]
impl Recovery {
    /// The merges, for planted faults of the model.
    pub(crate) fn merges_mut(&mut self) -> &mut [RecordMerge] {
        &mut self.merges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_taken_from_the_revision_that_stands_still_only() {
        let first = Manifest::first(3, "node", 1);
        let taken = |still: u64| {
            let mut recovery = Recovery::new(3, 9).standing_still(still);
            let found = recovery.reply(TableReply::Manifest(Some(first.next(3))));
            found.map(|()| matches!(recovery.step, RecoveryStep::Take(_)))
        };
        assert_eq!(taken(2), Ok(true));
        assert_eq!(taken(1), Err(RecoveryError::Alive { incarnation: 3 }));
    }
}

//! Opens a segment: lists it in the manifest, puts its token, then confirms the manifest.
//!
//! The confirmation is necessary because a recovery removes the row of the segment in the end. A token that
//! HBase puts after that would open a segment that nobody reads. A recoverer changes the manifest before all
//! else. So if the manifest is still the owner's after the token was put, the segment had not been removed, and
//! a later recovery finds the token. For the same reason each attempt puts its own token: a late attempt opens
//! no segment to which the owner writes.

use crate::{
    keys::{OpenSegment, SegmentId},
    manifest::Manifest,
    manifest_change::{ChangeOutcome, ManifestChange},
    table_request::{SegmentToken, TableReply, TableRequest},
};

/// State of an opening.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentOpening {
    segment: OpenSegment,
    manifest: Manifest,
    step: OpeningStep,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OpeningStep {
    List(ManifestChange),
    PutToken,
    ReadToken,
    Confirm(ManifestChange),
}

/// Outcome of an opening.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpeningOutcome {
    /// The segment takes records. The manifest lists it.
    Open(OpenSegment, Manifest),
    /// Another incarnation has fenced the owner.
    Fenced,
}

impl SegmentOpening {
    /// Opens the segment that `change` adds to the manifest.
    #[must_use]
    pub fn new(id: SegmentId, change: ManifestChange) -> Self {
        let manifest = change.manifest().clone();
        let segment = OpenSegment { id, attempt: 1 };
        Self { segment, manifest, step: OpeningStep::List(change) }
    }

    /// The segment.
    #[must_use]
    pub const fn id(&self) -> SegmentId {
        self.segment.id
    }

    /// Returns the next request.
    #[must_use]
    pub fn request(&self) -> TableRequest {
        match &self.step {
            OpeningStep::List(change) | OpeningStep::Confirm(change) => change.request(),
            OpeningStep::PutToken => TableRequest::OpenSegment { segment: self.segment },
            OpeningStep::ReadToken => TableRequest::ReadToken { segment: self.segment.id },
        }
    }

    /// Takes the answer. Returns `None` if another request follows.
    pub fn reply(&mut self, reply: &TableReply) -> Option<OpeningOutcome> {
        match &mut self.step {
            OpeningStep::List(change) => match change.reply(reply)? {
                ChangeOutcome::Made => self.step = OpeningStep::PutToken,
                ChangeOutcome::Refused => return Some(OpeningOutcome::Fenced),
            },
            OpeningStep::PutToken => match reply {
                TableReply::Applied(true) => self.confirm(),
                TableReply::Applied(false) => self.step = OpeningStep::ReadToken,
                _ => self.segment.attempt += 1,
            },
            OpeningStep::ReadToken => match reply {
                TableReply::Token(SegmentToken::Owner { incarnation, attempt })
                    if *incarnation == self.segment.id.incarnation =>
                {
                    // The answer of this attempt was lost.
                    self.segment.attempt = *attempt;
                    self.confirm();
                }
                TableReply::Token(SegmentToken::Absent) => {
                    self.segment.attempt += 1;
                    self.step = OpeningStep::PutToken;
                }
                TableReply::Token(_) => return Some(OpeningOutcome::Fenced),
                _ => {}
            },
            OpeningStep::Confirm(change) => match change.reply(reply)? {
                ChangeOutcome::Made => {
                    let manifest = change.manifest().clone();
                    return Some(OpeningOutcome::Open(self.segment, manifest));
                }
                ChangeOutcome::Refused => return Some(OpeningOutcome::Fenced),
            },
        }
        None
    }

    /// Returns the manifest that lists the segment, if the opening may be abandoned now in favour of another
    /// segment, because the region does not answer. A token that is put later does no harm, since no record is
    /// sent to the segment.
    #[must_use]
    pub const fn listed(&self) -> Option<&Manifest> {
        match self.step {
            OpeningStep::PutToken | OpeningStep::ReadToken => Some(&self.manifest),
            OpeningStep::List(_) | OpeningStep::Confirm(_) => None,
        }
    }

    fn confirm(&mut self) {
        let incarnation = self.segment.id.incarnation;
        let (expected, new) = (Some(self.manifest.revision), self.manifest.next(incarnation));
        self.step = OpeningStep::Confirm(ManifestChange::new(incarnation, expected, new));
    }
}

#[cfg(test)]
impl SegmentOpening {
    /// Returns the outcome as if the opening were confirmed, for a planted fault of the model.
    pub(crate) fn skip_confirmation(&self) -> Option<OpeningOutcome> {
        let is_last = matches!(self.step, OpeningStep::Confirm(_));
        is_last.then(|| OpeningOutcome::Open(self.segment, self.manifest.clone()))
    }
}

//! Opening a segment: it is listed, then it gets its token, then the manifest is confirmed.
//!
//! The confirmation is needed because a segment that is recovered is removed in the end, and its row is then as
//! if it never had been: a token that is put late, after that, would open a segment that nobody reads.
//! A recoverer changes the manifest before all else. So if the manifest is still the owner's after the token
//! was put, the segment was not removed before; and what comes later finds the token. For the same reason each
//! attempt to put it has a token of its own: one that is executed late opens nothing that the owner writes to.

use crate::{
    keys::{OpenSegment, SegmentId},
    manifest::Manifest,
    manifest_change::{ChangeOutcome, ManifestChange},
    table_request::{SegmentToken, TableReply, TableRequest},
};

/// A segment that is being opened.
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

/// What became of an opening.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OpeningOutcome {
    /// The segment takes records; this is the manifest.
    Open(OpenSegment, Manifest),
    /// Another incarnation has fenced the owner.
    Fenced,
}

impl SegmentOpening {
    /// Opens a segment that `change` lists.
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

    /// What to ask next.
    #[must_use]
    pub fn request(&self) -> TableRequest {
        match &self.step {
            OpeningStep::List(change) | OpeningStep::Confirm(change) => change.request(),
            OpeningStep::PutToken => TableRequest::OpenSegment { segment: self.segment },
            OpeningStep::ReadToken => TableRequest::ReadToken { segment: self.segment.id },
        }
    }

    /// Takes the answer; `None`: there is more to ask.
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
                    // Its answer was lost.
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

    /// The manifest that lists the segment, if the opening may be given up now: its region does not answer, and
    /// another segment is wanted. A token that is put later does no harm, since nothing is sent to the segment.
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
    /// The opening as if it were confirmed, for a planted fault of the model.
    pub(crate) fn skip_confirmation(&self) -> Option<OpeningOutcome> {
        let is_last = matches!(self.step, OpeningStep::Confirm(_));
        is_last.then(|| OpeningOutcome::Open(self.segment, self.manifest.clone()))
    }
}

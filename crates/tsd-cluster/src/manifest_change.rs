//! One change of a manifest by compare-and-set, also if the answer is lost.
//!
//! A change has a revision that no other has. So what a read finds after a lost answer decides: the new
//! revision, and the change was made; the expected one, and it was not yet; another one, and somebody else has
//! changed the manifest. A late execution of the first attempt does no harm: its condition no longer holds.

use crate::{
    manifest::{Manifest, Revision},
    table_request::{TableReply, TableRequest},
};

/// A change that is being made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManifestChange {
    incarnation: u64,
    expected: Option<Revision>,
    new: Manifest,
    must_read: bool,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeOutcome {
    /// It was made.
    Made,
    /// Another incarnation has changed or removed the manifest, so it never will be.
    Refused,
}

impl ManifestChange {
    /// Replaces the manifest with the revision `expected` by `new`; `None`: there is none.
    #[must_use]
    pub const fn new(incarnation: u64, expected: Option<Revision>, new: Manifest) -> Self {
        Self { incarnation, expected, new, must_read: false }
    }

    /// The manifest after the change.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.new
    }

    /// What to ask next.
    #[must_use]
    pub fn request(&self) -> TableRequest {
        let incarnation = self.incarnation;
        if self.must_read {
            return TableRequest::ReadManifest { incarnation };
        }
        let (expected, new) = (self.expected, self.new.clone());
        TableRequest::SwapManifest { incarnation, expected, new }
    }

    /// Takes the answer; `None`: there is more to ask.
    pub fn reply(&mut self, reply: &TableReply) -> Option<ChangeOutcome> {
        match reply {
            TableReply::Applied(true) => Some(ChangeOutcome::Made),
            // The condition may have failed because an attempt before has succeeded.
            TableReply::Applied(false) => {
                self.must_read = true;
                None
            }
            TableReply::Manifest(found) => {
                let found = found.as_ref().map(|manifest| manifest.revision);
                self.must_read = false;
                if found == Some(self.new.revision) {
                    Some(ChangeOutcome::Made)
                } else if found == self.expected {
                    None
                } else {
                    Some(ChangeOutcome::Refused)
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> (Manifest, ManifestChange) {
        let first = Manifest::first(3, "node", 1);
        let change = ManifestChange::new(3, Some(first.revision), first.next(3));
        (first, change)
    }

    #[test]
    fn a_lost_answer_is_resolved_by_what_is_there() {
        let (first, mut change) = change();
        assert_eq!(change.reply(&TableReply::InDoubt), None);
        assert!(matches!(change.request(), TableRequest::SwapManifest { .. }));
        assert_eq!(change.reply(&TableReply::Applied(false)), None);
        assert_eq!(change.request(), TableRequest::ReadManifest { incarnation: 3 });
        let made = TableReply::Manifest(Some(change.manifest().clone()));
        assert_eq!(change.clone().reply(&made), Some(ChangeOutcome::Made));
        let other = TableReply::Manifest(Some(first.next(4)));
        assert_eq!(change.clone().reply(&other), Some(ChangeOutcome::Refused));
        assert_eq!(change.clone().reply(&TableReply::Manifest(None)), Some(ChangeOutcome::Refused));
        assert_eq!(change.reply(&TableReply::Manifest(Some(first))), None);
        assert!(matches!(change.request(), TableRequest::SwapManifest { .. }));
    }
}

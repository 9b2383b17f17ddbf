//! One change of a manifest by compare-and-set, safe against lost answers.
//!
//! Each change has a unique revision. After a lost answer the driver reads the revision, which decides:
//! * the new revision: the change was made;
//! * the expected revision: the change was not made yet;
//! * another revision: another process changed the manifest.
//!
//! A late execution of the first attempt does no harm, because its condition no longer holds.

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

/// Outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeOutcome {
    /// The change was made.
    Made,
    /// Another incarnation has changed or removed the manifest, so the change is never made.
    Refused,
}

impl ManifestChange {
    /// Replaces the manifest that has the revision `expected` by `new`. With `None`, the manifest must not exist
    /// yet.
    #[must_use]
    pub const fn new(incarnation: u64, expected: Option<Revision>, new: Manifest) -> Self {
        Self { incarnation, expected, new, must_read: false }
    }

    /// The manifest after the change.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.new
    }

    /// Returns the next request.
    #[must_use]
    pub fn request(&self) -> TableRequest {
        let incarnation = self.incarnation;
        if self.must_read {
            return TableRequest::ReadManifest { incarnation };
        }
        let (expected, new) = (self.expected, self.new.clone());
        TableRequest::SwapManifest { incarnation, expected, new }
    }

    /// Takes the answer. Returns `None` if another request follows.
    pub fn reply(&mut self, reply: &TableReply) -> Option<ChangeOutcome> {
        match reply {
            TableReply::Applied(true) => Some(ChangeOutcome::Made),
            // The condition may have failed because an earlier attempt succeeded.
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

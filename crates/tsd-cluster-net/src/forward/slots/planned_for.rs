//! What a plan of slots depends on.

use std::{collections::BTreeSet, time::Duration};

use tsd_cluster::{Member, Revision};

/// What a plan depends on. A plan for a thousand nodes takes a tenth of a second, so it is made again only after a
/// change.
#[derive(Debug, PartialEq)]
pub(super) struct PlannedFor {
    revision: Revision,
    members: Vec<Member>,
    former: BTreeSet<u64>,
    is_draining: bool,
}

impl PlannedFor {
    pub(super) fn new(
        revision: Revision,
        members: Vec<Member>,
        former: BTreeSet<u64>,
        is_draining: bool,
    ) -> Self {
        // A plan ignores what changes at each look.
        let plain = |member: Member| Member {
            heartbeat_age: Duration::ZERO,
            log_bytes: 0,
            unreached: BTreeSet::new(),
            ..member
        };
        Self { revision, members: members.into_iter().map(plain).collect(), former, is_draining }
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }
}

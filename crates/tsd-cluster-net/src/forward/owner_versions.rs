//! Versions of the rows that owners hold: a rewrite is refused if it was planned from other rows.
//!
//! A rewrite is planned from a row that any node has read, and made by the owner of the row. Meanwhile the owner may
//! flush the row, which puts its points into other columns, or the row may get another owner. Both change the version
//! of the owner. A node learns versions from the responses to rewrites, and sends a version only with rewrites that it
//! planned later. So each change of a version costs one more plan, and reads cost nothing.

use std::collections::HashMap;

use parking_lot::Mutex;
use tsd_storage::{ReadVersion, Table};

use super::wire::OwnerVersion;

/// The last known versions of this node and its peers.
#[derive(Debug, Default)]
pub(super) struct OwnerVersions {
    known: Mutex<KnownVersions>,
}

#[derive(Debug, Default)]
struct KnownVersions {
    /// Number of changes so far.
    changes: u64,
    /// By incarnation, at most one entry for each member.
    by_owner: HashMap<u64, HashMap<Table, KnownVersion>>,
}

#[derive(Debug)]
struct KnownVersion {
    version: OwnerVersion,
    /// Number of the change by which it became known.
    since: u64,
}

impl OwnerVersions {
    /// Learns the version of an owner, and returns a version for plans whose reads begin later. If the owner is new,
    /// forgets all owners that are not members.
    pub(super) fn learn(
        &self,
        owner: u64,
        table: &Table,
        version: OwnerVersion,
        is_member: impl Fn(u64) -> bool,
    ) -> ReadVersion {
        let mut known = self.known.lock();
        let KnownVersions { changes, by_owner } = &mut *known;
        if !by_owner.contains_key(&owner) {
            by_owner.retain(|owner, _| is_member(*owner));
        }
        let of_owner = by_owner.entry(owner).or_default();
        if of_owner.get(table).is_none_or(|known| known.version != version) {
            *changes += 1;
            of_owner.insert(table.clone(), KnownVersion { version, since: *changes });
        }
        ReadVersion(Some(*changes))
    }

    /// Returns the last known version of an owner, if it was known when a plan with the version `read` began.
    pub(super) fn known_at(
        &self,
        owner: u64,
        table: &Table,
        read: ReadVersion,
    ) -> Option<OwnerVersion> {
        let known = self.known.lock();
        let of_table = known.by_owner.get(&owner)?.get(table)?;
        (of_table.since <= read.0?).then_some(of_table.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_counts_for_plans_that_begin_after_it_was_learnt() {
        let (versions, table) = (OwnerVersions::default(), Table::new("tsdb"));
        let of = |log| OwnerVersion { gains: 0, log: Some(log) };
        let learn = |owner, log| versions.learn(owner, &table, of(log), |owner| owner != 1);
        let before = ReadVersion(Some(0));
        assert_eq!(versions.known_at(1, &table, before), None);
        let first = learn(1, 5);
        assert_eq!(versions.known_at(1, &table, before), None);
        assert_eq!(versions.known_at(1, &table, ReadVersion::default()), None);
        assert_eq!(versions.known_at(1, &table, first), Some(of(5)));
        assert_eq!(learn(1, 5), first, "nothing has changed");
        assert_eq!(versions.known_at(1, &Table::new("other"), first), None);
        let second = learn(1, 6);
        assert_eq!(versions.known_at(1, &table, first), None);
        assert_eq!(versions.known_at(1, &table, second), Some(of(6)));
        let third = learn(2, 5);
        assert_eq!(versions.known_at(1, &table, third), None, "the first node has left");
        assert_eq!(versions.known_at(2, &table, third), Some(of(5)));
    }
}

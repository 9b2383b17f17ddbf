//! The digest: what one node has found out about the members, and decided, for all others.
//!
//! Reading all manifests would cost every node as much as there are nodes. So one node reads them, and publishes
//! what the others need in a row of the log table. The row has two cells that change together, by compare-and-set
//! of the first one. The **beat** is small and changes once a second; every node reads it. The **digest** is read
//! only if its version in the beat has changed, so it has nothing that changes with every heartbeat.
//!
//! ```text
//! beat   = number u64 | writer u64 | version u64 | last commit time i64, ms
//! digest = version u8 = 2 | members u16 | member... | CRC32C                                   (big-endian)
//! member = incarnation u64 | phase u8 | flags u8 | recoverer u64 | revision u64 | log bytes u64
//!        | name length u16 | name | address length u16 | address
//! flags  = 1: has to leave | 2: has not left in time | 4: stands still at this revision
//! ```
//!
//! The digest is a hint. A node that joined later is missing in it. So whoever plans slots, fences, or waits for all
//! nodes reads the manifests after the row on which it acts.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use crate::{
    manifest::ManifestPhase,
    sealed_cell::{field, push_text, seal, text, unseal},
};

const VERSION: u8 = 2;
const REMOVED: u8 = 1;
const OVERDUE: u8 = 2;
const STILL: u8 = 4;

/// The small cell that shows that the digest is kept up to date. No two publications have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DigestBeat {
    /// Counts the publications, from 1; 0 before the first one.
    pub number: u64,
    /// The node that has published.
    pub writer: u64,
    /// Counts the changes of the members.
    pub version: u64,
    /// The last commit time in all manifests, epoch milliseconds.
    pub last_commit_ms: i64,
}

impl Default for DigestBeat {
    fn default() -> Self {
        Self { number: 0, writer: 0, version: 0, last_commit_ms: i64::MIN }
    }
}

impl DigestBeat {
    /// Encodes the beat as a cell.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let Self { number, writer, version, last_commit_ms } = *self;
        let fields = [number, writer, version].map(u64::to_be_bytes);
        [fields.as_flattened(), &last_commit_ms.to_be_bytes()].concat().into()
    }

    /// Decodes a cell; `None` if it is not a beat.
    #[must_use]
    pub fn decode(mut cell: &[u8]) -> Option<Self> {
        let mut number = || field(&mut cell).map(u64::from_be_bytes);
        let (number, writer, version) = (number()?, number()?, number()?);
        let last_commit_ms = i64::from_be_bytes(cell.try_into().ok()?);
        Some(Self { number, writer, version, last_commit_ms })
    }
}

/// A member in the digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DigestMember {
    /// Name of the node.
    pub name: String,
    /// Address at which it answers its peers; empty if it does not answer.
    pub address: String,
    /// State of its log.
    pub phase: ManifestPhase,
    /// The incarnation that recovers its log; 0 if the log is not being recovered.
    pub recoverer: u64,
    /// True if the member has to leave, because others do not reach it.
    pub is_removed: bool,
    /// True if it has to leave and did not in time: its log must be recovered.
    pub is_overdue: bool,
    /// Number of the revision at which its manifest stands still: the log of a dead node.
    pub still: Option<u64>,
    /// Bytes of its log; 0 while its manifest changes.
    pub log_bytes: u64,
}

/// What one node has found out about the members, and decided. Clones share the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDigest {
    /// The publication.
    pub beat: DigestBeat,
    /// Members whose log is not retired, by incarnation.
    pub members: Arc<BTreeMap<u64, DigestMember>>,
}

impl ClusterDigest {
    /// Returns the next publication, by `writer`. Its version is another one if the members have changed.
    #[must_use]
    pub fn next(
        &self,
        writer: u64,
        members: BTreeMap<u64, DigestMember>,
        last_commit_ms: i64,
    ) -> Self {
        let DigestBeat { number, version, last_commit_ms: before, .. } = self.beat;
        let is_changed = members != *self.members || version == 0;
        let members = if is_changed { Arc::new(members) } else { Arc::clone(&self.members) };
        let (number, version) = (number + 1, version + u64::from(is_changed));
        let last_commit_ms = last_commit_ms.max(before);
        Self { beat: DigestBeat { number, writer, version, last_commit_ms }, members }
    }

    /// True if a member has to leave.
    #[must_use]
    pub fn is_removed(&self, incarnation: u64) -> bool {
        self.members.get(&incarnation).is_some_and(|member| member.is_removed)
    }

    /// Encodes the members as a cell.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let members = self.members.len().min(usize::from(u16::MAX));
        let mut out = vec![VERSION];
        out.extend_from_slice(&(members as u16).to_be_bytes());
        for (incarnation, member) in self.members.iter().take(members) {
            let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
            let flags = flag(member.is_removed, REMOVED)
                | flag(member.is_overdue, OVERDUE)
                | flag(member.still.is_some(), STILL);
            out.extend_from_slice(&incarnation.to_be_bytes());
            out.extend_from_slice(&[member.phase as u8, flags]);
            let numbers = [member.recoverer, member.still.unwrap_or(0), member.log_bytes];
            out.extend_from_slice(numbers.map(u64::to_be_bytes).as_flattened());
            push_text(&mut out, &member.name);
            push_text(&mut out, &member.address);
        }
        seal(out)
    }

    /// Decodes the members of a publication, or returns `None` if this version does not know their format.
    #[must_use]
    pub fn decode(beat: DigestBeat, cell: &[u8]) -> Option<Self> {
        let mut rest = unseal(cell)?.strip_prefix(&[VERSION])?;
        let count = u16::from_be_bytes(field(&mut rest)?);
        let members = (0..count).map(|_| member(&mut rest)).collect::<Option<_>>()?;
        rest.is_empty().then(|| Self { beat, members: Arc::new(members) })
    }
}

fn member(rest: &mut &[u8]) -> Option<(u64, DigestMember)> {
    let mut number = || field(rest).map(u64::from_be_bytes);
    let incarnation = number()?;
    let [phase, flags] = field(rest)?;
    let mut number = || field(rest).map(u64::from_be_bytes);
    let (recoverer, revision, log_bytes) = (number()?, number()?, number()?);
    let member = DigestMember {
        phase: ManifestPhase::of_byte(phase)?,
        recoverer,
        is_removed: flags & REMOVED != 0,
        is_overdue: flags & OVERDUE != 0,
        still: (flags & STILL != 0).then_some(revision),
        log_bytes,
        name: text(rest)?,
        address: text(rest)?,
    };
    Some((incarnation, member))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::keys::hex;

    fn digest() -> ClusterDigest {
        let dead = DigestMember {
            name: "a".to_owned(),
            address: "b:1".to_owned(),
            phase: ManifestPhase::Leaving,
            recoverer: 3,
            is_removed: true,
            is_overdue: true,
            still: Some(258),
            log_bytes: 16,
        };
        let other = DigestMember { name: "c".to_owned(), ..DigestMember::default() };
        ClusterDigest::default().next(7, [(2, dead), (9, other)].into(), 513)
    }

    #[test]
    fn cells_are_as_documented() {
        let digest = digest();
        let expected = "0200020000000000000002040700000000000000030000000000000102000000000000001000\
                        01610003623a3100000000000000090000000000000000000000000000000000000000000000\
                        0000000001630000";
        let cell = digest.encode();
        assert_eq!(hex(&cell).strip_suffix(&hex(&cell[cell.len() - 4..])).unwrap(), expected);
        let expected = "0000000000000001000000000000000700000000000000010000000000000201";
        assert_eq!(hex(&digest.beat.encode()), expected);
    }

    #[test]
    fn decoding_undoes_encoding_and_every_byte_is_checked() {
        let digest = digest();
        let cell = digest.encode();
        assert_eq!(DigestBeat::decode(&digest.beat.encode()), Some(digest.beat));
        assert_eq!(DigestBeat::decode(&digest.beat.encode()[1..]), None);
        assert_eq!(ClusterDigest::decode(digest.beat, &cell), Some(digest.clone()));
        for at in 0..cell.len() {
            let mut cell = cell.to_vec();
            cell[at] ^= 1;
            assert_eq!(ClusterDigest::decode(digest.beat, &cell), None, "byte {at}");
        }
    }

    #[test]
    fn the_version_changes_with_the_members_only() {
        let first = digest();
        let second = first.next(8, (*first.members).clone(), 100);
        let expected = DigestBeat { number: 2, writer: 8, version: 1, last_commit_ms: 513 };
        assert_eq!(second.beat, expected);
        let third = second.next(8, BTreeMap::new(), 600);
        let expected = DigestBeat { number: 3, writer: 8, version: 2, last_commit_ms: 600 };
        assert_eq!(third.beat, expected);
    }
}

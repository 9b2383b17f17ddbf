//! The manifest of an owner: its segments, and the watermark below which records are not needed.
//!
//! ```text
//! manifest = version u8 = 3 | phase u8 | name length u16 | name of the node | last commit time i64, ms
//!          | address length u16 | address | heartbeat i64, ms | log bytes u64
//!          | unreached u16 | incarnation u64... | streams u8 | stream... | CRC32C
//! stream   = watermark u64 | segments u32 | segment...
//! segment  = number u64 | stripe u8                                                    (big-endian)
//! ```
//!
//! The revision is a separate cell, which compare-and-sets compare.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{
    keys::SegmentId,
    sealed_cell::{field, push_text, seal, text, unseal},
};

const VERSION: u8 = 3;
/// Maximum length of a node's name and of its address, bytes.
const MAX_NAME: usize = 255;
/// Maximum number of listed nodes that the node does not reach.
const MAX_UNREACHED: usize = 1_024;

/// Identifies a change of a manifest. No two changes have the same revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// Counts the changes, from 1.
    pub number: u64,
    /// The incarnation that made the change: the owner or its recoverer.
    pub writer: u64,
}

impl Revision {
    /// Encodes the revision as a cell.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        [self.number.to_be_bytes(), self.writer.to_be_bytes()].concat().into()
    }

    /// Decodes a cell; `None` if it is not a revision.
    #[must_use]
    pub fn decode(cell: &[u8]) -> Option<Self> {
        let (number, writer) = cell.split_first_chunk::<8>()?;
        let writer = u64::from_be_bytes(writer.try_into().ok()?);
        Some(Self { number: u64::from_be_bytes(*number), writer })
    }
}

/// State of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManifestPhase {
    /// The owner appends.
    #[default]
    Open,
    /// The writer of the revision recovers the log: the owner is fenced.
    Recovering,
    /// All rows are stored; the segments are removed.
    Retired,
    /// The owner starts, and has appended nothing yet.
    Joining,
    /// The owner leaves because others do not reach it: it gives its slots away, flushes its rows and ends.
    Leaving,
}

impl ManifestPhase {
    /// Decodes a phase.
    pub(crate) const fn of_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Open),
            1 => Some(Self::Recovering),
            2 => Some(Self::Retired),
            3 => Some(Self::Joining),
            4 => Some(Self::Leaving),
            _ => None,
        }
    }

    /// True if the log belongs to its owner: nobody has begun a recovery.
    #[must_use]
    pub const fn is_owned(self) -> bool {
        matches!(self, Self::Open | Self::Joining | Self::Leaving)
    }
}

/// A listed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentRef {
    /// Number in the stream.
    pub number: u64,
    /// The stripe of its key.
    pub stripe: u8,
}

/// A stream in a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamManifest {
    /// Records below this number are not needed.
    pub watermark: u64,
    /// The segments, oldest first.
    pub segments: Vec<SegmentRef>,
}

/// The manifest of an incarnation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manifest {
    /// The revision that this manifest has.
    pub revision: Revision,
    /// State of the log.
    pub phase: ManifestPhase,
    /// Name of the node. No two live nodes have the same name.
    pub node: String,
    /// The highest commit time of a record below the watermarks, epoch milliseconds.
    pub last_commit_ms: i64,
    /// Address at which the node answers its peers; empty if it does not answer.
    pub address: String,
    /// The node's clock at its last heartbeat, epoch milliseconds. It is a hint: no safety depends on it.
    pub heartbeat_ms: i64,
    /// Bytes of the segments at the last heartbeat.
    pub log_bytes: u64,
    /// Nodes that the owner did not reach at its last heartbeat.
    pub unreached: BTreeSet<u64>,
    /// The streams.
    pub streams: Vec<StreamManifest>,
}

impl Manifest {
    /// The first manifest of an incarnation.
    #[must_use]
    pub fn first(incarnation: u64, node: &str, streams: usize) -> Self {
        Self {
            revision: Revision { number: 1, writer: incarnation },
            phase: ManifestPhase::Open,
            node: shortened(node),
            last_commit_ms: i64::MIN,
            address: String::new(),
            heartbeat_ms: i64::MIN,
            log_bytes: 0,
            unreached: BTreeSet::new(),
            streams: vec![StreamManifest { watermark: 1, segments: Vec::new() }; streams],
        }
    }

    /// Sets the address at which the node answers its peers.
    #[must_use]
    pub fn at_address(mut self, address: &str) -> Self {
        self.address = shortened(address);
        self
    }

    /// Returns the manifest with the next revision, written by `writer`.
    #[must_use]
    pub fn next(&self, writer: u64) -> Self {
        let revision = Revision { number: self.revision.number + 1, writer };
        Self { revision, ..self.clone() }
    }

    /// The segments of an incarnation, by stream, oldest first.
    pub fn segments(&self, incarnation: u64) -> impl Iterator<Item = SegmentId> + '_ {
        let of_stream = move |(stream, listed): (usize, &StreamManifest)| {
            let id = move |segment: SegmentRef| SegmentId {
                incarnation,
                stream: stream as u8,
                number: segment.number,
                stripe: segment.stripe,
            };
            listed.segments.clone().into_iter().map(id)
        };
        self.streams.iter().enumerate().flat_map(of_stream)
    }

    /// Encodes the manifest as a cell, without the revision.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = vec![VERSION, self.phase as u8];
        push_text(&mut out, &self.node);
        out.extend_from_slice(&self.last_commit_ms.to_be_bytes());
        push_text(&mut out, &self.address);
        out.extend_from_slice(&self.heartbeat_ms.to_be_bytes());
        out.extend_from_slice(&self.log_bytes.to_be_bytes());
        let unreached = self.unreached.len().min(MAX_UNREACHED);
        out.extend_from_slice(&(unreached as u16).to_be_bytes());
        out.extend(self.unreached.iter().take(unreached).flat_map(|node| node.to_be_bytes()));
        out.push(self.streams.len() as u8);
        for stream in &self.streams {
            out.extend_from_slice(&stream.watermark.to_be_bytes());
            out.extend_from_slice(&(stream.segments.len() as u32).to_be_bytes());
            for segment in &stream.segments {
                out.extend_from_slice(&segment.number.to_be_bytes());
                out.push(segment.stripe);
            }
        }
        seal(out)
    }

    /// Decodes a cell, or returns `None` if this version does not know its format.
    #[must_use]
    pub fn decode(revision: Revision, cell: &[u8]) -> Option<Self> {
        let mut rest = unseal(cell)?;
        if *rest.split_off_first()? != VERSION {
            return None;
        }
        let phase = ManifestPhase::of_byte(*rest.split_off_first()?)?;
        let node = text(&mut rest)?;
        let last_commit_ms = i64::from_be_bytes(field(&mut rest)?);
        let address = text(&mut rest)?;
        let heartbeat_ms = i64::from_be_bytes(field(&mut rest)?);
        let log_bytes = u64::from_be_bytes(field(&mut rest)?);
        let unreached = u16::from_be_bytes(field(&mut rest)?);
        let unreached = (0..unreached).map(|_| field(&mut rest).map(u64::from_be_bytes));
        let unreached = unreached.collect::<Option<_>>()?;
        let mut streams = Vec::new();
        for _ in 0..*rest.split_off_first()? {
            let watermark = u64::from_be_bytes(field(&mut rest)?);
            let mut segments = Vec::new();
            for _ in 0..u32::from_be_bytes(field(&mut rest)?) {
                let number = u64::from_be_bytes(field(&mut rest)?);
                segments.push(SegmentRef { number, stripe: *rest.split_off_first()? });
            }
            streams.push(StreamManifest { watermark, segments });
        }
        rest.is_empty().then_some(Self {
            revision,
            phase,
            node,
            last_commit_ms,
            address,
            heartbeat_ms,
            log_bytes,
            unreached,
            streams,
        })
    }
}

fn shortened(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_NAME)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::keys::hex;

    fn manifest() -> Manifest {
        let segments =
            vec![SegmentRef { number: 3, stripe: 1 }, SegmentRef { number: 4, stripe: 2 }];
        Manifest {
            revision: Revision { number: 9, writer: 5 },
            phase: ManifestPhase::Recovering,
            node: "a".to_owned(),
            last_commit_ms: 1_356_998_400_000,
            address: "b:1".to_owned(),
            heartbeat_ms: 258,
            log_bytes: 16,
            unreached: [3].into(),
            streams: vec![StreamManifest { watermark: 77, segments }],
        }
    }

    #[test]
    fn cells_are_as_documented() {
        let cell = hex(&manifest().encode());
        let expected = "0301000161\
                        0000013bf3685800\
                        0003623a31\
                        0000000000000102\
                        0000000000000010\
                        00010000000000000003\
                        01\
                        000000000000004d00000002\
                        000000000000000301\
                        000000000000000402";
        let (fields, _) = cell.split_at(cell.len() - 8);
        assert_eq!(fields, expected);
        assert_eq!(hex(&manifest().revision.encode()), "00000000000000090000000000000005");
    }

    #[test]
    fn decoding_undoes_encoding_and_every_byte_is_checked() {
        let (manifest, cell) = (manifest(), manifest().encode());
        assert_eq!(Manifest::decode(manifest.revision, &cell), Some(manifest.clone()));
        assert_eq!(Revision::decode(&manifest.revision.encode()), Some(manifest.revision));
        for at in 0..cell.len() {
            let mut cell = cell.to_vec();
            *cell.get_mut(at).unwrap() ^= 1;
            assert_eq!(Manifest::decode(manifest.revision, &cell), None, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_does_not_panic(mut cell: Vec<u8>) {
            cell.splice(..0, [VERSION]);
            let checksum = crc32c::crc32c(&cell);
            cell.extend_from_slice(&checksum.to_be_bytes());
            if let Some(manifest) = Manifest::decode(Revision::default(), &cell) {
                prop_assert_eq!(manifest.encode(), cell);
            }
        }
    }
}

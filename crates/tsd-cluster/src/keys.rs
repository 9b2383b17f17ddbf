//! Row keys of the log table.
//!
//! ```text
//! segment      cluster 16 | stripe u8, below 0x80 | incarnation u64 | stream u8 | number u64
//! incarnations cluster 16 | 0xf0
//! manifest     cluster 16 | 0xf1 | incarnation u64                                        (big-endian)
//! settings     cluster 16 | 0xf2
//! assignment   cluster 16 | 0xf3                                   with the digest
//! identity     0xff 16 times | 0xf5
//! ```
//!
//! Stripes distribute the segments over regions: each stripe begins a region of its own.

use std::fmt;

use bytes::Bytes;

/// Stripes are below this.
const MAX_STRIPES: u8 = 0x80;
const INCARNATIONS: u8 = 0xf0;
const MANIFESTS: u8 = 0xf1;
const SETTINGS: u8 = 0xf2;
const ASSIGNMENT: u8 = 0xf3;
const IDENTITY: u8 = 0xf5;
/// In the place of the cluster, in the key of the identity. The row is in the last region, as the other state rows.
const ANY_CLUSTER: [u8; 16] = [0xff; 16];

/// Random number of a cluster, which identifies its rows in a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterId([u8; 16]);

impl ClusterId {
    /// The cluster with this number.
    #[must_use]
    pub const fn new(id: [u8; 16]) -> Self {
        Self(id)
    }

    /// Its number.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Parses 32 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        let digits = digits?;
        let (pairs, rest) = digits.as_chunks::<2>();
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| (high << 4) | low).collect();
        Some(Self(bytes.try_into().ok().filter(|_| rest.is_empty())?))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

/// A segment of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// The owner that writes it.
    pub incarnation: u64,
    /// The stream.
    pub stream: u8,
    /// Its number in the stream, from 1.
    pub number: u64,
    /// The stripe of its key.
    pub stripe: u8,
}

/// A segment that its owner has opened. Each attempt to open a segment puts its own token. So an attempt that
/// HBase executes late, after the segment was fenced and removed, does not open it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenSegment {
    /// The segment.
    pub id: SegmentId,
    /// The attempt whose token the segment has.
    pub attempt: u32,
}

/// A row that is no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateRow {
    /// The counter of the incarnations.
    Incarnations,
    /// The manifest of an incarnation.
    Manifest(u64),
    /// The settings that all members share.
    Settings,
    /// Which node owns which slot, and the digest: one read shows whether either has changed.
    Assignment,
}

/// The keys of a cluster's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogKeys {
    cluster: ClusterId,
    stripes: u8,
}

impl LogKeys {
    /// Keys with this number of stripes; at least one, at most 128.
    #[must_use]
    pub fn new(cluster: ClusterId, stripes: u8) -> Self {
        Self { cluster, stripes: stripes.clamp(1, MAX_STRIPES) }
    }

    /// The cluster.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Number of stripes.
    #[must_use]
    pub const fn stripes(&self) -> u8 {
        self.stripes
    }

    /// Start keys of the regions: each stripe but the first, and the state rows.
    #[must_use]
    pub fn splits(&self) -> Vec<Bytes> {
        (1..self.stripes).chain([INCARNATIONS]).map(|byte| self.key(byte, &[])).collect()
    }

    /// The row of a segment.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Bytes {
        let rest =
            [&id.incarnation.to_be_bytes()[..], &[id.stream], &id.number.to_be_bytes()].concat();
        self.key(id.stripe, &rest)
    }

    /// A row that is no segment.
    #[must_use]
    pub fn state(&self, row: StateRow) -> Bytes {
        match row {
            StateRow::Incarnations => self.key(INCARNATIONS, &[]),
            StateRow::Manifest(incarnation) => self.key(MANIFESTS, &incarnation.to_be_bytes()),
            StateRow::Settings => self.key(SETTINGS, &[]),
            StateRow::Assignment => self.key(ASSIGNMENT, &[]),
        }
    }

    /// The row with the cluster and the number of stripes of the table. Its key is the same in every table.
    #[must_use]
    pub fn identity() -> Bytes {
        [&ANY_CLUSTER[..], &[IDENTITY]].concat().into()
    }

    /// Returns the key prefix of all manifests.
    #[must_use]
    pub fn manifests(&self) -> Bytes {
        self.key(MANIFESTS, &[])
    }

    /// Returns the incarnation in the key of a manifest; `None` for any other key.
    #[must_use]
    pub fn incarnation_of(&self, key: &[u8]) -> Option<u64> {
        let rest = key.strip_prefix(&self.manifests()[..])?;
        Some(u64::from_be_bytes(rest.try_into().ok()?))
    }

    /// Returns the first key of segments and the key after the last.
    #[must_use]
    pub fn segments(&self) -> (Bytes, Bytes) {
        (self.key(0, &[]), self.key(MAX_STRIPES, &[]))
    }

    /// Returns the segment of a key; `None` for the key of a state row.
    #[must_use]
    pub fn segment_of(&self, key: &[u8]) -> Option<SegmentId> {
        let (stripe, rest) = key.strip_prefix(&self.cluster.0[..])?.split_first()?;
        let (incarnation, rest) = rest.split_first_chunk::<8>()?;
        let (stream, number) = rest.split_first()?;
        let segment = SegmentId {
            incarnation: u64::from_be_bytes(*incarnation),
            stream: *stream,
            number: u64::from_be_bytes(number.try_into().ok()?),
            stripe: *stripe,
        };
        (*stripe < MAX_STRIPES).then_some(segment)
    }

    fn key(&self, kind: u8, rest: &[u8]) -> Bytes {
        [&self.cluster.0[..], &[kind], rest].concat().into()
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn keys() -> LogKeys {
        LogKeys::new(ClusterId::parse("000102030405060708090a0b0c0d0e0f").unwrap(), 4)
    }

    #[test]
    fn keys_are_as_documented() {
        let id = SegmentId { incarnation: 7, stream: 2, number: 258, stripe: 3 };
        let cluster = "000102030405060708090a0b0c0d0e0f";
        let check = |key: &[u8], rest: &str| assert_eq!(hex(key), format!("{cluster}{rest}"));
        check(&keys().segment(id), "030000000000000007020000000000000102");
        check(&keys().state(StateRow::Incarnations), "f0");
        check(&keys().state(StateRow::Manifest(9)), "f10000000000000009");
        check(&keys().state(StateRow::Settings), "f2");
        check(&keys().state(StateRow::Assignment), "f3");
        assert_eq!(hex(&LogKeys::identity()), format!("{}f5", "ff".repeat(16)));
        let splits: Vec<String> = keys().splits().iter().map(|key| hex(key)).collect();
        let expected = ["01", "02", "03", "f0"].map(|stripe| format!("{cluster}{stripe}"));
        assert_eq!(splits, expected);
    }

    #[test]
    fn a_cluster_is_parsed_as_it_is_rendered() {
        let cluster = keys().cluster();
        assert_eq!(ClusterId::parse(&cluster.to_string()), Some(cluster));
        for bad in
            ["", "00", "0001020304050607 8090a0b0c0d0e0f", "000102030405060708090a0b0c0d0e0f0"]
        {
            assert_eq!(ClusterId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_segment_of_a_key_is_parsed_as_it_is_encoded() {
        let id = SegmentId { incarnation: 7, stream: 2, number: 258, stripe: 3 };
        let key = keys().segment(id);
        assert_eq!(keys().segment_of(&key), Some(id));
        let (start, stop) = keys().segments();
        assert!(start < key && key < stop);
        let manifest = keys().state(StateRow::Manifest(9));
        let (first, last) = (key.slice(..1), key.slice(..key.len() - 1));
        let identity = LogKeys::identity();
        for other in [&manifest[..], &[], &first[..], &last[..], &identity[..]] {
            assert_eq!(keys().segment_of(other), None, "{other:?}");
        }
        assert!(stop <= manifest);
    }

    #[test]
    fn the_incarnation_of_a_manifest_is_in_its_key() {
        let key = keys().state(StateRow::Manifest(u64::MAX));
        assert_eq!(keys().incarnation_of(&key), Some(u64::MAX));
        for other in [StateRow::Incarnations, StateRow::Assignment] {
            assert_eq!(keys().incarnation_of(&keys().state(other)), None);
        }
        assert_eq!(keys().incarnation_of(&[]), None);
    }
}

//! Names and headers of segments.
//!
//! ```text
//!  0  magic "SALTWAL1"      32  previous segment u64 (0: none)
//!  8  version u32 = 3       40  valid bytes of the previous segment u64
//! 12  0 u32                 48  created i64, epoch milliseconds
//! 16  segment u64           56  length of the file u32 (0: not stated)
//! 24  first sequence u64    60  CRC32C of bytes 0..60                       (big-endian)
//! ```
//!
//! Segments of version 2 are readable, too. They have no delta batches.
//!
//! Each header states where the previous segment ends. So the end of every segment but the last is known, even
//! after a failed write, and a missing segment is detected.
//!
//! The file gets its length before its first record and keeps it while records fit. So a last segment that is
//! shorter was truncated. Headers without a length state 0.

use std::io;

use tsd_storage::UnknownVersion;

use super::record::MAX_NUMBER;
use crate::files::LogDir;

pub(crate) const SEGMENT_HEADER: usize = 64;
const MAGIC: [u8; 8] = *b"SALTWAL1";
const VERSION: u32 = 3;
const OLDEST_VERSION: u32 = 2;
const SUFFIX: &str = ".wal";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) segment: u64,
    pub(crate) first_sequence: u64,
    pub(crate) previous: u64,
    pub(crate) previous_len: u64,
    pub(crate) created_ms: i64,
    /// Length of the file before its first record; 0 if it is not stated.
    pub(crate) file_len: u32,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut out = Vec::with_capacity(SEGMENT_HEADER);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        for number in [self.segment, self.first_sequence, self.previous, self.previous_len] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.created_ms.to_be_bytes());
        out.extend_from_slice(&self.file_len.to_be_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        let mut header = [0; SEGMENT_HEADER];
        header.iter_mut().zip(out).for_each(|(to, byte)| *to = byte);
        header
    }

    /// Decodes the header at the start of `bytes`; `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<SEGMENT_HEADER>()?;
        let (sealed, crc) = header.split_last_chunk::<4>()?;
        if crc32c::crc32c(sealed) != u32::from_be_bytes(*crc) {
            return None;
        }
        let (version, rest) = sealed.strip_prefix(&MAGIC)?.split_first_chunk::<4>()?;
        if !(OLDEST_VERSION..=VERSION).contains(&u32::from_be_bytes(*version)) {
            return None;
        }
        let mut numbers = rest
            .get(4..)?
            .chunks_exact(8)
            .map(|chunk| chunk.iter().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte)));
        let decoded = Self {
            segment: numbers.next()?,
            first_sequence: numbers.next()?,
            previous: numbers.next()?,
            previous_len: numbers.next()?,
            created_ms: numbers.next()? as i64,
            file_len: u32::from_be_bytes(*sealed.last_chunk()?),
        };
        let Self { segment, first_sequence, previous, .. } = decoded;
        [segment, first_sequence, previous].iter().all(|n| *n <= MAX_NUMBER).then_some(decoded)
    }
}

/// The version of a segment with an intact header that this release cannot read.
fn unknown_version(bytes: &[u8]) -> Option<u32> {
    let (sealed, crc) = bytes.first_chunk::<SEGMENT_HEADER>()?.split_last_chunk::<4>()?;
    let version = u32::from_be_bytes(*sealed.strip_prefix(&MAGIC)?.first_chunk()?);
    let is_intact = crc32c::crc32c(sealed) == u32::from_be_bytes(*crc);
    (is_intact && !(OLDEST_VERSION..=VERSION).contains(&version)).then_some(version)
}

/// The first segment of another version, if any.
pub(crate) fn unknown_segment(dir: &dyn LogDir) -> io::Result<Option<UnknownVersion>> {
    let mut segments: Vec<u64> =
        dir.list()?.iter().filter_map(|name| segment_of_name(name)).collect();
    segments.sort_unstable();
    for name in segments.into_iter().map(segment_name) {
        let header = dir.read(&name, 0, SEGMENT_HEADER)?;
        if let Some(version) = unknown_version(&header) {
            let (file, reads) = (dir.path().join(name), format!("{OLDEST_VERSION} and {VERSION}"));
            return Ok(Some(UnknownVersion::new("segment", file.display(), version, reads)));
        }
    }
    Ok(None)
}

/// File name of a segment.
pub(crate) fn segment_name(segment: u64) -> String {
    format!("{segment:016}{SUFFIX}")
}

/// The segment number in a file name; `None` if the file is not a segment.
pub(crate) fn segment_of_name(name: &str) -> Option<u64> {
    let segment = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (segment_name(segment) == name && segment <= MAX_NUMBER).then_some(segment)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn header_is_decoded_and_any_flipped_bit_is_detected() {
        let header = SegmentHeader {
            segment: 7,
            first_sequence: MAX_NUMBER,
            previous: 6,
            previous_len: 123_456,
            created_ms: -5,
            file_len: 1 << 20,
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
        for bit in 0..SEGMENT_HEADER * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bytes), None, "bit {bit}");
        }
    }

    /// Issue 37.
    #[test]
    fn numbers_that_no_log_reaches_are_damage() {
        let header = SegmentHeader {
            segment: MAX_NUMBER,
            first_sequence: MAX_NUMBER,
            previous: MAX_NUMBER,
            previous_len: 64,
            created_ms: 5,
            file_len: 0,
        };
        let decoded = |header: SegmentHeader| SegmentHeader::decode(&header.encode());
        assert_eq!(decoded(header), Some(header));
        let over = MAX_NUMBER + 1;
        assert_eq!(decoded(SegmentHeader { segment: over, ..header }), None);
        assert_eq!(decoded(SegmentHeader { first_sequence: over, ..header }), None);
        assert_eq!(decoded(SegmentHeader { previous: over, ..header }), None);
        assert_eq!(segment_of_name(&segment_name(over)), None);
    }

    #[test]
    fn an_intact_header_of_another_version_is_recognized() {
        let header = SegmentHeader {
            segment: 7,
            first_sequence: 1,
            previous: 6,
            previous_len: 64,
            created_ms: 5,
            file_len: 0,
        };
        let mut bytes = header.encode();
        assert_eq!(unknown_version(&bytes), None);
        bytes[11] = 9;
        assert_eq!(unknown_version(&bytes), None, "a wrong checksum");
        let crc = crc32c::crc32c(&bytes[..60]).to_be_bytes();
        bytes[60..].copy_from_slice(&crc);
        assert_eq!(unknown_version(&bytes), Some(9));
        assert_eq!(SegmentHeader::decode(&bytes), None);
    }

    #[test]
    fn names_are_parsed_and_sorted() {
        assert_eq!(segment_of_name(&segment_name(42)), Some(42));
        assert!(segment_name(9) < segment_name(10));
        for name in ["lock", "1.wal", "x.wal", "0000000000000042.wal.damaged", ".wal"] {
            assert_eq!(segment_of_name(name), None, "{name}");
        }
    }
}

//! The mark of the log in the store: which log the store belongs to, and how much of that log it contains.
//!
//! ```text
//! "SWM1" | log id, 16 bytes | sequence of the first record that is not in the store u64
//! | recorded i64, epoch milliseconds | CRC32C of the bytes before                        (big-endian)
//! ```

use std::path::Path;

use bytes::Bytes;
use tsd_storage::UnknownVersion;

const MAGIC: [u8; 4] = *b"SWM1";
const ENCODED: usize = 40;

/// The mark that a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreMark {
    pub(crate) log_id: u128,
    /// All records before this sequence number are in the store.
    pub(crate) flushed_to: u64,
    pub(crate) recorded_ms: i64,
}

impl StoreMark {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(ENCODED);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.log_id.to_be_bytes());
        out.extend_from_slice(&self.flushed_to.to_be_bytes());
        out.extend_from_slice(&self.recorded_ms.to_be_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        out.into()
    }

    /// `None` if the bytes are not a valid mark.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ENCODED] = bytes.try_into().ok()?;
        let (sealed, crc) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(sealed) != u32::from_be_bytes(*crc) {
            return None;
        }
        let (log_id, rest) = sealed.strip_prefix(&MAGIC)?.split_first_chunk::<16>()?;
        let (flushed_to, rest) = rest.split_first_chunk::<8>()?;
        let (recorded_ms, _) = rest.split_first_chunk::<8>()?;
        Some(Self {
            log_id: u128::from_be_bytes(*log_id),
            flushed_to: u64::from_be_bytes(*flushed_to),
            recorded_ms: i64::from_be_bytes(*recorded_ms),
        })
    }
}

/// The error of an intact mark of another version. Such a mark has another last byte of [`MAGIC`], and ends with
/// a checksum of all bytes before.
pub(crate) fn unknown_mark(bytes: &[u8], file: &Path) -> Option<UnknownVersion> {
    let (sealed, crc) = bytes.split_last_chunk::<4>()?;
    let ([stem @ .., version], known) = (sealed.first_chunk::<4>()?, MAGIC);
    let is_other = known.starts_with(stem) && !known.ends_with(&[*version]);
    (is_other && crc32c::crc32c(sealed) == u32::from_be_bytes(*crc))
        .then(|| UnknownVersion::new("mark of the log", file.display(), char::from(*version), 1))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn decoding_undoes_encoding_and_any_flipped_bit_is_detected() {
        let mark = StoreMark { log_id: u128::MAX - 5, flushed_to: 77, recorded_ms: -1 };
        let bytes = mark.encode();
        assert_eq!(StoreMark::decode(&bytes), Some(mark));
        for bit in 0..ENCODED * 8 {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(StoreMark::decode(&bytes), None, "bit {bit}");
        }
        assert_eq!(StoreMark::decode(&bytes[1..]), None);
    }

    #[test]
    fn an_intact_mark_of_another_version_is_recognized() {
        let file = Path::new("cells/LOG");
        let mut bytes = StoreMark { log_id: 9, flushed_to: 77, recorded_ms: 5 }.encode().to_vec();
        assert_eq!(unknown_mark(&bytes, file), None);
        bytes[3] = b'2';
        assert_eq!(unknown_mark(&bytes, file), None, "a wrong checksum");
        // The other version has one more field.
        bytes.truncate(ENCODED - 4);
        bytes.extend([1, 2, 3]);
        bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
        let text = unknown_mark(&bytes, file).unwrap().to_string();
        assert!(
            text.contains("mark of the log cells/LOG has version 2, this release reads 1:"),
            "{text}"
        );
    }
}

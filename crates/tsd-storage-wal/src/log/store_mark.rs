//! What the store records of the log: which log it belongs to, and how much of it the store
//! contains.
//!
//! ```text
//! "SWM1" | log id, 16 bytes | sequence of the first record that is not in the store u64
//! | recorded i64, epoch milliseconds | CRC32C of the bytes before                        (big-endian)
//! ```

use bytes::Bytes;

const MAGIC: [u8; 4] = *b"SWM1";
const ENCODED: usize = 40;

/// The record of a store.
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

    /// `None` if the bytes are not a mark.
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

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

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
}

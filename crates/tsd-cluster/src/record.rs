//! Records: the cells of a segment.
//!
//! ```text
//!  0  magic "SCR1"                 16  acknowledged through u64
//!  4  flags u8, 0 u8, 0 u16        24  length of the payload, not compressed, u32
//!  8  sequence u64                 28  CRC32C of bytes 0..28 and of what follows
//!                                  32  payload, as LZ4 block if flag 4 is set             (big-endian)
//! ```
//!
//! A record has a group of changes, or a fraction of a group. The first record of a group has flag 1, the
//! last one flag 2.

use bytes::Bytes;

const MAGIC: [u8; 4] = *b"SCR1";
const HEADER: usize = 32;
/// Bytes before the checksum.
const SEALED: usize = 28;
const BEGINS: u8 = 1;
const ENDS: u8 = 2;
const COMPRESSED: u8 = 4;

/// Maximum length of a payload, bytes. A cell then has at most 96 KiB: up to that length HBase's cost
/// depends on the number of cells and hardly on their length.
pub const MAX_PAYLOAD: usize = (96 << 10) - HEADER;

/// A record of a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogRecord {
    /// Number of the record in the stream, from 1.
    pub sequence: u64,
    /// All records up to this number were stored when the record was sent.
    pub acknowledged_through: u64,
    /// True if the record begins a group.
    pub begins_group: bool,
    /// True if the record ends a group.
    pub ends_group: bool,
    /// The group, or a fraction of it.
    pub payload: Bytes,
}

/// Why a cell is not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The cell is shorter than a header, or has no magic.
    #[error("not a record")]
    NoRecord,
    /// The checksum does not match.
    #[error("a damaged record")]
    Damaged,
}

impl LogRecord {
    /// Encodes the record as a cell.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let compressed = lz4_flex::block::compress(&self.payload);
        let is_shorter = compressed.len() < self.payload.len();
        let stored = if is_shorter { &compressed[..] } else { &self.payload[..] };
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.begins_group, BEGINS)
            | flag(self.ends_group, ENDS)
            | flag(is_shorter, COMPRESSED);
        let mut out = Vec::with_capacity(HEADER + stored.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[flags, 0, 0, 0]);
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.acknowledged_through.to_be_bytes());
        out.extend_from_slice(&(self.payload.len() as u32).to_be_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&out), stored);
        out.extend_from_slice(&checksum.to_be_bytes());
        out.extend_from_slice(stored);
        out.into()
    }

    /// Decodes a cell.
    ///
    /// # Errors
    ///
    /// If the cell is not an intact record.
    pub fn decode(cell: &[u8]) -> Result<Self, RecordError> {
        let (header, stored) = cell.split_first_chunk::<HEADER>().ok_or(RecordError::NoRecord)?;
        let (sealed, checksum) =
            header.split_first_chunk::<SEALED>().ok_or(RecordError::NoRecord)?;
        let fields = sealed.strip_prefix(&MAGIC).ok_or(RecordError::NoRecord)?;
        if crc32c::crc32c_append(crc32c::crc32c(sealed), stored).to_be_bytes() != *checksum {
            return Err(RecordError::Damaged);
        }
        Self::of_fields(fields, stored).ok_or(RecordError::Damaged)
    }

    fn of_fields(fields: &[u8], stored: &[u8]) -> Option<Self> {
        let (flags, rest) = fields.split_first_chunk::<4>()?;
        let flags = *flags.first()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let (through, length) = rest.split_first_chunk::<8>()?;
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        let payload = if flags & COMPRESSED == 0 {
            Bytes::copy_from_slice(stored)
        } else if length <= MAX_PAYLOAD {
            lz4_flex::block::decompress(stored, length).ok()?.into()
        } else {
            return None;
        };
        (payload.len() == length).then_some(Self {
            sequence: u64::from_be_bytes(*sequence),
            acknowledged_through: u64::from_be_bytes(*through),
            begins_group: flags & BEGINS != 0,
            ends_group: flags & ENDS != 0,
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::keys::hex;

    fn record(payload: &[u8]) -> LogRecord {
        LogRecord {
            sequence: 0x0102_0304,
            acknowledged_through: 0x0102_0303,
            begins_group: true,
            ends_group: false,
            payload: Bytes::copy_from_slice(payload),
        }
    }

    #[test]
    fn cells_are_as_documented() {
        let cell = record(b"abc").encode();
        let hex = hex(&cell);
        let before = "53435231010000000000000001020304000000000102030300000003";
        assert!(hex.starts_with(before), "{hex}");
        assert_eq!(&cell[32..], b"abc");
        let repeated = record(&[7; 1_000]).encode();
        assert!(repeated.len() < 100, "compressed");
        assert_eq!(repeated[4], 5);
    }

    #[test]
    fn every_byte_is_checked() {
        for payload in [&b"abc"[..], &[7; 400]] {
            let cell = record(payload).encode();
            for at in 0..cell.len() {
                let mut cell = cell.to_vec();
                cell[at] ^= 1;
                assert!(LogRecord::decode(&cell).is_err(), "byte {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(
            sequence: u64,
            acknowledged_through: u64,
            begins_group: bool,
            ends_group: bool,
            payload in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..300),
        ) {
            let payload = payload.into();
            let record =
                LogRecord { sequence, acknowledged_through, begins_group, ends_group, payload };
            prop_assert_eq!(LogRecord::decode(&record.encode()).unwrap(), record);
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(mut cell: Vec<u8>, is_magic: bool) {
            if is_magic {
                cell.splice(..0, MAGIC);
            }
            prop_assert!(LogRecord::decode(&cell).is_err());
        }
    }
}

//! Records of the log, and groups of records that are written together.
//!
//! ```text
//!  0  magic "SWR1"           32  durable_to u64
//!  4  kind u8, 0 u8          40  segment u32 (low half of its number)
//!  6  table name length u16  44  CRC32C of bytes 0..44
//!  8  payload length u32     48  payload: table name | body
//! 12  CRC32C of the payload      | zeros, up to 7 | 0xE5, to a multiple of 8
//! 16  sequence u64
//! 24  commit time i64, epoch milliseconds                                  (big-endian)
//! ```
//!
//! The header has its own checksum, so length and sequence of a damaged payload are known. `durable_to` is the
//! length of the segment that was synced before the record's group was written. Unreadable bytes before it are
//! damage, not a torn write. The last byte of a record is never zero, so an unwritten end is detected. Checksum
//! and length of the payload include the padding, so every byte of the log is checked.

use crate::{
    append_record::{APPEND, AppendRecord},
    change::Change,
};

pub(crate) const HEADER: usize = 48;
const MAGIC: [u8; 4] = *b"SWR1";
const END: u8 = 0xe5;
pub(crate) const ALIGN: usize = 8;
/// Kind of a record without a change. Its `durable_to` states that all bytes before it are synced.
pub(crate) const SYNC_MARK: u8 = 0x80;

/// Greatest number of a record, segment or state. Numbers count from 1, so a greater number in a file is damage.
/// The limit leaves room to count on.
pub(crate) const MAX_NUMBER: u64 = u64::MAX >> 1;

/// Size of the body of [`RecordGroup::probe`]. It does not fit into a block that a full disk has already
/// allocated.
const PROBE_BYTES: usize = 64 * 1024;

/// Header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: u8,
    pub(crate) table_len: u16,
    pub(crate) payload_len: u32,
    pub(crate) payload_crc: u32,
    pub(crate) sequence: u64,
    pub(crate) commit_ms: i64,
    pub(crate) durable_to: u64,
    pub(crate) segment: u32,
}

impl RecordHeader {
    fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        let fields: [&[u8]; 10] = [
            &MAGIC,
            &[self.kind, 0],
            &self.table_len.to_be_bytes(),
            &self.payload_len.to_be_bytes(),
            &self.payload_crc.to_be_bytes(),
            &self.sequence.to_be_bytes(),
            &self.commit_ms.to_be_bytes(),
            &self.durable_to.to_be_bytes(),
            &self.segment.to_be_bytes(),
            &[0; 4],
        ];
        let mut rest = out.as_mut_slice();
        for field in fields {
            let (to, after) = rest.split_at_mut(field.len());
            to.copy_from_slice(field);
            rest = after;
        }
        if let Some((sealed, crc)) = out.split_last_chunk_mut::<4>() {
            *crc = crc32c::crc32c(sealed).to_be_bytes();
        }
        out
    }

    /// Decodes the header at the start of `bytes`; `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER>()?;
        let (sealed, crc) = header.split_last_chunk::<4>()?;
        if !header.starts_with(&MAGIC) || crc32c::crc32c(sealed) != u32::from_be_bytes(*crc) {
            return None;
        }
        let mut rest = sealed.get(MAGIC.len()..)?;
        let kind = *rest.split_off_first()?;
        rest.split_off_first()?;
        let decoded = Self {
            kind,
            table_len: u16::from_be_bytes(field(&mut rest)?),
            payload_len: u32::from_be_bytes(field(&mut rest)?),
            payload_crc: u32::from_be_bytes(field(&mut rest)?),
            sequence: u64::from_be_bytes(field(&mut rest)?),
            commit_ms: i64::from_be_bytes(field(&mut rest)?),
            durable_to: u64::from_be_bytes(field(&mut rest)?),
            segment: u32::from_be_bytes(field(&mut rest)?),
        };
        (decoded.sequence <= MAX_NUMBER).then_some(decoded)
    }

    /// Bytes of the record, including header and padding.
    pub(crate) const fn record_len(&self) -> usize {
        HEADER + self.payload_len as usize
    }
}

fn field<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (field, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*field)
}

/// False if the end of the payload was not written.
pub(crate) fn has_end(payload: &[u8]) -> bool {
    payload.last() != Some(&0)
}

/// Table name and body of a payload with a valid checksum.
pub(crate) fn split_payload(header: RecordHeader, payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (table, rest) = payload.split_at_checked(usize::from(header.table_len))?;
    // The last byte encodes the length of the padding before it.
    let (end, rest) = rest.split_last()?;
    let padding = usize::from(*end ^ END);
    let body = rest.get(..rest.len().checked_sub(padding)?)?;
    Some((table, body))
}

/// Records that become durable together.
#[derive(Debug, Default)]
pub struct RecordGroup {
    bytes: Vec<u8>,
    records: Vec<(usize, RecordHeader)>,
}

impl RecordGroup {
    /// Adds a change. [`Self::stamp`] fills in its position in the log.
    pub(crate) fn push(&mut self, table: &str, change: &Change, commit_ms: i64) {
        self.add(table.as_bytes(), |body| change.encode(body), commit_ms);
    }

    /// Adds an append.
    pub(crate) fn push_append(&mut self, table: &str, record: &AppendRecord, commit_ms: i64) {
        let body = |body: &mut Vec<u8>| {
            record.encode(body);
            APPEND
        };
        self.add(table.as_bytes(), body, commit_ms);
    }

    /// Adds a record; `body` appends its body and returns its kind.
    fn add(&mut self, table: &[u8], body: impl FnOnce(&mut Vec<u8>) -> u8, commit_ms: i64) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; HEADER]);
        self.bytes.extend_from_slice(table);
        let kind = body(&mut self.bytes);
        let padding = (ALIGN - 1) - (self.bytes.len() - at) % ALIGN;
        self.bytes.extend(std::iter::repeat_n(0, padding));
        self.bytes.push(END ^ padding as u8);
        let payload = self.bytes.get(at + HEADER..).unwrap_or_default();
        let header = RecordHeader {
            kind,
            table_len: table.len() as u16,
            payload_len: payload.len() as u32,
            payload_crc: crc32c::crc32c(payload),
            sequence: 0,
            commit_ms,
            durable_to: 0,
            segment: 0,
        };
        self.records.push((at, header));
    }

    /// A group with a single mark, which states that `durable_to` bytes of the segment are synced.
    pub(crate) fn mark(sequence: u64, durable_to: u64, segment: u64) -> Self {
        let mut group = Self::default();
        group.add(&[], |_| SYNC_MARK, 0);
        group.stamp(sequence, durable_to, segment);
        group
    }

    /// As [`Self::mark`], padded with [`PROBE_BYTES`] bytes.
    pub(crate) fn probe(sequence: u64, durable_to: u64, segment: u64) -> Self {
        let mut group = Self::default();
        let fill = |body: &mut Vec<u8>| {
            body.resize(body.len() + PROBE_BYTES, END);
            SYNC_MARK
        };
        group.add(&[], fill, 0);
        group.stamp(sequence, durable_to, segment);
        group
    }

    /// Completes the records for a log without segments. `first_sequence` is the number of the first record.
    pub fn seal(&mut self, first_sequence: u64) {
        self.stamp(first_sequence, 0, 0);
    }

    /// Sets the header fields that are unknown before the write.
    pub(crate) fn stamp(&mut self, first_sequence: u64, durable_to: u64, segment: u64) {
        for ((at, header), sequence) in self.records.iter_mut().zip(first_sequence..) {
            header.sequence = sequence;
            header.durable_to = durable_to;
            header.segment = segment as u32;
            if let Some(to) = self.bytes.get_mut(*at..*at + HEADER) {
                to.copy_from_slice(&header.encode());
            }
        }
    }

    /// Bytes of the records, in the format of a segment.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of records.
    #[must_use]
    pub const fn record_count(&self) -> usize {
        self.records.len()
    }

    /// True without records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Removes the records and keeps up to `keep_bytes` of the buffer.
    pub(crate) fn clear(&mut self, keep_bytes: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep_bytes);
        self.records.clear();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decoding_undoes_encoding(
            row in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 1..40),
            table in "[a-z]{0,12}",
            sequence in 0..=MAX_NUMBER,
            commit_ms: i64,
        ) {
            let mut group = RecordGroup::default();
            group.push(&table, &Change::DeleteRow(Bytes::from(row.clone())), commit_ms);
            group.stamp(sequence, 77, 0x1_0000_0005);
            let bytes = group.as_bytes();
            prop_assert_eq!(bytes.len() % ALIGN, 0);
            let header = RecordHeader::decode(bytes).unwrap();
            prop_assert_eq!(header.record_len(), bytes.len());
            prop_assert_eq!(
                (header.sequence, header.commit_ms, header.durable_to, header.segment),
                (sequence, commit_ms, 77, 5)
            );
            let payload = &bytes[HEADER..];
            prop_assert!(has_end(payload));
            prop_assert_eq!(crc32c::crc32c(payload), header.payload_crc);
            let (name, body) = split_payload(header, payload).unwrap();
            prop_assert_eq!((name, body), (table.as_bytes(), row.as_slice()));
        }

        #[test]
        fn splitting_any_payload_does_not_panic(payload: Vec<u8>, table_len: u16) {
            let mut header = RecordGroup::mark(0, 0, 0).records[0].1;
            header.table_len = table_len;
            if let Some((table, body)) = split_payload(header, &payload) {
                prop_assert!(table.len() + body.len() < payload.len());
            }
        }
    }

    /// Issue 37.
    #[test]
    fn a_sequence_number_that_no_log_reaches_is_damage() {
        let decoded = |sequence| RecordHeader::decode(RecordGroup::mark(sequence, 4, 5).as_bytes());
        assert_eq!(decoded(MAX_NUMBER).map(|header| header.sequence), Some(MAX_NUMBER));
        assert_eq!(decoded(MAX_NUMBER + 1), None);
    }

    #[test]
    fn every_byte_of_a_header_is_checked() {
        let group = RecordGroup::mark(3, 4, 5);
        assert!(RecordHeader::decode(group.as_bytes()).is_some());
        for at in 0..HEADER {
            for bit in 0..8 {
                let mut bytes = group.as_bytes().to_vec();
                bytes[at] ^= 1 << bit;
                assert!(RecordHeader::decode(&bytes).is_none(), "byte {at} bit {bit}");
            }
        }
    }
}

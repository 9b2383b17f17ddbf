//! Reads the records of a segment, and tells a torn end from damage.
//!
//! A record that cannot be read has one of two causes, and they ask for opposite things:
//!
//! - **Torn**: the process or the machine stopped while the record's group was being written. Some
//!   sectors of it never came to the disk. Nobody was told that it was stored. It is cut off.
//! - **Damage**: the record was on disk, whole, and was changed since. Somebody may have been told
//!   that it was stored. It must not be passed over in silence.
//!
//! Only the last group of the last segment can be torn, for each segment says how long the one
//! before it is, and each group is written after the one before it was synced. So bad bytes are
//! damage if
//!
//! 1. the segment is not the last, or
//! 2. a readable record after them, a mark included, says that the log was on disk beyond where
//!    they begin (`durable_to`), or
//! 3. they were written to their end: a header without an unwritten (all zero) sector, with
//!    something after it, that does not match its checksum; or such a payload whose last byte,
//!    which is never zero, is there.
//!
//! Otherwise they are torn, along with what follows: records of one group come to disk in any order.
//! Rule 3 alone could take a torn write for damage, on a disk that tears writes into anything but
//! zeros and new bytes, and damage for a torn write, where a byte flips in the last group of all,
//! that group has a value with a sector of zeros in it, and the machine stopped before its mark came
//! to disk.

use super::{
    record::{ALIGN, HEADER, MARK, RecordHeader, is_ended, split_payload},
    segment::SEGMENT_HEADER,
};

/// What a disk writes whole.
const SECTOR: usize = 512;
/// A header has more bytes than this that are not zero: magic, checksums, time.
const WRITTEN_BYTES: usize = 8;

/// Something in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A record.
    Record { offset: usize, header: RecordHeader, table: &'a [u8], body: &'a [u8] },
    /// A mark: all before it was on disk, and this is the sequence number of the next record.
    Mark { offset: usize, next_sequence: u64 },
    /// Bytes that were once readable.
    Damage { from: usize, to: usize },
    /// The segment ends in a write that was never finished.
    Torn { from: usize, to: usize },
}

/// Goes over the records of a segment.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    segment: u32,
    /// Whether all of `bytes` is known to have been on disk.
    whole: bool,
    at: usize,
}

impl<'a> Walk<'a> {
    /// Walks the bytes of a segment, its header included. `whole`: it is not the last segment, and
    /// the bytes end where its successor says.
    pub(crate) const fn new(bytes: &'a [u8], segment: u64, whole: bool) -> Self {
        Self { bytes, segment: segment as u32, whole, at: SEGMENT_HEADER }
    }

    /// How far it has read.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    fn record_at(&self, at: usize) -> Option<(RecordHeader, &'a [u8], &'a [u8])> {
        let bytes = self.bytes.get(at..)?;
        let header = RecordHeader::decode(bytes)?;
        let payload = bytes.get(HEADER..header.record_len())?;
        if header.segment != self.segment || crc32c::crc32c(payload) != header.payload_crc {
            return None;
        }
        let (table, body) = split_payload(header, payload)?;
        Some((header, table, body))
    }

    /// First record from `at` on.
    fn next_record(&self, mut at: usize) -> Option<(usize, RecordHeader)> {
        at = at.next_multiple_of(ALIGN);
        while at + HEADER <= self.bytes.len() {
            if let Some((header, ..)) = self.record_at(at) {
                return Some((at, header));
            }
            at += ALIGN;
        }
        None
    }

    /// Whether a record from `at` on proves that the log was on disk beyond `bad`.
    fn is_proven(&self, bad: usize, mut at: usize) -> bool {
        while let Some((found, header)) = self.next_record(at) {
            if header.durable_to > bad as u64 {
                return true;
            }
            at = found + header.record_len();
        }
        false
    }

    /// Whether the record at `at`, which cannot be read, was written to its end. `used` is the end of
    /// what is not zero in the segment.
    fn was_written(&self, at: usize, used: usize) -> bool {
        let bytes = self.bytes.get(at..).unwrap_or_default();
        let Some(header) = RecordHeader::decode(bytes) else {
            let written = bytes.iter().take(HEADER).filter(|byte| **byte != 0).count();
            return written >= WRITTEN_BYTES
                && used > at + HEADER
                && !self.has_unwritten_sector(at, at + HEADER);
        };
        bytes.get(HEADER..header.record_len()).is_some_and(is_ended)
            && !self.has_unwritten_sector(at, at + header.record_len())
    }

    fn has_unwritten_sector(&self, mut from: usize, to: usize) -> bool {
        while from < to {
            let end = (from + 1).next_multiple_of(SECTOR).min(to);
            if self.bytes.get(from..end).is_none_or(|piece| piece.iter().all(|b| *b == 0)) {
                return true;
            }
            from = end;
        }
        false
    }

    /// What the bytes at the present place are, as they are no record.
    fn judge(&mut self) -> Option<Found<'a>> {
        let from = self.at;
        let rest = self.bytes.get(from..)?;
        let used = rest.iter().rposition(|byte| *byte != 0).map_or(from, |last| from + last + 1);
        if used == from && !self.whole {
            // Room that was set aside and never written.
            self.bytes = self.bytes.get(..from).unwrap_or_default();
            return None;
        }
        // A readable header tells where the next record is; nothing within the payload is one.
        let after = RecordHeader::decode(rest)
            .map(|header| from + header.record_len())
            .filter(|end| *end <= self.bytes.len())
            .unwrap_or(from + ALIGN);
        if !self.whole && !self.was_written(from, used) && !self.is_proven(from, after) {
            self.bytes = self.bytes.get(..from).unwrap_or_default();
            return Some(Found::Torn { from, to: used });
        }
        let to = match self.next_record(after) {
            Some((next, _)) => next,
            None if self.whole => self.bytes.len(),
            None => {
                let to = used.max(after).min(self.bytes.len());
                self.bytes = self.bytes.get(..to).unwrap_or_default();
                to
            }
        };
        self.at = to;
        Some(Found::Damage { from, to })
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let offset = self.at;
        let Some((header, table, body)) = self.record_at(offset) else { return self.judge() };
        self.at += header.record_len();
        Some(if header.kind == MARK {
            Found::Mark { offset, next_sequence: header.sequence }
        } else {
            Found::Record { offset, header, table, body }
        })
    }
}

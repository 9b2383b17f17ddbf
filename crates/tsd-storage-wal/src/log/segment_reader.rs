//! Reads the records of a segment and distinguishes a torn end from damage.
//!
//! An unreadable record has one of two causes, with different consequences:
//!
//! - **Torn write**: the process or the machine stopped while the record's group was written, so some of its
//!   sectors are missing. The group was not acknowledged, so it is truncated.
//! - **Damage**: the record was completely on disk and has changed since. It may have been acknowledged, so it is
//!   reported.
//!
//! Only the last group of the last segment can be torn: each segment states the length of the
//! previous one, and each group is written after the previous one was synced. So unreadable bytes
//! are damage if
//!
//! 1. the segment is not the last, or
//! 2. a readable record or mark after them states that the log was synced beyond their start
//!    (`durable_to`), or
//! 3. they were completely written: a header without an unwritten (all zero) sector, followed by
//!    other bytes, does not match its checksum; or such a payload has its last byte, which is never
//!    zero.
//!
//! Otherwise, they are torn, and so are the bytes after them, because the records of a group reach the disk in
//! any order. Rule 3 is a heuristic. It mistakes a torn write for damage if the disk tears writes into anything
//! but zeros and new bytes. It mistakes damage for a torn write if three conditions hold: a byte of the very last
//! group changes, that group contains a sector of zeros, and the machine stopped before its mark was on disk.

use super::{
    record::{ALIGN, HEADER, RecordHeader, SYNC_MARK, has_end, split_payload},
    segment::SEGMENT_HEADER,
};

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;
/// Minimum number of nonzero bytes in a written header: magic, checksums, time.
const MIN_NONZERO_BYTES: usize = 8;

/// An item of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentItem<'a> {
    /// A record.
    Record { offset: usize, header: RecordHeader, table: &'a [u8], body: &'a [u8] },
    /// A mark: all bytes before it are synced, and the next record has this sequence number.
    Mark { offset: usize, next_sequence: u64 },
    /// Bytes that were readable when they were written.
    Damage { from: usize, to: usize },
    /// An incomplete write at the end of the segment.
    Torn { from: usize, to: usize },
}

/// Iterates over the records of a segment.
#[derive(Debug)]
pub(crate) struct SegmentReader<'a> {
    bytes: &'a [u8],
    segment: u32,
    /// True if all of `bytes` were synced.
    is_synced: bool,
    offset: usize,
}

impl<'a> SegmentReader<'a> {
    /// Takes the bytes of a segment, including its header. `is_synced` is true if the segment is not the last
    /// one, so that the bytes end where its successor states.
    pub(crate) const fn new(bytes: &'a [u8], segment: u64, is_synced: bool) -> Self {
        Self { bytes, segment: segment as u32, is_synced, offset: SEGMENT_HEADER }
    }

    /// Takes a group outside of a segment.
    pub(crate) const fn of_group(bytes: &'a [u8]) -> Self {
        Self { bytes, segment: 0, is_synced: true, offset: 0 }
    }

    /// Offset of the next item.
    pub(crate) const fn offset(&self) -> usize {
        self.offset
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

    /// First readable record at or after `at`.
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

    /// True if a record at or after `at` states that the log was synced beyond `offset`.
    fn was_synced_beyond(&self, offset: usize, mut at: usize) -> bool {
        while let Some((found, header)) = self.next_record(at) {
            if header.durable_to > offset as u64 {
                return true;
            }
            at = found + header.record_len();
        }
        false
    }

    /// True if the unreadable record at `at` was completely written. The bytes from `used` on are zero.
    fn was_written(&self, at: usize, used: usize) -> bool {
        let bytes = self.bytes.get(at..).unwrap_or_default();
        let Some(header) = RecordHeader::decode(bytes) else {
            let written = bytes.iter().take(HEADER).filter(|byte| **byte != 0).count();
            return written >= MIN_NONZERO_BYTES
                && used > at + HEADER
                && !self.has_unwritten_sector(at, at + HEADER);
        };
        bytes.get(HEADER..header.record_len()).is_some_and(has_end)
            && !self.has_unwritten_sector(at, at + header.record_len())
    }

    fn has_unwritten_sector(&self, mut from: usize, to: usize) -> bool {
        while from < to {
            let end = (from + 1).next_multiple_of(SECTOR).min(to);
            if self.bytes.get(from..end).is_none_or(|sector| sector.iter().all(|b| *b == 0)) {
                return true;
            }
            from = end;
        }
        false
    }

    /// Classifies the unreadable bytes at the present offset.
    fn classify(&mut self) -> Option<SegmentItem<'a>> {
        let from = self.offset;
        let rest = self.bytes.get(from..)?;
        let used = from + len_without_zeros(rest);
        if used == from && !self.is_synced {
            // Preallocated bytes.
            self.bytes = self.bytes.get(..from).unwrap_or_default();
            return None;
        }
        // A readable header tells the offset of the next record.
        let after = RecordHeader::decode(rest)
            .map(|header| from + header.record_len())
            .filter(|end| *end <= self.bytes.len())
            .unwrap_or(from + ALIGN);
        if !self.is_synced && !self.was_written(from, used) && !self.was_synced_beyond(from, after)
        {
            self.bytes = self.bytes.get(..from).unwrap_or_default();
            return Some(SegmentItem::Torn { from, to: used });
        }
        let to = match self.next_record(after) {
            Some((next, _)) => next,
            None if self.is_synced => self.bytes.len(),
            None => {
                let to = used.max(after).min(self.bytes.len());
                self.bytes = self.bytes.get(..to).unwrap_or_default();
                to
            }
        };
        self.offset = to;
        Some(SegmentItem::Damage { from, to })
    }
}

impl<'a> Iterator for SegmentReader<'a> {
    type Item = SegmentItem<'a>;

    fn next(&mut self) -> Option<SegmentItem<'a>> {
        if self.offset >= self.bytes.len() {
            return None;
        }
        let offset = self.offset;
        let Some((header, table, body)) = self.record_at(offset) else { return self.classify() };
        self.offset += header.record_len();
        Some(if header.kind == SYNC_MARK {
            SegmentItem::Mark { offset, next_sequence: header.sequence }
        } else {
            SegmentItem::Record { offset, header, table, body }
        })
    }
}
/// Returns the length without the zeros at the end. It compares blocks, since most of a preallocated segment is zeros.
fn len_without_zeros(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 4096] = [0; 4096];
    let is_zero = |block: &&[u8]| ZEROS.get(..block.len()) == Some(*block);
    let zeros: usize = bytes.rchunks(ZEROS.len()).take_while(is_zero).map(<[u8]>::len).sum();
    let rest = bytes.get(..bytes.len() - zeros).unwrap_or_default();
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_at_the_end_are_not_counted() {
        for len in [0, 1, 4095, 4096, 4097, 10_000] {
            let mut bytes = vec![0; len];
            assert_eq!(len_without_zeros(&bytes), 0, "{len}");
            for last in [0, len / 2, len.saturating_sub(4097), len.saturating_sub(1)] {
                bytes.fill(0);
                let Some(byte) = bytes.get_mut(last) else { continue };
                *byte = 1;
                assert_eq!(len_without_zeros(&bytes), last + 1, "{len} {last}");
            }
        }
    }
}

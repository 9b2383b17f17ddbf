//! Checks a whole log before any of it is used.

use std::{collections::BTreeMap, io};

use super::{
    record::RecordHeader,
    segment::{SEGMENT_HEADER, SegmentHeader, segment_name, segment_of_name},
    walk::{Found, Walk},
};
use crate::{
    change::{Change, ChangeKind},
    files::LogDir,
    report::{Damage, LostRange},
};

/// A log that was read from end to end.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    /// Segments that count, oldest first.
    pub(crate) segments: Vec<VerifiedSegment>,
    /// Files that never came to count: a segment whose making failed.
    pub(crate) void: Vec<String>,
    /// Where the last segment is to be cut.
    pub(crate) tail: Option<Tail>,
    pub(crate) lost: Vec<LostRange>,
    /// Sequence number of the next record.
    pub(crate) next_sequence: u64,
    /// Number of the next segment.
    pub(crate) next_segment: u64,
}

/// A segment of a [`Verified`] log.
#[derive(Debug)]
pub(crate) struct VerifiedSegment {
    pub(crate) segment: u64,
    /// Bytes that count.
    pub(crate) len: usize,
    pub(crate) damaged: bool,
}

/// A torn end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) name: String,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Reads all segments. Changes nothing; damage is in the answer, not an error.
pub(crate) fn verify(dir: &dyn LogDir) -> io::Result<Verified> {
    let mut headers = BTreeMap::new();
    for segment in dir.list()?.iter().filter_map(|name| segment_of_name(name)) {
        let bytes = dir.read(&segment_name(segment), 0, SEGMENT_HEADER)?;
        let header = SegmentHeader::decode(&bytes).filter(|header| header.segment == segment);
        headers.insert(segment, header);
    }
    let next_segment = headers.last_key_value().map_or(1, |(last, _)| last + 1);
    let mut check = Check {
        dir,
        out: Verified { next_sequence: 1, next_segment, ..Verified::default() },
        expected: None,
    };
    let chain = check.chain(headers)?;
    for link in &chain {
        check.segment(link)?;
    }
    check.out.next_sequence = check.expected.unwrap_or(1);
    Ok(check.out)
}

/// A segment in its place.
struct Link {
    segment: u64,
    header: Option<SegmentHeader>,
    /// Its length, where a successor says it.
    len: Option<u64>,
}

struct Check<'a> {
    dir: &'a dyn LogDir,
    out: Verified,
    /// Sequence number that comes next, once one was seen.
    expected: Option<u64>,
}

impl Check<'_> {
    /// Goes from the last segment back to the first, by what each says of the one before. Segments
    /// left out on the way are those whose making failed; they were never acknowledged from.
    fn chain(
        &mut self,
        mut headers: BTreeMap<u64, Option<SegmentHeader>>,
    ) -> io::Result<Vec<Link>> {
        let mut chain = Vec::new();
        let mut len = None;
        while let Some((segment, header)) = headers.pop_last() {
            if header.is_none() && chain.is_empty() && self.was_never_made(segment)? {
                self.out.void.push(segment_name(segment));
                continue;
            }
            chain.push(Link { segment, header, len: len.take() });
            let Some(header) = header else { continue };
            while let Some(between) = headers.last_entry().filter(|e| *e.key() > header.previous) {
                self.out.void.push(segment_name(*between.key()));
                between.remove();
            }
            match headers.last_key_value() {
                Some((previous, _)) if *previous == header.previous => {
                    len = Some(header.previous_len);
                }
                // All before it is flushed and gone.
                None => {}
                Some(_) => {
                    self.lose(header.previous, Damage::MissingSegment, 0, header.previous_len);
                }
            }
        }
        chain.reverse();
        Ok(chain)
    }

    /// Whether the last segment, whose header cannot be read, was cut off while it was being made.
    fn was_never_made(&self, segment: u64) -> io::Result<bool> {
        let bytes = self.read(segment, None)?;
        let header_is_blank = bytes.iter().take(SEGMENT_HEADER).all(|byte| *byte == 0);
        let is_blank = bytes.iter().skip(SEGMENT_HEADER).all(|byte| *byte == 0);
        let has_record =
            Walk::new(&bytes, segment, true).any(|found| matches!(found, Found::Record { .. }));
        Ok(!has_record && (header_is_blank || is_blank))
    }

    fn segment(&mut self, link: &Link) -> io::Result<()> {
        let lost_before = self.out.lost.len();
        match link.header {
            None => self.lose(link.segment, Damage::SegmentHeader, 0, SEGMENT_HEADER as u64),
            Some(header) => self.expect(link.segment, header.first_sequence, SEGMENT_HEADER),
        }
        let bytes = self.read(link.segment, link.len)?;
        let mut walk = Walk::new(&bytes, link.segment, link.len.is_some());
        for found in walk.by_ref() {
            match found {
                Found::Record { offset, header, table, body } => {
                    self.expect(link.segment, header.sequence, offset);
                    self.expected = Some(header.sequence + 1);
                    if !is_known(header, table, body) {
                        let bytes = header.record_len() as u64;
                        self.lose(link.segment, Damage::UnknownRecord, offset as u64, bytes);
                    }
                }
                Found::Mark { offset, next_sequence } => {
                    self.expect(link.segment, next_sequence, offset);
                }
                Found::Damage { from, to } => {
                    let bytes = (to - from) as u64;
                    self.lose(link.segment, Damage::Record, from as u64, bytes);
                }
                Found::Torn { from, to } => {
                    let (offset, bytes) = (from as u64, (to - from) as u64);
                    let name = segment_name(link.segment);
                    self.out.tail = Some(Tail { name, offset, bytes });
                }
            }
        }
        let len = walk.position().min(bytes.len());
        if let Some(expected) = link.len
            && (bytes.len() as u64) < expected
        {
            let missing = expected - bytes.len() as u64;
            self.lose(link.segment, Damage::ShortSegment, bytes.len() as u64, missing);
        }
        let damaged = self.out.lost.len() > lost_before;
        self.out.segments.push(VerifiedSegment { segment: link.segment, len, damaged });
        Ok(())
    }

    /// Notes the sequence number that was found, and what is missing before it.
    fn expect(&mut self, segment: u64, found: u64, offset: usize) {
        let Some(expected) = self.expected else {
            self.expected = Some(found);
            return;
        };
        if found == expected {
            return;
        }
        let missing = found.checked_sub(expected);
        match self.out.lost.last_mut() {
            // The damage that was found just before is what they were in.
            Some(lost) if lost.first_sequence == Some(expected) && lost.records.is_none() => {
                lost.records = missing;
            }
            _ => {
                self.lose(segment, Damage::MissingRecords, offset as u64, 0);
                if let Some(lost) = self.out.lost.last_mut() {
                    lost.records = missing;
                }
            }
        }
        self.expected = Some(found);
    }

    fn lose(&mut self, segment: u64, what: Damage, offset: u64, bytes: u64) {
        let records = match what {
            Damage::UnknownRecord => Some(1),
            Damage::SegmentHeader => Some(0),
            _ => None,
        };
        let first_sequence = match what {
            Damage::UnknownRecord => self.expected.map(|next| next - 1),
            _ => self.expected,
        };
        self.out.lost.push(LostRange {
            file: self.dir.path().join(segment_name(segment)),
            offset,
            bytes,
            what,
            first_sequence,
            records,
        });
    }

    fn read(&self, segment: u64, len: Option<u64>) -> io::Result<Vec<u8>> {
        let len = len.map_or(usize::MAX, |len| usize::try_from(len).unwrap_or(usize::MAX));
        self.dir.read(&segment_name(segment), 0, len)
    }
}

fn is_known(header: RecordHeader, table: &[u8], body: &[u8]) -> bool {
    std::str::from_utf8(table).is_ok()
        && ChangeKind::from_byte(header.kind)
            .is_some_and(|kind| Change::decode(kind, body).is_some())
}

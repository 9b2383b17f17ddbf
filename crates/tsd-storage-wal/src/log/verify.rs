//! Verifies the whole log before any record is used.

use std::{collections::BTreeMap, convert::Infallible, io};

use super::{
    record::RecordHeader,
    segment::{SEGMENT_HEADER, SegmentHeader, segment_name, segment_of_name},
    segment_reader::{SegmentItem, SegmentReader},
};
use crate::{
    append_record::{APPEND, AppendRecord},
    change::Change,
    files::LogDir,
    report::{Damage, LostRange},
};

/// Result of a verification.
#[derive(Debug, Default)]
pub(crate) struct VerifiedLog {
    /// Segments to replay, oldest first.
    pub(crate) segments: Vec<VerifiedSegment>,
    /// Files of segments whose creation failed.
    pub(crate) unused: Vec<String>,
    /// What to remove of the last segment.
    pub(crate) tail: Option<TornWrite>,
    pub(crate) lost: Vec<LostRange>,
    /// Sequence number of the first record; unknown if there is no segment or its header is damaged.
    pub(crate) first_sequence: Option<u64>,
    /// Sequence number of the next record.
    pub(crate) next_sequence: u64,
    /// Number of the next segment.
    pub(crate) next_segment: u64,
}

/// A segment of a [`VerifiedLog`].
#[derive(Debug)]
pub(crate) struct VerifiedSegment {
    pub(crate) number: u64,
    /// Valid bytes.
    pub(crate) len: usize,
    pub(crate) damaged: bool,
    /// Length that its header states, if the file of a last segment has the header only: its creation was
    /// interrupted, or it was cut off.
    pub(crate) bare_of: Option<u64>,
    /// From its header: the first sequence number, the segment before it, and its creation time.
    /// Unknown if the header is damaged.
    pub(crate) first_sequence: Option<u64>,
    pub(crate) previous: Option<u64>,
    pub(crate) created_ms: Option<i64>,
}

/// An incomplete write at the end of the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TornWrite {
    pub(crate) name: String,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Reads all segments. Changes nothing; damage is part of the result, not an error.
pub(crate) fn verify(dir: &dyn LogDir) -> io::Result<VerifiedLog> {
    match verify_with(dir, &mut |_| Ok::<(), Infallible>(()))? {
        Ok(verified) => Ok(verified),
        Err(never) => match never {},
    }
}

/// As [`verify`]. `each` gets the bytes of each segment after it was read; its error ends the verification.
pub(crate) fn verify_with<E>(
    dir: &dyn LogDir,
    each: &mut dyn FnMut(u64) -> Result<(), E>,
) -> io::Result<Result<VerifiedLog, E>> {
    let mut headers = BTreeMap::new();
    for segment in dir.list()?.iter().filter_map(|name| segment_of_name(name)) {
        let bytes = dir.read(&segment_name(segment), 0, SEGMENT_HEADER)?;
        let header = SegmentHeader::decode(&bytes).filter(|header| header.segment == segment);
        headers.insert(segment, header);
    }
    let next_segment = headers.last_key_value().map_or(1, |(last, _)| last + 1);
    let mut verifier = Verifier {
        dir,
        result: VerifiedLog { next_sequence: 1, next_segment, ..VerifiedLog::default() },
        expected: None,
    };
    let chain = verifier.chain(headers)?;
    for link in &chain {
        verifier.segment(link)?;
        let len = verifier.result.segments.last().map_or(0, |segment| segment.len as u64);
        if let Err(ended) = each(len) {
            return Ok(Err(ended));
        }
    }
    let first = verifier.result.segments.first();
    verifier.result.first_sequence = first.and_then(|first| first.first_sequence);
    verifier.result.next_sequence = verifier.expected.unwrap_or(1);
    Ok(Ok(verifier.result))
}

/// A segment of the chain.
struct ChainedSegment {
    segment: u64,
    header: Option<SegmentHeader>,
    /// Its length, if stated by a successor.
    len: Option<u64>,
}

impl ChainedSegment {
    /// Bytes that the file has at least, as far as headers state.
    fn expected_len(&self) -> u64 {
        let stated = self.header.map_or(0, |header| u64::from(header.file_len));
        self.len.unwrap_or(stated)
    }

    /// True if the file, of so many bytes, is shorter.
    fn is_cut(&self, len: usize) -> bool {
        (len as u64) < self.expected_len()
    }
}

struct Verifier<'a> {
    dir: &'a dyn LogDir,
    result: VerifiedLog,
    /// The next sequence number; `None` before the first record.
    expected: Option<u64>,
}

impl Verifier<'_> {
    /// Follows the headers from the last segment back to the first. Segments that no header names
    /// are those whose creation failed; they contain no acknowledged record.
    fn chain(
        &mut self,
        mut headers: BTreeMap<u64, Option<SegmentHeader>>,
    ) -> io::Result<Vec<ChainedSegment>> {
        let mut chain = Vec::new();
        let mut len = None;
        while let Some((segment, header)) = headers.pop_last() {
            if header.is_none() && chain.is_empty() && self.is_unused(segment)? {
                self.result.unused.push(segment_name(segment));
                continue;
            }
            chain.push(ChainedSegment { segment, header, len: len.take() });
            let Some(header) = header else { continue };
            while let Some(between) = headers.last_entry().filter(|e| *e.key() > header.previous) {
                self.result.unused.push(segment_name(*between.key()));
                between.remove();
            }
            match headers.last_key_value() {
                Some((previous, _)) if *previous == header.previous => {
                    len = Some(header.previous_len);
                }
                // The earlier segments are flushed and removed.
                None => {}
                Some(_) => {
                    self.report(header.previous, Damage::MissingSegment, 0, header.previous_len);
                }
            }
        }
        chain.reverse();
        Ok(chain)
    }

    /// True if the creation of the last segment, whose header is unreadable, was interrupted.
    fn is_unused(&self, segment: u64) -> io::Result<bool> {
        let bytes = self.read(segment, None)?;
        let header_is_blank = bytes.iter().take(SEGMENT_HEADER).all(|byte| *byte == 0);
        let is_blank = bytes.iter().skip(SEGMENT_HEADER).all(|byte| *byte == 0);
        let has_record = SegmentReader::new(&bytes, segment, true)
            .any(|item| matches!(item, SegmentItem::Record { .. }));
        Ok(!has_record && (header_is_blank || is_blank))
    }

    fn segment(&mut self, link: &ChainedSegment) -> io::Result<()> {
        let lost_before = self.result.lost.len();
        match link.header {
            None => self.report(link.segment, Damage::SegmentHeader, 0, SEGMENT_HEADER as u64),
            Some(header) => self.expect(link.segment, header.first_sequence, SEGMENT_HEADER),
        }
        let bytes = self.read(link.segment, link.len)?;
        let mut reader = SegmentReader::new(&bytes, link.segment, link.len.is_some());
        for item in reader.by_ref() {
            match item {
                SegmentItem::Record { offset, header, table, body } => {
                    self.expect(link.segment, header.sequence, offset);
                    self.expected = Some(header.sequence + 1);
                    if !is_readable(header, table, body) {
                        let bytes = header.record_len() as u64;
                        self.report(link.segment, Damage::UnknownRecord, offset as u64, bytes);
                    }
                }
                SegmentItem::Mark { offset, next_sequence } => {
                    self.expect(link.segment, next_sequence, offset);
                }
                SegmentItem::Damage { from, to } => {
                    let bytes = (to - from) as u64;
                    self.report(link.segment, Damage::Record, from as u64, bytes);
                }
                // A file that was cut off is reported below.
                SegmentItem::Torn { .. } if link.is_cut(bytes.len()) => {}
                SegmentItem::Torn { from, to } => {
                    let (offset, bytes) = (from as u64, (to - from) as u64);
                    let name = segment_name(link.segment);
                    self.result.tail = Some(TornWrite { name, offset, bytes });
                }
            }
        }
        let len = reader.offset().min(bytes.len());
        let is_bare = link.len.is_none() && bytes.len() <= SEGMENT_HEADER;
        let bare_of = (is_bare && link.is_cut(bytes.len())).then(|| link.expected_len());
        if link.is_cut(bytes.len()) && bare_of.is_none() {
            let missing = link.expected_len() - bytes.len() as u64;
            self.report(link.segment, Damage::ShortSegment, bytes.len() as u64, missing);
        }
        let damaged = self.result.lost.len() > lost_before;
        let header = link.header;
        self.result.segments.push(VerifiedSegment {
            number: link.segment,
            len,
            damaged,
            bare_of,
            first_sequence: header.map(|header| header.first_sequence),
            previous: header.map(|header| header.previous),
            created_ms: header.map(|header| header.created_ms),
        });
        Ok(())
    }

    /// Compares a sequence number with the expected one, and reports missing records.
    fn expect(&mut self, segment: u64, found: u64, offset: usize) {
        let Some(expected) = self.expected else {
            self.expected = Some(found);
            return;
        };
        if found == expected {
            return;
        }
        let missing = found.checked_sub(expected);
        match self.result.lost.last_mut() {
            // The missing records are those of the damage reported just before.
            Some(lost) if lost.first_sequence == Some(expected) && lost.records.is_none() => {
                lost.records = missing;
            }
            _ => {
                self.report(segment, Damage::MissingRecords, offset as u64, 0);
                if let Some(lost) = self.result.lost.last_mut() {
                    lost.records = missing;
                }
            }
        }
        self.expected = Some(found);
    }

    fn report(&mut self, segment: u64, what: Damage, offset: u64, bytes: u64) {
        let records = match what {
            Damage::UnknownRecord => Some(1),
            Damage::SegmentHeader => Some(0),
            _ => None,
        };
        let first_sequence = match what {
            Damage::UnknownRecord => self.expected.map(|next| next - 1),
            _ => self.expected,
        };
        self.result.lost.push(LostRange {
            file: self.dir.path().join(segment_name(segment)),
            offset,
            bytes,
            what,
            first_sequence,
            records,
            since_ms: None,
        });
    }

    fn read(&self, segment: u64, len: Option<u64>) -> io::Result<Vec<u8>> {
        let len = len.map_or(usize::MAX, |len| usize::try_from(len).unwrap_or(usize::MAX));
        self.dir.read(&segment_name(segment), 0, len)
    }
}

/// True if this version can decode the record.
fn is_readable(header: RecordHeader, table: &[u8], body: &[u8]) -> bool {
    std::str::from_utf8(table).is_ok()
        && (Change::decode(header.kind, body).is_some()
            || header.kind == APPEND && AppendRecord::decode(body).is_some())
}

//! Verifies the whole log before any record is used.

use std::{collections::BTreeMap, convert::Infallible, io};

use tsd_files::{ReadVia, Reread, note_recovered_read, read_repeatedly};

use super::{
    closed_segment::ClosedSegment,
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
    /// Bytes to remove from the end of the last segment.
    pub(crate) tail: Option<TornWrite>,
    pub(crate) lost: Vec<LostRange>,
    /// Sequence number of the first record; unknown without segments, or if the first header is damaged.
    pub(crate) first_sequence: Option<u64>,
    /// Sequence number of the next record.
    pub(crate) next_sequence: u64,
    /// Number of the next segment.
    pub(crate) next_segment: u64,
}

impl VerifiedLog {
    /// The segments to remove after the flush of their records.
    pub(crate) fn closed_segments(&self) -> Vec<ClosedSegment> {
        self.segments.iter().map(VerifiedSegment::closed).collect()
    }
}

/// A segment of a [`VerifiedLog`].
#[derive(Debug)]
pub(crate) struct VerifiedSegment {
    pub(crate) number: u64,
    /// Number of valid bytes.
    pub(crate) len: usize,
    pub(crate) damaged: bool,
    /// Stated length of a last segment whose file has only its header, because its creation was interrupted or it
    /// was truncated.
    pub(crate) bare_of: Option<u64>,
    /// First sequence number, previous segment and creation time from the header. Unknown if the header is
    /// damaged.
    pub(crate) first_sequence: Option<u64>,
    pub(crate) previous: Option<u64>,
    pub(crate) created_ms: Option<i64>,
}

impl VerifiedSegment {
    /// The segment to remove after the flush of its records.
    pub(crate) const fn closed(&self) -> ClosedSegment {
        let Self { number, len, damaged, .. } = *self;
        ClosedSegment { number, file_len: len as u64, damaged }
    }
}

/// An incomplete write at the end of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TornWrite {
    pub(crate) name: String,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Reads all segments without any change. Damage is part of the result, not an error.
pub(crate) fn verify(dir: &dyn LogDir) -> io::Result<VerifiedLog> {
    match verify_with(dir, &mut |_| Ok::<(), Infallible>(()))? {
        Ok(verified) => Ok(verified),
        Err(never) => match never {},
    }
}

/// As [`verify`]. Calls `each` with the bytes of each segment after reading it; its error stops the verification.
pub(crate) fn verify_with<E>(
    dir: &dyn LogDir,
    each: &mut dyn FnMut(u64) -> Result<(), E>,
) -> io::Result<Result<VerifiedLog, E>> {
    let mut headers = BTreeMap::new();
    for segment in dir.list()?.iter().filter_map(|name| segment_of_name(name)) {
        let header = read_header(dir, segment)?;
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

/// The header of a segment; `None` if it is damaged.
fn read_header(dir: &dyn LogDir, segment: u64) -> io::Result<Option<SegmentHeader>> {
    let name = segment_name(segment);
    let read = |via| {
        let bytes = dir.read_via(via, &name, 0, SEGMENT_HEADER).map_err(Some)?;
        let header = SegmentHeader::decode(&bytes).filter(|header| header.segment == segment);
        header.ok_or(None)
    };
    let reread = |error: &Option<io::Error>| error.as_ref().map_or(Reread::AtOnce, Reread::after);
    match read_repeatedly(&name, read, reread) {
        Ok(header) => Ok(Some(header)),
        Err(None) => Ok(None),
        Err(Some(error)) => Err(error),
    }
}

/// A segment of the chain.
struct ChainedSegment {
    segment: u64,
    header: Option<SegmentHeader>,
    /// Length of the segment, if a successor states it.
    len: Option<u64>,
}

impl ChainedSegment {
    /// Minimum length of the file, as far as headers state it.
    fn expected_len(&self) -> u64 {
        let stated = self.header.map_or(0, |header| u64::from(header.file_len));
        self.len.unwrap_or(stated)
    }

    /// True if the file, which has `len` bytes, is too short.
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
    /// Follows the headers from the last segment back to the first. If no header names a segment, its creation
    /// failed, so it has no acknowledged record.
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
        let bytes = self.read(ReadVia::Disk, segment, None)?;
        let header_is_blank = bytes.iter().take(SEGMENT_HEADER).all(|byte| *byte == 0);
        let is_blank = bytes.iter().skip(SEGMENT_HEADER).all(|byte| *byte == 0);
        let has_record = SegmentReader::new(&bytes, segment, true)
            .any(|item| matches!(item, SegmentItem::Record { .. }));
        Ok(!has_record && (header_is_blank || is_blank))
    }

    /// Verifies a segment. If it looks damaged or torn, it is read again past the page cache, because a torn
    /// write is truncated and damage stops the start.
    fn segment(&mut self, link: &ChainedSegment) -> io::Result<()> {
        let before = (self.expected, self.result.lost.clone(), self.result.tail.clone());
        let bytes = self.read(ReadVia::PageCache, link.segment, link.len)?;
        self.check_segment(link, &bytes);
        if self.result.lost == before.1 && self.result.tail == before.2 {
            return Ok(());
        }
        let again = self.read(ReadVia::Disk, link.segment, link.len)?;
        if again != bytes {
            note_recovered_read(&segment_name(link.segment));
            (self.expected, self.result.lost, self.result.tail) = before;
            self.result.segments.pop();
            self.check_segment(link, &again);
        }
        Ok(())
    }

    fn check_segment(&mut self, link: &ChainedSegment, bytes: &[u8]) {
        let lost_before = self.result.lost.len();
        match link.header {
            None => self.report(link.segment, Damage::SegmentHeader, 0, SEGMENT_HEADER as u64),
            Some(header) => self.expect(link.segment, header.first_sequence, SEGMENT_HEADER),
        }
        let mut reader = SegmentReader::new(bytes, link.segment, link.len.is_some());
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
                // A truncated file is reported below.
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
    }

    /// Compares a sequence number with the expected one and reports missing records.
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
            // The missing records belong to the damage that was just reported.
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

    fn read(&self, via: ReadVia, segment: u64, len: Option<u64>) -> io::Result<Vec<u8>> {
        let len = len.map_or(usize::MAX, |len| usize::try_from(len).unwrap_or(usize::MAX));
        let name = segment_name(segment);
        match via {
            ReadVia::PageCache => self.dir.read(&name, 0, len),
            ReadVia::Disk => {
                let read = |_| self.dir.read_via(via, &name, 0, len);
                read_repeatedly(&name, read, Reread::after)
            }
        }
    }
}

/// True if this version can decode the record.
fn is_readable(header: RecordHeader, table: &[u8], body: &[u8]) -> bool {
    std::str::from_utf8(table).is_ok()
        && (Change::decode(header.kind, body).is_some()
            || header.kind == APPEND && AppendRecord::decode(body).is_some())
}

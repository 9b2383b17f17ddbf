//! What was sent and what was acknowledged, and so what a reader must find.
//!
//! Keys and values follow from a writer and a number, and each writer acknowledges its numbers in
//! order: two counters a writer are the whole memory of what must be there, however long it goes.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Family of all columns.
pub(crate) const FAMILY: &[u8] = b"f";
/// Time of all cells of rows, so that a repeated put is the same put.
pub(crate) const TIMESTAMP: u64 = 1_700_000_000_000;
/// Rows at which a table is split: the first byte of keys is a hexadecimal digit.
pub(crate) const SPLITS: [&str; 5] = ["3", "6", "9", "b", "e"];

/// Cells of each sixteenth row: more than an answer of the scans here holds.
const WIDE: u64 = 12;

/// Key of a row: numbers that follow each other are far apart, so that a batch meets all regions.
pub(crate) fn key(writer: usize, number: u64) -> String {
    let place = (number * 157 + writer as u64 * 31) & 0xff;
    format!("{place:02x}-{writer}-{number:08}")
}

/// Writer and number of a row; `None` for rows of other kinds.
pub(crate) fn parse_key(key: &[u8]) -> Option<(usize, u64)> {
    let mut parts = std::str::from_utf8(key).ok()?.split('-').skip(1);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Qualifiers and values of a row.
pub(crate) fn cells(writer: usize, number: u64) -> impl Iterator<Item = (String, String)> {
    let count = if number.is_multiple_of(16) { WIDE } else { 1 };
    (0..count).map(move |at| (format!("q{at:02}"), format!("{writer}/{number}/{at}")))
}

/// Two counters for each writer.
#[derive(Debug)]
pub(crate) struct Ledger {
    tracks: Vec<Track>,
}

#[derive(Debug, Default)]
struct Track {
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

impl Ledger {
    /// For so many writers.
    pub(crate) fn new(writers: usize) -> Self {
        Self { tracks: (0..writers).map(|_| Track::default()).collect() }
    }

    /// All numbers below `until` are about to be sent.
    pub(crate) fn send(&self, writer: usize, until: u64) {
        self.tracks[writer].sent.store(until, SeqCst);
    }

    /// All numbers below `until` were acknowledged.
    pub(crate) fn acknowledge(&self, writer: usize, until: u64) {
        self.tracks[writer].acknowledged.store(until, SeqCst);
    }

    /// Numbers sent by each writer.
    pub(crate) fn sent(&self) -> Vec<u64> {
        self.tracks.iter().map(|track| track.sent.load(SeqCst)).collect()
    }

    /// Numbers acknowledged to each writer.
    pub(crate) fn acknowledged(&self) -> Vec<u64> {
        self.tracks.iter().map(|track| track.acknowledged.load(SeqCst)).collect()
    }

    /// What was acknowledged so far, of all writers.
    pub(crate) fn total(&self) -> u64 {
        self.acknowledged().iter().sum()
    }
}

/// What a scan must show: the rows that were acknowledged before it began.
#[derive(Debug)]
pub(crate) struct Audit {
    seen: Vec<Vec<bool>>,
    /// One more than the highest number that showed, by writer.
    ends: Vec<u64>,
    last: Option<Vec<u8>>,
    reversed: bool,
    rows: u64,
    disorder: Vec<String>,
}

/// What a scan showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Rows of writers.
    pub(crate) rows: u64,
    /// Rows that were acknowledged before and did not show.
    pub(crate) missing: u64,
    /// Rows twice, out of order, with other cells than were written, or never written.
    pub(crate) wrong: u64,
    /// The first few of both kinds.
    pub(crate) examples: Vec<String>,
}

impl Verdict {
    /// Whether the scan was as it must be.
    pub(crate) const fn is_good(&self) -> bool {
        self.missing == 0 && self.wrong == 0
    }
}

impl Audit {
    /// Begins with what is acknowledged now.
    pub(crate) fn begin(ledger: &Ledger, reversed: bool) -> Self {
        let acknowledged = ledger.acknowledged();
        let seen = acknowledged.iter().map(|&rows| vec![false; rows as usize]).collect();
        let ends = vec![0; acknowledged.len()];
        Self { seen, ends, last: None, reversed, rows: 0, disorder: Vec::new() }
    }

    /// Takes a row of the scan in.
    pub(crate) fn row<'a>(
        &mut self,
        key: &[u8],
        found: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) {
        let text = String::from_utf8_lossy(key);
        if let Some(last) = &self.last {
            let in_order = if self.reversed { key < &last[..] } else { key > &last[..] };
            if !in_order {
                self.disorder.push(format!("{text} after {}", String::from_utf8_lossy(last)));
            }
        }
        self.last = Some(key.to_vec());
        let Some((writer, number)) = parse_key(key) else { return };
        self.rows += 1;
        let expected = cells(writer, number);
        let found: Vec<_> = found.collect();
        let same = expected.map(|(qualifier, value)| (qualifier.into_bytes(), value.into_bytes()));
        if !same.eq(found.iter().map(|(qualifier, value)| (qualifier.to_vec(), value.to_vec()))) {
            self.disorder.push(format!("{text} with {} other cells", found.len()));
        }
        if let Some(end) = self.ends.get_mut(writer) {
            *end = (*end).max(number + 1);
        }
        let seen = self.seen.get_mut(writer).and_then(|seen| seen.get_mut(number as usize));
        if let Some(seen) = seen
            && std::mem::replace(seen, true)
        {
            self.disorder.push(format!("{text} twice"));
        }
    }

    /// Ends with what the scan should have shown.
    pub(crate) fn end(mut self, ledger: &Ledger) -> Verdict {
        for (writer, (end, sent)) in self.ends.iter().zip(ledger.sent()).enumerate() {
            if *end > sent {
                self.disorder.push(format!("{} was never sent", key(writer, end - 1)));
            }
        }
        let missing = self.seen.iter().enumerate().flat_map(|(writer, seen)| {
            let absent = seen.iter().enumerate().filter(|(_, seen)| !**seen);
            absent.map(move |(number, _)| format!("{} missing", key(writer, number as u64)))
        });
        let missing: Vec<_> = missing.collect();
        let examples = missing.iter().chain(&self.disorder).take(5).cloned().collect();
        Verdict {
            rows: self.rows,
            missing: missing.len() as u64,
            wrong: self.disorder.len() as u64,
            examples,
        }
    }
}

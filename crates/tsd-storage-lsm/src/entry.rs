//! Encoding of the values of tree entries.
//!
//! ```text
//! run of a row's cells = header u8 | (length, packed run) * | cell *
//!     header: 20 version, 10 plain cells follow the runs, 0F number of packed runs. Without plain
//!     cells the last run has no length and ends with the value.
//! cell                 = family u8 | qualifier length | value length | timestamp | qualifier |
//!                        value
//! single cell          = timestamp | value          (layout `Cells`)
//! ```
//!
//! Lengths are varints (seven bits per byte), timestamps zigzag varints.

use bytes::Bytes;
use tsd_model::{Cell, Family, PackablePoint, PackedRun, RunEncoder, RunShape};
use tsd_storage::{FlushCell, decode_family};

const VERSION: u8 = 0x20;
const VERSION_MASK: u8 = 0xE0;
const HAS_CELLS: u8 = 0x10;
const MAX_RUNS: usize = 15;

/// Encodes entries; reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct EntryEncoder {
    seconds: RunEncoder,
    millis: RunEncoder,
    column: RunEncoder,
    runs: Vec<u8>,
    ends: Vec<usize>,
    cells: Vec<u8>,
}

impl EntryEncoder {
    /// Encodes cells of a row, sorted by column, each column once.
    pub(crate) fn encode<'a>(&mut self, cells: impl Iterator<Item = FlushCell<'a>>) -> Vec<u8> {
        self.seconds.clear();
        self.millis.clear();
        self.runs.clear();
        self.ends.clear();
        self.cells.clear();
        for cell in cells {
            if cell.family != Family::T || !self.pack(&cell) {
                put_cell(&cell, &mut self.cells);
            }
        }
        for singles in [&mut self.seconds, &mut self.millis] {
            if !singles.is_empty() && singles.finish(RunShape::Singles, &mut self.runs).is_ok() {
                self.ends.push(self.runs.len());
            }
        }
        self.assemble()
    }

    /// Adds a point or a compacted column to a run; returns false if a run cannot represent the
    /// cell.
    fn pack(&mut self, cell: &FlushCell<'_>) -> bool {
        if let Some(point) = PackablePoint::try_from_cell(cell.qualifier, cell.value) {
            let run = if point.is_millis() { &mut self.millis } else { &mut self.seconds };
            return run.push(point, cell.timestamp_ms).is_ok();
        }
        // Two runs of single points may follow the columns.
        if cell.qualifier.len() < 4 || self.ends.len() + 2 >= MAX_RUNS {
            return false;
        }
        let packed = self.column.encode_compacted(
            cell.qualifier,
            cell.value,
            cell.timestamp_ms,
            &mut self.runs,
        );
        if packed.is_ok() {
            self.ends.push(self.runs.len());
        }
        packed.is_ok()
    }

    fn assemble(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.runs.len() + self.cells.len() + 8);
        let only_runs = self.cells.is_empty();
        out.push(VERSION | if only_runs { 0 } else { HAS_CELLS } | self.ends.len() as u8);
        let mut start = 0;
        for (i, &end) in self.ends.iter().enumerate() {
            if !only_runs || i + 1 < self.ends.len() {
                put_varint((end - start) as u64, &mut out);
            }
            out.extend_from_slice(self.runs.get(start..end).unwrap_or_default());
            start = end;
        }
        out.extend_from_slice(&self.cells);
        out
    }
}

fn put_cell(cell: &FlushCell<'_>, out: &mut Vec<u8>) {
    out.push(cell.family as u8);
    put_varint(cell.qualifier.len() as u64, out);
    put_varint(cell.value.len() as u64, out);
    put_varint(zigzag(cell.timestamp_ms), out);
    out.extend_from_slice(cell.qualifier);
    out.extend_from_slice(cell.value);
}

/// Decodes an entry, appending to `cells` and `runs`. They are slices of the entry: nothing is
/// copied.
pub(crate) fn decode(
    entry: &Bytes,
    cells: &mut Vec<Cell>,
    runs: &mut Vec<PackedRun>,
) -> Result<(), &'static str> {
    const TRUNCATED: &str = "truncated";
    let mut cursor = Cursor { bytes: entry, offset: 0 };
    let header = cursor.byte().ok_or(TRUNCATED)?;
    if header & VERSION_MASK != VERSION {
        return Err("unknown version");
    }
    let count = usize::from(header & 0x0F);
    let only_runs = header & HAS_CELLS == 0;
    for i in 0..count {
        let length = if only_runs && i + 1 == count {
            entry.len() - cursor.offset
        } else {
            cursor.varint().ok_or(TRUNCATED)? as usize
        };
        let bytes = cursor.slice(length).ok_or(TRUNCATED)?;
        runs.push(PackedRun::open(bytes).map_err(|_| "damaged run")?);
    }
    while cursor.offset < entry.len() {
        cells.push(cursor.cell().ok_or(TRUNCATED)?);
    }
    Ok(())
}

/// Encodes the entry of a single cell.
pub(crate) fn encode_single(value: &[u8], timestamp_ms: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 7);
    put_varint(zigzag(timestamp_ms), &mut out);
    out.extend_from_slice(value);
    out
}

/// Decodes the entry of a single cell: its timestamp and value.
pub(crate) fn decode_single(entry: &Bytes) -> Option<(i64, Bytes)> {
    let mut cursor = Cursor { bytes: entry, offset: 0 };
    let timestamp_ms = unzigzag(cursor.varint()?);
    Some((timestamp_ms, entry.slice(cursor.offset..)))
}

struct Cursor<'a> {
    bytes: &'a Bytes,
    offset: usize,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.offset).copied()?;
        self.offset += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut v = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            v |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(v);
            }
        }
        None
    }

    fn slice(&mut self, length: usize) -> Option<Bytes> {
        let end = self.offset.checked_add(length).filter(|&end| end <= self.bytes.len())?;
        let slice = self.bytes.slice(self.offset..end);
        self.offset = end;
        Some(slice)
    }

    fn cell(&mut self) -> Option<Cell> {
        let family = decode_family(self.byte()?)?;
        let [qualifier, value] = [self.varint()?, self.varint()?];
        let timestamp_ms = unzigzag(self.varint()?);
        let qualifier = self.slice(usize::try_from(qualifier).ok()?)?;
        let value = self.slice(usize::try_from(value).ok()?)?;
        Some(Cell { family, qualifier, value, timestamp_ms })
    }
}

fn put_varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

const fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

const fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn cells_of(entry: Vec<u8>) -> (Vec<Cell>, usize) {
        let (mut cells, mut runs) = (Vec::new(), Vec::new());
        decode(&entry.into(), &mut cells, &mut runs).unwrap();
        for run in &runs {
            run.expand_into(&mut cells).unwrap();
        }
        cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
        (cells, runs.len())
    }

    #[track_caller]
    fn check(cells: &[(Family, Vec<u8>, Vec<u8>, i64)], runs: usize) {
        let flushed = cells.iter().map(|(family, qualifier, value, timestamp_ms)| FlushCell {
            family: *family,
            qualifier,
            value,
            timestamp_ms: *timestamp_ms,
        });
        let (got, got_runs) = cells_of(EntryEncoder::default().encode(flushed));
        let got: Vec<_> = got
            .into_iter()
            .map(|c| (c.family, c.qualifier.to_vec(), c.value.to_vec(), c.timestamp_ms))
            .collect();
        assert_eq!(got, cells);
        assert_eq!(got_runs, runs);
    }

    #[test]
    fn every_kind_of_cell_is_decoded_unchanged() {
        let t = Family::T;
        check(&[], 0);
        check(&[(t, vec![0, 0], vec![1], 5)], 1);
        check(
            &[
                (Family::Name, vec![0, 0], vec![1], -5),
                // Points, compacted columns, two points with the same time, an unusual width, an
                // annotation, milliseconds.
                (t, vec![0, 0], vec![1], 5),
                (t, vec![0, 0x10, 0, 0x20], vec![1, 2, 0], 7),
                (t, vec![0, 0x10, 0, 0x30], vec![1, 2, 1], 7),
                (t, vec![0, 0x20], vec![1], 6),
                (t, vec![0, 0x21], vec![1, 0], 6),
                (t, vec![0, 0x31], vec![0, 1], 6),
                (t, vec![1, 0, 0], b"{}".to_vec(), 8),
                (t, vec![0xF0, 0, 0, 0x40], vec![9], 9),
            ],
            3,
        );
        let columns: Vec<_> = (0..20_u8)
            .map(|i| (t, vec![i, 0x10, i, 0x20], vec![1, 2, 0], 7))
            .chain([(t, vec![0xEF, 0], vec![1], 1), (t, vec![0xF0, 0, 0, 0], vec![1], 1)])
            .collect();
        // One of the points is beyond the hour and stays a plain cell.
        check(&columns, 14);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_decode_to_cells_or_an_error(
            header in 0x20_u8..0x40,
            bytes in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            for bytes in [bytes.clone(), [&[header], bytes.as_slice()].concat()] {
                let (mut cells, mut runs) = (Vec::new(), Vec::new());
                let bytes = Bytes::from(bytes);
                let _ = decode(&bytes, &mut cells, &mut runs);
                let _ = decode_single(&bytes);
            }
        }
    }
}

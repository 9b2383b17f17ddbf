//! Divides a read of many series, so that several threads have about the same work.
//!
//! Only heads of sections and a few of their series blocks are read. The largest section decides, because the
//! other sections of a span have the same series, or few.

use std::sync::Arc;

use crate::{
    cursor::Names,
    damage::DamageUse,
    error::PartError,
    part::BlockUse,
    section_reader::SectionReader,
    snapshot::{Snapshot, SnapshotSection},
};

/// Maximum number of sections whose heads are read.
const MAX_SECTIONS: usize = 8;
/// Cost of a series in addition to its bytes, in bytes.
const SERIES_COST: u64 = 64;

/// Series that divide a range into at most `ranges` ranges of about the same size, in order. `series` has the
/// first series and the one after the last. `bases` has the first and the last base time, inclusive. Each range
/// has at least about `min_bytes` bytes.
pub(crate) fn split_points(
    snapshot: &Snapshot,
    series: (&[u8], Option<&[u8]>),
    bases: (u32, u32),
    (ranges, min_bytes): (usize, u64),
) -> Result<Vec<Vec<u8>>, PartError> {
    let first_span = snapshot.layout().span_of(bases.0);
    let spans = snapshot.spans().range(first_span..=bases.1.max(first_span));
    let mut sections: Vec<&SnapshotSection> = spans.flat_map(|(_, sections)| sections).collect();
    sections.sort_by_key(|section| std::cmp::Reverse(section.bytes));
    sections.truncate(MAX_SECTIONS);
    let mut largest: Option<(u64, Section)> = None;
    for section in sections {
        let section = Section::open(section, series)?;
        let bytes = section.bytes();
        if largest.as_ref().is_none_or(|(most, _)| bytes > *most) {
            largest = Some((bytes, section));
        }
    }
    let Some((bytes, section)) = largest else { return Ok(Vec::new()) };
    let count = (ranges as u64).min(bytes / min_bytes.max(1));
    let mut points = Vec::new();
    for part in 1..count {
        let ordinal = section.ordinal_at(u128::from(bytes) * u128::from(part) / u128::from(count));
        if let Some(series) = ordinal.map(|ordinal| section.name(ordinal)).transpose()?
            && points.last().is_none_or(|last| *last < series)
        {
            points.push(series);
        }
    }
    Ok(points)
}

/// A section and the ordinals that the read wants, with an exclusive end.
struct Section {
    reader: SectionReader,
    from: u32,
    to: u32,
}

impl Section {
    fn open(
        section: &SnapshotSection,
        (first, end): (&[u8], Option<&[u8]>),
    ) -> Result<Self, PartError> {
        let (part, how) = (Arc::clone(&section.part), BlockUse::Cached);
        let reader = SectionReader::open(part, section.section, how, DamageUse::default())?;
        let (from, to) = reader.ordinals(first, end)?;
        Ok(Self { reader, from, to })
    }

    /// Wanted ordinals of each data block, with the bytes of the block.
    fn blocks(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        self.reader.head.data_blocks.iter().filter_map(|block| {
            let from = block.range.first_ordinal.max(self.from);
            let to = block.range.last_ordinal.saturating_add(1).min(self.to);
            let count = u64::from(to.checked_sub(from).filter(|count| *count > 0)?);
            Some((from, to, u64::from(block.block.len) + count * SERIES_COST))
        })
    }

    fn bytes(&self) -> u64 {
        self.blocks().map(|(.., bytes)| bytes).sum()
    }

    /// The ordinal with about this many bytes before it; `None` if it is the first ordinal.
    fn ordinal_at(&self, bytes: u128) -> Option<u32> {
        let mut before = 0;
        for (from, to, of_block) in self.blocks() {
            let of_block = u128::from(of_block);
            if before + of_block > bytes {
                let passed = u128::from(to - from) * (bytes - before) / of_block;
                let ordinal = from + u32::try_from(passed).unwrap_or(0);
                return (ordinal > self.from).then_some(ordinal);
            }
            before += of_block;
        }
        None
    }

    /// The series of an ordinal.
    fn name(&self, ordinal: u32) -> Result<Vec<u8>, PartError> {
        let mut names = Names::default();
        let series = names.find(&self.reader, ordinal)?;
        Ok(series.unwrap_or_default().to_vec())
    }
}

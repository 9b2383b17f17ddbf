//! A section of a part, with what is needed to read its blocks.

use std::sync::Arc;

use crate::{
    damage::DamageUse,
    error::PartError,
    part::{BlockUse, Part},
    section::SectionHead,
    series_block::SeriesBlock,
};

/// Offset and contents of a series block; `None` if its names are lost.
type FoundNames = (u64, Option<SeriesBlock>);

/// A section whose head is read.
#[derive(Clone, Debug)]
pub(crate) struct SectionReader {
    pub(crate) part: Arc<Part>,
    pub(crate) head: Arc<SectionHead>,
    /// Start of the span, epoch seconds.
    pub(crate) span: u32,
    pub(crate) how: BlockUse,
    pub(crate) damage: DamageUse,
}

impl SectionReader {
    /// Reads the head of a section.
    pub(crate) fn open(
        part: Arc<Part>,
        section: usize,
        how: BlockUse,
        damage: DamageUse,
    ) -> Result<Self, PartError> {
        let head = part.head(section, how)?;
        let span = part.span(section)?;
        Ok(Self { part, head, span, how, damage })
    }

    /// Ordinals of the series from `first` to `end`, exclusive; `None` ends after the last series.
    pub(crate) fn ordinals(
        &self,
        first: &[u8],
        end: Option<&[u8]>,
    ) -> Result<(u32, u32), PartError> {
        let mut names = None;
        let from = self.bound(first, &mut names)?;
        let to = end.map_or(Ok(self.head.series), |end| self.bound(end, &mut names))?;
        Ok((from, to))
    }

    /// Ordinal of the first series at or after `series`. If the names of that block are lost and the reader skips
    /// damage, it is the second ordinal of the block: the first name of the block is less than `series`. `names`
    /// keeps the block of the search before.
    fn bound(&self, series: &[u8], names: &mut Option<FoundNames>) -> Result<u32, PartError> {
        let Self { part, head, how, damage, .. } = self;
        let Some(place) = block_of(head, series).and_then(|index| head.series_blocks.get(index))
        else {
            return Ok(0);
        };
        if *place.first == *series {
            return Ok(place.first_ordinal);
        }
        let block = match names {
            Some((offset, block)) if *offset == place.block.offset => block,
            names => {
                let read = || part.read_series(&place.block, *how);
                let block = damage.read(part, &place.block, read)?;
                &mut names.insert((place.block.offset, block)).1
            }
        };
        let Some(block) = block else { return Ok(place.first_ordinal + 1) };
        let (index, _) =
            block.search(series, &mut Vec::new()).map_err(part.malformed(place.block.offset))?;
        Ok(place.first_ordinal + index as u32)
    }
}

/// Index of the only series block that can have `series`; `None` if `series` is before the first block.
pub(crate) fn block_of(head: &SectionHead, series: &[u8]) -> Option<usize> {
    head.series_blocks.partition_point(|b| b.first.as_ref() <= series).checked_sub(1)
}

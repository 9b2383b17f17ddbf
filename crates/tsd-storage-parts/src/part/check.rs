//! Verifies the bytes of a part.

use tsd_files::read_checked;

use super::{BlockUse, Part, footer::FIRST_BLOCK};
use crate::{
    block::DataBlock,
    error::{Malformed, PartError},
    merge_signal::MergeCheckpoint,
    section::{BlockRef, DataBlockRef},
    writer::{MAGIC, TAIL},
};

impl Part {
    /// Fails if one copy of a footer or head is damaged, even if the other is intact.
    pub(crate) fn verify_copies(&self) -> Result<(), PartError> {
        if let Some((offset, what)) = self.damaged_copy {
            return Err(self.malformed(offset)(Malformed(what)));
        }
        let Some((heads_at, footer_at)) = self.copies else { return Ok(()) };
        let start = self.sections.last().map_or(FIRST_BLOCK, |last| last.head.end());
        let footer_len = self.len.saturating_sub(TAIL as u64 + footer_at) as usize;
        let mut bytes =
            vec![0; usize::try_from(heads_at.saturating_sub(start)).unwrap_or_default()];
        let is_intact = |bytes: &[u8]| {
            let (copy, apart) = bytes.split_at_checked(footer_len).unwrap_or_default();
            crc32c::crc32c(copy) == self.footer_crc && apart.iter().all(|byte| *byte == 0)
        };
        let file = self.file()?;
        let read = |via, bytes: &mut [u8]| file.read_exact_via(via, start, bytes);
        let copy = read_checked(&self.name, &mut bytes, read, is_intact);
        copy.map_err(|_| self.malformed(start)(Malformed("the copy of the footer")))?;
        for (index, place) in self.sections.iter().enumerate() {
            let Some(copy) = self.head_copy(index) else { continue };
            self.read_verified(&copy)?;
            self.read_verified(&place.head)?;
        }
        Ok(())
    }

    /// Reads and decodes every byte of the file. The error names the file and the offset of the first damage.
    pub fn verify(&self) -> Result<(), PartError> {
        self.verify_copies()?;
        let mut next = if self.copies.is_some() { FIRST_BLOCK } else { MAGIC.len() as u64 };
        for (index, section) in self.sections.iter().enumerate() {
            let end = section.head.end();
            if end.checked_sub(section.bytes) != Some(next) {
                return Err(self.malformed(next)(Malformed("bytes that belong to no block")));
            }
            self.verify_section(index, &[], &mut |_| Ok(()))?;
            next = end;
        }
        Ok(())
    }

    /// Reads and decodes every byte of a section. The error names the file and the offset of the first damage
    /// outside the blocks at the `known` offsets. `checkpoint` gets the number of bytes since its last call; its
    /// error stops the check.
    pub(crate) fn verify_section(
        &self,
        index: usize,
        known: &[u64],
        checkpoint: &mut dyn FnMut(u64) -> Result<(), PartError>,
    ) -> Result<(), PartError> {
        let section = *self.section(index)?;
        let head = self.head(index, BlockUse::Once)?;
        checkpoint(u64::from(section.head.len))?;
        let mut places = vec![section.head];
        for series in &head.series_blocks {
            if !known.contains(&series.block.offset) {
                self.verify_series(&series.block)?;
            }
            checkpoint(u64::from(series.block.len))?;
            places.push(series.block);
        }
        for data in head.data_blocks.iter().chain(&head.summary_blocks) {
            if !known.contains(&data.block.offset) {
                self.verify_data(section.span, data)?;
            }
            checkpoint(u64::from(data.block.len))?;
            places.push(data.block);
        }
        places.sort_by_key(|place| place.offset);
        let mut next = section.head.end().saturating_sub(section.bytes);
        for place in places {
            if place.offset != next {
                return Err(self.malformed(next)(Malformed("bytes that belong to no block")));
            }
            next = place.end();
        }
        Ok(())
    }

    /// Reads and decodes the block of a section that begins at an offset. Fails if the block is damaged or
    /// missing.
    pub(crate) fn verify_block(&self, index: usize, offset: u64) -> Result<(), PartError> {
        let (head, span) = (self.head(index, BlockUse::Once)?, self.span(index)?);
        if let Some(series) = head.series_blocks.iter().find(|b| b.block.offset == offset) {
            return self.verify_series(&series.block);
        }
        let mut data = head.data_blocks.iter().chain(&head.summary_blocks);
        match data.find(|data| data.block.offset == offset) {
            Some(data) => self.verify_data(span, data),
            None => Err(self.malformed(offset)(Malformed("no block begins there"))),
        }
    }

    /// Offsets of the damaged blocks of a section, sorted. Fails if the head of the section is damaged. Calls
    /// `checkpoint` before each block.
    pub(crate) fn damaged_blocks(
        &self,
        index: usize,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<Vec<u64>, PartError> {
        let head = self.head(index, BlockUse::Once)?;
        let mut damaged = Vec::new();
        for offset in head.offsets() {
            checkpoint()?;
            match self.verify_block(index, offset) {
                Ok(()) => {}
                Err(error) if error.is_damage() => damaged.push(offset),
                Err(error) => return Err(error),
            }
        }
        damaged.sort_unstable();
        Ok(damaged)
    }

    fn verify_series(&self, block: &BlockRef) -> Result<(), PartError> {
        let mut walk = self.read_series(block, BlockUse::Once)?.walk();
        while walk.next().map_err(self.malformed(block.offset))?.is_some() {}
        Ok(())
    }

    fn verify_data(&self, span: u32, data: &DataBlockRef) -> Result<(), PartError> {
        let mut block = DataBlock::default();
        self.read_data(span, data, BlockUse::Once, &mut block)?;
        for entry in block.directory() {
            block.chunk(entry).check(span).map_err(self.malformed(data.block.offset))?;
        }
        Ok(())
    }
}

//! The head of a section, which locates its series and data blocks.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    block::BlockRange,
    error::Malformed,
    wire::{Cursor, put_varint},
};

/// Position and checksum of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRef {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) crc: u32,
}

impl BlockRef {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.len));
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        Ok(Self { offset: cursor.varint()?, len: cursor.varint_u32()?, crc: cursor.u32()? })
    }

    pub(crate) const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len as u64)
    }
}

/// A series block of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeriesBlockRef {
    pub(crate) first_ordinal: u32,
    pub(crate) first: Bytes,
    pub(crate) block: BlockRef,
}

/// A data block of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataBlockRef {
    pub(crate) range: BlockRange,
    pub(crate) block: BlockRef,
}

/// Contents of a block of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// Names of the series with these ordinals.
    Series(Range<u32>),
    /// Chunks of series.
    Data(BlockRange),
    /// Summaries of chunks.
    Summaries,
}

/// The head of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SectionHead {
    /// Number of series. Ordinals start at 0.
    pub(crate) series: u32,
    /// In ascending order of series.
    pub(crate) series_blocks: Vec<SeriesBlockRef>,
    /// In ascending order of ordinals.
    pub(crate) data_blocks: Vec<DataBlockRef>,
    /// Blocks of summaries, in ascending order of ordinals. Each series is in at most one of them.
    pub(crate) summary_blocks: Vec<DataBlockRef>,
}

impl SectionHead {
    pub(crate) fn encode(&self, span: u32, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.series));
        put_varint(out, self.series_blocks.len() as u64);
        let ends = self.series_blocks.iter().skip(1).map(|b| b.first_ordinal);
        for (block, end) in self.series_blocks.iter().zip(ends.chain([self.series])) {
            put_varint(out, u64::from(end - block.first_ordinal));
            put_varint(out, block.first.len() as u64);
            out.extend_from_slice(&block.first);
            block.block.put(out);
        }
        put_blocks(&self.data_blocks, span, out);
        if !self.summary_blocks.is_empty() {
            put_blocks(&self.summary_blocks, span, out);
        }
    }

    pub(crate) fn decode(bytes: &[u8], span: u32) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let mut head = Self { series: cursor.varint_u32()?, ..Self::default() };
        let mut first_ordinal = 0_u32;
        for _ in 0..cursor.varint()? {
            let count = cursor.varint_u32()?;
            let len = cursor.varint_u32()? as usize;
            let first = Bytes::copy_from_slice(cursor.take(len)?);
            let block = BlockRef::read(&mut cursor)?;
            head.series_blocks.push(SeriesBlockRef { first_ordinal, first, block });
            first_ordinal = first_ordinal
                .checked_add(count)
                .filter(|_| count > 0)
                .ok_or(Malformed("number of series"))?;
        }
        if first_ordinal != head.series
            || !head.series_blocks.is_sorted_by(|a, b| a.first < b.first)
        {
            return Err(Malformed("series of a section"));
        }
        head.data_blocks = read_blocks(&mut cursor, head.series, span)?;
        if cursor.remaining() > 0 {
            head.summary_blocks = read_blocks(&mut cursor, head.series, span)?;
        }
        if cursor.remaining() > 0 {
            return Err(Malformed("bytes after the head of a section"));
        }
        Ok(head)
    }

    /// Contents of the block at an offset; `None` if no block of the section begins there.
    pub(crate) fn block_at(&self, offset: u64) -> Option<BlockKind> {
        if let Some(at) = self.series_blocks.iter().position(|b| b.block.offset == offset) {
            let first = self.series_blocks.get(at)?.first_ordinal;
            let end = self.series_blocks.get(at + 1).map_or(self.series, |next| next.first_ordinal);
            return Some(BlockKind::Series(first..end));
        }
        let is_at = |block: &&DataBlockRef| block.block.offset == offset;
        if let Some(data) = self.data_blocks.iter().find(is_at) {
            return Some(BlockKind::Data(data.range));
        }
        self.summary_blocks.iter().find(is_at).map(|_| BlockKind::Summaries)
    }

    /// Offsets of all blocks.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = u64> {
        let data = self.data_blocks.iter().chain(&self.summary_blocks).map(|data| data.block);
        let series = self.series_blocks.iter().map(|series| series.block);
        series.chain(data).map(|block| block.offset)
    }

    /// Allocated size, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.series_blocks.iter().map(|b| b.first.len() + 64).sum::<usize>()
            + (self.data_blocks.capacity() + self.summary_blocks.capacity())
                * size_of::<DataBlockRef>()
    }
}

fn put_blocks(blocks: &[DataBlockRef], span: u32, out: &mut Vec<u8>) {
    put_varint(out, blocks.len() as u64);
    for DataBlockRef { range, block } in blocks {
        put_varint(out, u64::from(range.first_ordinal));
        put_varint(out, u64::from(range.last_ordinal - range.first_ordinal));
        put_varint(out, u64::from(range.first_base - span));
        put_varint(out, u64::from(range.last_base - range.first_base));
        block.put(out);
    }
}

fn read_blocks(
    cursor: &mut Cursor<'_>,
    series: u32,
    span: u32,
) -> Result<Vec<DataBlockRef>, Malformed> {
    let mut blocks = Vec::new();
    let mut last = 0;
    for _ in 0..cursor.varint()? {
        let first_ordinal = cursor.varint_u32()?;
        let ordinals = cursor.varint_u32()?;
        let [first_base, secs] = [cursor.varint_u32()?, cursor.varint_u32()?];
        let last_ordinal =
            first_ordinal.checked_add(ordinals).filter(|&o| o < series && first_ordinal >= last);
        let first_base = span.checked_add(first_base);
        let last_base = first_base.and_then(|first| first.checked_add(secs));
        let (Some(last_ordinal), Some(first_base), Some(last_base)) =
            (last_ordinal, first_base, last_base)
        else {
            return Err(Malformed("range of a data block"));
        };
        let range = BlockRange { first_ordinal, last_ordinal, first_base, last_base };
        blocks.push(DataBlockRef { range, block: BlockRef::read(cursor)? });
        last = last_ordinal;
    }
    Ok(blocks)
}

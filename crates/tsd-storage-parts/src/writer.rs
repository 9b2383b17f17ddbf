//! Writes a part file: sections in order of spans, series in order, chunks of a series in order of time. It holds
//! one block and the heads of one section in memory.

use std::{io, mem, ops::RangeInclusive, path::PathBuf};

use bytes::Bytes;
use tsd_files::{StoreDir, StoreFile};
use tsd_model::PackedChunk;

use crate::{
    block::BlockBuilder,
    chunk::{ChunkKind, EncodedChunk},
    error::PartError,
    layout::PartLayout,
    section::{BlockRef, DataBlockRef, SectionHead, SeriesBlockRef},
    series_block::SeriesBlockBuilder,
    summarizer::Summarizer,
    wire::put_varint,
};

/// First and last eight bytes of a part.
pub(crate) const MAGIC: &[u8; 8] = b"SLTPART\x01";
pub(crate) const END_MAGIC: &[u8; 8] = b"SLTPEND\x01";
/// Readable versions: 1 has no summaries, 2 has summaries, 3 also has copies of the footer and heads.
pub(crate) const VERSIONS: RangeInclusive<u8> = 1..=VERSION_COPIES;
pub(crate) const VERSION_COPIES: u8 = 3;
/// Length of the tail: footer length, footer checksum and magic.
pub(crate) const TAIL: usize = 16;
/// Length of the reference after the first magic: offset of the footer's copy, its length and its checksum.
pub(crate) const COPY_REF: usize = 16;
/// Minimum size of a file with a gap between its two footers, so that one disk sector cannot have both.
const APART_FILE_BYTES: u64 = 128 << 10;
pub(crate) const APART_BYTES: u64 = 4 << 10;

/// Size at which a data block is closed. A chunk is never divided, so a block may be larger.
const DATA_BLOCK_BYTES: usize = 16 * 1024;
const SERIES_BLOCK_BYTES: usize = 4 * 1024;
/// Bytes per write call.
const WRITE_BYTES: usize = 256 * 1024;

/// A section, as the footer lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionRef {
    pub(crate) span: u32,
    pub(crate) chunks: u64,
    pub(crate) points: u64,
    /// Total bytes of all blocks of the section.
    pub(crate) bytes: u64,
    pub(crate) head: BlockRef,
}

/// A part that is being written. If it is dropped without [`Self::finish`], a partial file remains, which no
/// manifest lists.
#[derive(Debug)]
pub(crate) struct PartWriter {
    path: PathBuf,
    file: Box<dyn StoreFile>,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    /// Offset in the file after the buffer.
    offset: u64,
    layout: PartLayout,
    sequences: (u64, u64),
    sections: Vec<SectionRef>,
    section: Option<OpenSection>,
    /// Heads of all sections, for their copies.
    heads: Vec<u8>,
    data: BlockBuilder,
    series: SeriesBlockBuilder,
    summaries: BlockBuilder,
    summarizer: Summarizer,
    scratch: Vec<u8>,
}

/// Target of a part that is only measured.
#[derive(Debug)]
struct DiscardedFile;

impl StoreFile for DiscardedFile {
    fn zero_from(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct OpenSection {
    span: u32,
    start: u64,
    head: SectionHead,
    chunks: u64,
    points: u64,
}

impl PartWriter {
    pub(crate) fn create(
        dir: &dyn StoreDir,
        name: &str,
        layout: PartLayout,
        sequences: (u64, u64),
    ) -> Result<Self, PartError> {
        let path = dir.path().join(name);
        let file = dir.create(name).map_err(PartError::io("create", &path))?;
        Self::begin(file, path, layout, sequences)
    }

    /// A part that is written nowhere, to learn its size from [`Self::finish`].
    pub(crate) fn measure(layout: PartLayout, sequences: (u64, u64)) -> Result<Self, PartError> {
        Self::begin(Box::new(DiscardedFile), PathBuf::new(), layout, sequences)
    }

    fn begin(
        file: Box<dyn StoreFile>,
        path: PathBuf,
        layout: PartLayout,
        sequences: (u64, u64),
    ) -> Result<Self, PartError> {
        let mut writer = Self {
            path,
            file,
            buffer: Vec::new(),
            offset: 0,
            layout,
            sequences,
            sections: Vec::new(),
            section: None,
            heads: Vec::new(),
            data: BlockBuilder::default(),
            series: SeriesBlockBuilder::default(),
            summaries: BlockBuilder::default(),
            summarizer: Summarizer::default(),
            scratch: Vec::new(),
        };
        writer.write(MAGIC)?;
        // A placeholder until the reference is known.
        writer.write(&[0; COPY_REF])?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PartError> {
        self.buffer.extend_from_slice(bytes);
        self.offset += bytes.len() as u64;
        if self.buffer.len() >= WRITE_BYTES { self.write_buffer() } else { Ok(()) }
    }

    fn write_buffer(&mut self) -> Result<(), PartError> {
        let start = self.offset - self.buffer.len() as u64;
        self.file.write_at(start, &self.buffer).map_err(PartError::io("write", &self.path))?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes `scratch` as a block.
    fn write_scratch(&mut self) -> Result<BlockRef, PartError> {
        let bytes = mem::take(&mut self.scratch);
        let block = BlockRef {
            offset: self.offset,
            len: u32::try_from(bytes.len()).map_err(|_| PartError::Row("a block over 4 GiB"))?,
            crc: crc32c::crc32c(&bytes),
        };
        self.write(&bytes)?;
        self.scratch = bytes;
        self.scratch.clear();
        Ok(block)
    }

    /// Bytes so far, including unwritten ones.
    pub(crate) fn size(&self) -> u64 {
        let pending = self.data.len() + self.series.len() + self.summaries.len() + self.heads.len();
        self.offset + pending as u64
    }

    /// Begins the section of a later span.
    pub(crate) fn begin_section(&mut self, span: u32) -> Result<(), PartError> {
        self.end_section()?;
        debug_assert!(self.sections.last().is_none_or(|s| s.span < span), "spans ascend");
        self.data.begin(span);
        self.summaries.begin(span);
        let (start, head) = (self.offset, SectionHead::default());
        self.section = Some(OpenSection { span, start, head, chunks: 0, points: 0 });
        Ok(())
    }

    /// Adds a series with its chunks in order of time. Series ascend.
    pub(crate) fn series(
        &mut self,
        series: &[u8],
        chunks: &[EncodedChunk],
    ) -> Result<(), PartError> {
        let Some(section) = &mut self.section else {
            return Err(PartError::Row("a series outside of a section"));
        };
        if chunks.is_empty() {
            return Ok(());
        }
        let (span, ordinal) = (section.span, section.head.series);
        section.head.series += 1;
        section.chunks += chunks.len() as u64;
        section.points += chunks.iter().map(|c| c.points).sum::<u64>();
        self.series.push(series);
        for chunk in chunks {
            let bases = (chunk.first_base, chunk.last_base);
            self.data.push(ordinal, chunk.kind, bases, &chunk.payload);
            if self.data.len() >= DATA_BLOCK_BYTES {
                self.end_data_block()?;
            }
        }
        if self.layout.span_secs() == PartLayout::DAY_SECS
            && let Some((bases, summaries)) = self.summarizer.summarize(span, chunks)
        {
            self.summaries.push(ordinal, ChunkKind::Summaries, bases, summaries);
        }
        if self.summaries.len() >= DATA_BLOCK_BYTES {
            self.end_summary_block()?;
        }
        if self.series.len() >= SERIES_BLOCK_BYTES {
            self.end_series_block()?;
        }
        Ok(())
    }

    fn end_data_block(&mut self) -> Result<(), PartError> {
        if self.data.is_empty() {
            return Ok(());
        }
        let range = self.data.finish(&mut self.scratch);
        let block = self.write_scratch()?;
        if let Some(section) = &mut self.section {
            section.head.data_blocks.push(DataBlockRef { range, block });
        }
        Ok(())
    }

    fn end_summary_block(&mut self) -> Result<(), PartError> {
        if self.summaries.is_empty() {
            return Ok(());
        }
        let range = self.summaries.finish(&mut self.scratch);
        let block = self.write_scratch()?;
        if let Some(section) = &mut self.section {
            section.head.summary_blocks.push(DataBlockRef { range, block });
        }
        Ok(())
    }

    fn end_series_block(&mut self) -> Result<(), PartError> {
        let count = self.series.count() as u32;
        if count == 0 {
            return Ok(());
        }
        let first = Bytes::copy_from_slice(self.series.first());
        self.series.finish(&mut self.scratch);
        let block = self.write_scratch()?;
        if let Some(section) = &mut self.section {
            let first_ordinal = section.head.series - count;
            section.head.series_blocks.push(SeriesBlockRef { first_ordinal, first, block });
        }
        Ok(())
    }

    fn end_section(&mut self) -> Result<(), PartError> {
        self.end_data_block()?;
        self.end_summary_block()?;
        self.end_series_block()?;
        let Some(section) = self.section.take() else { return Ok(()) };
        if section.head.series == 0 {
            return Ok(());
        }
        section.head.encode(section.span, &mut self.scratch);
        self.heads.extend_from_slice(&self.scratch);
        let head = self.write_scratch()?;
        self.sections.push(SectionRef {
            span: section.span,
            chunks: section.chunks,
            points: section.points,
            bytes: self.offset - section.start,
            head,
        });
        Ok(())
    }

    /// Writes the footer and makes the file durable, but not its directory entry. Returns the size of the file in
    /// bytes.
    pub(crate) fn finish(mut self) -> Result<u64, PartError> {
        self.end_section()?;
        let mut footer = vec![VERSION_COPIES, self.layout.base_time_at()];
        put_varint(&mut footer, u64::from(self.layout.span_secs()));
        put_varint(&mut footer, self.sequences.0);
        put_varint(&mut footer, self.sequences.1);
        put_varint(&mut footer, self.sections.len() as u64);
        for section in &self.sections {
            put_varint(&mut footer, u64::from(section.span));
            put_varint(&mut footer, section.chunks);
            put_varint(&mut footer, section.points);
            put_varint(&mut footer, section.bytes);
            section.head.put(&mut footer);
        }
        let (len, crc) = (footer.len() as u32, crc32c::crc32c(&footer));
        // The copies: first the footer, then the heads, which end where the footer begins.
        let copy_at = self.offset;
        self.write(&footer)?;
        let heads = mem::take(&mut self.heads);
        let is_large = copy_at >= APART_FILE_BYTES;
        let apart = if is_large { APART_BYTES.saturating_sub(heads.len() as u64) } else { 0 };
        self.write(&vec![0; apart as usize])?;
        self.write(&heads)?;
        footer.extend_from_slice(&len.to_le_bytes());
        footer.extend_from_slice(&crc.to_le_bytes());
        footer.extend_from_slice(END_MAGIC);
        self.write(&footer)?;
        self.write_buffer()?;
        let mut copy = copy_at.to_le_bytes().to_vec();
        copy.extend_from_slice(&len.to_le_bytes());
        copy.extend_from_slice(&crc.to_le_bytes());
        let failed = PartError::io("write", &self.path);
        self.file.write_at(MAGIC.len() as u64, &copy).map_err(failed)?;
        self.file.sync_data().map_err(PartError::io("sync", &self.path))?;
        Ok(self.offset)
    }
}

/// Number of points of a packed chunk; 0 for anything else.
pub(crate) fn point_count(kind: ChunkKind, payload: &Bytes, span: u32) -> u64 {
    match kind {
        ChunkKind::Points => {
            PackedChunk::open(payload.clone(), span).map_or(0, |chunk| chunk.point_count() as u64)
        }
        ChunkKind::Cells | ChunkKind::Tombstones | ChunkKind::Summaries => 0,
    }
}

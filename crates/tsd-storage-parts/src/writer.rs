//! Writes a part file: sections in order of their spans, series in order, chunks of a series in order
//! of time. It holds one block and the heads of one section in memory.

use std::{io, mem, path::PathBuf};

use bytes::Bytes;
use tsd_model::PackedChunk;
use tsd_storage::{StoreDir, StoreFile};

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
/// Version of a part without summaries, and of one with them.
pub(crate) const VERSION: u8 = 1;
pub(crate) const VERSION_SUMMARIES: u8 = 2;
/// Footer length, footer checksum and magic.
pub(crate) const TAIL: usize = 16;

/// Data blocks are closed at this size. A chunk is never divided, so a block may be larger.
const DATA_BLOCK_BYTES: usize = 16 * 1024;
const SERIES_BLOCK_BYTES: usize = 4 * 1024;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 256 * 1024;

/// A section in the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionRef {
    pub(crate) span: u32,
    pub(crate) chunks: u64,
    pub(crate) points: u64,
    /// Bytes of all blocks of the section.
    pub(crate) bytes: u64,
    pub(crate) head: BlockRef,
}

/// A part that is being written. Dropped without [`Self::finish`] it leaves a partial file, which no
/// manifest lists.
#[derive(Debug)]
pub(crate) struct PartWriter {
    path: PathBuf,
    file: Box<dyn StoreFile>,
    /// Not written yet.
    buffer: Vec<u8>,
    /// With the buffer.
    offset: u64,
    layout: PartLayout,
    sequences: (u64, u64),
    sections: Vec<SectionRef>,
    section: Option<OpenSection>,
    data: BlockBuilder,
    series: SeriesBlockBuilder,
    summaries: BlockBuilder,
    summarizer: Summarizer,
    has_summaries: bool,
    scratch: Vec<u8>,
}

/// The file of a part that is only measured.
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

    /// A part that is written nowhere: [`Self::finish`] returns its size.
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
            data: BlockBuilder::default(),
            series: SeriesBlockBuilder::default(),
            summaries: BlockBuilder::default(),
            summarizer: Summarizer::default(),
            has_summaries: false,
            scratch: Vec::new(),
        };
        writer.write(MAGIC)?;
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

    /// Bytes so far, with those that are not written yet.
    pub(crate) fn size(&self) -> u64 {
        let pending = self.data.len() + self.series.len() + self.summaries.len();
        self.offset + pending as u64
    }

    /// Begins the section of a later span.
    pub(crate) fn begin_section(&mut self, span: u32) -> Result<(), PartError> {
        self.end_section()?;
        debug_assert!(self.sections.last().is_none_or(|s| s.span < span), "spans ascend");
        let (start, head) = (self.offset, SectionHead::default());
        self.section = Some(OpenSection { span, start, head, chunks: 0, points: 0 });
        Ok(())
    }

    /// Adds a series, greater than those before, with its chunks in order of time.
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
            self.data.push(span, ordinal, chunk.kind, bases, &chunk.payload);
            if self.data.len() >= DATA_BLOCK_BYTES {
                self.end_data_block()?;
            }
        }
        if self.layout.span_secs() == PartLayout::DAY_SECS
            && let Some((bases, summaries)) = self.summarizer.summarize(span, chunks)
        {
            self.summaries.push(span, ordinal, ChunkKind::Summaries, bases, summaries);
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
        self.has_summaries = true;
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

    /// Writes the footer and makes the file durable; returns its size in bytes. Its directory entry is
    /// not durable yet.
    pub(crate) fn finish(mut self) -> Result<u64, PartError> {
        self.end_section()?;
        let version = if self.has_summaries { VERSION_SUMMARIES } else { VERSION };
        let mut footer = vec![version, self.layout.base_time_at()];
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
        footer.extend_from_slice(&len.to_le_bytes());
        footer.extend_from_slice(&crc.to_le_bytes());
        footer.extend_from_slice(END_MAGIC);
        self.write(&footer)?;
        self.write_buffer()?;
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

//! Copies the intact data of a damaged section to a new part.
//!
//! The head of a section has the checksum of every block. Without its head, a section is lost; otherwise, only
//! damaged blocks are. A damaged data block loses its chunks. A damaged series block loses its series, because
//! their names are unknown; the head still has the first name.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    block::DataBlock,
    chunk::{ChunkKind, ChunkView, EncodedChunk},
    error::PartError,
    merge_signal::MergeCheckpoint,
    part::{BlockUse, Part},
    section::SectionHead,
    series_block::SeriesWalk,
    writer::{PartWriter, point_count},
};

/// How much of a section is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionLoss {
    /// Lost packed points.
    pub points: u64,
    /// Packed points of the section.
    pub all_points: u64,
    /// Damaged blocks, including the head.
    pub blocks: u64,
    /// Blocks of the section; 1 if its head is damaged.
    pub all_blocks: u64,
}

impl SectionLoss {
    /// Adds the loss of another section.
    pub(crate) const fn add(&mut self, other: Self) {
        self.points += other.points;
        self.all_points += other.all_points;
        self.blocks += other.blocks;
        self.all_blocks += other.all_blocks;
    }
}

/// Called with a series and its intact chunks.
type EachSeries<'a> = &'a mut dyn FnMut(&[u8], &[EncodedChunk]) -> Result<(), PartError>;

/// Copies the intact data of a section to a new section of the same span. Returns the loss.
pub(crate) fn copy_section(
    part: &Part,
    index: usize,
    writer: &mut PartWriter,
) -> Result<SectionLoss, PartError> {
    writer.begin_section(part.span(index)?)?;
    walk_intact(part, index, &mut || Ok(()), &mut |series, chunks| writer.series(series, chunks))
}

/// Determines the loss of a section. Calls `checkpoint` before each block.
pub(crate) fn assess_section(
    part: &Part,
    index: usize,
    checkpoint: MergeCheckpoint<'_>,
) -> Result<SectionLoss, PartError> {
    walk_intact(part, index, checkpoint, &mut |_, _| Ok(()))
}

/// Reads every block of a section and calls `each` for its intact data: series in order, with their chunks in
/// order of time.
fn walk_intact(
    part: &Part,
    index: usize,
    checkpoint: MergeCheckpoint<'_>,
    each: EachSeries<'_>,
) -> Result<SectionLoss, PartError> {
    let all_points = part.section_points(index);
    let mut loss = SectionLoss { points: all_points, all_points, blocks: 1, all_blocks: 1 };
    let Some(head) = intact(part.head(index, BlockUse::Once))? else { return Ok(loss) };
    loss.blocks = 0;
    let blocks = head.series_blocks.len() + head.data_blocks.len() + head.summary_blocks.len();
    loss.all_blocks += blocks as u64;
    let span = part.span(index)?;
    let mut names = Names::new(part, &head);
    let mut block = DataBlock::default();
    let mut pending: (u32, Vec<EncodedChunk>) = (0, Vec::new());
    for place in &head.data_blocks {
        checkpoint()?;
        if intact(part.read_data(span, place, BlockUse::Once, &mut block))?.is_none() {
            loss.blocks += 1;
            continue;
        }
        let mut is_whole = true;
        for entry in block.directory() {
            if entry.ordinal != pending.0 {
                loss.points -= names.emit(&mut pending, each)?;
                pending.0 = entry.ordinal;
            }
            match checked(&block.chunk(entry), span) {
                Some(chunk) => pending.1.push(chunk),
                None => is_whole = false,
            }
        }
        loss.blocks += u64::from(!is_whole);
    }
    loss.points -= names.emit(&mut pending, each)?;
    // Damaged summaries lose nothing, because the copy computes them again.
    for place in &head.summary_blocks {
        checkpoint()?;
        let read = part.read_data(span, place, BlockUse::Once, &mut block);
        loss.blocks += u64::from(intact(read)?.is_none());
    }
    while names.next_block < head.series_blocks.len() {
        checkpoint()?;
        names.load()?;
    }
    loss.blocks += names.damaged;
    Ok(loss)
}

/// The value; `None` if the file is damaged there.
fn intact<T>(read: Result<T, PartError>) -> Result<Option<T>, PartError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The chunk to copy; `None` if it cannot be decoded.
fn checked(chunk: &ChunkView, span: u32) -> Option<EncodedChunk> {
    chunk.check(span).ok()?;
    let payload = Bytes::clone(&chunk.payload);
    Some(EncodedChunk {
        kind: chunk.kind,
        first_base: chunk.first_base,
        last_base: chunk.last_base,
        points: point_count(chunk.kind, &payload, span),
        payload,
    })
}

/// Resolves ascending ordinals to series, as far as series blocks are intact.
struct Names<'a> {
    part: &'a Part,
    head: &'a Arc<SectionHead>,
    /// Index of the block after the one of the walk.
    next_block: usize,
    /// `None` if the block is damaged.
    walk: Option<SeriesWalk>,
    /// Ordinal after that of the last name that the walk returned.
    next: u32,
    /// Number of damaged blocks.
    damaged: u64,
    /// The series that was emitted last. Series of a section ascend.
    last: Option<Vec<u8>>,
}

impl<'a> Names<'a> {
    const fn new(part: &'a Part, head: &'a Arc<SectionHead>) -> Self {
        Self { part, head, next_block: 0, walk: None, next: 0, damaged: 0, last: None }
    }

    /// Emits and empties the chunks of a series, if its name is known. Returns the number of emitted points.
    fn emit(
        &mut self,
        (ordinal, chunks): &mut (u32, Vec<EncodedChunk>),
        each: EachSeries<'_>,
    ) -> Result<u64, PartError> {
        let chunks = std::mem::take(chunks);
        if chunks.is_empty() || !self.seek(*ordinal)? {
            return Ok(0);
        }
        let Some(last) = &self.last else { return Ok(0) };
        each(last, &chunks)?;
        Ok(chunks.iter().map(|chunk| chunk.points).sum())
    }

    /// Sets `last` to the series of an ordinal greater than all earlier ones; false if its name is lost.
    fn seek(&mut self, ordinal: u32) -> Result<bool, PartError> {
        let blocks = &self.head.series_blocks;
        let index = blocks.partition_point(|block| block.first_ordinal <= ordinal);
        while self.next_block < index {
            self.load()?;
        }
        let Some(place) = index.checked_sub(1).and_then(|index| blocks.get(index)) else {
            return Ok(false);
        };
        let mut found: Option<&[u8]> = None;
        if let Some(walk) = &mut self.walk {
            while self.next <= ordinal {
                match walk.next() {
                    Ok(Some(_)) => self.next += 1,
                    _ => return Ok(false),
                }
            }
            found = Some(walk.current());
        } else if place.first_ordinal == ordinal {
            found = Some(&place.first);
        }
        let Some(found) = found else { return Ok(false) };
        if self.last.as_deref().is_some_and(|last| last >= found) {
            return Ok(false);
        }
        self.last = Some(found.to_vec());
        Ok(true)
    }

    /// Loads the next series block.
    fn load(&mut self) -> Result<(), PartError> {
        let Some(place) = self.head.series_blocks.get(self.next_block) else { return Ok(()) };
        self.next_block += 1;
        self.next = place.first_ordinal;
        self.walk = None;
        match intact(self.part.read_series(&place.block, BlockUse::Once))? {
            Some(block) if is_decodable(block.walk()) => self.walk = Some(block.walk()),
            _ => self.damaged += 1,
        }
        Ok(())
    }
}

fn is_decodable(mut walk: SeriesWalk) -> bool {
    loop {
        match walk.next() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

impl ChunkView {
    /// Decodes the chunk. `span` is the start of the span.
    pub(crate) fn check(&self, span: u32) -> Result<(), crate::error::Malformed> {
        match self.kind {
            ChunkKind::Points => {
                let mut points = Vec::new();
                tsd_model::PackedChunk::open(self.payload.clone(), span)
                    .and_then(|packed| packed.points_into(&mut points))
                    .map_err(crate::error::Malformed::from)
            }
            ChunkKind::Cells => self.cells(span, |_, _| {}),
            ChunkKind::Tombstones => self.tombstones(span, |_, _| {}),
            ChunkKind::Summaries => {
                let fold = tsd_model::SummaryFold::Ends;
                tsd_model::DaySummaries::decode(&self.payload, span, fold)
                    .map(|_| ())
                    .map_err(crate::error::Malformed::from)
            }
        }
    }
}

//! A data block whose directory is decoded where a reader needs it.
//!
//! A block of sparse series has hundreds of chunks. Each read of a few of its series would decode all entries of
//! the directory. Marks let it start near the first one.

use std::sync::Arc;

use bytes::Bytes;

use super::{BlockRange, DirectoryEntry, read_chunk_count};
use crate::{chunk::ChunkView, error::Malformed, wire::Cursor};

/// Distance between two marked entries of a directory.
const MARKED_ENTRIES: u64 = 16;

/// A place in a directory: the state of its decoder before an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Ordinal of the entry before.
    ordinal: u32,
    /// Offset of the entry in the block.
    at: u32,
    /// Start of the chunk in the payload.
    start: u32,
}

/// A block whose directory was verified, for many readers.
#[derive(Debug)]
pub(crate) struct MarkedBlock {
    bytes: Bytes,
    /// Offset in the file.
    offset: u64,
    span: u32,
    /// Offset of the payload, which follows the directory.
    payload: u32,
    /// The first entry and every sixteenth after it.
    marks: Box<[Mark]>,
}

impl MarkedBlock {
    /// Verifies the whole directory. `span` is the start of the span.
    pub(crate) fn open(
        bytes: Bytes,
        offset: u64,
        span: u32,
        range: &BlockRange,
    ) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(&bytes);
        let chunks = read_chunk_count(&mut cursor, &bytes)?;
        let mut marks = Vec::with_capacity(chunks.div_ceil(MARKED_ENTRIES) as usize);
        let (mut ordinal, mut start) = (range.first_ordinal, 0);
        for index in 0..chunks {
            if index.is_multiple_of(MARKED_ENTRIES) {
                let at = (bytes.len() - cursor.remaining()) as u32;
                marks.push(Mark { ordinal, at, start });
            }
            let entry = DirectoryEntry::read(&mut cursor, span, (ordinal, start))?;
            (ordinal, start) = entry.next(range.last_ordinal)?;
        }
        if cursor.remaining() != start as usize {
            return Err(Malformed("length of a block"));
        }
        let payload = (bytes.len() - cursor.remaining()) as u32;
        Ok(Self { bytes, offset, span, payload, marks: marks.into() })
    }

    /// Allocated size, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val::<[Mark]>(&self.marks)
    }

    /// The entry at a mark, and the mark of the entry after it; `None` after the last entry.
    fn entry(&self, mark: Mark) -> Option<(DirectoryEntry, Mark)> {
        let rest = self.bytes.get(mark.at as usize..self.payload as usize)?;
        let mut cursor = Cursor::new(rest);
        // Cannot fail, because `open` has decoded the same bytes.
        let entry =
            DirectoryEntry::read(&mut cursor, self.span, (mark.ordinal, mark.start)).ok()?;
        let at = self.payload - cursor.remaining() as u32;
        Some((entry, Mark { ordinal: entry.ordinal, at, start: mark.start + entry.len }))
    }
}

/// A walk over the entries of a block. The default walk has ended.
#[derive(Debug, Default)]
pub(crate) struct BlockWalk {
    block: Option<Arc<MarkedBlock>>,
    /// The entry at the walk; `None` after the last.
    entry: Option<DirectoryEntry>,
    /// The mark of the entry after it.
    next: Mark,
}

impl BlockWalk {
    /// A walk that begins at the first entry.
    pub(crate) fn new(block: Arc<MarkedBlock>) -> Self {
        let first = block.marks.first().copied();
        let mut walk = Self { block: Some(block), ..Self::default() };
        if let Some(first) = first {
            walk.next = first;
            walk.advance();
        }
        walk
    }

    /// Ordinal of the series of the entry; `None` after the last entry.
    pub(crate) fn ordinal(&self) -> Option<u32> {
        self.entry.map(|entry| entry.ordinal)
    }

    /// The chunk of the entry, if a row of it may have one of these base times.
    pub(crate) fn chunk(&self, bases: (u32, u32)) -> Option<ChunkView> {
        let (block, entry) = (self.block.as_ref()?, self.entry?);
        if bases.1 < entry.first_base || entry.last_base < bases.0 {
            return None;
        }
        // In bounds, because `open` checked the sum of all lengths.
        let start = (block.payload + entry.start) as usize;
        Some(ChunkView {
            kind: entry.kind,
            first_base: entry.first_base,
            last_base: entry.last_base,
            payload: block.bytes.slice(start..start + entry.len as usize),
            block: block.offset,
        })
    }

    /// Moves to the next entry.
    pub(crate) fn advance(&mut self) {
        let next = self.block.as_ref().and_then(|block| block.entry(self.next));
        self.entry = next.map(|(entry, _)| entry);
        self.next = next.map_or(self.next, |(_, after)| after);
    }

    /// Moves forward to the first entry of `ordinal` or of a later series.
    pub(crate) fn seek(&mut self, ordinal: u32) {
        if self.ordinal().is_none_or(|current| current >= ordinal) {
            return;
        }
        if let Some(block) = &self.block {
            // The entries before these marks are of earlier series.
            let before = block.marks.partition_point(|mark| mark.ordinal < ordinal);
            let mark = before.checked_sub(1).and_then(|last| block.marks.get(last));
            if let Some(mark) = mark.filter(|mark| mark.at > self.next.at) {
                self.next = *mark;
                self.advance();
            }
        }
        while self.ordinal().is_some_and(|current| current < ordinal) {
            self.advance();
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::{
        block::{BlockBuilder, DataBlock},
        chunk::ChunkKind,
    };

    const SPAN: u32 = 86_400;

    proptest! {
        #[test]
        fn walks_find_the_chunks_of_a_whole_directory(
            steps in prop::collection::vec((0_u32..3, 0_u32..40, 0_u32..10, 0_usize..5), 1..200),
            wanted in prop::collection::btree_set(0_u32..450, 0..40),
            bases in (0_u32..60, 0_u32..60),
        ) {
            let mut builder = BlockBuilder::default();
            builder.begin(SPAN);
            let mut ordinal = 7;
            for (step, first, length, len) in steps {
                ordinal += step;
                let first = SPAN + first * 1_800;
                let payload = vec![ordinal as u8; len];
                builder.push(ordinal, ChunkKind::Points, (first, first + length * 1_800), &payload);
            }
            let mut bytes = Vec::new();
            let range = builder.finish(&mut bytes);
            let bytes = Bytes::from(bytes);
            let mut whole = DataBlock::default();
            whole.load(bytes.clone(), 9, SPAN, &range).unwrap();
            let block = Arc::new(MarkedBlock::open(bytes, 9, SPAN, &range).unwrap());
            let bases = (SPAN + bases.0 * 1_800, SPAN + bases.1 * 1_800);
            let plain = |chunk: ChunkView| {
                (chunk.kind, chunk.first_base, chunk.last_base, chunk.payload, chunk.block)
            };
            let mut walk = BlockWalk::new(Arc::clone(&block));
            for entry in whole.directory() {
                prop_assert_eq!(walk.ordinal(), Some(entry.ordinal));
                let chunk = whole.chunk(entry);
                let overlaps = chunk.first_base <= bases.1 && bases.0 <= chunk.last_base;
                prop_assert_eq!(walk.chunk(bases).map(plain), overlaps.then(|| plain(chunk)));
                walk.advance();
            }
            prop_assert_eq!(walk.ordinal(), None);
            let mut walk = BlockWalk::new(block);
            for wanted in wanted {
                walk.seek(wanted);
                let found = whole.directory().iter().find(|entry| entry.ordinal >= wanted);
                prop_assert_eq!(walk.ordinal(), found.map(|entry| entry.ordinal));
                let first = found.map(|entry| plain(whole.chunk(entry)));
                prop_assert_eq!(walk.chunk((0, u32::MAX)).map(plain), first);
            }
        }

        #[test]
        fn a_block_is_rejected_as_by_a_whole_directory(
            bytes in prop::collection::vec(prop_oneof![0_u8..5, any::<u8>()], 0..120),
        ) {
            let range =
                BlockRange { first_ordinal: 0, last_ordinal: 9, first_base: 0, last_base: SPAN };
            let bytes = Bytes::from(bytes);
            let loaded = DataBlock::default().load(bytes.clone(), 0, SPAN, &range);
            let opened = MarkedBlock::open(bytes, 0, SPAN, &range);
            prop_assert_eq!(loaded.map_err(|error| error.0), opened.map(|_| ()).map_err(|e| e.0));
        }
    }
}

//! Data blocks: a few KiB of chunks of consecutive series, read and verified as a whole.

mod marked;

use bytes::Bytes;

pub(crate) use self::marked::{BlockWalk, MarkedBlock};
use crate::{
    chunk::{ChunkKind, ChunkView},
    error::Malformed,
    wire::{Cursor, put_varint},
};

const HOUR_SECS: u32 = 3_600;
/// Flag in the kind of a chunk: its base times are counted in hours, not seconds.
const HOURS: u8 = 0x80;

/// Collects the chunks of one block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    /// Start of the span, epoch seconds.
    span: u32,
    directory: Vec<u8>,
    payload: Vec<u8>,
    chunks: u64,
    first_ordinal: u32,
    last_ordinal: u32,
    first_base: u32,
    last_base: u32,
}

/// Description of a block in the head of its section, except for its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRange {
    pub(crate) first_ordinal: u32,
    pub(crate) last_ordinal: u32,
    pub(crate) first_base: u32,
    pub(crate) last_base: u32,
}

impl BlockBuilder {
    pub(crate) const fn is_empty(&self) -> bool {
        self.chunks == 0
    }

    pub(crate) const fn len(&self) -> usize {
        self.directory.len() + self.payload.len()
    }

    /// Sets the span of the chunks that follow.
    pub(crate) const fn begin(&mut self, span: u32) {
        self.span = span;
    }

    /// Adds a chunk. Ordinals never decrease. Base times are epoch seconds within the span.
    pub(crate) fn push(
        &mut self,
        ordinal: u32,
        kind: ChunkKind,
        bases: (u32, u32),
        payload: &[u8],
    ) {
        if self.is_empty() {
            (self.first_ordinal, self.last_ordinal) = (ordinal, ordinal);
            (self.first_base, self.last_base) = bases;
        }
        self.first_base = self.first_base.min(bases.0);
        self.last_base = self.last_base.max(bases.1);
        put_varint(&mut self.directory, u64::from(ordinal - self.last_ordinal));
        self.last_ordinal = ordinal;
        let (first, length) = (bases.0 - self.span, bases.1 - bases.0);
        let hours = first.is_multiple_of(HOUR_SECS) && length.is_multiple_of(HOUR_SECS);
        let unit = if hours { HOUR_SECS } else { 1 };
        self.directory.push(kind as u8 | if hours { HOURS } else { 0 });
        put_varint(&mut self.directory, u64::from(first / unit));
        put_varint(&mut self.directory, u64::from(length / unit));
        put_varint(&mut self.directory, payload.len() as u64);
        self.payload.extend_from_slice(payload);
        self.chunks += 1;
    }

    /// Appends the block to `out` and empties the builder.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> BlockRange {
        put_varint(out, self.chunks);
        out.extend_from_slice(&self.directory);
        out.extend_from_slice(&self.payload);
        self.directory.clear();
        self.payload.clear();
        self.chunks = 0;
        BlockRange {
            first_ordinal: self.first_ordinal,
            last_ordinal: self.last_ordinal,
            first_base: self.first_base,
            last_base: self.last_base,
        }
    }
}

/// Position and length of a chunk in its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryEntry {
    pub(crate) ordinal: u32,
    kind: ChunkKind,
    first_base: u32,
    last_base: u32,
    start: u32,
    len: u32,
}

/// A loaded block with its directory.
#[derive(Debug, Default)]
pub(crate) struct DataBlock {
    bytes: Bytes,
    offset: u64,
    directory: Vec<DirectoryEntry>,
}

/// Reads the number of chunks of a block.
fn read_chunk_count(cursor: &mut Cursor<'_>, block: &Bytes) -> Result<u64, Malformed> {
    let chunks = cursor.varint()?;
    // Each chunk has at least five bytes here, so the size of the block bounds the directory.
    if chunks > block.len() as u64 / 5 {
        return Err(Malformed("number of chunks"));
    }
    Ok(chunks)
}

impl DirectoryEntry {
    /// Reads the entry of the chunk at `start`, which follows a chunk of `ordinal`.
    fn read(
        cursor: &mut Cursor<'_>,
        span: u32,
        (ordinal, start): (u32, u32),
    ) -> Result<Self, Malformed> {
        let ordinal = ordinal
            .checked_add(cursor.varint_u32()?)
            .ok_or(Malformed("an ordinal outside of its block"))?;
        let head = cursor.byte()?;
        let kind = ChunkKind::from_stored(head & !HOURS).ok_or(Malformed("kind of a chunk"))?;
        let unit = if head & HOURS == 0 { 1 } else { HOUR_SECS };
        let [first, length] = [cursor.varint_u32()?, cursor.varint_u32()?];
        let secs = |v: u32| v.checked_mul(unit);
        let first_base = secs(first).and_then(|v| span.checked_add(v));
        let last_base =
            first_base.and_then(|v| secs(length).and_then(|length| v.checked_add(length)));
        let (Some(first_base), Some(last_base)) = (first_base, last_base) else {
            return Err(Malformed("base times of a chunk"));
        };
        Ok(Self { ordinal, kind, first_base, last_base, start, len: cursor.varint_u32()? })
    }

    /// Ordinal of this chunk, which must not exceed `last_ordinal`, and the start of the next chunk.
    fn next(&self, last_ordinal: u32) -> Result<(u32, u32), Malformed> {
        if self.ordinal > last_ordinal {
            return Err(Malformed("an ordinal outside of its block"));
        }
        let start = self.start.checked_add(self.len).ok_or(Malformed("length of a chunk"))?;
        Ok((self.ordinal, start))
    }
}

impl DataBlock {
    /// Loads another block and reuses the memory of the directory.
    pub(crate) fn load(
        &mut self,
        bytes: Bytes,
        offset: u64,
        span: u32,
        range: &BlockRange,
    ) -> Result<(), Malformed> {
        self.directory.clear();
        self.offset = offset;
        let mut cursor = Cursor::new(&bytes);
        let chunks = read_chunk_count(&mut cursor, &bytes)?;
        let mut ordinal = range.first_ordinal;
        let mut start = 0_u32;
        for _ in 0..chunks {
            let entry = DirectoryEntry::read(&mut cursor, span, (ordinal, start))?;
            (ordinal, start) = entry.next(range.last_ordinal)?;
            self.directory.push(entry);
        }
        if cursor.remaining() != start as usize {
            return Err(Malformed("length of a block"));
        }
        let payload = (bytes.len() - cursor.remaining()) as u32;
        for entry in &mut self.directory {
            entry.start += payload;
        }
        self.bytes = bytes;
        Ok(())
    }

    pub(crate) fn directory(&self) -> &[DirectoryEntry] {
        &self.directory
    }

    pub(crate) fn chunk(&self, entry: &DirectoryEntry) -> ChunkView {
        let start = entry.start as usize;
        ChunkView {
            kind: entry.kind,
            first_base: entry.first_base,
            last_base: entry.last_base,
            // In bounds, because `load` checked the sum of all lengths.
            payload: self.bytes.slice(start..start + entry.len as usize),
            block: self.offset,
        }
    }
}

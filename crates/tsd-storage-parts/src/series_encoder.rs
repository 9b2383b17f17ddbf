//! Encodes the rows of one series in a span as chunks.
//!
//! Points of one resolution and shape form a chunk. Rows come in order of time, so the times of a chunk ascend.
//! Points that do not fit become plain cells: a second column with the same instant, or an hour with an unaligned
//! base time.

use bytes::Bytes;
use tsd_model::{Cell, ChunkEncoder, ChunkPoint, Family, PackedChunk, RunShape};

use crate::chunk::{ChunkKind, EncodedChunk, Tombstone, put_cell, put_tombstone};

/// Number of points after which a chunk ends with its row.
pub(crate) const CHUNK_POINTS: usize = 4_096;

/// Encodes the chunks of one series after another and reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct SeriesEncoder {
    span: u32,
    encoder: ChunkEncoder,
    /// Indexed by [`stream_of`].
    streams: [Vec<ChunkPoint>; 4],
    cells: PlainChunk,
    tombstones: PlainChunk,
    out: Vec<u8>,
    chunks: Vec<EncodedChunk>,
}

#[derive(Debug, Default)]
struct PlainChunk {
    bytes: Vec<u8>,
    bases: Option<(u32, u32)>,
}

impl PlainChunk {
    fn extend(&mut self, base: u32) {
        self.bases = Some(self.bases.map_or((base, base), |(a, b)| (a.min(base), b.max(base))));
    }

    fn take(&mut self, kind: ChunkKind) -> Option<EncodedChunk> {
        let (first_base, last_base) = self.bases.take()?;
        let payload = Bytes::copy_from_slice(&self.bytes);
        self.bytes.clear();
        Some(EncodedChunk { kind, first_base, last_base, points: 0, payload })
    }
}

/// Bytes of plain cells after which a chunk ends.
const PLAIN_BYTES: usize = 64 * 1024;

const fn stream_of(compacted: bool, millis: bool) -> usize {
    compacted as usize * 2 + millis as usize
}

impl SeriesEncoder {
    /// Begins a series in the span.
    pub(crate) fn begin(&mut self, span: u32) {
        self.span = span;
        self.chunks.clear();
    }

    /// Adds points of one row and resolution in order of time, as single cells or, with `compacted`, as one
    /// column.
    pub(crate) fn points(&mut self, points: &[ChunkPoint], compacted: bool) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let index = stream_of(compacted, first.point.is_millis());
        let Some(stream) = self.streams.get_mut(index) else { return };
        // A chunk has one column per row.
        let fits = stream.last().is_none_or(|before| {
            before.time_ms() < first.time_ms()
                && !(compacted && before.base_secs == first.base_secs)
        });
        let last_base = last.base_secs;
        if !fits || !last_base.is_multiple_of(3_600) || points.len() > PackedChunk::MAX_POINTS {
            self.plain_points(points, compacted);
            return;
        }
        if !stream.is_empty() && stream.len() + points.len() > CHUNK_POINTS {
            self.end_stream(index);
        }
        if let Some(stream) = self.streams.get_mut(index) {
            stream.extend_from_slice(points);
        }
    }

    fn plain_points(&mut self, points: &[ChunkPoint], compacted: bool) {
        if compacted {
            self.cell(points.first().map_or(0, |p| p.base_secs), &column_cell(points));
        } else {
            for p in points {
                self.cell(p.base_secs, &p.cell());
            }
        }
    }

    pub(crate) fn cell(&mut self, base: u32, cell: &Cell) {
        put_cell(&mut self.cells.bytes, base - self.span, cell);
        self.cells.extend(base);
        if self.cells.bytes.len() >= PLAIN_BYTES {
            self.chunks.extend(self.cells.take(ChunkKind::Cells));
        }
    }

    pub(crate) fn tombstone(&mut self, base: u32, tombstone: &Tombstone) {
        put_tombstone(&mut self.tombstones.bytes, base - self.span, tombstone);
        self.tombstones.extend(base);
        if self.tombstones.bytes.len() >= PLAIN_BYTES {
            self.chunks.extend(self.tombstones.take(ChunkKind::Tombstones));
        }
    }

    /// Adds an encoded chunk that shares no row with any other.
    pub(crate) fn copy(&mut self, chunk: EncodedChunk) {
        self.chunks.push(chunk);
    }

    fn end_stream(&mut self, index: usize) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let (Some(first), Some(last)) = (stream.first(), stream.last()) else { return };
        let bases = (first.base_secs, last.base_secs);
        let compacted = index >= 2;
        let shape = if compacted { RunShape::Compacted } else { RunShape::Singles };
        self.out.clear();
        if self.encoder.encode(stream, shape, self.span, &mut self.out).is_ok() {
            self.chunks.push(EncodedChunk {
                kind: ChunkKind::Points,
                first_base: bases.0,
                last_base: bases.1,
                points: stream.len() as u64,
                payload: Bytes::copy_from_slice(&self.out),
            });
            stream.clear();
            return;
        }
        // Points that were checked one by one always pack. If they do not, they are stored as cells.
        let points = std::mem::take(stream);
        for row in points.chunk_by(|a, b| a.base_secs == b.base_secs) {
            self.plain_points(row, compacted);
        }
    }

    /// The chunks of the series in order of time.
    pub(crate) fn finish(&mut self) -> &[EncodedChunk] {
        for index in 0..self.streams.len() {
            self.end_stream(index);
        }
        self.chunks.extend(self.cells.take(ChunkKind::Cells));
        self.chunks.extend(self.tombstones.take(ChunkKind::Tombstones));
        self.chunks.sort_by_key(|chunk| (chunk.first_base, chunk.last_base, chunk.kind));
        &self.chunks
    }
}

/// The compacted column of points of a row; for one point, its ordinary cell.
pub(crate) fn column_cell(points: &[ChunkPoint]) -> Cell {
    let (mut qualifier, mut value) = (Vec::new(), Vec::new());
    for p in points {
        p.point.write_qualifier(&mut qualifier);
        p.point.write_value(&mut value);
    }
    if points.len() > 1 {
        value.push(0);
    }
    Cell {
        family: Family::T,
        qualifier: qualifier.into(),
        value: value.into(),
        timestamp_ms: points.first().map_or(0, |p| p.timestamp_ms),
    }
}

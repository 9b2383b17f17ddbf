//! Computes the summaries of the series of a section from their chunks.
//!
//! Summaries are in blocks of their own, in the layout of data blocks, with one chunk per series for all of its
//! hours. A series has summaries only if all of its chunks are points with different instants. So the summaries
//! of a series cover all of its points in the section.

use tsd_model::{BaseTime, PackedChunk, PointColumns, SummaryEncoder};

use crate::chunk::{ChunkKind, EncodedChunk};

/// Minimum points per hour of a series with summaries. Fewer points are cheap to read. A series with one point
/// per minute has summaries even if a quarter of its points are missing.
const MIN_HOUR_POINTS: u64 = 45;
/// Minimum hours from the first to the last point of a series with summaries. Sections that flushes write during
/// a day are soon merged, so their summaries would be of little use.
const MIN_HOURS: u64 = 6;
/// Divisor: first and last values are kept if they take at most this fraction of the chunk bytes.
const ENDS_SHARE: usize = 48;

/// Computes summaries and reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct Summarizer {
    encoder: SummaryEncoder,
    columns: PointColumns,
    out: Vec<u8>,
}

impl Summarizer {
    /// First and last base time of the series, and its summaries; `None` for a series without summaries. The span
    /// is a UTC day.
    pub(crate) fn summarize(
        &mut self,
        span: u32,
        chunks: &[EncodedChunk],
    ) -> Option<((u32, u32), &[u8])> {
        let first = chunks.iter().map(|chunk| chunk.first_base).min()?;
        let last = chunks.iter().map(|chunk| chunk.last_base).max()?;
        let hours = u64::from((last - first) / BaseTime::SPAN_SECONDS) + 1;
        let points = chunks.iter().map(|chunk| chunk.points).sum::<u64>();
        if hours < MIN_HOURS
            || points < MIN_HOUR_POINTS * hours
            || chunks.iter().any(|chunk| chunk.kind != ChunkKind::Points)
        {
            return None;
        }
        self.columns.clear();
        for chunk in chunks {
            let packed = PackedChunk::open(chunk.payload.clone(), span).ok()?;
            packed.decode_into(&mut self.columns).ok()?;
        }
        if !self.columns.sort_distinct() {
            return None;
        }
        self.out.clear();
        let bytes: usize = chunks.iter().map(|chunk| chunk.payload.len()).sum();
        let is_encoded =
            self.encoder.encode(&self.columns, span, bytes / ENDS_SHARE, &mut self.out);
        is_encoded.then_some(((first, last), self.out.as_slice()))
    }
}

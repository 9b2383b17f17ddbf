//! Summaries of the series of a section, made from their chunks.
//!
//! They stand in blocks of their own, in the layout of data blocks: one chunk for a series, of all of its
//! hours. A series has summaries if all of its chunks are points of different instants. So whoever finds
//! summaries knows all points of the series in the section.

use tsd_model::{BaseTime, PackedChunk, PointColumns, SummaryEncoder};

use crate::chunk::{ChunkKind, EncodedChunk};

/// Points an hour below which a series has no summaries: its points cost little. One of a point a minute has
/// summaries even if a quarter is missing.
const MIN_HOUR_POINTS: u64 = 45;
/// Hours from the first to the last point below which a series has no summaries: those of the sections that
/// flushes write while a day is open would be of little use, as they are soon merged.
const MIN_HOURS: u64 = 6;
/// First and last values are kept if they take at most this part of the chunks.
const ENDS_SHARE: usize = 48;

/// Makes summaries; reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct Summarizer {
    encoder: SummaryEncoder,
    columns: PointColumns,
    out: Vec<u8>,
}

impl Summarizer {
    /// First and last base time of the series, and its summaries; `None` if it has none. The span is a UTC
    /// day.
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

//! Merges sections of one span that are adjacent in sequence.

use std::sync::Arc;

use tsd_model::{BaseTime, PackedChunk, RunShape};

use crate::{
    chunk::{ChunkKind, ChunkView, EncodedChunk},
    cursor::SectionCursor,
    damage::DamageUse,
    error::{MISPLACED, Malformed, PartError},
    merge_signal::MergeCheckpoint,
    part::{BlockUse, Part},
    resolve::{ResolvedRow, Resolver},
    section_reader::SectionReader,
    series_encoder::{CHUNK_POINTS, SeriesEncoder},
    series_expiry::ExpiredSeries,
    series_selection::SeriesSelection,
    writer::{PartWriter, point_count},
};

/// Permissions of a merge to leave out or change rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MergeOptions {
    /// Drops tombstones: the inputs include the oldest section of the span, so there are no older cells to hide.
    pub(crate) drop_tombstones: bool,
    /// Rows with a base time before this one (epoch seconds) are written as row compaction would leave them. Only
    /// a merge of all sections of the span may set it.
    pub(crate) compact_before: u32,
}

/// The merge of one span.
#[derive(Clone, Debug)]
pub(crate) struct SpanMerge {
    /// Start of the span, epoch seconds.
    pub(crate) span: u32,
    /// Parts and indexes of their sections, oldest first.
    pub(crate) sections: Vec<(Arc<Part>, usize)>,
    /// What the merge may leave out or change.
    pub(crate) options: MergeOptions,
    /// Series to leave out. Only a merge of all sections of the span may have some.
    pub(crate) expired: Option<ExpiredSeries>,
}

/// Minimum points of a chunk that is copied undecoded, if it shares no row with another chunk.
const WHOLE_CHUNK: usize = CHUNK_POINTS / 4;

/// Merges the sections of each span, oldest first, into one part and returns its size in bytes. The spans ascend,
/// and all parts have the layout of the writer. Calls `checkpoint` before each series.
pub(crate) fn merge_sections(
    mut writer: PartWriter,
    spans: &[SpanMerge],
    checkpoint: MergeCheckpoint<'_>,
) -> Result<u64, PartError> {
    let mut merger = Merger::default();
    for span in spans {
        writer.begin_section(span.span)?;
        merger.merge(span, &mut writer, checkpoint)?;
    }
    writer.finish()
}

#[derive(Debug, Default)]
struct Merger {
    resolver: Resolver,
    encoder: SeriesEncoder,
}

impl Merger {
    fn merge(
        &mut self,
        SpanMerge { span, sections, options, expired }: &SpanMerge,
        writer: &mut PartWriter,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<(), PartError> {
        let mut cursors = Vec::with_capacity(sections.len());
        for (part, section) in sections {
            let (how, damage) = (BlockUse::Once, DamageUse::default());
            let section = SectionReader::open(Arc::clone(part), *section, how, damage)?;
            let all = Arc::new(SeriesSelection::All);
            let mut cursor = SectionCursor::open(section, &all, (0, u32::MAX))?;
            let more = cursor.advance()?;
            cursors.push((cursor, more));
        }
        let mut series = Vec::new();
        loop {
            let open = cursors.iter().filter(|(_, more)| *more);
            let Some(least) = open.map(|(cursor, _)| &cursor.series).min() else { return Ok(()) };
            series.clone_from(least);
            checkpoint()?;
            if !expired.as_ref().is_some_and(|expired| expired.contains(&series)) {
                let mut sources = Vec::new();
                for (rank, (cursor, more)) in cursors.iter().enumerate() {
                    if *more && cursor.series == series {
                        sources.push((rank as u32, cursor));
                    }
                }
                self.merge_series(*span, &sources, *options)?;
                writer.series(&series, self.encoder.finish())?;
            }
            for (cursor, more) in &mut cursors {
                if *more && cursor.series == series {
                    *more = cursor.advance()?;
                }
            }
        }
    }

    fn merge_series(
        &mut self,
        span: u32,
        sources: &[(u32, &SectionCursor)],
        options: MergeOptions,
    ) -> Result<(), PartError> {
        self.encoder.begin(span);
        self.resolver.clear();
        let all: Vec<(u32, &SectionCursor, &ChunkView)> = sources
            .iter()
            .flat_map(|(rank, cursor)| cursor.chunks.iter().map(|chunk| (*rank, *cursor, chunk)))
            .collect();
        let only = sources.len() == 1;
        for (index, (rank, cursor, chunk)) in all.iter().enumerate() {
            let overlaps = all.iter().enumerate().any(|(other, (.., o))| {
                other != index && o.first_base <= chunk.last_base && chunk.first_base <= o.last_base
            });
            let damaged = |e| cursor.part().malformed(chunk.block)(e);
            if stays(span, chunk, only, overlaps, options).map_err(damaged)? {
                self.encoder.copy(EncodedChunk {
                    kind: chunk.kind,
                    first_base: chunk.first_base,
                    last_base: chunk.last_base,
                    points: point_count(chunk.kind, &chunk.payload, span),
                    payload: chunk.payload.clone(),
                });
            } else {
                self.resolver.add(*rank, span, chunk).map_err(damaged)?;
            }
        }
        let Self { resolver, encoder } = self;
        resolver.rows((0, u32::MAX), |row| encode_row(row, options, encoder));
        Ok(())
    }
}

/// True if the chunk is copied without being decoded.
fn stays(
    span: u32,
    chunk: &ChunkView,
    only: bool,
    overlaps: bool,
    options: MergeOptions,
) -> Result<bool, Malformed> {
    match chunk.kind {
        ChunkKind::Tombstones => Ok(only && !overlaps && !options.drop_tombstones),
        ChunkKind::Cells => Ok(!overlaps),
        ChunkKind::Summaries => Err(MISPLACED),
        ChunkKind::Points => {
            let packed = PackedChunk::open(chunk.payload.clone(), span)?;
            let compacted = packed.shape() == RunShape::Compacted;
            let is_final = compacted || chunk.first_base >= options.compact_before;
            Ok(!overlaps && is_final && (only || packed.point_count() >= WHOLE_CHUNK))
        }
    }
}

fn encode_row(row: &ResolvedRow, options: MergeOptions, encoder: &mut SeriesEncoder) {
    let is_old =
        row.base < options.compact_before && row.base.is_multiple_of(BaseTime::SPAN_SECONDS);
    if let Some(points) = row.compacted().filter(|_| is_old) {
        encoder.points(&points, true);
    } else {
        for points in &row.singles {
            encode_singles(points, encoder);
        }
        for column in &row.columns {
            encoder.points(column, true);
        }
    }
    for cell in &row.cells {
        encoder.cell(row.base, cell);
    }
    if !options.drop_tombstones {
        for tombstone in &row.tombstones {
            encoder.tombstone(row.base, tombstone);
        }
    }
}

/// Encodes single points. Of several points with one instant, only the first can be packed; the others become
/// cells.
fn encode_singles(points: &[tsd_model::ChunkPoint], encoder: &mut SeriesEncoder) {
    let time = |p: &tsd_model::ChunkPoint| p.point.offset_ms();
    if points.is_sorted_by(|a, b| time(a) < time(b)) {
        encoder.points(points, false);
        return;
    }
    let mut rising = Vec::with_capacity(points.len());
    for group in points.chunk_by(|a, b| time(a) == time(b)) {
        let Some((first, others)) = group.split_first() else { continue };
        rising.push(*first);
        for p in others {
            encoder.cell(p.base_secs, &p.cell());
        }
    }
    encoder.points(&rising, false);
}

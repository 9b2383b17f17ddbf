//! Walks over the sections of a snapshot, series by series.

use std::sync::Arc;

use crate::{
    chunk::ChunkView,
    cursor::SectionCursor,
    error::PartError,
    layout::PartLayout,
    part::{BlockUse, Part},
    resolve::Resolver,
    section_reader::SectionReader,
    series_selection::SeriesSelection,
    snapshot::{Snapshot, SnapshotSection},
};

/// Limits of the spans that are read together.
const JOINED_SPANS: usize = 64;
const JOINED_POINTS: u64 = 1 << 16;
const JOINED_BYTES: u64 = 1 << 20;

/// Walks over the spans of a snapshot, with a cursor for each section of the current spans: one span, or adjacent
/// small spans that are joined.
#[derive(Debug)]
pub(crate) struct Sections {
    pub(super) snapshot: Arc<Snapshot>,
    /// True once it is checked that no rows of the range are lost.
    complete: bool,
    /// Earliest start of the next span; `None` after the last.
    next_span: Option<u32>,
    selection: Arc<SeriesSelection>,
    pub(super) layout: PartLayout,
    /// Base times, inclusive.
    pub(super) bases: (u32, u32),
    /// Whether series with summaries come with summaries instead of chunks.
    pub(super) uses_summaries: bool,
    /// Whether small spans of one section are read together, so that the cost of a series in a span does not
    /// exceed that of its few points.
    pub(super) joins_spans: bool,
    /// Each cursor, and whether it is at a series.
    pub(super) cursors: Vec<(SectionCursor, bool)>,
    /// Cursors at the least series, by span, oldest part first.
    pub(super) sources: Vec<usize>,
}

impl Sections {
    pub(crate) fn new(
        snapshot: &Arc<Snapshot>,
        selection: Arc<SeriesSelection>,
        bases: (u32, u32),
    ) -> Self {
        let layout = snapshot.layout();
        Self {
            snapshot: Arc::clone(snapshot),
            complete: false,
            next_span: Some(layout.span_of(bases.0)),
            selection,
            layout,
            bases,
            uses_summaries: false,
            joins_spans: false,
            cursors: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// The series at the cursors.
    pub(crate) fn series(&self) -> &[u8] {
        self.sources().next().map_or(&[], |(_, cursor)| &cursor.series)
    }

    /// Moves to the next series; false after the last.
    pub(crate) fn advance(&mut self) -> Result<bool, PartError> {
        if !self.complete {
            self.snapshot.check_losses(self.layout.span_of(self.bases.0), self.bases.1)?;
            self.complete = true;
        }
        for &index in &self.sources {
            if let Some((cursor, more)) = self.cursors.get_mut(index) {
                *more = cursor.advance()?;
            }
        }
        self.sources.clear();
        while !self.cursors.iter().any(|(_, more)| *more) {
            self.cursors.clear();
            if !self.open_spans()? {
                return Ok(false);
            }
        }
        let mut least: Option<&[u8]> = None;
        for (index, (cursor, more)) in self.cursors.iter().enumerate() {
            if !*more {
                continue;
            }
            let series = cursor.series.as_slice();
            if least.is_none_or(|l| series < l) {
                least = Some(series);
                self.sources.clear();
            }
            if least == Some(series) {
                self.sources.push(index);
            }
        }
        Ok(true)
    }

    /// Opens the sections of the next span, and of the spans after it that are joined with it; false after the
    /// last span.
    fn open_spans(&mut self) -> Result<bool, PartError> {
        let Some(first) = self.next_span else { return Ok(false) };
        let snapshot = Arc::clone(&self.snapshot);
        let (mut spans, mut points, mut bytes) = (0, 0, 0);
        for (&span, sections) in snapshot.spans().range(first..=self.bases.1.max(first)) {
            if span > self.bases.1 {
                break;
            }
            let joined = if self.joins_spans { self.joined(sections)? } else { None };
            if let Some(section) = joined {
                points += section.part.section_points(section.section);
                bytes += section.bytes;
            }
            let is_full = spans == JOINED_SPANS || points > JOINED_POINTS || bytes > JOINED_BYTES;
            if spans > 0 && (joined.is_none() || is_full) {
                return Ok(true);
            }
            self.next_span = span.checked_add(1);
            for section in sections {
                self.open_section(section)?;
            }
            spans += 1;
            if joined.is_none() {
                return Ok(true);
            }
        }
        self.next_span = None;
        Ok(spans > 0)
    }

    /// The only section of a span, if the span may be joined with others: the section is intact, and no series in
    /// it comes with summaries, which are of one day.
    fn joined<'s>(
        &self,
        sections: &'s [SnapshotSection],
    ) -> Result<Option<&'s SnapshotSection>, PartError> {
        let [section] = sections else { return Ok(None) };
        let damage = self.snapshot.damage_use(section);
        if damage.skips || section.damage.is_some() {
            return Ok(None);
        }
        let has_summaries = self.uses_summaries
            && damage
                .head(&section.part, section.section)?
                .is_none_or(|head| !head.summary_blocks.is_empty());
        Ok((!has_summaries).then_some(section))
    }

    /// Opens a section, unless it has nothing to read.
    fn open_section(&mut self, section: &SnapshotSection) -> Result<(), PartError> {
        let part: Arc<Part> = Arc::clone(&section.part);
        let damage = self.snapshot.damage_use(section);
        if damage.skips && damage.head(&part, section.section)?.is_none() {
            return Ok(());
        }
        let reader = SectionReader::open(part, section.section, BlockUse::Cached, damage)?;
        let mut cursor = SectionCursor::open(reader, &self.selection, self.bases)?;
        if self.uses_summaries {
            cursor.use_summaries();
        }
        if cursor.advance()? {
            self.cursors.push((cursor, true));
        }
        Ok(())
    }

    /// True if the sources are of several spans. Each span then has one source.
    pub(super) fn is_joined(&self) -> bool {
        let mut spans = self.sources().map(|(_, cursor)| cursor.span());
        let first = spans.next();
        spans.any(|span| Some(span) != first)
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (u32, &SectionCursor)> {
        let cursor = |&index: &usize| Some((index as u32, &self.cursors.get(index)?.0));
        self.sources.iter().filter_map(cursor)
    }

    /// The summaries of the series, if no other section has rows of it.
    pub(super) fn summaries(&self) -> Option<(&SectionCursor, &ChunkView)> {
        let &[only] = self.sources.as_slice() else { return None };
        let (cursor, _) = self.cursors.get(only)?;
        Some((cursor, cursor.summaries.as_ref()?))
    }

    /// Reads the chunks of a series that came with summaries.
    pub(super) fn read_chunks(&mut self) -> Result<(), PartError> {
        for &index in &self.sources {
            if let Some((cursor, _)) = self.cursors.get_mut(index) {
                cursor.read_chunks()?;
            }
        }
        Ok(())
    }

    /// Decodes all chunks of the series.
    pub(crate) fn resolve(&self, resolver: &mut Resolver) -> Result<(), PartError> {
        resolver.clear();
        for (rank, cursor) in self.sources() {
            for chunk in &cursor.chunks {
                resolver
                    .add(rank, cursor.span(), chunk)
                    .map_err(cursor.part().malformed(chunk.block))?;
            }
        }
        Ok(())
    }
}

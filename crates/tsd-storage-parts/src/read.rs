//! Reads selected series of a snapshot in a time range.

mod sections;

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::{
    BaseTime, Cell, DaySummaries, MergeRule, PackedChunk, PointColumns, Row, RowError, RowExtras,
    SummarizedPoints, Summary, SummaryUse, decode_row,
};

pub(crate) use self::sections::Sections;
use crate::{
    chunk::{ChunkKind, ChunkView, has_points},
    cursor::SectionCursor,
    error::{MISPLACED, Malformed, PartError},
    layout::PartLayout,
    part::Part,
    resolve::Resolver,
    series_selection::SeriesSelection,
    snapshot::Snapshot,
    summary_read::{ChosenSummaries, choose},
};

/// The points of a series in one or more spans, and the other columns of its rows.
#[derive(Debug, Default)]
pub struct SeriesPoints {
    /// The series.
    pub series: Vec<u8>,
    /// Start of the first span, epoch seconds.
    pub span: u32,
    /// Points in time order, one per instant.
    pub columns: PointColumns,
    /// Summaries of hours and days in time order. Their points are not in `columns`.
    pub summaries: Vec<Summary>,
    /// Rows with several points of one instant, or with columns that only a row decoder understands. Their points
    /// are not in `columns`.
    pub conflicts: Vec<Row>,
    /// Columns without points, with the base times of their rows.
    pub others: Vec<(u32, Cell)>,
    /// Size of the chunks that were read, bytes.
    pub stored_bytes: usize,
}

/// Result of one step of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeriesStep {
    /// A series with content in the range.
    Series,
    /// An unwanted series, or one without content in the range.
    Passed,
    /// There are no more series.
    Ended,
}

/// Reads the points of series from a snapshot: span by span, and within each span in order of series.
#[derive(Debug)]
pub struct SeriesReader {
    sections: Sections,
    /// Inclusive.
    range_ms: (i64, i64),
    summaries: Option<SummaryUse>,
    item: SeriesPoints,
    resolver: Resolver,
}

/// The rows of a series in a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRows {
    /// The series.
    pub series: Vec<u8>,
    /// Base times and cells, in order; cells sorted by family and qualifier.
    pub rows: Vec<(u32, Vec<Cell>)>,
}

/// Reads the cells of series from a snapshot: span by span, and within each span in order of series.
#[derive(Debug)]
pub struct RowsReader {
    sections: Sections,
    resolver: Resolver,
}

impl RowsReader {
    /// Reads rows with base times from the first to the last, inclusive, epoch seconds.
    #[must_use]
    pub fn new(snapshot: &Arc<Snapshot>, selection: &SeriesSelection, bases: (u32, u32)) -> Self {
        let sections = Sections::new(snapshot, Arc::new(selection.clone()), bases);
        Self { sections, resolver: Resolver::default() }
    }

    /// The next series of a span; `None` after the last.
    pub fn next_series(&mut self) -> Result<Option<SeriesRows>, PartError> {
        let snapshot = Arc::clone(&self.sections.snapshot);
        let _reading = snapshot.resources().reading();
        loop {
            if !self.sections.advance()? {
                return Ok(None);
            }
            let series = self.sections.sources().next().map(|(_, c)| c.series.clone());
            self.sections.resolve(&mut self.resolver)?;
            let mut rows = Vec::new();
            self.resolver.rows(self.sections.bases, |row| {
                let cells = row.to_cells();
                if !cells.is_empty() {
                    rows.push((row.base, cells));
                }
            });
            if !rows.is_empty() {
                return Ok(Some(SeriesRows { series: series.unwrap_or_default(), rows }));
            }
        }
    }
}

impl SeriesReader {
    /// Reads points from the first to the last millisecond since the epoch, inclusive.
    #[must_use]
    pub fn new(
        snapshot: &Arc<Snapshot>,
        selection: &SeriesSelection,
        range_ms: (i64, i64),
    ) -> Self {
        let secs = |ms: i64| u32::try_from(ms.max(0) / 1_000).unwrap_or(u32::MAX);
        // The row of a point may begin in the span before.
        let first = secs(range_ms.0).saturating_sub(snapshot.layout().span_secs().min(3_600) - 1);
        let bases = (first, secs(range_ms.1));
        Self::with_bases(snapshot, Arc::new(selection.clone()), bases, range_ms)
    }

    /// Reads all points of the rows with base times from the first to the last, inclusive, epoch seconds.
    pub(crate) fn of_rows(
        snapshot: &Arc<Snapshot>,
        selection: Arc<SeriesSelection>,
        bases: (u32, u32),
    ) -> Self {
        // Rows with packed points begin at a full hour and end with it.
        let hour = i64::from(BaseTime::SPAN_SECONDS);
        let first = i64::from(bases.0) + (hour - 1);
        let first_ms = (first - first % hour) * 1_000;
        let last = i64::from(bases.1);
        let last_ms = (last - last % hour + hour) * 1_000 - 1;
        Self::with_bases(snapshot, selection, bases, (first_ms, last_ms))
    }

    fn with_bases(
        snapshot: &Arc<Snapshot>,
        selection: Arc<SeriesSelection>,
        bases: (u32, u32),
        range_ms: (i64, i64),
    ) -> Self {
        Self {
            sections: Sections::new(snapshot, selection, bases),
            range_ms,
            summaries: None,
            item: SeriesPoints::default(),
            resolver: Resolver::default(),
        }
    }

    /// Returns summaries wherever the read can use them.
    pub(crate) const fn with_summaries(mut self, summaries: Option<SummaryUse>) -> Self {
        self.summaries = summaries;
        self.sections.uses_summaries = summaries.is_some();
        self
    }

    /// Returns the points of a series in adjacent small spans together.
    pub(crate) const fn with_joined_spans(mut self) -> Self {
        self.sections.joins_spans = true;
        self
    }

    /// The next series with content in the range; `None` after the last.
    pub fn next_series(&mut self) -> Result<Option<&mut SeriesPoints>, PartError> {
        let snapshot = Arc::clone(&self.sections.snapshot);
        let _reading = snapshot.resources().reading();
        loop {
            match self.step(|_| true)? {
                SeriesStep::Series => return Ok(Some(&mut self.item)),
                SeriesStep::Passed => {}
                SeriesStep::Ended => return Ok(None),
            }
        }
    }

    /// Moves to the next series and reads it if it is wanted.
    pub(crate) fn step(
        &mut self,
        is_wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Result<SeriesStep, PartError> {
        if !self.sections.advance()? {
            return Ok(SeriesStep::Ended);
        }
        let series = self.sections.series();
        if !is_wanted(series) {
            return Ok(SeriesStep::Passed);
        }
        self.item.clear();
        self.item.series.extend_from_slice(series);
        if let Some((_, cursor)) = self.sections.sources().next() {
            self.item.span = cursor.span();
        }
        if self.sections.is_joined() {
            self.read_joined()?;
        } else if !self.read_summaries()? {
            self.sections.read_chunks()?;
            self.read()?;
        }
        Ok(if self.item.is_empty() { SeriesStep::Passed } else { SeriesStep::Series })
    }

    pub(crate) const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.sections.snapshot
    }

    /// The result of the last step.
    pub(crate) const fn item(&mut self) -> &mut SeriesPoints {
        &mut self.item
    }

    /// Reads summaries, and points of the hours without usable summaries. Returns false if the series has no
    /// usable summaries.
    fn read_summaries(&mut self) -> Result<bool, PartError> {
        let Some(read) = self.summaries else { return Ok(false) };
        let Some((cursor, packed)) = self.sections.summaries() else { return Ok(false) };
        let (span, stored_bytes) = (cursor.span(), packed.payload.len());
        let day = DaySummaries::decode(&packed.payload, span, read.fold)
            .map_err(Malformed::from)
            .map_err(cursor.part().malformed(packed.block))?;
        let chosen = day.and_then(|day| choose(day, &read, span, self.sections.bases));
        let Some(chosen) = chosen else { return Ok(false) };
        let ChosenSummaries { mut summaries, range_ms, needs_others, needs_points } = chosen;
        self.item.stored_bytes = 0;
        if needs_others || needs_points {
            self.sections.read_chunks()?;
        }
        if needs_others {
            self.read()?;
            self.item.cut(range_ms);
        }
        if needs_points {
            let mut chunks = Vec::new();
            for (_, cursor) in self.sections.sources() {
                for chunk in &cursor.chunks {
                    let open = PackedChunk::open(chunk.payload.clone(), span);
                    let malformed = cursor.part().malformed(chunk.block);
                    chunks.push(open.map_err(Malformed::from).map_err(malformed)?);
                }
            }
            let points = Arc::new(SummarizedPoints(chunks));
            for summary in &mut summaries {
                summary.points = Some(Arc::clone(&points));
            }
        }
        self.item.stored_bytes += stored_bytes;
        self.item.summaries = summaries;
        Ok(true)
    }

    /// Reads the series in each of several spans.
    fn read_joined(&mut self) -> Result<(), PartError> {
        let sources = std::mem::take(&mut self.sections.sources);
        let mut stored_bytes = 0;
        for source in &sources {
            let Some((cursor, _)) = self.sections.cursors.get(*source) else { continue };
            if let [chunk] = cursor.chunks.as_slice()
                && chunk.kind == ChunkKind::Points
            {
                append_points(cursor, chunk, &mut self.item.columns)?;
                stored_bytes += chunk.payload.len();
                continue;
            }
            let series = self.item.series.clone();
            let joined = std::mem::replace(
                &mut self.item,
                SeriesPoints { series, ..SeriesPoints::default() },
            );
            self.sections.sources = vec![*source];
            self.read()?;
            let of_span = std::mem::replace(&mut self.item, joined);
            stored_bytes += of_span.stored_bytes;
            self.item.append(of_span);
        }
        self.sections.sources = sources;
        self.item.stored_bytes = stored_bytes;
        self.item.keep(self.range_ms);
        Ok(())
    }

    fn read(&mut self) -> Result<(), PartError> {
        let chunks = self.sections.sources().flat_map(|(_, cursor)| &cursor.chunks);
        self.item.stored_bytes = chunks.map(|chunk| chunk.payload.len()).sum();
        if !self.read_disjoint()? {
            self.item.columns.clear();
            self.item.others.clear();
            self.read_resolved()?;
        }
        self.item.keep(self.range_ms);
        Ok(())
    }

    /// Decodes chunks straight into columns, since chunks with different instants have no column in common.
    /// Returns false if instants are equal, or if columns need a row decoder.
    fn read_disjoint(&mut self) -> Result<bool, PartError> {
        let item = &mut self.item;
        if let [source] = self.sections.sources.as_slice()
            && let Some((cursor, _)) = self.sections.cursors.get(*source)
            && let [chunk] = cursor.chunks.as_slice()
            && chunk.kind == ChunkKind::Points
        {
            // Nearly all series of a merged section have one chunk.
            append_points(cursor, chunk, &mut item.columns)?;
            return Ok(true);
        }
        let (first_base, last_base) = self.sections.bases;
        let mut packed: Vec<(PackedChunk, &Part, u64)> = Vec::new();
        for (_, cursor) in self.sections.sources() {
            for chunk in &cursor.chunks {
                let malformed = || cursor.part().malformed(chunk.block);
                match chunk.kind {
                    ChunkKind::Points => {
                        let open = PackedChunk::open(chunk.payload.clone(), cursor.span());
                        let open = open.map_err(Malformed::from).map_err(malformed())?;
                        packed.push((open, cursor.part(), chunk.block));
                    }
                    ChunkKind::Tombstones => return Ok(false),
                    ChunkKind::Summaries => return Err(malformed()(MISPLACED)),
                    ChunkKind::Cells => {
                        let mut plain = true;
                        let several = self.sections.sources.len() > 1;
                        chunk
                            .cells(cursor.span(), |base, cell| {
                                plain &= !several && !has_points(&cell);
                                if (first_base..=last_base).contains(&base) {
                                    item.others.push((base, cell));
                                }
                            })
                            .map_err(malformed())?;
                        if !plain {
                            return Ok(false);
                        }
                    }
                }
            }
        }
        packed.sort_by_key(|(chunk, ..)| chunk.time_range_ms());
        let ends = packed.iter().map(|(chunk, ..)| chunk.time_range_ms());
        let disjoint = ends.clone().zip(ends.skip(1)).all(|(a, b)| a.1 < b.0);
        for (chunk, part, block) in &packed {
            chunk
                .decode_into(&mut item.columns)
                .map_err(Malformed::from)
                .map_err(part.malformed(*block))?;
        }
        Ok(disjoint || item.columns.sort_distinct())
    }

    fn read_resolved(&mut self) -> Result<(), PartError> {
        self.sections.resolve(&mut self.resolver)?;
        let item = &mut self.item;
        let layout = self.sections.layout;
        self.resolver.rows(self.sections.bases, |row| {
            if row.needs_rule() {
                let key = Bytes::from(layout.join_key(&item.series, row.base));
                let (points, others) = row.to_cells().into_iter().partition(has_points);
                item.conflicts.push(Row::from_cells(key, points));
                item.others.extend(others.into_iter().map(|cell: Cell| (row.base, cell)));
                return;
            }
            let mut points: Vec<_> =
                row.singles.iter().flatten().chain(row.columns.iter().flatten()).collect();
            points.sort_by_key(|p| p.time_ms());
            for p in points {
                item.columns.push(p.time_ms(), p.point.value());
            }
            item.others.extend(row.cells.iter().map(|cell| (row.base, cell.clone())));
        });
        Ok(())
    }
}

/// Appends the points of a packed chunk.
fn append_points(
    cursor: &SectionCursor,
    chunk: &ChunkView,
    columns: &mut PointColumns,
) -> Result<(), PartError> {
    let open = PackedChunk::open(chunk.payload.clone(), cursor.span());
    open.and_then(|open| open.decode_into(columns))
        .map_err(Malformed::from)
        .map_err(cursor.part().malformed(chunk.block))
}

impl SeriesPoints {
    /// Appends the content of a later span.
    fn append(&mut self, later: Self) {
        self.columns.extend_range(&later.columns, 0, later.columns.len());
        self.conflicts.extend(later.conflicts);
        self.others.extend(later.others);
    }

    fn clear(&mut self) {
        self.series.clear();
        self.columns.clear();
        self.summaries.clear();
        self.conflicts.clear();
        self.others.clear();
    }

    fn is_empty(&self) -> bool {
        self.columns.is_empty()
            && self.summaries.is_empty()
            && self.conflicts.is_empty()
            && self.others.is_empty()
    }

    fn keep(&mut self, range_ms: (i64, i64)) {
        let times = &self.columns.times_ms;
        let from = times.partition_point(|&t| t < range_ms.0);
        let to = times.partition_point(|&t| t <= range_ms.1);
        if from > 0 || to < times.len() {
            self.columns.keep(from, to);
        }
    }

    /// Removes the points from the first time up to the second, exclusive.
    fn cut(&mut self, (start_ms, end_ms): (i64, i64)) {
        let all = std::mem::take(&mut self.columns);
        let index = |time_ms| all.times_ms.partition_point(|time| *time < time_ms);
        self.columns.extend_range(&all, 0, index(start_ms));
        self.columns.extend_range(&all, index(end_ms), all.len());
    }

    /// Decodes the rows with conflicts under a merge rule and merges their points into `columns`.
    pub fn settle(
        &mut self,
        layout: PartLayout,
        rule: MergeRule,
        range_ms: (i64, i64),
    ) -> Result<(), RowError> {
        if self.conflicts.is_empty() {
            return Ok(());
        }
        let mut extras = RowExtras::default();
        for row in std::mem::take(&mut self.conflicts) {
            let base = layout.split_key(&row.key, &mut Vec::new());
            let base = BaseTime::from_stored(base.to_be_bytes());
            decode_row(&row, base, rule, &mut self.columns, &mut extras)?;
        }
        // Two rows never share an instant.
        self.columns.sort_distinct();
        self.keep(range_ms);
        Ok(())
    }
}

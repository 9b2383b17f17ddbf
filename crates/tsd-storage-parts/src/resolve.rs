//! Merges chunks of several parts into the rows of one series: the newest cell of each column wins.
//!
//! Row, family and qualifier identify a column. Points with one instant and different qualifiers are different
//! columns, and all are kept. The duplicate rule of the reader chooses between them.

use std::collections::BTreeMap;

use tsd_model::{Cell, ChunkPoint, ColumnKind, Family, PackedChunk};

use crate::{
    chunk::{ChunkKind, ChunkView, Tombstone, has_points},
    error::{MISPLACED, Malformed},
    series_encoder::column_cell,
};

/// Decoded chunks of one series. A newer part has a greater rank.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    points: Vec<ChunkPoint>,
    segments: Vec<Segment>,
    cells: Vec<(u32, u32, Cell)>,
    tombstones: Vec<(u32, u32, Tombstone)>,
    row: ResolvedRow,
}

/// Points of one row in one chunk.
#[derive(Clone, Copy, Debug)]
struct Segment {
    base: u32,
    rank: u32,
    compacted: bool,
    start: usize,
    end: usize,
}

/// A merged row. Each column is present once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ResolvedRow {
    pub(crate) base: u32,
    /// Single points, in seconds and in milliseconds, in order of time. Points with equal instants have different
    /// qualifiers.
    pub(crate) singles: [Vec<ChunkPoint>; 2],
    /// Compacted columns with at least two points.
    pub(crate) columns: Vec<Vec<ChunkPoint>>,
    pub(crate) cells: Vec<Cell>,
    /// Tombstones that hide cells of parts older than all merged ones.
    pub(crate) tombstones: Vec<Tombstone>,
}

impl Resolver {
    pub(crate) fn clear(&mut self) {
        self.points.clear();
        self.segments.clear();
        self.cells.clear();
        self.tombstones.clear();
    }

    /// Decodes a chunk of a part.
    pub(crate) fn add(&mut self, rank: u32, span: u32, chunk: &ChunkView) -> Result<(), Malformed> {
        match chunk.kind {
            ChunkKind::Points => {
                let packed = PackedChunk::open(chunk.payload.clone(), span)?;
                let mut start = self.points.len();
                packed.points_into(&mut self.points)?;
                let compacted = packed.shape() == tsd_model::RunShape::Compacted;
                while let Some(first) = self.points.get(start) {
                    let rest = self.points.get(start..).unwrap_or_default();
                    let len = rest.partition_point(|p| p.base_secs == first.base_secs);
                    self.segments.push(Segment {
                        base: first.base_secs,
                        rank,
                        // A compacted column of one point is an ordinary cell.
                        compacted: compacted && len > 1,
                        start,
                        end: start + len,
                    });
                    start += len;
                }
                Ok(())
            }
            ChunkKind::Cells => chunk.cells(span, |base, cell| self.cells.push((base, rank, cell))),
            ChunkKind::Tombstones => {
                chunk.tombstones(span, |base, t| self.tombstones.push((base, rank, t)))
            }
            ChunkKind::Summaries => Err(MISPLACED),
        }
    }

    /// Calls `each` for the rows with base times in the range, in order, and clears the decoded chunks.
    pub(crate) fn rows(&mut self, bases: (u32, u32), mut each: impl FnMut(&ResolvedRow)) {
        self.segments.sort_by_key(|s| (s.base, s.rank));
        self.cells.sort_by_key(|(base, rank, _)| (*base, *rank));
        self.tombstones.sort_by_key(|(base, rank, _)| (*base, *rank));
        let (mut s, mut c, mut t) = (0, 0, 0);
        loop {
            let next = [
                self.segments.get(s).map(|segment| segment.base),
                self.cells.get(c).map(|(base, ..)| *base),
                self.tombstones.get(t).map(|(base, ..)| *base),
            ];
            let Some(base) = next.into_iter().flatten().min() else { break };
            let segments = s + count_while(self.segments.get(s..), |x| x.base == base);
            let cells = c + count_while(self.cells.get(c..), |x| x.0 == base);
            let tombstones = t + count_while(self.tombstones.get(t..), |x| x.0 == base);
            if (bases.0..=bases.1).contains(&base) {
                self.row.clear(base);
                resolve(
                    &self.points,
                    self.segments.get(s..segments).unwrap_or_default(),
                    self.cells.get(c..cells).unwrap_or_default(),
                    self.tombstones.get(t..tombstones).unwrap_or_default(),
                    &mut self.row,
                );
                each(&self.row);
            }
            (s, c, t) = (segments, cells, tombstones);
        }
        self.clear();
    }
}

fn count_while<T>(items: Option<&[T]>, is: impl Fn(&T) -> bool) -> usize {
    items.unwrap_or_default().iter().take_while(|x| is(x)).count()
}

fn resolve(
    points: &[ChunkPoint],
    segments: &[Segment],
    cells: &[(u32, u32, Cell)],
    tombstones: &[(u32, u32, Tombstone)],
    row: &mut ResolvedRow,
) {
    let of = |s: &Segment| points.get(s.start..s.end).unwrap_or_default();
    let one_rank = {
        let ranks = segments.iter().map(|s| s.rank).chain(cells.iter().map(|(_, rank, _)| *rank));
        let mut all = ranks.chain(tombstones.iter().map(|(_, rank, _)| *rank));
        let first = all.next();
        all.all(|rank| Some(rank) == first)
    };
    if one_rank {
        // A part has each column once.
        for segment in segments {
            if segment.compacted {
                row.columns.push(of(segment).to_vec());
            } else {
                row.push_singles(of(segment));
            }
        }
        row.cells.extend(cells.iter().map(|(.., cell)| cell.clone()));
        row.tombstones.extend(tombstones.iter().map(|(.., t)| t.clone()));
        row.sort_singles();
        return;
    }
    let plain = tombstones.is_empty()
        && cells.iter().all(|(.., cell)| !has_points(cell))
        && segments.iter().all(|s| !s.compacted);
    if plain {
        // The sort keeps the order by rank, so the last of equal columns is the newest.
        for segment in segments {
            row.push_singles(of(segment));
        }
        row.sort_singles();
        for (.., cell) in cells {
            let same = |old: &Cell| old.family == cell.family && old.qualifier == cell.qualifier;
            row.cells.retain(|old| !same(old));
            row.cells.push(cell.clone());
        }
        return;
    }
    resolve_columns(points, segments, cells, tombstones, row);
}

enum ColumnContent {
    Single(ChunkPoint),
    Column(Vec<ChunkPoint>),
    Cell(Cell),
}

/// Applies the parts column by column, from old to new.
fn resolve_columns(
    points: &[ChunkPoint],
    segments: &[Segment],
    cells: &[(u32, u32, Cell)],
    tombstones: &[(u32, u32, Tombstone)],
    row: &mut ResolvedRow,
) {
    let mut columns: BTreeMap<(Family, Vec<u8>), ColumnContent> = BTreeMap::new();
    let mut deleted: BTreeMap<(Family, Vec<u8>), Tombstone> = BTreeMap::new();
    let mut row_deleted = false;
    let mut ranks: Vec<u32> = segments
        .iter()
        .map(|s| s.rank)
        .chain(cells.iter().map(|(_, rank, _)| *rank))
        .chain(tombstones.iter().map(|(_, rank, _)| *rank))
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    for rank in ranks {
        for (.., tombstone) in tombstones.iter().filter(|(_, r, _)| *r == rank) {
            match tombstone {
                Tombstone::Row => {
                    columns.clear();
                    deleted.clear();
                    row_deleted = true;
                }
                Tombstone::Column(family, qualifier) => {
                    let column = (*family, qualifier.to_vec());
                    columns.remove(&column);
                    deleted.insert(column, tombstone.clone());
                }
            }
        }
        let mut put = |family, qualifier: Vec<u8>, content| {
            let column = (family, qualifier);
            // The new cell hides what the tombstone hid.
            deleted.remove(&column);
            columns.insert(column, content);
        };
        for segment in segments.iter().filter(|s| s.rank == rank) {
            let points = points.get(segment.start..segment.end).unwrap_or_default();
            if segment.compacted {
                let qualifier = column_cell(points).qualifier.to_vec();
                put(Family::T, qualifier, ColumnContent::Column(points.to_vec()));
            } else {
                for p in points {
                    let mut qualifier = Vec::with_capacity(4);
                    p.point.write_qualifier(&mut qualifier);
                    put(Family::T, qualifier, ColumnContent::Single(*p));
                }
            }
        }
        for (.., cell) in cells.iter().filter(|(_, r, _)| *r == rank) {
            put(cell.family, cell.qualifier.to_vec(), ColumnContent::Cell(cell.clone()));
        }
    }
    for content in columns.into_values() {
        match content {
            ColumnContent::Single(point) => row.push_singles(&[point]),
            ColumnContent::Column(points) => row.columns.push(points),
            ColumnContent::Cell(cell) => row.cells.push(cell),
        }
    }
    row.sort_singles();
    if row_deleted {
        row.tombstones.push(Tombstone::Row);
    } else {
        row.tombstones.extend(deleted.into_values());
    }
}

impl ResolvedRow {
    fn clear(&mut self, base: u32) {
        self.base = base;
        self.singles.iter_mut().for_each(Vec::clear);
        self.columns.clear();
        self.cells.clear();
        self.tombstones.clear();
    }

    fn push_singles(&mut self, points: &[ChunkPoint]) {
        let [seconds, millis] = &mut self.singles;
        match points.first() {
            Some(first) if first.point.is_millis() => millis.extend_from_slice(points),
            _ => seconds.extend_from_slice(points),
        }
    }

    /// Sorts single points by qualifier and keeps the last of equal ones.
    fn sort_singles(&mut self) {
        for points in &mut self.singles {
            let time = |p: &ChunkPoint| p.point.offset_ms();
            if points.is_sorted_by(|a, b| time(a) < time(b)) {
                continue;
            }
            let column = |p: &ChunkPoint| (time(p), p.point.flags());
            points.sort_by_key(column);
            // Reversed, because `dedup_by` keeps the first of each group.
            points.reverse();
            points.dedup_by(|later, kept| column(later) == column(kept));
            points.reverse();
        }
    }

    /// All cells, sorted by family and qualifier.
    pub(crate) fn to_cells(&self) -> Vec<Cell> {
        let singles = self.singles.iter().flatten().map(ChunkPoint::cell);
        let columns = self.columns.iter().map(|points| column_cell(points));
        let mut cells: Vec<Cell> =
            singles.chain(columns).chain(self.cells.iter().cloned()).collect();
        cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
        cells
    }

    /// True if the row has two points with one instant, or columns that only a row decoder understands.
    pub(crate) fn needs_rule(&self) -> bool {
        if self.cells.iter().any(has_points) {
            return true;
        }
        let mut times: Vec<u32> = self
            .singles
            .iter()
            .flatten()
            .chain(self.columns.iter().flatten())
            .map(|p| p.point.offset_ms())
            .collect();
        if !times.is_sorted_by(|a, b| a < b) {
            times.sort_unstable();
        }
        times.is_sorted_by(|a, b| a < b).then_some(()).is_none()
    }

    /// The points as one compacted column with the newest cell timestamp, as row compaction would write them.
    /// `None` if row compaction would keep the row, or if the column would not pack.
    pub(crate) fn compacted(&self) -> Option<Vec<ChunkPoint>> {
        let append = |cell: &Cell| {
            cell.family == Family::T
                && matches!(
                    ColumnKind::of(&cell.qualifier),
                    ColumnKind::Append | ColumnKind::BadAppend
                )
        };
        if self.cells.iter().any(append) || self.needs_rule() {
            return None;
        }
        let mut points: Vec<ChunkPoint> =
            self.singles.iter().flatten().chain(self.columns.iter().flatten()).copied().collect();
        let millis = points.first()?.point.is_millis();
        let newest = points.iter().map(|p| p.timestamp_ms).max()?;
        if points.iter().any(|p| p.point.is_millis() != millis) {
            return None;
        }
        points.sort_by_key(|p| p.point.offset_ms());
        for point in &mut points {
            point.timestamp_ms = newest;
        }
        Some(points)
    }
}

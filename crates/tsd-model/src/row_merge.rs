//! Merge of the point columns of a row, for queries and row compaction.
//!
//! Columns are read in stored order. The merge takes the point with the smallest offset, and among
//! equal offsets the point with the newest cell first. The [`MergeRule`] decides about the other
//! points of an instant.
//!
//! A column of several points has the timestamp of its newest source, so its other points may be
//! older. Of two cells with equal timestamps, the column of a single point is therefore the newer.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use bytes::Bytes;

use crate::{
    cell::{Cell, Family},
    column_kind::ColumnKind,
    columns::Value,
    point_column::{AppendedPoints, PointReader, StoredPoint},
    row_error::{ColumnError, RowError},
};

/// Selects the point to keep of several points of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MergeRule {
    /// Equal values are one point; different values are an error. OpenTSDB's default.
    #[default]
    Unanimous,
    /// The cell written last (`tsd.storage.fix_duplicates`).
    Newest,
    /// The largest value; the newest of equal values (`tsd.storage.use_otsdb_timestamp`, where cell
    /// timestamps do not reflect the order of writes).
    Largest,
    /// The smallest value (the same, with `tsd.storage.use_max_value` off).
    Smallest,
}

impl MergeRule {
    /// The rule for OpenTSDB's settings of these names.
    #[must_use]
    pub const fn from_settings(
        fix_duplicates: bool,
        use_otsdb_timestamp: bool,
        use_max_value: bool,
    ) -> Self {
        match (use_otsdb_timestamp, use_max_value, fix_duplicates) {
            (true, true, _) => Self::Largest,
            (true, false, _) => Self::Smallest,
            (false, _, true) => Self::Newest,
            (false, _, false) => Self::Unanimous,
        }
    }
}

/// Order in which the points of one column are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnOrder {
    /// As stored, even if unsorted: row compaction preserves the order.
    AsStored,
    /// Sorted by time, as in decoded columns.
    Sorted,
}

/// Points dropped by a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedDuplicates {
    /// With the same value bytes as the kept point.
    pub identical: u64,
    /// With other value bytes.
    pub variant: u64,
}

/// All points of a row, before the merge.
#[derive(Debug, Default)]
pub(crate) struct RowPoints<'a> {
    points: Vec<MergePoint<'a>>,
    /// Index of the first point of each column.
    starts: Vec<usize>,
    /// A column is not in time order.
    unordered: bool,
    /// A point needed a repair.
    pub(crate) fixed: bool,
    /// Newest cell timestamp of a point column.
    pub(crate) newest_ms: Option<i64>,
    /// The row has an append column.
    pub(crate) appended: bool,
}

#[derive(Clone, Copy, Debug)]
struct MergePoint<'a> {
    offset_ms: u32,
    written: Written,
    point: StoredPoint<'a>,
}

/// When a point was written, as far as its cell tells: later is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Written {
    cell_ms: i64,
    /// The column has this point alone.
    is_alone: bool,
}

impl<'a> RowPoints<'a> {
    /// Reads all columns of points of a row. Other columns are ignored.
    pub(crate) fn read(key: &Bytes, cells: &'a [Cell]) -> Result<Self, RowError> {
        let mut all = Self::default();
        for cell in cells.iter().filter(|cell| cell.family == Family::T) {
            let result = match ColumnKind::of(&cell.qualifier) {
                ColumnKind::Point | ColumnKind::Compacted => all.add_points(cell),
                ColumnKind::Append => all.add_appended(cell),
                ColumnKind::BadAppend => {
                    return Err(RowError::NotAnAppend {
                        key: key.clone(),
                        qualifier: cell.qualifier.clone(),
                    });
                }
                ColumnKind::Annotation | ColumnKind::Histogram | ColumnKind::Unknown => continue,
            };
            result.map_err(|problem| RowError::Column {
                qualifier: cell.qualifier.clone(),
                problem,
            })?;
            all.newest_ms = all.newest_ms.max(Some(cell.timestamp_ms));
        }
        Ok(all)
    }

    /// Number of columns with points.
    pub(crate) fn column_count(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.points.len()
    }

    fn add_points(&mut self, cell: &'a Cell) -> Result<(), ColumnError> {
        let mut reader = PointReader::new(&cell.qualifier, &cell.value)?;
        let start = self.points.len();
        let is_alone = ColumnKind::of(&cell.qualifier) == ColumnKind::Point;
        let written = Written { cell_ms: cell.timestamp_ms, is_alone };
        while let Some(point) = reader.next_point()? {
            self.push(start, written, point);
        }
        self.fixed |= reader.was_fixed();
        self.end_column(start);
        Ok(())
    }

    fn add_appended(&mut self, cell: &'a Cell) -> Result<(), ColumnError> {
        let start = self.points.len();
        let written = Written { cell_ms: cell.timestamp_ms, is_alone: false };
        for point in AppendedPoints::decode(&cell.value)?.points() {
            self.push(start, written, *point);
        }
        self.appended = true;
        self.end_column(start);
        Ok(())
    }

    fn push(&mut self, column_start: usize, written: Written, point: StoredPoint<'a>) {
        let offset_ms = point.qualifier.offset_ms();
        if self.points.len() > column_start {
            self.unordered |= self.points.last().is_some_and(|p| p.offset_ms > offset_ms);
        }
        self.points.push(MergePoint { offset_ms, written, point });
    }

    fn end_column(&mut self, start: usize) {
        if self.points.len() > start {
            self.starts.push(start);
        }
    }

    /// The points of the row in time order, one per instant.
    pub(crate) fn merge(
        mut self,
        key: &Bytes,
        rule: MergeRule,
        order: ColumnOrder,
    ) -> Result<(Vec<StoredPoint<'a>>, DroppedDuplicates), RowError> {
        if self.unordered && order == ColumnOrder::AsStored {
            let points = self.interleave();
            return resolve(key, points, rule);
        }
        // Stable, so that the stored order within a column (one cell timestamp) is kept.
        self.points.sort_by_key(|p| (p.offset_ms, Reverse(p.written)));
        resolve(key, self.points.into_iter(), rule)
    }

    /// Heap merge, for the rare row that a sort would reorder.
    fn interleave(self) -> std::vec::IntoIter<MergePoint<'a>> {
        let ends = self.starts.iter().copied().skip(1).chain([self.points.len()]);
        let mut heads: BinaryHeap<ColumnHead<'a>> = BinaryHeap::new();
        let head = |at: usize, end: usize, column: usize| {
            let point = *self.points.get(at).filter(|_| at < end)?;
            Some(ColumnHead { point, column, at, end })
        };
        for (column, (start, end)) in self.starts.iter().zip(ends).enumerate() {
            heads.extend(head(*start, end, column));
        }
        let mut merged = Vec::with_capacity(self.points.len());
        while let Some(first) = heads.pop() {
            merged.push(first.point);
            heads.extend(head(first.at + 1, first.end, first.column));
        }
        merged.into_iter()
    }
}

/// Next point of a column; the greatest in the heap is popped first.
struct ColumnHead<'a> {
    point: MergePoint<'a>,
    column: usize,
    at: usize,
    end: usize,
}

impl ColumnHead<'_> {
    const fn rank(&self) -> (Reverse<u32>, Written, Reverse<usize>) {
        (Reverse(self.point.offset_ms), self.point.written, Reverse(self.column))
    }
}

impl PartialEq for ColumnHead<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for ColumnHead<'_> {}

impl PartialOrd for ColumnHead<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ColumnHead<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// Splits cells of a row into points as a reader sees them (the newest of each instant, in time
/// order) and unchanged other cells, including unreadable cells.
///
/// The result does not depend on how columns divide the points: a row compares equal before and
/// after its compaction.
#[must_use]
pub fn points_and_other_cells<'a>(
    key: &Bytes,
    cells: &'a [Cell],
) -> (Vec<StoredPoint<'a>>, Vec<&'a Cell>) {
    let mut others = Vec::new();
    let mut all = RowPoints::default();
    for cell in cells {
        match RowPoints::read(key, std::slice::from_ref(cell)) {
            Ok(points) if !points.is_empty() => all.points.extend(points.points),
            _ => others.push(cell),
        }
    }
    match all.merge(key, MergeRule::Newest, ColumnOrder::Sorted) {
        Ok((points, _)) => (points, others),
        // Only other rules return errors.
        Err(_) => (Vec::new(), cells.iter().collect()),
    }
}

/// Keeps one point per instant.
fn resolve<'a>(
    key: &Bytes,
    points: impl Iterator<Item = MergePoint<'a>>,
    rule: MergeRule,
) -> Result<(Vec<StoredPoint<'a>>, DroppedDuplicates), RowError> {
    let mut kept: Vec<StoredPoint<'a>> = Vec::with_capacity(points.size_hint().0);
    let mut dropped = DroppedDuplicates::default();
    let mut last_offset = None;
    for MergePoint { offset_ms, point, .. } in points {
        let newest = kept.last_mut().filter(|_| last_offset == Some(offset_ms));
        let Some(newest) = newest else {
            last_offset = Some(offset_ms);
            kept.push(point);
            continue;
        };
        if newest.value == point.value {
            dropped.identical += 1;
            continue;
        }
        dropped.variant += 1;
        match rule {
            MergeRule::Newest => {}
            MergeRule::Largest | MergeRule::Smallest => {
                let better =
                    if rule == MergeRule::Largest { Ordering::Greater } else { Ordering::Less };
                if compare(&point, newest) == Some(better) {
                    *newest = point;
                }
            }
            MergeRule::Unanimous => {
                return Err(RowError::Duplicate {
                    key: key.clone(),
                    offset_ms,
                    newest: Bytes::copy_from_slice(newest.value),
                    other: Bytes::copy_from_slice(point.value),
                });
            }
        }
    }
    Ok((kept, dropped))
}

/// Compares values; two integers are compared exactly.
fn compare(a: &StoredPoint<'_>, b: &StoredPoint<'_>) -> Option<Ordering> {
    match (a.point_value().ok()?.widen(), b.point_value().ok()?.widen()) {
        (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(&b)),
        (a, b) => as_double(a).partial_cmp(&as_double(b)),
    }
}

const fn as_double(value: Value) -> f64 {
    match value {
        Value::Integer(v) => v as f64,
        Value::Float(v) => v,
    }
}

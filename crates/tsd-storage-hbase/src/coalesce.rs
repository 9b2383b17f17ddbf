//! The points of a row as one column.
//!
//! The column is the one that row compaction makes: qualifiers and values side by side in time order, a
//! last byte that says whether seconds and milliseconds are mixed, and the time of its newest point. One
//! point alone stays a plain cell. What is no point, or no point as it should be stored, stays as it is.
//! Of several points of one instant (of different widths, say) the newest goes into the column and the
//! others stay plain cells: readers then find them under the times at which they were written, and decide
//! as they always do. Where none is the newest all of them stay plain.

use std::cmp::Reverse;

use tsd_model::{ColumnKind, Family, Qualifier};
use tsd_storage::{FlushCell, MAX_KEY_BYTES, StorageError};

/// Makes columns of rows, one after the other, in the same buffers.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {
    points: Vec<Point>,
    qualifiers: Vec<u8>,
    values: Vec<u8>,
}

/// A point of the row at hand.
#[derive(Clone, Copy, Debug)]
struct Point {
    offset_ms: u32,
    millis: bool,
    written_ms: i64,
    /// Place among the row's cells.
    at: u32,
}

impl Coalescer {
    /// Calls `put` with each column the row's cells come to: family, qualifier, value, time.
    pub(crate) fn columns(
        &mut self,
        cells: &[FlushCell<'_>],
        mut put: impl FnMut(Family, &[u8], &[u8], i64) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        if let [only] = cells {
            return put(only.family, only.qualifier, only.value, only.timestamp_ms);
        }
        self.points.clear();
        let mut in_order = true;
        for (cell, at) in cells.iter().zip(0..) {
            let Some(qualifier) = point(cell) else {
                put(cell.family, cell.qualifier, cell.value, cell.timestamp_ms)?;
                continue;
            };
            let point = Point {
                offset_ms: qualifier.offset_ms(),
                millis: qualifier.is_millis(),
                written_ms: cell.timestamp_ms,
                at,
            };
            in_order &= self.points.last().is_none_or(|last| last.offset_ms < point.offset_ms);
            self.points.push(point);
        }
        if !in_order {
            self.points.sort_by_key(|point| (point.offset_ms, Reverse(point.written_ms)));
        }
        let points = std::mem::take(&mut self.points);
        let done = self.points_of(cells, &points, &mut put);
        self.points = points;
        done
    }

    fn points_of(
        &mut self,
        cells: &[FlushCell<'_>],
        points: &[Point],
        put: &mut impl FnMut(Family, &[u8], &[u8], i64) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut column = Open::default();
        for instant in points.chunk_by(|a, b| a.offset_ms == b.offset_ms) {
            let Some((point, older)) = instant.split_first() else { continue };
            let tied = older.first().is_some_and(|next| next.written_ms == point.written_ms);
            for point in if tied { instant } else { older } {
                let Some(cell) = cells.get(point.at as usize) else { continue };
                put(cell.family, cell.qualifier, cell.value, cell.timestamp_ms)?;
            }
            let Some(cell) = cells.get(point.at as usize).filter(|_| !tied) else { continue };
            if self.qualifiers.len() + cell.qualifier.len() > MAX_KEY_BYTES {
                self.end(&mut column, put)?;
            }
            self.qualifiers.extend_from_slice(cell.qualifier);
            self.values.extend_from_slice(cell.value);
            column.points += 1;
            column.seconds |= !point.millis;
            column.millis |= point.millis;
            column.newest_ms = column.newest_ms.max(point.written_ms);
        }
        self.end(&mut column, put)
    }

    fn end(
        &mut self,
        column: &mut Open,
        put: &mut impl FnMut(Family, &[u8], &[u8], i64) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let Open { points, seconds, millis, newest_ms } = std::mem::take(column);
        if points > 1 {
            self.values.push(u8::from(seconds && millis));
        }
        let done = match points {
            0 => Ok(()),
            _ => put(Family::T, &self.qualifiers, &self.values, newest_ms),
        };
        self.qualifiers.clear();
        self.values.clear();
        done
    }
}

/// The column at hand.
#[derive(Debug)]
struct Open {
    points: usize,
    seconds: bool,
    millis: bool,
    newest_ms: i64,
}

impl Default for Open {
    fn default() -> Self {
        Self { points: 0, seconds: false, millis: false, newest_ms: i64::MIN }
    }
}

/// The qualifier of a cell that holds one point as it should be stored.
fn point(cell: &FlushCell<'_>) -> Option<Qualifier> {
    if cell.family != Family::T || ColumnKind::of(cell.qualifier) != ColumnKind::Point {
        return None;
    }
    let qualifier = Qualifier::decode(cell.qualifier)?;
    let flags = qualifier.flags();
    (flags.is_valid() && flags.value_len() == cell.value.len()).then_some(qualifier)
}

#[cfg(test)]
mod tests;

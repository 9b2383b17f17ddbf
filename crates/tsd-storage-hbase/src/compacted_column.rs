//! Merges the points of a row into compacted columns.
//!
//! A column has the format of row compaction: concatenated qualifiers and values in time order, and a
//! last byte that flags mixed seconds and milliseconds. Its single timestamp is never later than the
//! write of any of its points. Otherwise the column would supersede a correction that another daemon
//! has written meanwhile.
//!
//! * Points that were written in the order of their instants, as a series is measured, form one column
//!   with the time of the first. That lowers the times of the other points, so a value that another
//!   daemon wrote in between may supersede one of them. The caller checks for that ([`PlacedPoint`]).
//! * All other points, including corrections, keep their times. Points of one time form one column.
//!
//! A single point stays a plain cell, and so do cells that are not valid points. Of several points at
//! one instant, for example of different widths, the newest is merged. The others stay plain cells
//! with their own timestamps, by which readers resolve them as usual. If the newest points are tied,
//! all of them stay plain.

use std::cmp::Reverse;

use tsd_model::{ColumnKind, Family};
use tsd_storage::{FlushCell, MAX_KEY_BYTES, StorageError};

use crate::superseded::point_qualifier;

/// Builds compacted columns; reuses its buffers from row to row.
#[derive(Debug, Default)]
pub(crate) struct ColumnCompactor {
    points: Vec<RowPoint>,
    exact: Vec<RowPoint>,
    qualifiers: Vec<u8>,
    values: Vec<u8>,
    placed: Vec<PlacedPoint>,
}

/// Position of the newest point of an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedPoint {
    /// Index among the row's cells.
    pub(crate) cell: usize,
    /// Timestamp of its column; not later than the point's.
    pub(crate) column_ms: i64,
}

/// A point of the current row.
#[derive(Clone, Copy, Debug)]
struct RowPoint {
    offset_ms: u32,
    millis: bool,
    written_ms: i64,
    /// Index among the row's cells.
    cell: usize,
    /// True if the row has older points of the instant.
    is_shared: bool,
}

impl ColumnCompactor {
    /// The newest point of each instant of the last row, unless it is tied.
    pub(crate) fn placed(&self) -> &[PlacedPoint] {
        &self.placed
    }

    /// Calls `put` with each resulting column: family, qualifier, value, timestamp.
    pub(crate) fn compact(
        &mut self,
        cells: &[FlushCell<'_>],
        mut put: impl FnMut(Family, &[u8], &[u8], i64) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.points.clear();
        self.placed.clear();
        let mut in_order = true;
        let mut has_columns = false;
        for (index, cell) in cells.iter().enumerate() {
            let Some(qualifier) = point_qualifier(cell.family, cell.qualifier, cell.value) else {
                has_columns |= ColumnKind::of(cell.qualifier).is_points();
                put(cell.family, cell.qualifier, cell.value, cell.timestamp_ms)?;
                continue;
            };
            let point = RowPoint {
                offset_ms: qualifier.offset_ms(),
                millis: qualifier.is_millis(),
                written_ms: cell.timestamp_ms,
                cell: index,
                is_shared: false,
            };
            in_order &= self.points.last().is_none_or(|last| last.offset_ms < point.offset_ms);
            self.points.push(point);
        }
        if !in_order {
            self.points.sort_by_key(|point| (point.offset_ms, Reverse(point.written_ms)));
            self.put_older(cells, &mut put)?;
        }
        self.split(has_columns);
        let (points, exact) = (std::mem::take(&mut self.points), std::mem::take(&mut self.exact));
        let by_time = exact.chunk_by(|a, b| a.written_ms == b.written_ms);
        let mut columns = std::iter::once(&points[..]).chain(by_time);
        let result = columns.try_for_each(|column| self.put_column(cells, column, &mut put));
        (self.points, self.exact) = (points, exact);
        result
    }

    /// Puts the points that are not the newest of their instants.
    fn put_older(
        &mut self,
        cells: &[FlushCell<'_>],
        put: &mut impl FnMut(Family, &[u8], &[u8], i64) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let points = std::mem::take(&mut self.points);
        for instant in points.chunk_by(|a, b| a.offset_ms == b.offset_ms) {
            let Some((newest, older)) = instant.split_first() else { continue };
            let is_tied = older.first().is_some_and(|next| next.written_ms == newest.written_ms);
            for point in if is_tied { instant } else { older } {
                let Some(cell) = cells.get(point.cell) else { continue };
                put(cell.family, cell.qualifier, cell.value, cell.timestamp_ms)?;
            }
            if !is_tied {
                self.points.push(RowPoint { is_shared: !older.is_empty(), ..*newest });
            }
        }
        Ok(())
    }

    /// Moves the points that need cells of their own to `exact`, in the order of their write times.
    /// These are the points that were written after a later instant, and the points of an instant with
    /// older values in this row. With `has_columns` all points are moved.
    fn split(&mut self, has_columns: bool) {
        self.exact.clear();
        let mut earliest_ms = i64::MAX;
        for at in (0..self.points.len()).rev() {
            let Some(point) = self.points.get_mut(at) else { continue };
            if has_columns || point.is_shared || point.written_ms > earliest_ms {
                self.exact.push(*point);
                // Marks the point as moved.
                point.cell = usize::MAX;
            } else {
                earliest_ms = point.written_ms;
            }
        }
        if !self.exact.is_empty() {
            self.points.retain(|point| point.cell != usize::MAX);
            self.exact.sort_unstable_by_key(|point| (point.written_ms, point.offset_ms));
        }
    }

    /// Puts points, in the order of their instants, with the time of the first.
    fn put_column(
        &mut self,
        cells: &[FlushCell<'_>],
        points: &[RowPoint],
        put: &mut impl FnMut(Family, &[u8], &[u8], i64) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut column = OpenColumn::default();
        for point in points {
            let Some(cell) = cells.get(point.cell) else { continue };
            if self.qualifiers.len() + cell.qualifier.len() > MAX_KEY_BYTES {
                self.finish(&mut column, put)?;
            }
            if column.points == 0 {
                column.first_ms = point.written_ms;
            }
            self.qualifiers.extend_from_slice(cell.qualifier);
            self.values.extend_from_slice(cell.value);
            self.placed.push(PlacedPoint { cell: point.cell, column_ms: column.first_ms });
            column.points += 1;
            column.seconds |= !point.millis;
            column.millis |= point.millis;
        }
        self.finish(&mut column, put)
    }

    fn finish(
        &mut self,
        column: &mut OpenColumn,
        put: &mut impl FnMut(Family, &[u8], &[u8], i64) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let OpenColumn { points, seconds, millis, first_ms } = std::mem::take(column);
        if points > 1 {
            self.values.push(u8::from(seconds && millis));
        }
        let result = match points {
            0 => Ok(()),
            _ => put(Family::T, &self.qualifiers, &self.values, first_ms),
        };
        self.qualifiers.clear();
        self.values.clear();
        result
    }
}

/// The column under construction.
#[derive(Debug, Default)]
struct OpenColumn {
    points: usize,
    seconds: bool,
    millis: bool,
    /// Time of the first point, which is the earliest.
    first_ms: i64,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use bytes::Bytes;
    use proptest::prelude::*;
    use tsd_model::{
        Cell, MergeRule, Qualifier, from_hex, plan_row_compaction, read_column, to_hex,
    };

    use tsd_storage::{OwnedFlushCell, flush_cells};

    use super::*;

    fn compacted(cells: &[OwnedFlushCell]) -> Vec<OwnedFlushCell> {
        let mut columns = Vec::new();
        ColumnCompactor::default()
            .compact(&flush_cells(cells), |family, qualifier, value, at| {
                columns.push((family, qualifier.to_vec(), value.to_vec(), at));
                Ok(())
            })
            .unwrap();
        columns.sort();
        columns
    }

    /// Cells of family `t`: `qualifier=value@time`, sorted.
    fn cells(texts: &[&str]) -> Vec<OwnedFlushCell> {
        let mut cells: Vec<OwnedFlushCell> = texts
            .iter()
            .map(|text| {
                let (qualifier, rest) = text.split_once('=').unwrap();
                let (value, at) = rest.split_once('@').unwrap();
                let bytes = |hex: &str| from_hex(hex.as_bytes()).unwrap();
                (Family::T, bytes(qualifier), bytes(value), at.parse().unwrap())
            })
            .collect();
        cells.sort();
        cells
    }

    #[track_caller]
    fn check(row: &[&str], expected: &[&str]) {
        let shown: Vec<String> = compacted(&cells(row))
            .iter()
            .map(|(_, q, v, at)| format!("{}={}@{at}", to_hex(q), to_hex(v)))
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn column_has_the_time_of_its_first_point_and_later_corrections_have_their_own() {
        check(&["0000=01@5", "0010=02@7", "0020=03@9"], &["000000100020=01020300@5"]);
        // The second point was written after the third.
        check(&["0000=01@5", "0010=02@9", "0020=03@7"], &["00000020=010300@5", "0010=02@9"]);
        // Two corrections at once, and one later.
        check(
            &["0000=01@9", "0010=02@9", "0020=03@8", "0030=04@5", "0040=05@6"],
            &["00000010=010200@9", "0020=03@8", "00300040=040500@5"],
        );
        check(&["0000=01@5"], &["0000=01@5"]);
        check(&[], &[]);
    }

    #[test]
    fn seconds_and_milliseconds_are_mixed_in_time_order() {
        // 1 s, 0.5 s, 2 s
        check(&["0010=01@1", "F0007D00=02@1", "0020=03@1"], &["F0007D0000100020=02010301@1"]);
        check(&["F0007D00=02@1", "F000FA00=03@1"], &["F0007D00F000FA00=020300@1"]);
    }

    #[test]
    fn cells_that_are_not_points_are_unchanged() {
        check(
            &[
                "0000=01@1",
                "0010=02@1",
                "010000=7B7D@2",
                "050000=00002A@3",
                "060000=00@4",
                "00000010=010200@5",
                "07=@6",
            ],
            &[
                "00000010=010200@1",
                "00000010=010200@5",
                "010000=7B7D@2",
                "050000=00002A@3",
                "060000=00@4",
                "07=@6",
            ],
        );
        // Values whose length differs from the qualifier's, or is invalid for the type.
        check(
            &["0000=0102@1", "0010=02@1", "0022=010203@1"],
            &["0000=0102@1", "0010=02@1", "0022=010203@1"],
        );
    }

    #[test]
    fn newest_point_of_one_time_is_in_the_column() {
        check(
            &["0000=01@1", "0001=012C@5", "000B=3F800000@3", "0010=02@2", "0020=03@2"],
            &["0000=01@1", "0001=012C@5", "000B=3F800000@3", "00100020=020300@2"],
        );
        check(&["0010=01@9", "F000FA00=02@1"], &["0010=01@9", "F000FA00=02@1"]);
        check(
            &["0010=01@9", "F000FA00=02@9", "0020=03@1", "0030=04@2"],
            &["0010=01@9", "00200030=030400@1", "F000FA00=02@9"],
        );
    }

    #[test]
    fn column_is_split_at_the_longest_qualifier() {
        let points: Vec<OwnedFlushCell> = (0..20_000_u32)
            .map(|ms| {
                let qualifier =
                    Qualifier::at_millis(ms, tsd_model::Flags::integer(1).unwrap()).unwrap();
                (Family::T, qualifier.as_bytes().to_vec(), vec![7], i64::from(ms))
            })
            .collect();
        let columns = compacted(&points);
        assert_eq!(columns.len(), 3);
        assert!(columns.iter().all(|(_, qualifier, ..)| qualifier.len() <= MAX_KEY_BYTES));
        let read: usize = columns
            .iter()
            .map(|(_, qualifier, value, _)| {
                let mut points = Vec::new();
                read_column(qualifier, value, &mut points).unwrap();
                points.len()
            })
            .sum();
        assert_eq!(read, 20_000);
    }

    fn point() -> impl Strategy<Value = OwnedFlushCell> {
        let flags =
            prop::sample::select(vec![(0_u8, 1), (1, 2), (3, 4), (7, 8), (0xB, 4), (0xF, 8)]);
        // Few different times, so that points collide.
        (0..12_u32, flags, any::<[u8; 8]>(), 1..6_i64).prop_map(
            |(at, (bits, length), value, written)| {
                let flags = tsd_model::Flags::from_bits(bits);
                let qualifier = if at < 6 {
                    Qualifier::at_seconds(at, flags).unwrap()
                } else {
                    Qualifier::at_millis((at - 6) * 500, flags).unwrap()
                };
                (Family::T, qualifier.as_bytes().to_vec(), value[..length].to_vec(), written)
            },
        )
    }

    fn row() -> impl Strategy<Value = Vec<OwnedFlushCell>> {
        let other = prop::sample::select(vec![&[1_u8, 0, 0][..], &[6, 0, 0], &[9], &[0, 0x16]])
            .prop_map(|qualifier| (Family::T, qualifier.to_vec(), vec![1, 2, 3], 3));
        prop::collection::vec(prop_oneof![8 => point(), 1 => other], 0..20).prop_map(|mut cells| {
            cells.sort();
            cells.dedup_by(|a, b| (a.0, &a.1) == (b.0, &b.1));
            cells
        })
    }

    fn model_row(cells: &[OwnedFlushCell]) -> (Bytes, Vec<Cell>) {
        let cell = |(family, qualifier, value, timestamp_ms): &OwnedFlushCell| Cell {
            family: *family,
            qualifier: Bytes::copy_from_slice(qualifier),
            value: Bytes::copy_from_slice(value),
            timestamp_ms: *timestamp_ms,
        };
        (
            Bytes::from_static(&[0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]),
            cells.iter().map(cell).collect(),
        )
    }

    /// The points that a reader gets; `None` for an error.
    fn read(cells: &[OwnedFlushCell], rule: MergeRule) -> Option<(Vec<u8>, Vec<u8>)> {
        let (key, cells) = model_row(cells);
        let result = plan_row_compaction(&key, &cells, rule).ok()?.result;
        Some(result.map_or_else(Default::default, |c| (c.qualifier.to_vec(), c.value.to_vec())))
    }

    const MERGE_RULES: [MergeRule; 4] =
        [MergeRule::Unanimous, MergeRule::Newest, MergeRule::Largest, MergeRule::Smallest];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn compacted_row_reads_the_same_under_every_merge_rule(row in row()) {
            let after = compacted(&row);
            for rule in MERGE_RULES {
                prop_assert_eq!(read(&after, rule), read(&row, rule), "{:?}: {:?}", rule, after);
            }
        }
    }
}

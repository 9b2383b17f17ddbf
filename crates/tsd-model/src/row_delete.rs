//! Plan of a delete of single points: the columns to delete, and the cells to write instead.
//!
//! The plan is a pure function of the cells, like the plan of a row compaction. A deleted instant is removed from all
//! columns, since an older value would be read otherwise.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{
    cell::{Cell, Family},
    column_kind::ColumnKind,
    columns::Value,
    point_column::{AppendedPoints, StoredPoint, append_entry, encode_column, read_column},
    point_value::PointValue,
    row_compaction::{ReplacedColumn, superseded_ms},
    row_error::RowError,
    row_merge::{ColumnOrder, MergeRule, RowPoints},
};

/// Plan of a delete of points of one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointDelete {
    /// Number of deleted points as queries see them: one for each instant.
    pub points: usize,
    /// Column with the remaining points of the columns in `delete`; it is put first.
    pub put: Option<Cell>,
    /// [`superseded_ms`] of the put.
    pub superseded_ms: Option<i64>,
    /// Columns to delete after the put.
    pub delete: Vec<ReplacedColumn>,
    /// Append columns as they were read, with their new values; `None` deletes the column.
    pub appends: Vec<(Cell, Option<Bytes>)>,
}

/// Plans the delete of the points that `selects` accepts, by offset in milliseconds and value. Columns without points
/// are not changed.
pub fn plan_point_delete(
    key: &Bytes,
    cells: &[Cell],
    rule: MergeRule,
    selects: impl Fn(u32, Value) -> bool,
) -> Result<PointDelete, RowError> {
    let (read, _) = RowPoints::read(key, cells)?.merge(key, rule, ColumnOrder::Sorted)?;
    let mut deleted = BTreeSet::new();
    for point in &read {
        let value = point.point_value().map(PointValue::widen);
        let offset_ms = point.qualifier.offset_ms();
        if value.is_ok_and(|value| selects(offset_ms, value)) {
            deleted.insert(offset_ms);
        }
    }
    let mut plan = PointDelete { points: deleted.len(), ..PointDelete::default() };
    if deleted.is_empty() {
        return Ok(plan);
    }
    let (mut columns, mut is_cut) = (Vec::new(), false);
    for cell in cells.iter().filter(|cell| cell.family == Family::T) {
        let kind = ColumnKind::of(&cell.qualifier);
        if !kind.is_points() && kind != ColumnKind::Append {
            continue;
        }
        let mut stored = Vec::new();
        read_column(&cell.qualifier, &cell.value, &mut stored)
            .map_err(|problem| RowError::Column { qualifier: cell.qualifier.clone(), problem })?;
        let loses = stored.iter().any(|point| deleted.contains(&point.qualifier.offset_ms()));
        let keeps = stored.iter().any(|point| !deleted.contains(&point.qualifier.offset_ms()));
        if kind == ColumnKind::Append {
            if loses {
                plan.appends.push((cell.clone(), without(cell, &deleted, keeps)));
            }
            continue;
        }
        is_cut |= loses && keeps;
        columns.push((cell, loses));
    }
    // The remaining points of all columns are put together, so that each instant keeps its current value, whatever
    // the times of the cells.
    if is_cut {
        let others: Vec<Cell> = columns.iter().map(|(cell, _)| (*cell).clone()).collect();
        let points = RowPoints::read(key, &others)?;
        let newest_ms = points.newest_ms.unwrap_or_default();
        let (mut points, _) = points.merge(key, rule, ColumnOrder::AsStored)?;
        // A point whose value is in an append column stays there.
        let is_read = |point: &StoredPoint<'_>| {
            let at = read
                .binary_search_by_key(&point.qualifier.offset_ms(), |p| p.qualifier.offset_ms());
            at.ok().and_then(|at| read.get(at)).is_some_and(|read| read.value == point.value)
        };
        points.retain(|point| !deleted.contains(&point.qualifier.offset_ms()) && is_read(point));
        let (qualifier, value) = encode_column(&points);
        let put = Cell {
            family: Family::T,
            qualifier: qualifier.into(),
            value: value.into(),
            timestamp_ms: newest_ms,
        };
        let is_present = |cell: &Cell| cell.qualifier == put.qualifier && cell.value == put.value;
        let is_replaced =
            |(cell, _): &&(&Cell, bool)| points.is_empty() || cell.qualifier != put.qualifier;
        plan.delete = columns.iter().filter(is_replaced).map(|(cell, _)| replaced(cell)).collect();
        if !points.is_empty() && !cells.iter().any(is_present) {
            plan.superseded_ms = superseded_ms(cells, &put);
            plan.put = Some(put);
        }
    } else {
        let lost = columns.iter().filter(|(_, loses)| *loses);
        plan.delete = lost.map(|(cell, _)| replaced(cell)).collect();
    }
    Ok(plan)
}

fn replaced(cell: &Cell) -> ReplacedColumn {
    ReplacedColumn {
        family: cell.family,
        qualifier: cell.qualifier.clone(),
        timestamp_ms: cell.timestamp_ms,
    }
}

/// The value of an append column without the deleted instants; `None` if no point remains.
fn without(cell: &Cell, deleted: &BTreeSet<u32>, keeps: bool) -> Option<Bytes> {
    let points = AppendedPoints::decode(&cell.value).ok().filter(|_| keeps)?;
    let mut value = Vec::new();
    for point in points.points() {
        if !deleted.contains(&point.qualifier.offset_ms()) {
            append_entry(point.qualifier, point.value, &mut value);
        }
    }
    Some(value.into())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        hex::{from_hex, to_hex},
        qualifier::Qualifier,
    };

    fn key() -> Bytes {
        Bytes::from_static(&[0, 0, 1, 0x50, 0xE2, 0x27, 0, 0, 0, 1, 0, 0, 1])
    }

    /// Cells from `qualifier=value`, each written a millisecond after the previous cell.
    fn cells(texts: &[&str]) -> Vec<Cell> {
        let bytes = |hex: &str| Bytes::from(from_hex(hex.as_bytes()).unwrap());
        texts
            .iter()
            .zip(1..)
            .map(|(text, timestamp_ms)| {
                let (qualifier, value) = text.split_once('=').unwrap();
                let (qualifier, value) = (bytes(qualifier), bytes(value));
                Cell { family: Family::T, qualifier, value, timestamp_ms }
            })
            .collect()
    }

    /// Deletes the points of the first two seconds, and checks the put, the deletes and the new append columns.
    #[track_caller]
    fn check(row: &[&str], put: Option<&str>, delete: &[&str], appends: &[&str]) {
        let selects = |offset_ms: u32, _| offset_ms < 2_000;
        let plan = plan_point_delete(&key(), &cells(row), MergeRule::Newest, selects).unwrap();
        let show = |cell: &Cell| format!("{}={}", to_hex(&cell.qualifier), to_hex(&cell.value));
        assert_eq!(plan.put.as_ref().map(show), put.map(str::to_owned), "{row:?}");
        let deleted: Vec<_> = plan.delete.iter().map(|old| to_hex(&old.qualifier)).collect();
        assert_eq!(deleted, delete, "{row:?}");
        let left = |(cell, new): &(Cell, Option<Bytes>)| {
            let new = new.as_ref().map_or_else(|| "-".to_owned(), |new| to_hex(new));
            format!("{}={new}", to_hex(&cell.qualifier))
        };
        assert_eq!(plan.appends.iter().map(left).collect::<Vec<_>>(), appends, "{row:?}");
    }

    #[test]
    fn single_cells_go_alone() {
        check(&["0000=01", "0010=02", "0020=03"], None, &["0000", "0010"], &[]);
        // An annotation, a histogram, an unknown column.
        check(&["0000=01", "010000=7B7D", "060000=2A00", "070000=AA"], None, &["0000"], &[]);
        // Milliseconds, and a value of another length at one instant.
        check(
            &["0000=01", "F0000000=01", "0001=0102", "F007D000=05"],
            None,
            &["0000", "F0000000", "0001"],
            &[],
        );
        check(&["0020=01"], None, &[], &[]);
    }

    #[test]
    fn what_stays_of_a_column_is_put_with_the_corrections_of_the_row() {
        check(&["000000100020=01020300"], Some("0020=03"), &["000000100020"], &[]);
        check(&["000000100020=01020300", "0020=09"], None, &["000000100020"], &[]);
        check(
            &["000000200030=01020300", "0030=09"],
            Some("00200030=020900"),
            &["000000200030", "0030"],
            &[],
        );
        check(&["00000010=010200", "0020=09"], None, &["00000010"], &[]);
    }

    #[test]
    fn append_columns_lose_entries() {
        check(&["050000=000001001002002003"], None, &[], &["050000=002003"]);
        check(&["050000=000001"], None, &[], &["050000=-"]);
        check(&["050000=000001002003", "0000=07"], None, &["0000"], &["050000=002003"]);
        check(&["050000=002003", "0000=07"], None, &["0000"], &[]);
    }

    fn column() -> impl Strategy<Value = (Vec<u32>, u8, i64)> {
        (prop::collection::btree_set(0..12_u32, 1..6), 0..100_u8, 1..9_i64)
            .prop_map(|(offsets, value, at)| (offsets.into_iter().collect(), value, at))
    }

    /// Points of a row as queries return them.
    fn points(cells: &[Cell]) -> BTreeMap<u32, Vec<u8>> {
        let points = RowPoints::read(&key(), cells).unwrap();
        let (points, _) = points.merge(&key(), MergeRule::Newest, ColumnOrder::Sorted).unwrap();
        points.iter().map(|p| (p.qualifier.offset_ms(), p.value.to_vec())).collect()
    }

    proptest! {
        #[test]
        fn exactly_the_selected_points_go(
            columns in prop::collection::vec(column(), 1..5),
            appended in prop::option::of(column()), from in 0..8_000_u32, length in 0..8_000_u32,
        ) {
            let flags = crate::flags::Flags::from_bits(0);
            let at = |half: u32| match half % 2 {
                0 => Qualifier::at_seconds(half / 2, flags).unwrap(),
                _ => Qualifier::at_millis(half * 500, flags).unwrap(),
            };
            let mut row: Vec<Cell> = Vec::new();
            for (offsets, value, timestamp_ms) in columns {
                let mut qualifier = Vec::new();
                for half in &offsets {
                    qualifier.extend(at(*half).as_bytes());
                }
                let mut values: Vec<u8> = (0..offsets.len()).map(|i| value + i as u8).collect();
                if offsets.len() > 1 {
                    values.push(1);
                }
                row.push(Cell {
                    family: Family::T, qualifier: qualifier.into(), value: values.into(), timestamp_ms,
                });
            }
            // OpenTSDB does not define which of two cells with equal time and instant wins, so the test has no such
            // cells.
            if let Some((offsets, value, time)) = appended {
                let timestamp_ms = time % 2 * 10;
                let mut entries = Vec::new();
                for half in &offsets {
                    append_entry(at(*half), &[value], &mut entries);
                }
                row.push(Cell {
                    family: Family::T, qualifier: Bytes::from_static(&[5, 0, 0]), value: entries.into(),
                    timestamp_ms,
                });
            }
            row.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
            row.dedup_by(|a, b| a.qualifier == b.qualifier);
            let range = from..from + length;
            let selects = |offset: u32, _| range.contains(&offset);
            let plan = plan_point_delete(&key(), &row, MergeRule::Newest, selects).unwrap();
            let before = points(&row);
            let mut expected = before.clone();
            expected.retain(|offset, _| !range.contains(offset));
            prop_assert_eq!(plan.points, before.len() - expected.len());
            let mut after = row.clone();
            if let Some(put) = &plan.put {
                after.retain(|cell| cell.qualifier != put.qualifier);
                after.push(put.clone());
            }
            after.retain(|cell| !plan.delete.iter().any(|old| old.qualifier == cell.qualifier));
            for (old, new) in &plan.appends {
                after.retain(|cell| cell.qualifier != old.qualifier);
                after.extend(new.clone().map(|value| Cell { value, ..old.clone() }));
            }
            prop_assert_eq!(points(&after), expected);
        }
    }
}

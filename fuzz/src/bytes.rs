//! Rows and packed runs of a store.

use bytes::Bytes;
use tsd_model::{
    BaseTime, Cell, Family, MergeRule, PackedRun, PointColumns, Qualifier, Row, RowExtras,
    decode_row, plan_row_compaction,
};

const BASE: BaseTime = BaseTime::containing(1_356_998_400);

/// A row: a count, that number of cells as length, qualifier, length, value and timestamp, then
/// packed runs.
pub(crate) fn rows(input: &[u8]) {
    let Some((count, mut rest)) = input.split_first() else { return };
    let mut cells: Vec<Cell> = Vec::new();
    for _ in 0..*count {
        let Some((qualifier, after)) = take(rest) else { break };
        let Some((value, after)) = take(after) else { break };
        let Some((timestamp, after)) = after.split_first() else { break };
        rest = after;
        cells.push(Cell {
            family: Family::T,
            qualifier: Bytes::copy_from_slice(qualifier),
            value: Bytes::copy_from_slice(value),
            timestamp_ms: i64::from(*timestamp),
        });
    }
    cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
    cells.dedup_by(|a, b| a.qualifier == b.qualifier);
    let key = Bytes::from_static(&[0, 0, 1, 0x50, 0xE2, 0x27, 0, 0, 0, 1, 0, 0, 1]);
    let runs = PackedRun::open(Bytes::copy_from_slice(rest)).into_iter().collect();
    let mut row = Row { key: key.clone(), cells, runs };
    for rule in [MergeRule::Unanimous, MergeRule::Newest, MergeRule::Largest, MergeRule::Smallest] {
        let points = decoded(&row, rule);
        // A compacted row has the same points, unless a compacted column was unsorted: reads sort
        // it, but compaction keeps its order.
        if row.runs.is_empty()
            && row.cells.iter().all(|cell| is_sorted(&cell.qualifier))
            && let Ok(plan) = plan_row_compaction(&key, &row.cells, rule)
            && let (Some(points), Some(put)) = (points, plan.put)
        {
            let mut compacted = row.clone();
            compacted.cells.retain(|cell| {
                cell.qualifier != put.qualifier
                    && !plan.delete.iter().any(|old| old.qualifier == cell.qualifier)
            });
            compacted.cells.push(put);
            compacted.cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
            let again = decoded(&compacted, rule);
            let again = again.map(|points| point_list(&points));
            assert_eq!(again, Some(point_list(&points)), "{rule:?} of {row:?} as {compacted:?}");
        }
    }
    row.cells.clear();
    let _ = decoded(&row, MergeRule::Newest);
}

fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// True if the points of a column are in time order.
fn is_sorted(mut qualifiers: &[u8]) -> bool {
    let mut last = None;
    while let Some((qualifier, rest)) = Qualifier::split_first(qualifiers) {
        if last.is_some_and(|last| last >= qualifier.offset_ms()) {
            return false;
        }
        last = Some(qualifier.offset_ms());
        qualifiers = rest;
    }
    true
}

/// Times, bits of the values, and true for integers.
fn point_list(points: &PointColumns) -> Vec<(i64, u64, bool)> {
    let values = points.times_ms.iter().zip(&points.bits).enumerate();
    values.map(|(i, (time, bits))| (*time, *bits, points.is_integer(i))).collect()
}

/// Points of a row; a failed decoding must leave no points.
fn decoded(row: &Row, rule: MergeRule) -> Option<PointColumns> {
    let mut columns = PointColumns::default();
    let mut extras = RowExtras::default();
    if decode_row(row, BASE, rule, &mut columns, &mut extras).is_err() {
        assert!(columns.is_empty(), "an error leaves no points: {row:?}");
        return None;
    }
    assert!(columns.times_ms.is_sorted_by(|a, b| a < b), "times ascend: {row:?}");
    assert_eq!(columns.times_ms.len(), columns.bits.len(), "columns of equal length");
    Some(columns)
}

/// A packed run: decoding to points and expanding to cells must agree.
pub(crate) fn packed_run(input: &[u8]) {
    let Ok(run) = PackedRun::open(Bytes::copy_from_slice(input)) else { return };
    let mut columns = PointColumns::default();
    let decoded = run.decode_into(BASE.as_secs(), &mut columns);
    let mut cells = Vec::new();
    let expanded = run.expand_into(&mut cells);
    if decoded.is_ok() {
        assert_eq!(columns.len(), run.point_count(), "the number of points of the header");
        assert!(columns.times_ms.is_sorted_by(|a, b| a < b), "times ascend");
    } else {
        assert!(columns.is_empty(), "an error leaves no points");
    }
    if decoded.is_ok() && expanded.is_ok() {
        cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
        let row = Row::from_cells(Bytes::from_static(b"row"), cells);
        let mut of_cells = PointColumns::default();
        let mut extras = RowExtras::default();
        decode_row(&row, BASE, MergeRule::Newest, &mut of_cells, &mut extras)
            .expect("cells of a run are decodable");
        // A damaged run may mark other values as single precision; its cells are rounded.
        let agree = |cell: u64, point: u64| {
            cell == point || cell == f64::from(f64::from_bits(point) as f32).to_bits()
        };
        let (of_cells, columns) = (point_list(&of_cells), point_list(&columns));
        assert!(
            of_cells.len() == columns.len()
                && of_cells.iter().zip(&columns).all(|((time, cell, integer), (t, point, i))| {
                    time == t && integer == i && (cell == point || !i && agree(*cell, *point))
                }),
            "cells {of_cells:?} and points {columns:?} agree"
        );
    }
}

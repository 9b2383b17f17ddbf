//! What is read back from a store.

use bytes::Bytes;
use tsd_model::{
    BaseTime, Cell, Family, MergeRule, PackedRun, PointColumns, Qualifier, Row, RowExtras,
    decode_row, plan_row_compaction,
};

const BASE: BaseTime = BaseTime::containing(1_356_998_400);

/// A row: cells as length, qualifier, length, value, age; then packed runs to the end of the input.
pub(crate) fn rows(input: &[u8]) {
    let Some((count, mut rest)) = input.split_first() else { return };
    let mut cells: Vec<Cell> = Vec::new();
    for _ in 0..*count {
        let Some((qualifier, after)) = take(rest) else { break };
        let Some((value, after)) = take(after) else { break };
        let Some((age, after)) = after.split_first() else { break };
        rest = after;
        cells.push(Cell {
            family: Family::T,
            qualifier: Bytes::copy_from_slice(qualifier),
            value: Bytes::copy_from_slice(value),
            timestamp_ms: i64::from(*age),
        });
    }
    cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
    cells.dedup_by(|a, b| a.qualifier == b.qualifier);
    let key = Bytes::from_static(&[0, 0, 1, 0x50, 0xE2, 0x27, 0, 0, 0, 1, 0, 0, 1]);
    let runs = PackedRun::open(Bytes::copy_from_slice(rest)).into_iter().collect();
    let mut row = Row { key: key.clone(), cells, runs };
    for rule in [MergeRule::Unanimous, MergeRule::Newest, MergeRule::Largest, MergeRule::Smallest] {
        let points = decoded(&row, rule);
        // A row that is compacted reads the same, unless a writer left a column unsorted: that is
        // read sorted and rewritten as it stands.
        if row.runs.is_empty()
            && row.cells.iter().all(|cell| rises(&cell.qualifier))
            && let Ok(plan) = plan_row_compaction(&key, &row.cells, rule, false)
            && let (Some(points), Some((put, _))) = (points, plan.put)
        {
            let mut compacted = row.clone();
            compacted.cells.retain(|cell| {
                cell.qualifier != put.qualifier
                    && !plan.delete.iter().any(|old| old.qualifier == cell.qualifier)
            });
            compacted.cells.push(put);
            compacted.cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
            let again = decoded(&compacted, rule);
            let again = again.map(|points| listed(&points));
            assert_eq!(again, Some(listed(&points)), "{rule:?} of {row:?} as {compacted:?}");
        }
    }
    row.cells.clear();
    let _ = decoded(&row, MergeRule::Newest);
}

fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// Whether the points of a column come in order.
fn rises(mut qualifiers: &[u8]) -> bool {
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

/// Times, and values with their kinds.
fn listed(points: &PointColumns) -> Vec<(i64, u64, bool)> {
    let values = points.times_ms.iter().zip(&points.bits).enumerate();
    values.map(|(i, (time, bits))| (*time, *bits, points.is_integer(i))).collect()
}

/// Points of a row; nothing is left behind where there are none.
fn decoded(row: &Row, rule: MergeRule) -> Option<PointColumns> {
    let mut columns = PointColumns::default();
    let mut extras = RowExtras::default();
    if decode_row(row, BASE, rule, &mut columns, &mut extras).is_err() {
        assert!(columns.is_empty(), "an error leaves nothing: {row:?}");
        return None;
    }
    assert!(columns.times_ms.is_sorted_by(|a, b| a < b), "times rise: {row:?}");
    assert_eq!(columns.times_ms.len(), columns.bits.len(), "columns of one length");
    Some(columns)
}

/// A packed run: what reads as points reads as cells, and the other way around.
pub(crate) fn packed_run(input: &[u8]) {
    let Ok(run) = PackedRun::open(Bytes::copy_from_slice(input)) else { return };
    let mut columns = PointColumns::default();
    let decoded = run.decode_into(BASE.as_secs(), &mut columns);
    let mut cells = Vec::new();
    let expanded = run.expand_into(&mut cells);
    if decoded.is_ok() {
        assert_eq!(columns.len(), run.point_count(), "as many points as the header says");
        assert!(columns.times_ms.is_sorted_by(|a, b| a < b), "times rise");
    } else {
        assert!(columns.is_empty(), "an error leaves nothing");
    }
    if decoded.is_ok() && expanded.is_ok() {
        cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
        let row = Row::from_cells(Bytes::from_static(b"row"), cells);
        let mut of_cells = PointColumns::default();
        let mut extras = RowExtras::default();
        decode_row(&row, BASE, MergeRule::Newest, &mut of_cells, &mut extras)
            .expect("cells of a run can be read");
        // A damaged run may call doubles singles that are none; its cells are rounded.
        let agree = |cell: u64, point: u64| {
            cell == point || cell == f64::from(f64::from_bits(point) as f32).to_bits()
        };
        let (of_cells, columns) = (listed(&of_cells), listed(&columns));
        assert!(
            of_cells.len() == columns.len()
                && of_cells.iter().zip(&columns).all(|((time, cell, integer), (t, point, i))| {
                    time == t && integer == i && (cell == point || !i && agree(*cell, *point))
                }),
            "cells {of_cells:?} and points {columns:?} agree"
        );
    }
}

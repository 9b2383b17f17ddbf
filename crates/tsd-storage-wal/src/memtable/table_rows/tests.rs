//! Rows of one table in a memtable: batches in every order, and rows that stay small.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use tsd_model::Family;
use tsd_storage::CellRef;

use super::*;
use crate::memtable::{row_op::RowOpIter, row_state::RowState};

type Cells = Vec<(Vec<u8>, Vec<u8>)>;

fn new() -> TableRows {
    TableRows::new(Arc::new(BufferPool::new(0)))
}

fn put(rows: &mut TableRows, key: &[u8], qualifier: &[u8], value: &[u8]) {
    let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
    rows.put(&CellBatch::single(key, cell).unwrap(), 0, 5);
}

#[test]
fn each_row_has_its_own_operations() {
    let mut rows = new();
    let mut expected: BTreeMap<Vec<u8>, Cells> = BTreeMap::new();
    for step in 0..12_u16 {
        let mut batch = CellBatch::new();
        for series in 0..3_000_u32 {
            let key = series.wrapping_mul(2_654_435_761).to_be_bytes();
            batch.begin_row(&key).unwrap();
            let (qualifier, value) = (step.to_be_bytes(), series.to_le_bytes());
            let cell = CellRef {
                family: Family::T,
                qualifier: &qualifier,
                value: &value,
                timestamp_ms: None,
            };
            batch.push(cell).unwrap();
            expected.entry(key.to_vec()).or_default().push((qualifier.to_vec(), value.to_vec()));
        }
        rows.put(&batch, 0, 5);
    }
    assert_eq!(rows.row_count(), expected.len());
    let sorted = rows.sorted();
    assert_eq!(sorted.len(), expected.len());
    for (row, (key, cells)) in sorted.into_iter().zip(&expected) {
        let (found, ops) = rows.row(row);
        assert_eq!(found, key);
        assert_eq!(rows.row_ops(key).unwrap(), ops);
        let state = RowState::from_ops([(ops, 0)]);
        let read: Vec<_> = state
            .columns
            .iter()
            .map(|c| (c.qualifier.to_vec(), c.value.unwrap().to_vec()))
            .collect();
        assert_eq!(&read, cells);
    }
}

#[test]
fn rows_are_found_in_any_order() {
    let mut rows = new();
    let mut expected: BTreeMap<[u8; 4], Vec<u16>> = BTreeMap::new();
    let series: Vec<u32> = (0..500).collect();
    let (forth, back) = (series.clone(), series.iter().rev().copied().collect());
    let jumps = (0..500).map(|i| i / 7 * 13 % 500 + i % 7).collect();
    let twice = series.iter().flat_map(|i| [*i, *i]).collect();
    let more = (200..900).collect();
    let late: Vec<u32> = (490..910).collect();
    let turns: [Vec<u32>; 9] =
        [series.clone(), forth, back, jumps, twice, series.clone(), more, late, series];
    for (turn, series) in (0_u16..).zip(turns) {
        let mut batch = CellBatch::new();
        for one in series {
            let key = one.to_be_bytes();
            batch.begin_row(&key).unwrap();
            // A row without cells is not stored.
            if one % 11 == 5 && turn > 0 {
                continue;
            }
            let qualifier = turn.to_be_bytes();
            let (family, qualifier, value) = (Family::T, &qualifier[..], &key[..]);
            batch.push(CellRef { family, qualifier, value, timestamp_ms: None }).unwrap();
            expected.entry(key).or_default().push(turn);
        }
        rows.put(&batch, 0, 5);
    }
    assert_eq!(rows.row_count(), expected.len());
    for (key, turns) in expected {
        let puts: Vec<u16> = RowOpIter::new(rows.row_ops(&key).unwrap(), 0)
            .map(|op| match op {
                RowOp::Put { qualifier, value, .. } if value == key => {
                    u16::from_be_bytes(qualifier.try_into().unwrap())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(puts, turns, "{key:?}");
    }
}

#[test]
fn overwritten_row_stays_small() {
    let mut rows = new();
    for i in 0..100_000_u32 {
        put(&mut rows, b"row", b"counter", &i.to_be_bytes());
    }
    assert!(rows.bytes() < 64 * 1024, "{} bytes", rows.bytes());
    let state = RowState::from_ops([(rows.row_ops(b"row").unwrap(), 0)]);
    assert_eq!(state.columns.len(), 1);
    assert_eq!(state.columns[0].cell(), Some((&99_999_u32.to_be_bytes()[..], 5)));
}

#[test]
fn large_values_are_stored() {
    let mut rows = new();
    let large = vec![7; 300_000];
    for qualifier in [b"a", b"b"] {
        put(&mut rows, b"row", qualifier, &large);
    }
    let state = RowState::from_ops([(rows.row_ops(b"row").unwrap(), 0)]);
    assert!(state.columns.iter().all(|c| c.cell() == Some((&large, 5))));
    assert_eq!(state.columns.len(), 2);
}

#[test]
fn row_delete_is_kept() {
    let mut rows = new();
    put(&mut rows, b"row", b"a", b"1");
    rows.push(b"row", [RowOp::DeleteRow { timestamp_ms: 6 }], 0);
    put(&mut rows, b"row", b"b", b"2");
    let state = RowState::from_ops([(rows.row_ops(b"row").unwrap(), 0)]);
    assert_eq!(state.delete_row, Some(6));
    assert_eq!(state.columns.len(), 1);
}

#[test]
fn batch_may_begin_a_row_twice() {
    let mut rows = new();
    let mut batch = CellBatch::new();
    for value in [b"1", b"2"] {
        batch.begin_row(b"row").unwrap();
        let cell = CellRef { family: Family::T, qualifier: b"q", value, timestamp_ms: None };
        batch.push(cell).unwrap();
    }
    rows.put(&batch, 0, 5);
    assert_eq!(rows.row_count(), 1);
    let state = RowState::from_ops([(rows.row_ops(b"row").unwrap(), 0)]);
    assert_eq!(state.columns[0].cell(), Some((&b"2"[..], 5)));
}

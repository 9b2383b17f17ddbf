//! Flushes of memtable rows.

use std::collections::VecDeque;

use tsd_model::{
    BaseTime, Family, Flags, MergeRule, PointColumns, Qualifier, Row, RowExtras, decode_row,
};
use tsd_storage::{
    FlushCell, FlushRow, FlushRows, FlushTarget, MemoryStorage, Scan, Storage, flush_by_put,
};
use tsd_storage_hbase::HBaseStorage;

use crate::cells::{bytes, cells, data, put, scan};

#[derive(Clone, Debug, Default)]
pub(crate) struct TestRow {
    pub(crate) key: Vec<u8>,
    pub(crate) delete_row: Option<i64>,
    pub(crate) deletes: Vec<(Vec<u8>, i64)>,
    pub(crate) cells: Vec<(Vec<u8>, Vec<u8>, i64)>,
}

struct TestRows(VecDeque<TestRow>, TestRow);

pub(crate) fn flush_rows(rows: impl IntoIterator<Item = TestRow>) -> Box<dyn FlushRows> {
    Box::new(TestRows(rows.into_iter().collect(), TestRow::default()))
}

impl FlushRows for TestRows {
    fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> std::cmp::Ordering) {
        self.0.make_contiguous().sort_by(|a, b| compare(&a.key, &b.key));
    }

    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        self.1 = self.0.pop_front()?;
        let row = &self.1;
        let cells = row.cells.iter().map(|(qualifier, value, timestamp_ms)| FlushCell {
            family: Family::T,
            qualifier,
            value,
            timestamp_ms: *timestamp_ms,
        });
        Some(FlushRow {
            key: &row.key,
            delete_row: row.delete_row,
            deletes: row.deletes.iter().map(|(q, at)| (Family::T, q.as_slice(), *at)).collect(),
            cells: cells.collect(),
        })
    }
}

/// Returns points at these seconds, each with a value of one byte.
fn points(
    seconds: impl IntoIterator<Item = u32>,
    value: u8,
    at: i64,
) -> Vec<(Vec<u8>, Vec<u8>, i64)> {
    let one_byte = Flags::integer(1).unwrap();
    seconds
        .into_iter()
        .map(|second| {
            let qualifier = Qualifier::at_seconds(second, one_byte).unwrap();
            (qualifier.as_bytes().to_vec(), vec![value], at)
        })
        .collect()
}

fn key(series: u32) -> Vec<u8> {
    // Distributed over all regions of the table.
    let head = [b'a', b'm', b'z'][series as usize * 3 / 3_000];
    [&[head, 0, 1][..], &[0; 4], &[0, 0, 1], &series.to_be_bytes()[1..]].concat()
}

fn decoded(row: &Row) -> (PointColumns, usize) {
    let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
    let base = BaseTime::containing(0);
    decode_row(row, base, MergeRule::Newest, &mut columns, &mut extras).unwrap();
    (columns, extras.annotations.len() + extras.unknown)
}

fn many_changes() -> Vec<TestRow> {
    let row = |series: u32| {
        let mut row = TestRow { key: key(series), ..TestRow::default() };
        match series % 5 {
            0 => row.cells = points([7], 1, 100),
            1 => row.deletes = vec![(vec![0, 0], 100)],
            2 => row.delete_row = Some(100),
            _ => {
                row.cells = points((0..60).map(|at| at * 10), series as u8, 100);
                row.cells.push((vec![0xF0, 0, 0x7D, 0], vec![9], 101));
                row.cells.sort();
                row.cells.insert(0, (vec![9], b"unknown".to_vec(), 102));
                row.cells.sort();
            }
        }
        row
    };
    (0..3_000).map(row).collect()
}

/// `fail` makes one of the next calls fail; it returns false if it cannot.
pub(crate) async fn flushed_rows_read_the_same_as_single_cells(
    store: &HBaseStorage,
    fail: impl Fn() -> bool,
) {
    let memory = MemoryStorage::new([data()]);
    let before = || {
        flush_rows((0..3_000).map(|series| TestRow {
            key: key(series),
            cells: points([0, 5], 3, 50),
            ..TestRow::default()
        }))
    };
    // As single cells, which single deletes can remove.
    flush_by_put(store, &data(), before()).await.unwrap();
    memory.flush_rows(&data(), before()).await.unwrap();
    memory.flush_rows(&data(), flush_rows(many_changes())).await.unwrap();
    for attempt in 0..3 {
        // The second flush follows a partial one, the third changes nothing.
        if attempt == 1 && fail() {
            // If a flush sends its rows in one call, the fault hits the next flush.
            let mut failed = false;
            for _ in 0..20 {
                failed |= store.flush_rows(&data(), flush_rows(many_changes())).await.is_err();
                if failed {
                    break;
                }
            }
            assert!(failed);
        }
        store.flush_rows(&data(), flush_rows(many_changes())).await.unwrap();
        let rows = scan(store, Scan::default()).await;
        let mut expected = memory.scan(&data(), Scan::default());
        let mut at = rows.iter();
        while let Some(batch) = expected.next_rows().await.unwrap() {
            for row in batch {
                let found = at.next().unwrap();
                assert_eq!(found.key, row.key);
                assert_eq!(decoded(found), decoded(&row), "{found:?}");
            }
        }
        assert!(at.next().is_none());
    }
}

pub(crate) async fn points_of_a_row_are_one_column(store: &HBaseStorage) {
    let mut row = TestRow { key: key(1), cells: points([0, 1, 2], 7, 10), ..TestRow::default() };
    row.cells[1].2 = 12;
    row.cells[2].2 = 13;
    row.cells.insert(2, (vec![1, 0, 0], b"{}".to_vec(), 11));
    row.cells.sort();
    store.flush_rows(&data(), flush_rows([row])).await.unwrap();
    let cells: Vec<_> = cells(store, &key(1))
        .await
        .into_iter()
        .map(|cell| (cell.qualifier, cell.value, cell.timestamp_ms))
        .collect();
    assert_eq!(
        cells,
        [
            (bytes([0, 0, 0, 0x10, 0, 0x20]), bytes([7, 7, 7, 0]), 10),
            (bytes([1, 0, 0]), bytes("{}"), 11)
        ]
    );
}

pub(crate) async fn deletes_remove_versions_up_to_their_timestamps(store: &HBaseStorage) {
    let row = key(1);
    let change = |delete_row, deletes: &[(&[u8], i64)], cells| TestRow {
        key: key(1),
        delete_row,
        deletes: deletes.iter().map(|(q, at)| (q.to_vec(), *at)).collect(),
        cells,
    };
    // Concurrent writes of another daemon.
    put(store, &row, b"old", b"", Some(10)).await;
    put(store, &row, b"new", b"", Some(21)).await;
    put(store, &row, b"column", b"", Some(30)).await;
    store
        .flush_rows(&data(), flush_rows([change(Some(20), &[], points([0], 1, 20))]))
        .await
        .unwrap();
    let remaining = async || -> Vec<_> {
        cells(store, &row).await.into_iter().map(|c| (c.qualifier, c.timestamp_ms)).collect()
    };
    // A point with an older timestamp than the preceding delete is visible.
    let column = (bytes("column"), 30);
    let new = (bytes("new"), 21);
    assert_eq!(remaining().await, [(bytes([0, 0]), 21), column.clone(), new.clone()]);
    store
        .flush_rows(
            &data(),
            flush_rows([change(None, &[(b"column", 29), (b"new", 21)], Vec::new())]),
        )
        .await
        .unwrap();
    assert_eq!(remaining().await, [(bytes([0, 0]), 21), column]);
}

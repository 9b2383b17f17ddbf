//! Entries of rows of points in the tree, and which reads return packed runs.

use tsd_model::{Family, PointColumns, RunShape};
use tsd_storage::{FlushTarget, Get, OwnedFlushRow, RowFilter, Scan, Storage};

use super::fixture::{data, new_dir, open_data, scan};
use crate::LsmStorage;

const KEY: &[u8] = &[0, 0, 0, 1, 0x50, 0xE2, 0x27, 0, 0, 0, 1, 0, 0, 1];

fn singles(offsets: impl Iterator<Item = u16>, value: u8) -> OwnedFlushRow {
    let cells = offsets
        .map(|o| (Family::T, (o << 4).to_be_bytes().to_vec(), vec![value], 1_000 + i64::from(o)))
        .collect();
    OwnedFlushRow { key: KEY.to_vec(), cells, ..OwnedFlushRow::default() }
}

async fn flush(store: &LsmStorage, row: OwnedFlushRow) {
    store.flush_rows(&data(), OwnedFlushRow::flush_rows([row])).await.unwrap();
}

fn entry_count(store: &LsmStorage) -> usize {
    let table = store.table(&data()).unwrap();
    table.row_entries(&crate::key_encoding::encoded(KEY)).unwrap().len()
}

async fn row(store: &LsmStorage) -> tsd_model::Row {
    store.get(&data(), Get::row(KEY.into())).await.unwrap().unwrap()
}

#[tokio::test]
async fn consecutive_flushes_stay_packed() {
    let dir = new_dir();
    let store = open_data(&dir);
    for i in 0..6_u16 {
        flush(&store, singles((i * 60..i * 60 + 60).step_by(10), i as u8)).await;
    }
    assert_eq!(entry_count(&store), 6);
    let row = row(&store).await;
    assert!(row.cells.is_empty());
    assert_eq!(row.runs.len(), 6);
    let mut columns = PointColumns::default();
    for run in &row.runs {
        run.decode_into(0, &mut columns).unwrap();
    }
    assert!(columns.times_ms.is_sorted());
    assert_eq!(columns.len(), 36);
}

#[tokio::test]
async fn entries_of_a_row_are_bounded() {
    let dir = new_dir();
    let store = open_data(&dir);
    for i in 0..100_u16 {
        flush(&store, singles(i..=i, 1)).await;
        assert!(entry_count(&store) <= 10, "{} entries", entry_count(&store));
    }
    assert_eq!(row(&store).await.into_cells().unwrap().len(), 100);
}

#[tokio::test]
async fn row_compaction_results_in_one_packed_column() {
    let dir = new_dir();
    let store = open_data(&dir);
    for i in 0..6_u16 {
        flush(&store, singles((i * 60..i * 60 + 60).step_by(10), i as u8)).await;
    }
    let cells = row(&store).await.into_cells().unwrap();
    let qualifier: Vec<u8> = cells.iter().flat_map(|c| c.qualifier.to_vec()).collect();
    let mut value: Vec<u8> = cells.iter().flat_map(|c| c.value.to_vec()).collect();
    value.push(0);
    let deletes = cells.iter().map(|c| (Family::T, c.qualifier.to_vec(), i64::MAX)).collect();
    let compacted = vec![
        (Family::T, qualifier.clone(), value.clone(), 9_000),
        (Family::T, vec![1, 0, 0], vec![2], 1),
    ];
    let mut compaction =
        OwnedFlushRow { key: KEY.to_vec(), deletes, cells: compacted, ..OwnedFlushRow::default() };
    compaction.cells.sort();
    flush(&store, compaction).await;

    assert_eq!(entry_count(&store), 1);
    let row = row(&store).await;
    assert_eq!(row.cells.len(), 1, "the annotation");
    assert_eq!(row.runs.len(), 1);
    assert_eq!(row.runs[0].shape(), RunShape::Compacted);
    assert_eq!(row.runs[0].point_count(), 36);
    let cells = row.into_cells().unwrap();
    assert_eq!(cells[0].qualifier, qualifier);
    assert_eq!(cells[0].value, value);
    assert_eq!(cells[0].timestamp_ms, 9_000);

    // A late point becomes another run; the column stays compacted.
    flush(&store, singles(std::iter::once(3_000), 7)).await;
    let row = store.get(&data(), Get::row(KEY.into())).await.unwrap().unwrap();
    assert_eq!(row.runs.len(), 2);
    assert_eq!(row.runs[0].shape(), RunShape::Compacted);
}

#[tokio::test]
async fn rows_flushed_again_after_a_crash_stay_packed() {
    let dir = new_dir();
    let store = open_data(&dir);
    for _ in 0..3 {
        flush(&store, singles((0..60).step_by(10), 1)).await;
    }
    let row = row(&store).await;
    assert_eq!((row.runs.len(), row.cells.len()), (1, 0));
}

#[tokio::test]
async fn deleted_row_has_no_entries() {
    let dir = new_dir();
    let store = open_data(&dir);
    for i in 0..12_u16 {
        flush(&store, singles(i..=i, 1)).await;
    }
    flush(
        &store,
        OwnedFlushRow { key: KEY.to_vec(), delete_row: Some(i64::MAX), ..OwnedFlushRow::default() },
    )
    .await;
    assert_eq!(entry_count(&store), 0);
    assert!(scan(&store, &data(), Scan::default()).await.is_empty());
}

#[tokio::test]
async fn selective_filter_returns_all_matching_rows() {
    let dir = new_dir();
    let store = open_data(&dir);
    let key = |i: u32| [&KEY[..11], &i.to_be_bytes()[1..]].concat();
    let all = (0..20_000).map(|i| OwnedFlushRow { key: key(i), ..singles(0..1, 7) });
    store.flush_rows(&data(), OwnedFlushRow::flush_rows(all)).await.unwrap();
    let expected: Vec<_> = [0, 8_191, 8_192, 8_193, 19_999].map(|i| key(i).into()).into();
    let filter = Some(RowFilter::Keys(std::sync::Arc::new(expected.clone())));
    let found = scan(&store, &data(), Scan { filter, ..Scan::default() }).await;
    assert_eq!(found.into_iter().map(|row| row.key).collect::<Vec<_>>(), expected);
}

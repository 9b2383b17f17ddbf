//! How rows of points lie in the tree, and what readers get to see packed.

use tsd_model::{Family, PointColumns, RunShape};
use tsd_storage::{FlushTarget, Get, RowFilter, Scan, Storage};

use super::kit::{self, Held, data, new_dir, open_data, scan};
use crate::LsmStorage;

const KEY: &[u8] = &[0, 0, 0, 1, 0x50, 0xE2, 0x27, 0, 0, 0, 1, 0, 0, 1];

fn singles(offsets: impl Iterator<Item = u16>, value: u8) -> Held {
    let cells = offsets
        .map(|o| (Family::T, (o << 4).to_be_bytes().to_vec(), vec![value], 1_000 + i64::from(o)))
        .collect();
    Held { key: KEY.to_vec(), cells, ..Held::default() }
}

async fn ingest(store: &LsmStorage, row: Held) {
    store.flush_rows(&data(), kit::rows([row])).await.unwrap();
}

fn entries(store: &LsmStorage) -> usize {
    let table = store.table(&data()).unwrap();
    table.raw_row(&crate::row_code::encoded(KEY)).unwrap().len()
}

async fn row(store: &LsmStorage) -> tsd_model::Row {
    store.get(&data(), Get::row(KEY.into())).await.unwrap().unwrap()
}

#[tokio::test]
async fn flushes_that_follow_each_other_stay_packed() {
    let dir = new_dir();
    let store = open_data(&dir);
    for i in 0..6_u16 {
        ingest(&store, singles((i * 60..i * 60 + 60).step_by(10), i as u8)).await;
    }
    assert_eq!(entries(&store), 6);
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
async fn a_row_never_gathers_entries_without_end() {
    let dir = new_dir();
    let store = open_data(&dir);
    for i in 0..100_u16 {
        ingest(&store, singles(i..=i, 1)).await;
        assert!(entries(&store) <= 10, "{} entries", entries(&store));
    }
    assert_eq!(row(&store).await.into_cells().unwrap().len(), 100);
}

#[tokio::test]
async fn a_row_compaction_leaves_one_packed_column() {
    let dir = new_dir();
    let store = open_data(&dir);
    for i in 0..6_u16 {
        ingest(&store, singles((i * 60..i * 60 + 60).step_by(10), i as u8)).await;
    }
    let cells = row(&store).await.into_cells().unwrap();
    let qualifier: Vec<u8> = cells.iter().flat_map(|c| c.qualifier.to_vec()).collect();
    let mut value: Vec<u8> = cells.iter().flat_map(|c| c.value.to_vec()).collect();
    value.push(0);
    let deletes = cells.iter().map(|c| (Family::T, c.qualifier.to_vec())).collect();
    let compacted = vec![
        (Family::T, qualifier.clone(), value.clone(), 9_000),
        (Family::T, vec![1, 0, 0], vec![2], 1),
    ];
    let held = Held { key: KEY.to_vec(), deletes, cells: compacted, ..Held::default() };
    let mut held = held;
    held.cells.sort();
    ingest(&store, held).await;

    assert_eq!(entries(&store), 1);
    let row = row(&store).await;
    assert_eq!(row.cells.len(), 1, "the annotation");
    assert_eq!(row.runs.len(), 1);
    assert_eq!(row.runs[0].shape(), RunShape::Compacted);
    assert_eq!(row.runs[0].point_count(), 36);
    let cells = row.into_cells().unwrap();
    assert_eq!(cells[0].qualifier, qualifier);
    assert_eq!(cells[0].value, value);
    assert_eq!(cells[0].timestamp_ms, 9_000);

    // A late point joins the column without undoing it.
    ingest(&store, singles(std::iter::once(3_000), 7)).await;
    let row = store.get(&data(), Get::row(KEY.into())).await.unwrap().unwrap();
    assert_eq!(row.runs.len(), 2);
    assert_eq!(row.runs[0].shape(), RunShape::Compacted);
}

#[tokio::test]
async fn rows_ingested_again_after_a_crash_stay_packed() {
    let dir = new_dir();
    let store = open_data(&dir);
    for _ in 0..3 {
        ingest(&store, singles((0..60).step_by(10), 1)).await;
    }
    let row = row(&store).await;
    assert_eq!((row.runs.len(), row.cells.len()), (1, 0));
}

#[tokio::test]
async fn a_deleted_row_leaves_no_entry() {
    let dir = new_dir();
    let store = open_data(&dir);
    for i in 0..12_u16 {
        ingest(&store, singles(i..=i, 1)).await;
    }
    ingest(&store, Held { key: KEY.to_vec(), delete_row: true, ..Held::default() }).await;
    assert_eq!(entries(&store), 0);
    assert!(scan(&store, &data(), Scan::default()).await.is_empty());
}

#[tokio::test]
async fn a_filter_that_leaves_out_nearly_everything_still_finds_the_rest() {
    let dir = new_dir();
    let store = open_data(&dir);
    let key = |i: u32| [&KEY[..11], &i.to_be_bytes()[1..]].concat();
    let all = (0..20_000).map(|i| Held { key: key(i), ..singles(0..1, 7) });
    store.flush_rows(&data(), kit::rows(all)).await.unwrap();
    let wanted: Vec<_> = [0, 8_191, 8_192, 8_193, 19_999].map(|i| key(i).into()).into();
    let filter = Some(RowFilter::Keys(std::sync::Arc::new(wanted.clone())));
    let found = scan(&store, &data(), Scan { filter, ..Scan::default() }).await;
    assert_eq!(found.into_iter().map(|row| row.key).collect::<Vec<_>>(), wanted);
}

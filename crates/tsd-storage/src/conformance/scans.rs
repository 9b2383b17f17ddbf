//! Scans: order, ranges, limits, filters, and concurrent writes.

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::{Family, TagkUid, TagvUid};

use super::fixture::{batch, bytes, data, delete_columns, put, row_cells, scan, scan_keys, t};
use crate::{
    CellBatch, CellRef, Delete, RowFilter, Scan, SeriesSet, Storage, StorageExt, TagCondition,
    TagPattern,
};

async fn fill(store: &dyn Storage, keys: impl IntoIterator<Item = Vec<u8>>) {
    let mut cells = CellBatch::new();
    for key in keys {
        cells.begin_row(&key).unwrap();
        let cell = CellRef { family: Family::T, qualifier: b"q", value: &key, timestamp_ms: None };
        cells.push(cell).unwrap();
    }
    store.put(&data(), cells).await.unwrap();
}

pub(super) async fn rows_are_scanned_in_key_order(store: Arc<dyn Storage>) {
    let mut keys: Vec<Vec<u8>> = (0..500_u32)
        .map(|i| {
            let mixed = i.wrapping_mul(2_654_435_761);
            mixed.to_be_bytes()[..=i as usize % 4].to_vec()
        })
        .collect();
    for (i, part) in keys.chunks(100).enumerate() {
        fill(&*store, part.iter().cloned()).await;
        if i % 2 == 0 {
            store.flush().await.unwrap();
        }
    }
    keys.sort();
    keys.dedup();
    assert_eq!(scan_keys(&*store, Scan::default()).await, keys);
}

pub(super) async fn start_is_inclusive_and_stop_is_exclusive(store: Arc<dyn Storage>) {
    fill(&*store, [b"a".to_vec(), b"b".to_vec(), b"b\0".to_vec(), b"c".to_vec()]).await;
    let range = async |start: &[u8], stop: &[u8]| {
        let what = Scan { start: bytes(start), stop: bytes(stop), ..Scan::default() };
        scan_keys(&*store, what).await
    };
    assert_eq!(range(b"", b"").await.len(), 4);
    assert_eq!(range(b"b", b"c").await, vec![b"b".to_vec(), b"b\0".to_vec()]);
    assert_eq!(range(b"a\0", b"b\0").await, vec![b"b".to_vec()]);
    assert_eq!(range(b"b", b"b\0").await, vec![b"b".to_vec()]);
    assert_eq!(range(b"c", b"").await, vec![b"c".to_vec()]);
    assert!(range(b"d", b"").await.is_empty());
    assert!(range(b"b", b"b").await.is_empty());
    assert!(range(b"c", b"a").await.is_empty());
}

pub(super) async fn limit_ends_the_scan(store: Arc<dyn Storage>) {
    fill(&*store, (0..40_u8).map(|i| vec![i])).await;
    store.flush().await.unwrap();
    fill(&*store, (40..80_u8).map(|i| vec![i])).await;
    for (limit, batch_rows) in [(1, None), (7, Some(3)), (41, Some(10)), (80, None), (500, Some(1))]
    {
        let what = Scan { limit: Some(limit), batch_rows, ..Scan::default() };
        let expected: Vec<_> = (0..80_u8).take(limit).map(|i| vec![i]).collect();
        assert_eq!(scan_keys(&*store, what).await, expected);
    }
    let none = Scan { limit: Some(0), ..Scan::default() };
    assert!(scan_keys(&*store, none).await.is_empty());
}

pub(super) async fn small_batches_neither_lose_nor_repeat_rows(store: Arc<dyn Storage>) {
    fill(&*store, (0..=255_u8).map(|i| vec![i / 16, i % 16])).await;
    let expected: Vec<_> = (0..=255_u8).map(|i| vec![i / 16, i % 16]).collect();
    for batch_rows in [1, 2, 100, 255, 256, 257] {
        let what = Scan { batch_rows: Some(batch_rows), ..Scan::default() };
        assert_eq!(scan_keys(&*store, what).await, expected, "{batch_rows} per batch");
    }
}

pub(super) async fn scan_resumes_after_the_last_row_of_a_dropped_one(store: Arc<dyn Storage>) {
    fill(&*store, (0..100_u8).map(|i| vec![i, i])).await;
    let mut scanner = store.scan(&data(), Scan { batch_rows: Some(9), ..Scan::default() });
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for _ in 0..2 {
        let rows = scanner.next_rows().await.unwrap().unwrap();
        seen.extend(rows.iter().map(|row| row.key.to_vec()));
    }
    drop(scanner);
    let mut start = seen.last().unwrap().clone();
    start.push(0);
    seen.extend(scan_keys(&*store, Scan { start: start.into(), ..Scan::default() }).await);
    assert_eq!(seen, (0..100_u8).map(|i| vec![i, i]).collect::<Vec<_>>());
}

pub(super) async fn rows_without_a_selected_cell_are_not_returned(store: Arc<dyn Storage>) {
    let cells = batch(&[
        (b"a", Family::Id, b"q", b"1"),
        (b"b", Family::T, b"q", b"2"),
        (b"b", Family::T, b"r", b"3"),
        (b"c", Family::T, b"r", b"4"),
        (b"d", Family::Id, b"r", b"5"),
        (b"d", Family::T, b"q", b"6"),
    ]);
    store.put(&data(), cells).await.unwrap();
    let family = Scan { family: Some(Family::T), ..Scan::default() };
    let expected = vec![
        (b"b".to_vec(), vec![t(b"q", b"2"), t(b"r", b"3")]),
        (b"c".to_vec(), vec![t(b"r", b"4")]),
        (b"d".to_vec(), vec![t(b"q", b"6")]),
    ];
    assert_eq!(scan(&*store, family.clone()).await, expected);
    let column = Scan { qualifier: Some(bytes(b"q")), ..family };
    let expected = vec![(b"b".to_vec(), vec![t(b"q", b"2")]), (b"d".to_vec(), vec![t(b"q", b"6")])];
    assert_eq!(scan(&*store, column.clone()).await, expected);
    // A limit counts the rows that are returned.
    let first = Scan { limit: Some(2), ..column };
    assert_eq!(scan(&*store, first).await, expected);
}

pub(super) async fn row_filters_match_keys(store: Arc<dyn Storage>) {
    // One byte before the tags; tag keys and values of one byte.
    let keys: [&[u8]; 6] = [b"mk1", b"mk1x2", b"mk2", b"mk2x2", b"mx2", b"m"];
    fill(&*store, keys.map(<[u8]>::to_vec)).await;
    let pattern = |tagvs: Option<&[&[u8]]>, explicit| {
        RowFilter::Tags(Arc::new(TagPattern {
            tags_start: 1,
            tagk_width: 1,
            tagv_width: 1,
            conditions: vec![TagCondition {
                tagk: TagkUid::try_new(b"k").unwrap(),
                tagvs: tagvs
                    .map(|values| values.iter().map(|v| TagvUid::try_new(v).unwrap()).collect()),
            }],
            explicit,
        }))
    };
    let filtered = async |filter: RowFilter| {
        scan_keys(&*store, Scan { filter: Some(filter), ..Scan::default() }).await
    };
    let any_k = filtered(pattern(None, false)).await;
    assert_eq!(any_k, [&b"mk1"[..], b"mk1x2", b"mk2", b"mk2x2"]);
    assert_eq!(filtered(pattern(Some(&[b"2"]), false)).await, [&b"mk2"[..], b"mk2x2"]);
    assert_eq!(filtered(pattern(None, true)).await, [&b"mk1"[..], b"mk2"]);
    let chosen = RowFilter::Keys(Arc::new(vec![bytes(b"mk1x2"), bytes(b"mx2"), bytes(b"none")]));
    assert_eq!(filtered(chosen.clone()).await, [&b"mk1x2"[..], b"mx2"]);
    let tags = vec![bytes(b"k1x2"), bytes(b"k2")];
    let series = RowFilter::Series(Arc::new(SeriesSet { tags_start: 1, tags }));
    assert_eq!(filtered(series).await, [&b"mk1x2"[..], b"mk2"]);
    let both = RowFilter::All(vec![chosen, pattern(None, false)]);
    assert_eq!(filtered(both).await, [&b"mk1x2"[..]]);
}

pub(super) async fn time_range_selects_cells_by_timestamp(store: Arc<dyn Storage>) {
    let mut cells = CellBatch::new();
    for (row, qualifier, at) in
        [(b"a", b"1", 1_000), (b"a", b"2", 2_000), (b"b", b"1", 2_999), (b"c", b"1", 3_000)]
    {
        cells.begin_row(row).unwrap();
        let timestamp_ms = Some(at);
        cells.push(CellRef { family: Family::T, qualifier, value: b"v", timestamp_ms }).unwrap();
    }
    store.put(&data(), cells).await.unwrap();
    for _ in 0..2 {
        let what = Scan { time_range_ms: Some((2_000, 3_000)), ..Scan::default() };
        let expected =
            vec![(b"a".to_vec(), vec![t(b"2", b"v")]), (b"b".to_vec(), vec![t(b"1", b"v")])];
        assert_eq!(scan(&*store, what).await, expected);
        store.flush().await.unwrap();
    }
}

pub(super) async fn deleted_rows_and_columns_are_not_scanned(store: Arc<dyn Storage>) {
    fill(&*store, (0..10_u8).map(|i| vec![i])).await;
    put(&*store, &[3], &[(b"r", b"kept")]).await;
    store.flush().await.unwrap();
    store.delete(&data(), Delete::Row(Bytes::from_static(&[0]))).await.unwrap();
    for row in 1..=4_u8 {
        delete_columns(&*store, &[row], &[b"q"]).await;
    }
    fill(&*store, [vec![2]]).await;
    let rows = scan(&*store, Scan::default()).await;
    let keys: Vec<u8> = rows.iter().map(|(key, _)| key[0]).collect();
    assert_eq!(keys, [2, 3, 5, 6, 7, 8, 9]);
    assert_eq!(rows[1].1, vec![t(b"r", b"kept")]);
}

pub(super) async fn writes_during_a_scan_do_not_affect_other_rows(store: Arc<dyn Storage>) {
    fill(&*store, (0..200_u8).filter(|i| i % 2 == 0).map(|i| vec![i])).await;
    let mut scanner = store.scan(&data(), Scan { batch_rows: Some(5), ..Scan::default() });
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut step = 0_u8;
    while let Some(rows) = scanner.next_rows().await.unwrap() {
        for row in rows {
            assert!(!row_cells(Some(row.clone())).is_empty());
            seen.push(row.key.to_vec());
        }
        // New rows around the cursor and new values in old rows, with a flush now and then.
        fill(&*store, [vec![step | 1], vec![199 - (step & 0xfe)], vec![step & 0xfe]]).await;
        if step.is_multiple_of(4) {
            store.flush().await.unwrap();
        }
        step = step.wrapping_add(5);
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "each row once, in order");
    let old: Vec<_> = seen.into_iter().filter(|key| key[0] % 2 == 0).collect();
    assert_eq!(old, (0..200_u8).filter(|i| i % 2 == 0).map(|i| vec![i]).collect::<Vec<_>>());
}

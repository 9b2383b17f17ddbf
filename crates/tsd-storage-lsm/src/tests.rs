#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod damage;
mod fixture;
mod memory_model;
mod reclaim;
mod recovery;
mod unknown_version;

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::Family;
use tsd_storage::{FlushTarget, Get, MAX_KEY_BYTES, OwnedFlushRow, Scan, Storage, conformance};

use self::fixture::{data, new_dir, open, open_data, scan};

#[tokio::test]
async fn passes_the_conformance_suite() {
    let dirs = parking_lot::Mutex::new(Vec::new());
    conformance::run_all(async || {
        let dir = new_dir();
        let store = Arc::new(open(&dir, conformance::tables().to_vec()));
        dirs.lock().push(dir);
        store
    })
    .await;
}

#[tokio::test]
async fn reads_of_keys_that_are_too_long_find_nothing() {
    let dir = new_dir();
    let store = open_data(&dir);
    let longest = vec![b'x'; MAX_KEY_BYTES];
    let row = |key: &[u8]| OwnedFlushRow {
        key: key.to_vec(),
        cells: vec![(Family::T, vec![0, 0], vec![1], 1)],
        ..OwnedFlushRow::default()
    };
    let rows = [row(b"a"), row(&longest), row(b"y")];
    store.flush_rows(&data(), OwnedFlushRow::flush_rows(rows)).await.unwrap();
    for length in [40_000, 65_532, 65_533, 65_534, 65_535, 70_000] {
        let key = Bytes::from(vec![b'x'; length]);
        let column = Get::column(key.clone(), Family::T, Bytes::from_static(&[0, 0]));
        for get in [Get::row(key.clone()), column] {
            assert!(store.get(&data(), get).await.unwrap().is_none(), "{length}");
        }
        let long = Bytes::from(vec![0; length]);
        let column = Get::column(Bytes::from_static(b"a"), Family::T, long);
        assert!(store.get(&data(), column).await.unwrap().is_none(), "{length}");
        let from = Scan { start: key.clone(), ..Scan::default() };
        let until = Scan { stop: key, ..Scan::default() };
        let found = async |range| {
            let rows = scan(&store, &data(), range).await;
            rows.into_iter().map(|row| row.key.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(found(from).await, [b"y".to_vec()], "{length}");
        assert_eq!(found(until).await, [b"a".to_vec(), longest.clone()], "{length}");
    }
}

//! Reads of rows.

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::Family;

use super::{
    fixture::{batch, bytes, data, full_cells, get, put, row_cells, t, value},
    tables,
};
use crate::{
    CellBatch, CellRef, Column, Delete, Get, Scan, Storage, StorageError, StorageExt, Table,
};

pub(super) async fn row_that_was_never_put_is_absent(store: Arc<dyn Storage>) {
    put(&*store, b"row", &[(b"q", b"v")]).await;
    for row in [&b"ro"[..], b"rox", b"row\0", b"rov"] {
        assert!(store.get(&data(), Get::row(bytes(row))).await.unwrap().is_none(), "{row:?}");
    }
    let other = Get::column(bytes(b"row"), Family::T, bytes(b"other"));
    assert!(store.get(&data(), other).await.unwrap().is_none());
}

pub(super) async fn cells_of_a_row_are_sorted_by_family_then_qualifier(store: Arc<dyn Storage>) {
    let cells = batch(&[
        (b"row", Family::T, b"b", b"4"),
        (b"row", Family::Name, b"z", b"2"),
        (b"row", Family::T, b"a", b"3"),
        (b"row", Family::Id, b"z", b"1"),
        (b"row", Family::T, b"b\0", b"5"),
    ]);
    store.put(&data(), cells).await.unwrap();
    let expected = vec![
        (Family::Id, b"z".to_vec(), b"1".to_vec()),
        (Family::Name, b"z".to_vec(), b"2".to_vec()),
        t(b"a", b"3"),
        t(b"b", b"4"),
        t(b"b\0", b"5"),
    ];
    assert_eq!(get(&*store, b"row").await, expected);
}

pub(super) async fn get_reads_only_the_selected_family_and_qualifiers(store: Arc<dyn Storage>) {
    let cells = batch(&[
        (b"row", Family::Id, b"a", b"1"),
        (b"row", Family::T, b"a", b"2"),
        (b"row", Family::T, b"b", b"3"),
        (b"row", Family::T, b"c", b"4"),
    ]);
    store.put(&data(), cells).await.unwrap();
    let read = async |family, qualifiers: &[&[u8]]| {
        let qualifiers = qualifiers.iter().map(bytes).collect();
        let get = Get { family, qualifiers, ..Get::row(bytes(b"row")) };
        row_cells(store.get(&data(), get).await.unwrap())
    };
    assert_eq!(read(None, &[]).await.len(), 4);
    let all_t = vec![t(b"a", b"2"), t(b"b", b"3"), t(b"c", b"4")];
    assert_eq!(read(Some(Family::T), &[]).await, all_t);
    assert_eq!(
        read(Some(Family::T), &[b"c", b"a", b"x"]).await,
        vec![t(b"a", b"2"), t(b"c", b"4")]
    );
    assert!(read(Some(Family::Name), &[]).await.is_empty());
}

pub(super) async fn multi_get_returns_rows_in_request_order(store: Arc<dyn Storage>) {
    for row in [&b"a"[..], b"b", b"c"] {
        put(&*store, row, &[(b"q", row), (b"r", b"x")]).await;
    }
    let column =
        |row: &[u8], qualifier: &[u8]| Get::column(bytes(row), Family::T, bytes(qualifier));
    let gets = vec![
        column(b"c", b"q"),
        Get::row(bytes(b"none")),
        column(b"a", b"q"),
        column(b"c", b"q"),
        column(b"b", b"none"),
        Get::row(bytes(b"b")),
    ];
    let rows = store.multi_get(&data(), gets).await.unwrap();
    let cells: Vec<_> = rows.into_iter().map(row_cells).collect();
    let expected = [
        vec![t(b"q", b"c")],
        vec![],
        vec![t(b"q", b"a")],
        vec![t(b"q", b"c")],
        vec![],
        vec![t(b"q", b"b"), t(b"r", b"x")],
    ];
    assert_eq!(cells, expected);
    assert!(store.multi_get(&data(), Vec::new()).await.unwrap().is_empty());
}

pub(super) async fn tables_are_isolated(store: Arc<dyn Storage>) {
    let [data, uid] = tables();
    store.put(&data, batch(&[(b"row", Family::T, b"q", b"data")])).await.unwrap();
    store.put(&uid, batch(&[(b"row", Family::T, b"q", b"uid")])).await.unwrap();
    store.delete(&data, Delete::Row(bytes(b"row"))).await.unwrap();
    assert!(store.get(&data, Get::row(bytes(b"row"))).await.unwrap().is_none());
    let kept = row_cells(store.get(&uid, Get::row(bytes(b"row"))).await.unwrap());
    assert_eq!(kept, vec![t(b"q", b"uid")]);
}

pub(super) async fn cells_without_a_timestamp_take_the_stores_clock(store: Arc<dyn Storage>) {
    const GIVEN: i64 = 1_356_998_400_123;
    let mut cells = CellBatch::new();
    cells.begin_row(b"row").unwrap();
    for (qualifier, timestamp_ms) in [(&b"clock"[..], None), (b"given", Some(GIVEN))] {
        let cell = CellRef { family: Family::T, qualifier, value: b"v", timestamp_ms };
        cells.push(cell).unwrap();
    }
    let earliest = crate::system_clock_ms();
    store.put(&data(), cells).await.unwrap();
    let row = store.get(&data(), Get::row(bytes(b"row"))).await.unwrap().unwrap();
    let stamps: Vec<_> = full_cells(row).iter().map(|c| c.timestamp_ms).collect();
    let &[clock, given] = stamps.as_slice() else { panic!("two cells, not {stamps:?}") };
    assert_eq!(given, GIVEN);
    // Tolerates clock skew; a store that writes seconds or zero is far off.
    assert!((clock - earliest).abs() < 3_600_000, "{clock} is near {earliest}");
}

pub(super) async fn missing_table_is_named_in_the_error(store: Arc<dyn Storage>) {
    #[track_caller]
    fn check<T: std::fmt::Debug>(result: &Result<T, StorageError>) {
        match result {
            Err(StorageError::NoSuchTable(table)) => assert_eq!(table.as_str(), "missing"),
            other => panic!("NoSuchTable, not {other:?}"),
        }
    }
    let table = Table::new("missing");
    let row = Bytes::from_static(b"row");
    let cells = || batch(&[(b"row", Family::T, b"q", b"v")]);
    let column = || Column { row: row.clone(), family: Family::T, qualifier: bytes(b"q") };
    check(&store.get(&table, Get::row(row.clone())).await);
    check(&store.multi_get(&table, vec![Get::row(row.clone())]).await);
    check(&store.put(&table, cells()).await);
    check(&store.append(&table, cells()).await);
    check(&store.increment(&table, column(), 1).await);
    check(&store.compare_and_set(&table, column(), None, bytes(b"v")).await);
    check(&store.compare_and_delete(&table, column(), bytes(b"v")).await);
    check(&store.delete(&table, Delete::Row(row.clone())).await);
    check(&store.scan(&table, Scan::default()).next_rows().await);
    assert!(!store.table_exists(&table).await.unwrap());
    for table in tables() {
        assert!(store.table_exists(&table).await.unwrap());
    }
}

pub(super) async fn flush_does_not_change_reads(store: Arc<dyn Storage>) {
    put(&*store, b"a", &[(b"q", b"1"), (b"r", b"2")]).await;
    store.flush().await.unwrap();
    put(&*store, b"a", &[(b"q", b"3")]).await;
    put(&*store, b"b", &[(b"q", b"4")]).await;
    for _ in 0..2 {
        assert_eq!(get(&*store, b"a").await, vec![t(b"q", b"3"), t(b"r", b"2")]);
        assert_eq!(value(&*store, b"b", b"q").await.unwrap(), b"4");
        store.flush().await.unwrap();
    }
}

pub(super) async fn closed_store_returns_closed(store: Arc<dyn Storage>) {
    #[track_caller]
    fn check<T: std::fmt::Debug>(result: &Result<T, StorageError>) {
        assert!(matches!(result, Err(StorageError::Closed)), "Closed, not {result:?}");
    }
    put(&*store, b"row", &[(b"q", b"v")]).await;
    let mut scanner = store.scan(&data(), Scan::default());
    store.close().await.unwrap();
    check(&store.get(&data(), Get::row(bytes(b"row"))).await);
    check(&store.put(&data(), batch(&[(b"row", Family::T, b"q", b"v")])).await);
    check(&store.delete(&data(), Delete::Row(bytes(b"row"))).await);
    check(&store.flush().await);
    // An open scan may complete or fail, but it must neither hang nor end early.
    match scanner.next_rows().await {
        Ok(rows) => assert_eq!(rows.map(|rows| rows.len()), Some(1)),
        Err(error) => assert!(matches!(error, StorageError::Closed), "{error}"),
    }
}

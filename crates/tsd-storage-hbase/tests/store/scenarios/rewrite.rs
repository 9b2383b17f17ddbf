//! Row compactions with concurrent writers.

use tsd_model::{Cell, Family, ReplacedColumn};
use tsd_storage::{Delete, ReadVersion, RowRewrite, StorageError, StorageExt};
use tsd_storage_hbase::HBaseStorage;

use crate::cells::{bytes, cells, data, put};

pub(crate) fn rewrite(put_at: i64, delete: &[(&[u8], i64)]) -> RowRewrite {
    let (qualifier, value) = (bytes(b"both"), bytes(b"12"));
    let cell = Cell { family: Family::T, qualifier, value, timestamp_ms: put_at };
    let replaced = |&(qualifier, timestamp_ms): &(&[u8], i64)| ReplacedColumn {
        family: Family::T,
        qualifier: bytes(qualifier),
        timestamp_ms,
    };
    let delete = delete.iter().map(replaced).collect();
    let read = ReadVersion::default();
    RowRewrite {
        row: bytes(b"row"),
        put: Some(cell),
        superseded_ms: None,
        delete,
        read,
        whole_row: false,
    }
}

pub(crate) async fn cells_written_since_the_read_are_kept(store: &HBaseStorage) {
    put(store, b"row", b"1", b"1", Some(10)).await;
    put(store, b"row", b"2", b"2", Some(10)).await;
    put(store, b"row", b"2", b"late", Some(11)).await;
    store.rewrite_row(&data(), rewrite(10, &[(b"1", 10), (b"2", 10)])).await.unwrap();
    let values: Vec<_> = cells(store, b"row").await.into_iter().map(|c| c.value).collect();
    assert_eq!(values, [&b"late"[..], b"12"]);
}

pub(crate) async fn hidden_column_is_put_again_before_deletes(store: &HBaseStorage) {
    // The row was deleted, then written again.
    put(store, b"row", b"1", b"0", None).await;
    store.delete(&data(), Delete::Row(bytes(b"row"))).await.unwrap();
    put(store, b"row", b"1", b"1", None).await;
    let read = cells(store, b"row").await.remove(0).timestamp_ms;
    store.rewrite_row(&data(), rewrite(1_000, &[(b"1", read)])).await.unwrap();
    let remaining = cells(store, b"row").await;
    assert_eq!(remaining.len(), 1);
    assert_eq!(remaining[0].value, b"12"[..]);
    assert!(remaining[0].timestamp_ms > 1_000, "put again with a later time");
}

pub(crate) async fn row_that_was_deleted_since_the_read_stays_deleted(store: &HBaseStorage) {
    put(store, b"row", b"1", b"1", Some(10)).await;
    put(store, b"row", b"2", b"2", Some(20)).await;
    store.delete(&data(), Delete::Row(bytes(b"row"))).await.unwrap();
    let result = store.rewrite_row(&data(), rewrite(20, &[(b"1", 10), (b"2", 20)])).await;
    assert!(matches!(result, Err(StorageError::Changed)), "{result:?}");
    assert_eq!(cells(store, b"row").await, []);
    // A point that was written after the delete does not cause a further put of the other points.
    put(store, b"row", b"1", b"3", None).await;
    let result = store.rewrite_row(&data(), rewrite(20, &[(b"1", 10), (b"2", 20)])).await;
    assert!(matches!(result, Err(StorageError::Changed)), "{result:?}");
    let remaining: Vec<_> = cells(store, b"row").await.into_iter().map(|c| c.value).collect();
    assert_eq!(remaining, [&b"3"[..]]);
}

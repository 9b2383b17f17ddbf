//! Puts, deletes, appends and row compactions.

use std::sync::Arc;

use tsd_model::{Cell, Family};

use super::fixture::{batch, bytes, column, data, delete_columns, full_cells, get, put, t, value};
use crate::{
    CellBatch, CellRef, Delete, Get, ReadVersion, ReplacedColumn, RowRewrite, Storage,
    StorageError, StorageExt,
};

pub(super) async fn last_put_to_a_column_wins(store: Arc<dyn Storage>) {
    put(&*store, b"row", &[(b"q", b"first"), (b"r", b"stays")]).await;
    put(&*store, b"row", &[(b"q", b"second")]).await;
    assert_eq!(get(&*store, b"row").await, vec![t(b"q", b"second"), t(b"r", b"stays")]);
    // Also within one batch, and over two groups of one row.
    let cells = batch(&[
        (b"row", Family::T, b"q", b"3"),
        (b"row", Family::T, b"q", b"4"),
        (b"other", Family::T, b"q", b"x"),
        (b"row", Family::T, b"q", b"5"),
    ]);
    store.put(&data(), cells).await.unwrap();
    assert_eq!(value(&*store, b"row", b"q").await.unwrap(), b"5");
}

pub(super) async fn empty_batch_changes_nothing(store: Arc<dyn Storage>) {
    store.put(&data(), CellBatch::new()).await.unwrap();
    store.append(&data(), CellBatch::new()).await.unwrap();
    let mut no_cells = CellBatch::new();
    no_cells.begin_row(b"row").unwrap();
    store.put(&data(), no_cells).await.unwrap();
    assert!(get(&*store, b"row").await.is_empty());
}

pub(super) async fn row_keys_may_be_prefixes_of_each_other(store: Arc<dyn Storage>) {
    let keys: [&[u8]; 5] = [b"a", b"a\0", b"a\0\0", b"ab", b"a\xff"];
    for key in keys {
        put(&*store, key, &[(b"q", key)]).await;
    }
    for key in keys {
        assert_eq!(get(&*store, key).await, vec![t(b"q", key)]);
    }
    store.delete(&data(), Delete::Row(bytes(b"a\0"))).await.unwrap();
    for key in keys {
        assert_eq!(get(&*store, key).await.is_empty(), key == b"a\0", "{key:?}");
    }
}

pub(super) async fn values_and_qualifiers_may_be_empty_or_any_bytes(store: Arc<dyn Storage>) {
    let every: Vec<u8> = (0..=255).collect();
    let long = vec![0xa5; 70_000];
    let cells: [(&[u8], &[u8]); 9] = [
        (b"", b"no qualifier"),
        (b"\0", b""),
        (b"\0\0", b"\0"),
        (b"\0\x07", b"\0\0\0\0\0\0\0\x2a"),
        (b"\x05\0\0", b"odd"),
        (b"\xf0\0\x10\x0b", b"\x40\x49\x0f\xdb"),
        (b"\xff", b""),
        (b"\xff\xff\xff", &long),
        (&every, &every),
    ];
    put(&*store, &every, &cells).await;
    for (qualifier, expected) in cells {
        let read = value(&*store, &every, qualifier).await;
        assert!(read.as_deref() == Some(expected), "qualifier {qualifier:?}");
    }
    let mut expected: Vec<_> = cells.iter().map(|(q, v)| t(q, v)).collect();
    expected.sort();
    assert!(get(&*store, &every).await == expected);
}

pub(super) async fn column_delete_keeps_other_columns(store: Arc<dyn Storage>) {
    put(&*store, b"row", &[(b"a", b"1"), (b"b", b"2"), (b"bc", b"3")]).await;
    delete_columns(&*store, b"row", &[b"b", b"absent"]).await;
    assert_eq!(get(&*store, b"row").await, vec![t(b"a", b"1"), t(b"bc", b"3")]);
    delete_columns(&*store, b"row", &[b"a", b"bc"]).await;
    assert!(get(&*store, b"row").await.is_empty());
    delete_columns(&*store, b"absent", &[b"a"]).await;
    store.delete(&data(), Delete::Columns { row: bytes(b"x"), columns: vec![] }).await.unwrap();
}

pub(super) async fn column_delete_applies_to_one_family(store: Arc<dyn Storage>) {
    let cells = batch(&[(b"row", Family::Id, b"q", b"1"), (b"row", Family::T, b"q", b"2")]);
    store.put(&data(), cells).await.unwrap();
    delete_columns(&*store, b"row", &[b"q"]).await;
    assert_eq!(get(&*store, b"row").await, vec![(Family::Id, b"q".to_vec(), b"1".to_vec())]);
}

pub(super) async fn put_after_a_delete_is_visible(store: Arc<dyn Storage>) {
    for flush in [false, true] {
        put(&*store, b"row", &[(b"a", b"1"), (b"b", b"2")]).await;
        if flush {
            store.flush().await.unwrap();
        }
        store.delete(&data(), Delete::Row(bytes(b"row"))).await.unwrap();
        assert!(get(&*store, b"row").await.is_empty());
        put(&*store, b"row", &[(b"b", b"3")]).await;
        assert_eq!(get(&*store, b"row").await, vec![t(b"b", b"3")]);
        if flush {
            store.flush().await.unwrap();
        }
        delete_columns(&*store, b"row", &[b"b"]).await;
        assert!(get(&*store, b"row").await.is_empty());
        put(&*store, b"row", &[(b"b", b"4")]).await;
        assert_eq!(get(&*store, b"row").await, vec![t(b"b", b"4")]);
    }
}

pub(super) async fn append_extends_or_creates_the_value(store: Arc<dyn Storage>) {
    let append = async |value: &[u8]| {
        let cells = batch(&[(b"row", Family::T, b"\x05\0\0", value)]);
        store.append(&data(), cells).await.unwrap();
    };
    append(b"one").await;
    assert_eq!(value(&*store, b"row", b"\x05\0\0").await.unwrap(), b"one");
    append(b"").await;
    append(b"two").await;
    store.flush().await.unwrap();
    append(b"three").await;
    assert_eq!(value(&*store, b"row", b"\x05\0\0").await.unwrap(), b"onetwothree");
    store.delete(&data(), Delete::Row(bytes(b"row"))).await.unwrap();
    append(b"new").await;
    assert_eq!(value(&*store, b"row", b"\x05\0\0").await.unwrap(), b"new");
}

pub(super) async fn one_append_may_contain_a_column_twice_and_many_rows(store: Arc<dyn Storage>) {
    put(&*store, b"b", &[(b"q", b"old")]).await;
    let cells = batch(&[
        (b"a", Family::T, b"q", b"1"),
        (b"a", Family::T, b"q", b"2"),
        (b"b", Family::T, b"q", b"3"),
        (b"a", Family::T, b"q", b"4"),
    ]);
    store.append(&data(), cells).await.unwrap();
    assert_eq!(value(&*store, b"a", b"q").await.unwrap(), b"124");
    assert_eq!(value(&*store, b"b", b"q").await.unwrap(), b"old3");
}

pub(super) async fn concurrent_appends_all_apply(store: Arc<dyn Storage>) {
    let append = async |i: u8| {
        let cells = batch(&[(b"row", Family::T, b"q", &[i])]);
        store.append(&data(), cells).await.unwrap();
    };
    futures_util::future::join_all((0..50).map(append)).await;
    let mut bytes = value(&*store, b"row", b"q").await.unwrap();
    bytes.sort_unstable();
    assert_eq!(bytes, (0..50).collect::<Vec<u8>>());
}

/// All current columns of a row, as a row compaction replaces them.
async fn replaced(store: &dyn Storage, row: &[u8]) -> Vec<ReplacedColumn> {
    let row = store.get(&data(), Get::row(bytes(row))).await.unwrap().unwrap();
    full_cells(row)
        .into_iter()
        .map(|Cell { family, qualifier, timestamp_ms, .. }| ReplacedColumn {
            family,
            qualifier,
            timestamp_ms,
        })
        .collect()
}

pub(super) async fn rewrite_replaces_many_cells_by_one(store: Arc<dyn Storage>) {
    const WRITTEN: i64 = 1_356_998_400_000;
    // A row per case: a delete marker of the first would hide the explicit timestamp of the second.
    for (flush, row) in [(false, b"row"), (true, b"two")] {
        let singles: [(&[u8], &[u8]); 3] =
            [(b"\0\0", b"1"), (b"\x01\x40", b"2"), (b"\x02\x80", b"3")];
        put(&*store, row, &singles).await;
        if flush {
            store.flush().await.unwrap();
        }
        let read = store.read_version(&data());
        let rewrite = RowRewrite {
            row: bytes(row),
            put: Some(Cell {
                family: Family::T,
                qualifier: bytes(b"\0\0\x01\x40\x02\x80"),
                value: bytes(b"123\0"),
                timestamp_ms: WRITTEN,
            }),
            superseded_ms: None,
            delete: replaced(&*store, row).await,
            read,
            whole_row: false,
        };
        store.rewrite_row(&data(), rewrite).await.unwrap();
        let cells = full_cells(store.get(&data(), Get::row(bytes(row))).await.unwrap().unwrap());
        assert_eq!(cells.len(), 1, "{cells:?}");
        assert_eq!(cells[0].qualifier, b"\0\0\x01\x40\x02\x80"[..]);
        assert_eq!(cells[0].value, b"123\0"[..]);
        assert_eq!(cells[0].timestamp_ms, WRITTEN);
    }
}

pub(super) async fn rewrite_without_a_put_only_deletes(store: Arc<dyn Storage>) {
    put(&*store, b"row", &[(b"\0\0", b"1"), (b"\x01\x40", b"2")]).await;
    let read = store.read_version(&data());
    let mut delete = replaced(&*store, b"row").await;
    delete.truncate(1);
    let rewrite = RowRewrite {
        row: bytes(b"row"),
        put: None,
        superseded_ms: None,
        delete,
        read,
        whole_row: false,
    };
    store.rewrite_row(&data(), rewrite).await.unwrap();
    assert_eq!(get(&*store, b"row").await, vec![t(b"\x01\x40", b"2")]);
}

/// Changes of a row between the read and the rewrite of a row compaction.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// Another value for a column that was read, maybe with the same cell timestamp.
    Overwrite,
    /// A column that was not read.
    NewColumn,
    DeleteColumn,
    /// The row is deleted and written again.
    NewRow,
}

pub(super) async fn rewrite_loses_nothing_written_since_the_read(store: Arc<dyn Storage>) {
    use Meanwhile::{DeleteColumn, NewColumn, NewRow, Nothing, Overwrite};
    let mut number = 0;
    for meanwhile in [Nothing, Overwrite, NewColumn, DeleteColumn, NewRow] {
        // True if the row is flushed before the read, and before the rewrite.
        for (flushed_before, flushed_after) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            for whole_row in [false, true] {
                number += 1;
                let row = (&[number][..], whole_row);
                rewrite_after(&*store, row, meanwhile, flushed_before, flushed_after).await;
            }
        }
    }
}

/// A row compaction, or a delete of the whole row as it was read.
async fn rewrite_after(
    store: &dyn Storage,
    (row, whole_row): (&[u8], bool),
    meanwhile: Meanwhile,
    flushed_before: bool,
    flushed_after: bool,
) {
    const COMPACTED: &[u8] = b"\0\0\x01\x40\x02\x80";
    put(store, row, &[(b"\0\0", b"1"), (b"\x01\x40", b"2"), (b"\x02\x80", b"3")]).await;
    if flushed_before {
        store.flush().await.unwrap();
    }
    let read = store.read_version(&data());
    let delete = replaced(store, row).await;
    let mut kept = Vec::new();
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::Overwrite => {
            put(store, row, &[(b"\x01\x40", b"4")]).await;
            kept.push(t(b"\x01\x40", b"4"));
        }
        Meanwhile::NewColumn => {
            put(store, row, &[(b"\x01\x41", b"45")]).await;
            kept.push(t(b"\x01\x41", b"45"));
        }
        Meanwhile::DeleteColumn => delete_columns(store, row, &[b"\x02\x80"]).await,
        Meanwhile::NewRow => {
            store.delete(&data(), Delete::Row(bytes(row))).await.unwrap();
            put(store, row, &[(b"\x01\x40", b"5")]).await;
            kept.push(t(b"\x01\x40", b"5"));
        }
    }
    if flushed_after {
        store.flush().await.unwrap();
    }
    let before = get(store, row).await;
    let compacted = Cell {
        family: Family::T,
        qualifier: bytes(COMPACTED),
        value: bytes(b"123\0"),
        timestamp_ms: delete.iter().map(|column| column.timestamp_ms).max().unwrap(),
    };
    let is_version = read != ReadVersion::default();
    let compacted = (!whole_row).then_some(compacted);
    let rewrite = RowRewrite {
        row: bytes(row),
        put: compacted,
        superseded_ms: None,
        delete,
        read,
        whole_row,
    };
    match store.rewrite_row(&data(), rewrite).await {
        Ok(()) => {
            // A store with versions executes it only if nothing has changed.
            assert!(!is_version || matches!(meanwhile, Meanwhile::Nothing), "{meanwhile:?}");
            let is_new_row = matches!(meanwhile, Meanwhile::NewRow);
            assert!(whole_row || !is_new_row, "deleted points came back");
            let after = get(store, row).await;
            let is_put = after.contains(&t(COMPACTED, b"123\0"));
            assert_eq!(is_put, !whole_row, "{meanwhile:?}: {after:?}");
            assert!(after.len() <= usize::from(is_put) + kept.len(), "{meanwhile:?}: {after:?}");
            for cell in kept {
                // With other writers, a cell of the same millisecond as the read cell is lost.
                let may_be_lost = !is_version && !matches!(meanwhile, Meanwhile::NewColumn);
                assert!(may_be_lost || after.contains(&cell), "{meanwhile:?}: {after:?}");
            }
        }
        Err(StorageError::Changed) => {
            assert_eq!(get(store, row).await, before, "{meanwhile:?}");
            // Without versions a deleted row is known by its cells.
            assert!(is_version || matches!(meanwhile, Meanwhile::NewRow), "{meanwhile:?}");
        }
        Err(error) => panic!("{meanwhile:?}: {error}"),
    }
    let before = get(store, row).await;
    store.flush().await.unwrap();
    assert_eq!(get(store, row).await, before, "{meanwhile:?}");
}

pub(super) async fn unchanged_row_is_rewritten(store: Arc<dyn Storage>) {
    put(&*store, b"row", &[(b"\0\0", b"1"), (b"\x01\x40", b"2")]).await;
    let read = store.read_version(&data());
    let delete = replaced(&*store, b"row").await;
    let compacted = Cell {
        family: Family::T,
        qualifier: bytes(b"\0\0\x01\x40"),
        value: bytes(b"12\0"),
        timestamp_ms: delete[1].timestamp_ms,
    };
    let rewrite = RowRewrite {
        row: bytes(b"row"),
        put: Some(compacted),
        superseded_ms: None,
        delete,
        read,
        whole_row: false,
    };
    store.rewrite_row(&data(), rewrite).await.unwrap();
    assert_eq!(get(&*store, b"row").await, vec![t(b"\0\0\x01\x40", b"12\0")]);
}

pub(super) async fn points_of_an_hour_read_back_unchanged(store: Arc<dyn Storage>) {
    // Seconds and milliseconds, integers of every width and both kinds of floats, out of order.
    let widths: [(u16, &[u8]); 6] = [
        (0x0, &[7]),
        (0x1, &[1, 2]),
        (0x3, &[1, 2, 3, 4]),
        (0x7, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (0xb, &[0x42, 0x28, 0, 0]),
        (0xf, &[0x40, 0x45, 0, 0, 0, 0, 0, 0]),
    ];
    let mut expected = Vec::new();
    for second in (0..3600_u16).step_by(10).rev() {
        let (flags, bytes) = widths[usize::from(second / 10) % widths.len()];
        let cell = if second % 20 == 0 {
            t(&((second << 4) | flags).to_be_bytes(), bytes)
        } else {
            let ms = u32::from(second) * 1000 + 7;
            t(&(0xf000_0000 | (ms << 6) | u32::from(flags)).to_be_bytes(), bytes)
        };
        put(&*store, b"row", &[(&cell.1, &cell.2)]).await;
        if second % 700 == 0 {
            store.flush().await.unwrap();
        }
        expected.push(cell);
    }
    expected.sort();
    assert_eq!(get(&*store, b"row").await, expected);
    store.flush().await.unwrap();
    assert_eq!(get(&*store, b"row").await, expected);
    let one = &expected[100];
    assert_eq!(value(&*store, b"row", &one.1).await.as_ref(), Some(&one.2));
    // A new value for a flushed point.
    put(&*store, b"row", &[(&one.1, &one.2)]).await;
    assert_eq!(get(&*store, b"row").await, expected);
    delete_columns(&*store, b"row", &[&one.1]).await;
    assert_eq!(get(&*store, b"row").await.len(), expected.len() - 1);
}

pub(super) async fn batch_of_many_rows_is_written_completely(store: Arc<dyn Storage>) {
    let mut cells = CellBatch::new();
    for row in 0..2_000_u32 {
        cells.begin_row(&row.to_be_bytes()).unwrap();
        for qualifier in [b"a", b"b"] {
            let value = &row.to_le_bytes();
            let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
            cells.push(cell).unwrap();
        }
    }
    store.put(&data(), cells).await.unwrap();
    for row in (0..2_000_u32).step_by(37) {
        let value = row.to_le_bytes();
        let expected = vec![t(b"a", &value), t(b"b", &value)];
        assert_eq!(get(&*store, &row.to_be_bytes()).await, expected);
    }
}

pub(super) async fn counter_column_is_an_ordinary_column(store: Arc<dyn Storage>) {
    assert_eq!(store.increment(&data(), column(b"row", b"n"), 5).await.unwrap(), 5);
    assert_eq!(get(&*store, b"row").await, vec![t(b"n", &5_i64.to_be_bytes())]);
    put(&*store, b"row", &[(b"n", &40_i64.to_be_bytes())]).await;
    assert_eq!(store.increment(&data(), column(b"row", b"n"), 2).await.unwrap(), 42);
    delete_columns(&*store, b"row", &[b"n"]).await;
    assert_eq!(store.increment(&data(), column(b"row", b"n"), 1).await.unwrap(), 1);
}

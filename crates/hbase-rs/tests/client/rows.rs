//! Single rows.

use futures_util::TryStreamExt;
use hbase_rs::{
    Append, Compressor, Condition, Delete, Failure, Increment, Mutation, Put, SERVER_TIME, Scan,
};

use super::{config, get, put, start, start_with, value};

#[tokio::test]
async fn written_rows_are_read() {
    let (_cluster, table) = start().await;
    for row in ["a", "g", "k", "z"] {
        table.mutate(put(row, row)).await.unwrap();
    }
    for row in ["a", "g", "k", "z"] {
        assert_eq!(value(&table.get(&get(row)).await.unwrap()), row);
    }
    assert!(table.get(&get("nope")).await.unwrap().is_empty());
    assert!(table.exists(get("a")).await.unwrap());
    assert!(!table.exists(get("nope")).await.unwrap());
}

#[tokio::test]
async fn columns_and_rows_are_deleted() {
    let (_cluster, table) = start().await;
    let two = put("a", "1").cell(b"f", b"r", 1, b"2").unwrap();
    table.mutate(two).await.unwrap();
    let delete = || Delete::try_new("a").unwrap();
    table.mutate(delete().column(b"f", b"q", SERVER_TIME).unwrap()).await.unwrap();
    assert_eq!(table.get(&get("a")).await.unwrap().len(), 1);
    table.mutate(delete()).await.unwrap();
    assert!(table.get(&get("a")).await.unwrap().is_empty());
}

#[tokio::test]
async fn increments_and_appends_return_the_new_value() {
    let (_cluster, table) = start().await;
    for expected in [5_i64, 10] {
        let increment = Increment::try_new("a").unwrap().counter(b"f", b"n", 5).unwrap();
        let row = table.mutate(increment).await.unwrap();
        assert_eq!(row.value(b"f", b"n").unwrap(), expected.to_be_bytes());
    }
    for expected in ["x", "xx"] {
        let append = Append::try_new("a").unwrap().value(b"f", b"q", b"x").unwrap();
        assert_eq!(value(&table.mutate(append).await.unwrap()), expected);
    }
}

#[tokio::test]
async fn mutation_is_applied_only_if_its_condition_is_met() {
    let (_cluster, table) = start().await;
    let absent = Condition::absent("f", "q");
    assert!(table.check_and_mutate(&absent, put("a", "1")).await.unwrap());
    assert!(!table.check_and_mutate(&absent, put("a", "2")).await.unwrap());
    assert!(
        table.check_and_mutate(&Condition::equals("f", "q", "1"), put("a", "3")).await.unwrap()
    );
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "3");
}

#[tokio::test]
async fn row_mutations_are_atomic() {
    let (_cluster, table) = start().await;
    table.mutate(put("a", "1")).await.unwrap();
    let changes = || -> Vec<Mutation> {
        let delete = Delete::try_new("a").unwrap().column(b"f", b"q", SERVER_TIME).unwrap();
        let other = Put::try_new("a").unwrap().cell(b"f", b"r", 1, b"2").unwrap();
        vec![delete.into(), other.into()]
    };
    let wrong = Condition::equals("f", "q", "9");
    assert!(!table.mutate_row(changes(), Some(&wrong)).await.unwrap());
    assert_eq!(table.get(&get("a")).await.unwrap().len(), 1);
    assert!(table.mutate_row(changes(), None).await.unwrap());
    let row = table.get(&get("a")).await.unwrap();
    assert_eq!(row.value(b"f", b"r"), Some(&b"2"[..]));
    assert_eq!(row.value(b"f", b"q"), None);
}

#[tokio::test]
async fn cell_blocks_are_compressed_in_both_directions() {
    for compressor in [Compressor::Snappy, Compressor::Lz4, Compressor::Gzip, Compressor::Zlib] {
        let mut config = config();
        config.compressor = Some(compressor);
        let (_cluster, table) = start_with(config).await;
        let text = "value ".repeat(100);
        table.mutate(put("a", &text)).await.unwrap();
        let results = table.batch(vec![put("b", &text).into(), get("a").into()]).await;
        assert_eq!(value(&results[1].as_ref().unwrap().row), text);
        let rows: Vec<_> = table.scan(Scan::all()).try_collect().await.unwrap();
        assert!(rows.iter().map(|row| value(&row.row)).eq([&text, &text]), "{compressor:?}");
    }
}

#[tokio::test]
async fn cells_over_the_limit_are_rejected() {
    let mut config = config();
    config.max_cell = 100;
    let (cluster, table) = start_with(config).await;
    let error = table.mutate(put("a", &"x".repeat(100))).await.unwrap_err();
    assert!(matches!(*error.cause, Failure::CellTooLong { limit: 100, .. }), "{error:?}");
    assert!(!error.in_doubt);
    assert_eq!(cluster.calls("Mutate"), 0);
}

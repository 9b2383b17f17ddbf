//! Single rows.

use futures_util::TryStreamExt;
use hbase_fake::{FaultKind, InjectedFault};
use hbase_rs::{
    Append, Compressor, Delete, Increment, Mutation, Put, SERVER_TIME, Scan,
    condition::Condition,
    errors::Failure,
    filter::{Comparator, CompareOp, Filter},
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

#[tokio::test]
async fn change_whose_log_was_not_synced_in_time_is_in_doubt() {
    let (cluster, table) = start().await;
    for class in ["regionserver.wal.WALSyncTimeoutIOException", "exceptions.TimeoutIOException"] {
        let fault = || FaultKind::ExceptionAfter { class, text: "not synced" };
        let row = class.to_lowercase();
        cluster.inject(InjectedFault::once("Mutate", fault()));
        let absent = Condition::absent("f", "q");
        let error = table.check_and_mutate(&absent, put(&row, "1")).await.unwrap_err();
        // A second attempt would see the value of the first, and report that the condition failed.
        assert!(error.in_doubt && error.attempts == 1, "{error:?}");
        assert_eq!(value(&table.get(&get(&row)).await.unwrap()), "1");
        // Repeatable changes are repeated.
        cluster.inject(InjectedFault::once("Mutate", fault()));
        table.mutate(put(&row, "2")).await.unwrap();
        cluster.inject(InjectedFault::once("Mutate", fault()));
        let increment = Increment::try_new(row.clone()).unwrap().counter(b"f", b"n", 5).unwrap();
        let sum = table.mutate(increment).await.unwrap();
        assert_eq!(sum.value(b"f", b"n").unwrap(), 5_i64.to_be_bytes());
    }
}

#[tokio::test]
async fn atomic_change_whose_log_was_not_synced_in_time_is_in_doubt() {
    let (cluster, table) = start().await;
    let fault = FaultKind::RegionException {
        class: "regionserver.wal.WALSyncTimeoutIOException",
        text: "not synced",
    };
    let changes = || vec![put("a", "1").into()];
    // Establishes that the server evaluates conditions.
    let absent = Condition::absent("f", "q");
    assert!(table.mutate_row(changes(), Some(&absent)).await.unwrap());
    cluster.inject(InjectedFault::once("Multi", fault.clone()));
    let one = Condition::equals("f", "q", "1");
    let error = table.mutate_row(changes(), Some(&one)).await.unwrap_err();
    assert!(error.in_doubt && error.attempts == 1, "{error:?}");
    cluster.inject(InjectedFault::once("Multi", fault));
    assert!(table.mutate_row(changes(), None).await.unwrap());
}

#[tokio::test]
async fn condition_is_refused_on_a_server_that_would_ignore_it() {
    let (cluster, table) = start().await;
    cluster.set_version("2.3.7");
    table.mutate(put("a", "1")).await.unwrap();
    let changes = || vec![put("a", "9").into()];
    let wrong = Condition::equals("f", "q", "no");
    let error = table.mutate_row(changes(), Some(&wrong)).await.unwrap_err();
    let text = error.cause.to_string();
    assert!(text.contains("2.3.7") && text.contains("2.4"), "{text}");
    assert!(!error.in_doubt);
    let filter =
        Filter::column_value("f", "q", CompareOp::Equal, Comparator::binary("no".as_bytes()));
    let filter = Condition::filter(filter);
    let error = table.check_and_mutate(&filter, put("a", "9")).await.unwrap_err();
    assert!(matches!(*error.cause, Failure::ServerTooOld { .. }), "{error:?}");
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "1");
    // These do not need 2.4.
    assert!(table.mutate_row(changes(), None).await.unwrap());
    let nine = Condition::equals("f", "q", "9");
    assert!(table.check_and_mutate(&nine, put("a", "2")).await.unwrap());
    // Another process of the server may have another version.
    cluster.set_version("2.4.0");
    cluster.kill(0).await;
    cluster.restart(0).await;
    assert!(!table.mutate_row(changes(), Some(&wrong)).await.unwrap());
}

#[tokio::test]
async fn server_is_asked_once_whether_it_reads_conditions() {
    let (cluster, table) = start().await;
    let absent = Condition::absent("f", "q");
    for expected in [true, false, false] {
        let changes = vec![put("a", "1").into()];
        assert_eq!(table.mutate_row(changes, Some(&absent)).await.unwrap(), expected);
    }
    assert_eq!(cluster.calls("Multi"), 4);
    assert_eq!(cluster.calls("GetClusterStatus"), 0);
}

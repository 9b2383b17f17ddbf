//! Batches of actions.

use hbase_fake::{FaultKind, InjectedFault};
use hbase_rs::{Action, Append, Delete, SERVER_TIME, errors::ExceptionClass};

use super::{config, fill, get, put, start, start_with, transient_faults, value};

/// Row keys of all three regions.
fn rows() -> Vec<String> {
    ('a'..='z').flat_map(|letter| (0..4).map(move |at| format!("{letter}{at}"))).collect()
}

fn puts() -> Vec<Action> {
    rows().iter().map(|row| put(row, row).into()).collect()
}

fn gets() -> Vec<hbase_rs::Get> {
    rows().iter().map(|row| get(row)).collect()
}

#[tokio::test]
async fn batch_is_one_call_per_server() {
    let (cluster, table) = start().await;
    let results = table.batch(puts()).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(cluster.calls("Multi"), 2);
    let read = table.get_many(gets()).await.unwrap();
    assert_eq!(read.iter().map(value).collect::<Vec<_>>(), rows());
    assert_eq!(cluster.calls("Multi"), 4);
}

#[tokio::test]
async fn results_are_in_the_order_of_the_actions() {
    let (_cluster, table) = start().await;
    fill(&table, &["a", "h", "q"]).await;
    let append = Append::try_new("h").unwrap().value(b"f", b"q", b"!").unwrap();
    let delete = Delete::try_new("q").unwrap();
    let actions =
        vec![get("a").into(), append.into(), put("b", "b").into(), delete.into(), get("zz").into()];
    let results: Vec<_> =
        table.batch(actions).await.into_iter().map(|result| result.unwrap().row).collect();
    assert_eq!(results.iter().map(value).collect::<Vec<_>>(), ["a", "h!", "", "", ""]);
    assert!(table.batch(Vec::new()).await.is_empty());
}

#[tokio::test]
async fn batch_limits_are_respected() {
    let mut config = config();
    config.max_batch_actions = 10;
    config.max_batch_bytes = 200;
    let (cluster, table) = start_with(config).await;
    assert!(table.batch(puts()).await.iter().all(Result::is_ok));
    // Cells of about 29 bytes, at most 200 bytes per call.
    assert!(cluster.calls("Multi") >= 104 / 6, "{}", cluster.calls("Multi"));
    assert_eq!(table.get_many(gets()).await.unwrap().len(), 104);
}

#[tokio::test]
async fn transient_failures_are_retried() {
    let (cluster, table) = start().await;
    for fault in transient_faults() {
        cluster.inject(InjectedFault::once("Multi", fault.clone()).times(3));
        for result in table.batch(puts()).await {
            result.unwrap_or_else(|error| panic!("{fault:?}: {error:?}"));
        }
    }
    assert_eq!(table.get_many(gets()).await.unwrap().iter().map(value).collect::<Vec<_>>(), rows());
}

#[tokio::test]
async fn permanent_failure_fails_only_its_action() {
    let (cluster, table) = start().await;
    let class = "regionserver.NoSuchColumnFamilyException";
    cluster.inject(
        InjectedFault::once("Multi", FaultKind::ActionException { class, text: "no" }).on(1),
    );
    let results = table.batch(puts()).await;
    let failed: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].class(), Some(ExceptionClass::NoSuchFamily));
}

#[tokio::test]
async fn changed_regions_are_regrouped() {
    let (cluster, table) = start().await;
    assert!(table.batch(puts()).await.iter().all(Result::is_ok));
    cluster.split_region(table.name(), "c");
    cluster.move_region(table.name(), "h", 0, false);
    cluster.merge_region(table.name(), "h");
    assert!(table.batch(puts()).await.iter().all(Result::is_ok));
    assert_eq!(table.get_many(gets()).await.unwrap().iter().map(value).collect::<Vec<_>>(), rows());
}

#[tokio::test]
async fn too_big_request_is_split() {
    let (cluster, table) = start().await;
    let fault = FaultKind::Exception { class: "exceptions.RequestTooBigException", text: "big" };
    cluster.inject(InjectedFault::once("Multi", fault).times(4));
    assert!(table.batch(puts()).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn rejected_large_batch_is_split() {
    let (cluster, table) = start().await;
    let fault = FaultKind::Exception {
        class: "java.io.IOException",
        text: "Rejecting large batch operation for current batch with firstRegionName: t , \
               Requested Number of Rows: 9000 , Size Threshold: 5000",
    };
    cluster.inject(InjectedFault::once("Multi", fault.clone()).times(4));
    assert!(table.batch(puts()).await.iter().all(Result::is_ok));
    cluster.inject(InjectedFault::once("Multi", fault).times(3));
    let buffer = table.buffered(hbase_rs::BufferConfig::default());
    let mut batch = buffer.batch(0, 0);
    for row in rows() {
        batch.put(row.as_bytes(), b"f", b"r", 1, b"").unwrap();
    }
    buffer.write(batch).await.unwrap();
}

#[tokio::test]
async fn only_idempotent_actions_are_retried_in_doubt() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "b"]).await;
    cluster.inject(InjectedFault::once("Multi", FaultKind::CloseAfter(5)));
    let newest = Delete::try_new("a").unwrap().version(b"f", b"q", SERVER_TIME).unwrap();
    let append = Append::try_new("b").unwrap().value(b"f", b"q", b"!").unwrap();
    let results = table.batch(vec![newest.into(), put("c", "c").into(), append.into()]).await;
    assert!(results[0].as_ref().unwrap_err().in_doubt);
    assert!(results[1].is_ok());
    assert_eq!(value(&results[2].as_ref().unwrap().row), "b!");
    assert_eq!(value(&table.get(&get("b")).await.unwrap()), "b!");
}

#[tokio::test]
async fn unavailable_region_does_not_delay_the_others() {
    let mut config = config();
    config.operation_timeout = std::time::Duration::from_millis(300);
    let (cluster, table) = start_with(config).await;
    cluster.kill(1).await;
    let results = table.batch(vec![put("a", "a").into(), put("h", "h").into()]).await;
    assert!(results[0].is_ok());
    assert!(!results[1].as_ref().unwrap_err().in_doubt);
    assert!(cluster.value(table.name(), "a", "f", "q").is_some());
}

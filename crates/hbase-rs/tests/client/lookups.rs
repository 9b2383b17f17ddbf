//! Lookups of regions: many callers, few calls.

use std::{sync::Arc, time::Duration};

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{Client, OperationError, Row, Table};
use tokio::task::JoinHandle;

use super::{config, fill, get, start, start_with, value};

type Reading = JoinHandle<Result<Row, OperationError>>;

fn reading(table: &Arc<Table>, row: &'static str) -> Reading {
    let table = Arc::clone(table);
    tokio::spawn(async move { table.get(&get(row)).await })
}

async fn all_read(readers: Vec<Reading>, expected: &str) {
    for reader in readers {
        assert_eq!(value(&reader.await.unwrap().unwrap()), expected);
    }
}

#[tokio::test]
async fn callers_of_a_region_that_is_lost_make_one_lookup() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "h"]).await;
    let table = Arc::new(table);
    cluster
        .inject(InjectedFault::once("Scan", FaultKind::Delay(Duration::from_millis(60))).of_meta());
    let before = cluster.calls("Scan");
    cluster.move_region(table.name(), "h", 0, true);
    all_read((0..200).map(|_| reading(&table, "h")).collect(), "h").await;
    assert_eq!(cluster.calls("Scan") - before, 1);
}

#[tokio::test]
async fn callers_of_a_region_that_is_new_make_few_lookups() {
    let (cluster, table) = start().await;
    fill(&table, &["h"]).await;
    let fresh = Client::new(config(), cluster.discovery());
    let table = Arc::new(fresh.table(table.name().clone()));
    all_read((0..200).map(|_| reading(&table, "h")).collect(), "h").await;
    let stats = fresh.stats();
    // One, and no more than have a turn if that one takes long.
    assert!((1..=9).contains(&stats.lookups), "{}", stats.lookups);
    assert!(stats.lookups_shared > 0);
    assert_eq!(stats.lookups_failed, 0);
}

#[tokio::test]
async fn a_lookup_that_takes_long_holds_up_its_own_region_alone() {
    let mut config = config();
    config.call_timeout = Duration::from_millis(300);
    let (cluster, table) = start_with(config).await;
    fill(&table, &["a", "h"]).await;
    let table = Arc::new(table);
    cluster.inject(InjectedFault::once("Scan", FaultKind::NoResponse).of_meta());
    let before = cluster.calls("Scan");
    cluster.move_region(table.name(), "h", 0, true);
    let stuck = reading(&table, "h");
    while cluster.calls("Scan") == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cluster.move_region(table.name(), "a", 1, true);
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "a");
    assert!(!stuck.is_finished());
    assert_eq!(value(&stuck.await.unwrap().unwrap()), "h");
}

#[tokio::test]
async fn callers_behind_a_slow_lookup_of_unknown_rows_make_their_own() {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let mut config = config();
    config.call_timeout = Duration::from_millis(500);
    let table = Arc::new(Client::new(config, cluster.discovery()).table(name));
    cluster.inject(InjectedFault::once("Scan", FaultKind::NoResponse).of_meta());
    let stuck = reading(&table, "a");
    while cluster.calls("Scan") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(table.get(&get("z")).await.unwrap().is_empty());
    assert!(stuck.await.unwrap().unwrap().is_empty());
}

#[tokio::test]
async fn a_failed_lookup_fails_who_waited_and_nobody_later() {
    let (cluster, table) = start().await;
    let fault = FaultKind::Exception { class: "DoNotRetryIOException", text: "no" };
    cluster.inject(InjectedFault::once("Scan", fault).of_meta());
    table.get(&get("a")).await.unwrap_err();
    table.get(&get("a")).await.unwrap();
}

#[tokio::test]
async fn regions_that_were_fetched_before_need_no_lookup() {
    let (cluster, table) = start().await;
    assert_eq!(table.prefetch().await.unwrap(), 3);
    let before = cluster.calls("Scan");
    fill(&table, &["a", "h", "q"]).await;
    assert_eq!(cluster.calls("Scan"), before);
}

#[tokio::test]
async fn a_server_that_is_gone_is_found_out_once() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "h"]).await;
    let table = Arc::new(table);
    cluster.kill(1).await;
    let readers: Vec<_> = (0..100).map(|_| reading(&table, "h")).collect();
    tokio::time::sleep(Duration::from_millis(30)).await;
    cluster.evacuate(1, 0);
    all_read(readers, "h").await;
}

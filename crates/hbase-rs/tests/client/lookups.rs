//! Region lookups: single-flight and limits.

use std::{sync::Arc, time::Duration};

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{Client, OperationError, Row, Table};
use tokio::task::JoinHandle;

use super::{config, fill, get, start, start_with, value};

type ReadTask = JoinHandle<Result<Row, OperationError>>;

fn spawn_read(table: &Arc<Table>, row: &'static str) -> ReadTask {
    let table = Arc::clone(table);
    tokio::spawn(async move { table.get(&get(row)).await })
}

async fn assert_all_read(readers: Vec<ReadTask>, expected: &str) {
    for reader in readers {
        assert_eq!(value(&reader.await.unwrap().unwrap()), expected);
    }
}

#[tokio::test]
async fn callers_of_a_moved_region_share_one_lookup() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "h"]).await;
    let table = Arc::new(table);
    cluster
        .inject(InjectedFault::once("Scan", FaultKind::Delay(Duration::from_millis(60))).of_meta());
    let before = cluster.calls("Scan");
    cluster.move_region(table.name(), "h", 0, true);
    assert_all_read((0..200).map(|_| spawn_read(&table, "h")).collect(), "h").await;
    assert_eq!(cluster.calls("Scan") - before, 1);
}

#[tokio::test]
async fn callers_of_an_uncached_region_make_few_lookups() {
    let (cluster, table) = start().await;
    fill(&table, &["h"]).await;
    let new_client = Client::new(config(), cluster.discovery());
    let table = Arc::new(new_client.table(table.name().clone()));
    assert_all_read((0..200).map(|_| spawn_read(&table, "h")).collect(), "h").await;
    let stats = new_client.stats();
    // One, or up to `max_lookups` more if it is slow.
    assert!((1..=9).contains(&stats.lookups), "{}", stats.lookups);
    assert!(stats.lookups_shared > 0);
    assert_eq!(stats.lookups_failed, 0);
}

#[tokio::test]
async fn slow_lookup_delays_only_its_own_region() {
    let mut config = config();
    config.call_timeout = Duration::from_millis(300);
    let (cluster, table) = start_with(config).await;
    fill(&table, &["a", "h"]).await;
    let table = Arc::new(table);
    cluster.inject(InjectedFault::once("Scan", FaultKind::NoResponse).of_meta());
    let before = cluster.calls("Scan");
    cluster.move_region(table.name(), "h", 0, true);
    let stuck = spawn_read(&table, "h");
    while cluster.calls("Scan") == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cluster.move_region(table.name(), "a", 1, true);
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "a");
    assert!(!stuck.is_finished());
    assert_eq!(value(&stuck.await.unwrap().unwrap()), "h");
}

#[tokio::test]
async fn waiters_of_a_slow_lookup_of_another_region_start_their_own() {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let mut config = config();
    config.call_timeout = Duration::from_millis(500);
    let table = Arc::new(Client::new(config, cluster.discovery()).table(name));
    cluster.inject(InjectedFault::once("Scan", FaultKind::NoResponse).of_meta());
    let stuck = spawn_read(&table, "a");
    while cluster.calls("Scan") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(table.get(&get("z")).await.unwrap().is_empty());
    assert!(stuck.await.unwrap().unwrap().is_empty());
}

#[tokio::test]
async fn failed_lookup_fails_only_its_waiters() {
    let (cluster, table) = start().await;
    let fault = FaultKind::Exception { class: "DoNotRetryIOException", text: "no" };
    cluster.inject(InjectedFault::once("Scan", fault).of_meta());
    table.get(&get("a")).await.unwrap_err();
    table.get(&get("a")).await.unwrap();
}

#[tokio::test]
async fn prefetched_regions_need_no_lookup() {
    let (cluster, table) = start().await;
    assert_eq!(table.prefetch().await.unwrap(), 3);
    let before = cluster.calls("Scan");
    fill(&table, &["a", "h", "q"]).await;
    assert_eq!(cluster.calls("Scan"), before);
}

#[tokio::test]
async fn callers_of_a_dead_server_recover() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "h"]).await;
    let table = Arc::new(table);
    cluster.kill(1).await;
    let readers: Vec<_> = (0..100).map(|_| spawn_read(&table, "h")).collect();
    tokio::time::sleep(Duration::from_millis(30)).await;
    cluster.evacuate(1, 0);
    assert_all_read(readers, "h").await;
}

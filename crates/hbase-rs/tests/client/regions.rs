//! Regions that move, split and merge.

use std::time::Duration;

use futures_util::TryStreamExt;
use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    BufferConfig, Client, Scan,
    admin::TableState,
    errors::{ExceptionClass, Failure},
};
use tokio::time::sleep;

use super::{config, fill, get, put, start, start_with, value};

#[tokio::test]
async fn lookup_caches_neighbouring_regions() {
    let (cluster, table) = start().await;
    table.mutate(put("z", "z")).await.unwrap();
    let lookups = cluster.calls("Scan");
    fill(&table, &["a", "h", "q"]).await;
    assert_eq!(cluster.calls("Scan"), lookups);
}

#[tokio::test]
async fn moved_region_is_followed_without_a_lookup() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "h", "q"]).await;
    let lookups = cluster.calls("Scan");
    cluster.move_region(table.name(), "h", 0, false);
    assert_eq!(value(&table.get(&get("h")).await.unwrap()), "h");
    assert_eq!(cluster.calls("Scan"), lookups);
}

#[tokio::test]
async fn silently_moved_region_is_looked_up() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "h", "q"]).await;
    cluster.move_region(table.name(), "h", 0, true);
    assert_eq!(value(&table.get(&get("h")).await.unwrap()), "h");
}

#[tokio::test]
async fn servers_that_redirect_to_each_other_do_not_loop() {
    let (cluster, table) = start().await;
    fill(&table, &["h"]).await;
    cluster.move_region(table.name(), "h", 0, false);
    fill(&table, &["h"]).await;
    cluster.move_region(table.name(), "h", 1, false);
    cluster.move_region(table.name(), "h", 0, true);
    // The region is on the first server, which redirects to the second, and vice versa.
    assert_eq!(value(&table.get(&get("h")).await.unwrap()), "h");
}

#[tokio::test]
async fn split_and_merged_regions_are_found() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "c", "h"]).await;
    cluster.split_region(table.name(), "b");
    for row in ["a", "c"] {
        assert_eq!(value(&table.get(&get(row)).await.unwrap()), row);
    }
    cluster.merge_region(table.name(), "b");
    cluster.merge_region(table.name(), "a");
    for row in ["a", "c", "h"] {
        assert_eq!(value(&table.get(&get(row)).await.unwrap()), row);
    }
}

#[tokio::test]
async fn regions_of_a_restored_snapshot_are_found_with_their_former_ids() {
    let (cluster, table) = start().await;
    let snapshot = cluster.snapshot_regions(table.name());
    fill(&table, &["a", "c", "h"]).await;
    cluster.split_region(table.name(), "b");
    let writer = table.buffered(BufferConfig::default());
    for row in ["a", "c", "h"] {
        writer.mutate(put(row, "split")).await.unwrap();
    }
    // The daughters, which have higher ids, are in the cache.
    cluster.restore_regions(&snapshot, 1);
    assert_eq!(value(&table.get(&get("c")).await.unwrap()), "split");
    writer.mutate(put("c", "restored")).await.unwrap();
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "split");
    let lookups = table.client().stats().lookups;
    for row in ["a", "c", "h"] {
        writer.mutate(put(row, "again")).await.unwrap();
        assert_eq!(value(&table.get(&get(row)).await.unwrap()), "again");
    }
    assert_eq!(table.client().stats().lookups, lookups);
}

#[tokio::test]
async fn row_of_a_restored_region_is_looked_up_twice_at_most() {
    let (cluster, table) = start().await;
    let snapshot = cluster.snapshot_regions(table.name());
    cluster.split_region(table.name(), "b");
    fill(&table, &["a", "c"]).await;
    cluster.restore_regions(&snapshot, 1);
    let lookups = table.client().stats().lookups;
    // No call to the first daughter fails.
    for _ in 0..20 {
        assert_eq!(value(&table.get(&get("c")).await.unwrap()), "c");
    }
    assert!(table.client().stats().lookups <= lookups + 2);
}

#[tokio::test]
async fn regions_of_a_killed_server_are_found_where_they_open() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "h"]).await;
    cluster.kill(1).await;
    let request = get("h");
    let (found, ()) = tokio::join!(table.get(&request), async {
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        cluster.move_region(table.name(), "h", 0, true);
    });
    assert_eq!(value(&found.unwrap()), "h");
}

#[tokio::test]
async fn restarted_server_is_reconnected() {
    let (cluster, table) = start().await;
    fill(&table, &["h"]).await;
    cluster.kill(1).await;
    cluster.restart(1).await;
    assert_eq!(value(&table.get(&get("h")).await.unwrap()), "h");
}

#[tokio::test]
async fn missing_table_is_an_error_at_the_first_attempt() {
    let (cluster, table) = start().await;
    let other = Client::new(config(), cluster.discovery()).table("nope".parse().unwrap());
    let error = other.get(&get("a")).await.unwrap_err();
    assert!(
        matches!(&*error.cause, Failure::NoTable(name) if name.to_string() == "nope"),
        "{error:?}"
    );
    assert_eq!(error.attempts, 1);
    drop(table);
}

#[tokio::test]
async fn disabled_table_is_an_error() {
    let (cluster, table) = start().await;
    fill(&table, &["a"]).await;
    cluster.set_region_states(table.name(), "CLOSED");
    let error = table.get(&get("a")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::TableDisabled(_)), "{error:?}");
    cluster.set_region_states(table.name(), "OPEN");
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "a");
}

#[tokio::test]
async fn transient_faults_of_meta_are_retried() {
    for fault in [
        FaultKind::Exception { class: "NotServingRegionException", text: "moving" },
        FaultKind::Exception { class: "exceptions.RegionOpeningException", text: "opening" },
        FaultKind::Exception { class: "NotAllMetaRegionsOnlineException", text: "moving" },
        FaultKind::Exception { class: "CallQueueTooBigException", text: "full" },
        FaultKind::Close,
        FaultKind::CloseAfter(9),
        FaultKind::Heartbeat,
    ] {
        let (cluster, table) = start().await;
        cluster.inject(InjectedFault::once("Scan", fault.clone()).of_meta().times(2));
        fill(&table, &["a"]).await;
    }
}

#[tokio::test]
async fn row_out_of_range_is_looked_up_once() {
    let (cluster, table) = start().await;
    fill(&table, &["a"]).await;
    let fault = FaultKind::Exception {
        class: "exceptions.FailedSanityCheckException",
        text: "Requested row out of range",
    };
    cluster.inject(InjectedFault::once("Mutate", fault.clone()));
    fill(&table, &["a"]).await;
    cluster.inject(InjectedFault::once("Mutate", fault).times(2));
    let error = table.mutate(put("a", "1")).await.unwrap_err();
    assert_eq!(error.class(), Some(ExceptionClass::RowOutOfRange));
}

#[tokio::test]
async fn all_regions_of_a_table_are_listed() {
    let cluster = FakeCluster::start(3).await;
    let splits: Vec<String> = (1..40).map(|at| format!("{at:02}")).collect();
    let splits: Vec<&str> = splits.iter().map(String::as_str).collect();
    let name = cluster.create_table("many", &splits);
    cluster.create_table("other", &["m"]);
    let table = Client::new(config(), cluster.discovery()).table(name);
    let regions = table.regions().await.unwrap();
    assert_eq!(regions.len(), 40);
    for pair in regions.windows(2) {
        assert_eq!(pair[0].region.end_key(), pair[1].region.start_key());
    }
    let lookups = cluster.calls("Scan");
    for row in &splits {
        table.locate((*row).to_owned().into()).await.unwrap();
    }
    assert_eq!(cluster.calls("Scan"), lookups);
}

#[tokio::test]
async fn rows_of_meta_may_follow_heartbeats_and_be_partial() {
    for (heartbeats, cells_per_response) in [(50, 0), (0, 2), (50, 2)] {
        let (cluster, table) = start().await;
        cluster.set_meta_heartbeats(heartbeats);
        cluster.limit_scan_responses(0, cells_per_response);
        fill(&table, &["a", "z"]).await;
        assert_eq!(table.regions().await.unwrap().len(), 3);
        // Scanners are closed in the background.
        while cluster.open_scanners() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn callers_of_one_region_share_lookups() {
    let (cluster, table) = start().await;
    let rows: Vec<_> = (0..100).map(|at| format!("a{at}")).collect();
    let gets: Vec<_> = rows.iter().map(|row| get(row)).collect();
    let reads = futures_util::future::join_all(gets.iter().map(|get| table.get(get))).await;
    assert!(reads.iter().all(Result::is_ok));
    assert!(cluster.calls("Scan") <= config().max_lookups, "{}", cluster.calls("Scan"));
}

#[tokio::test]
async fn shared_lookup_of_a_split_region_serves_only_its_half() {
    let (cluster, table) = start().await;
    fill(&table, &["h", "m"]).await;
    cluster.split_region(table.name(), "k");
    let late = FaultKind::Delay(Duration::from_millis(200));
    cluster.inject(InjectedFault::once("Scan", late).of_meta());
    // The lookup is for the half with "m"; meanwhile a scan requests the other half.
    let (read, rows) = (get("m"), Scan::range("h", "j"));
    let scan = async {
        sleep(Duration::from_millis(100)).await;
        table.scan(rows).try_collect::<Vec<_>>().await
    };
    let (read, rows) = tokio::join!(table.get(&read), scan);
    assert_eq!(value(&read.unwrap()), "m");
    let rows = rows.unwrap();
    assert_eq!(rows.iter().map(|row| row.row.key()).collect::<Vec<_>>(), [b"h"]);
}

#[tokio::test]
async fn the_state_of_a_table_is_read_without_the_master() {
    let (cluster, table) = start().await;
    cluster.stop_master();
    assert_eq!(table.state().await.unwrap(), Some(TableState::Enabled));
    cluster.set_region_states(table.name(), "CLOSED");
    assert_eq!(table.state().await.unwrap(), Some(TableState::Disabled));
    cluster.drop_table(table.name());
    assert_eq!(table.state().await.unwrap(), None);
}

#[tokio::test]
async fn operations_wait_for_a_table_that_is_being_enabled() {
    let (cluster, table) = start().await;
    fill(&table, &["a"]).await;
    cluster.set_region_states(table.name(), "CLOSED");
    cluster.set_table_state(table.name(), Some(TableState::Enabling));
    let read = tokio::spawn({
        let table = table.clone();
        async move { table.get(&get("a")).await }
    });
    let written = tokio::spawn({
        let table = table.clone();
        async move { table.buffered(BufferConfig::default()).mutate(put("b", "b")).await }
    });
    // Both read the state of the table after their second lookup.
    while cluster.calls("Scan") < 8 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!read.is_finished() && !written.is_finished());
    cluster.set_region_states(table.name(), "OPEN");
    cluster.set_table_state(table.name(), None);
    assert_eq!(value(&read.await.unwrap().unwrap()), "a");
    written.await.unwrap().unwrap();
}

#[tokio::test]
async fn operations_wait_for_the_regions_of_a_table_that_is_being_created() {
    let (cluster, table) = start().await;
    let name = "new".parse().unwrap();
    cluster.set_table_state(&name, Some(TableState::Enabling));
    let new = table.client().table(name.clone());
    let written = tokio::spawn(async move { new.mutate(put("a", "a")).await });
    while cluster.calls("Scan") < 6 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!written.is_finished());
    // A master adds the regions before it sets the next state.
    cluster.create_table("new", &[]);
    written.await.unwrap().unwrap();
}

#[tokio::test]
async fn second_failure_of_a_server_forgets_its_regions_again() {
    let mut config = config();
    config.failed_server_pause = Duration::from_mins(10);
    let (cluster, table) = start_with(config).await;
    fill(&table, &["a", "h", "z"]).await;
    let stopped = FaultKind::Exception {
        class: "regionserver.RegionServerStoppedException",
        text: "stopped",
    };
    // The regions of `a` and `z` are on server 0; the lookup of `a` finds only its own region.
    for _ in 0..3 {
        assert_eq!(table.client().stats().cached_regions, 3);
        cluster.inject(InjectedFault::once("Get", stopped.clone()));
        table.get(&get("a")).await.unwrap();
        assert_eq!(table.client().stats().cached_regions, 2);
        table.get(&get("z")).await.unwrap();
    }
}

//! The conformance suite, without and with faults of the cluster.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::TableName;
use tokio::{task::JoinHandle, time::sleep};
use tsd_storage::conformance;

use crate::fake_cluster::store;

/// Boundaries between the regions of a case's tables.
const SPLITS: [&str; 2] = ["b", "row"];

fn tables(cluster: &FakeCluster, case: usize) -> Vec<TableName> {
    let name = |table| format!("case{case}-{table}");
    conformance::tables().iter().map(|t| cluster.create_table(&name(t), &SPLITS)).collect()
}

#[tokio::test]
async fn store_passes_the_suite() {
    let cluster = FakeCluster::start(2).await;
    let case = AtomicUsize::new(0);
    conformance::run_all(async || {
        let case = case.fetch_add(1, Ordering::Relaxed);
        tables(&cluster, case);
        Arc::new(store(&cluster, &format!("case{case}-")))
    })
    .await;
}

/// Moves, splits and merges regions and closes connections until it is aborted, at growing intervals. On a slow
/// machine a client that backs off would otherwise meet a fault each time.
fn disturb(cluster: Arc<FakeCluster>, table: TableName) -> JoinHandle<()> {
    tokio::spawn(async move {
        for step in 0_usize.. {
            sleep(Duration::from_millis(3 + step as u64 / 16)).await;
            let row = ["a", "b", "row", "z"][step % 4];
            match step % 5 {
                0 => cluster.move_region(&table, row, step % 3, step.is_multiple_of(2)),
                1 => cluster.split_at(&table, ["bb", "ro", "x"][step % 3]),
                2 => cluster.merge_at(&table, row),
                // Rare enough that a conditional write, which is repeated after a pause, eventually meets no
                // fault.
                3 if step % 8 == 0 => {
                    cluster.inject(InjectedFault::once("Multi", FaultKind::Close));
                }
                3 => cluster.clear_faults(),
                _ => cluster.inject(InjectedFault::once("Scan", FaultKind::Close)),
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_passes_the_suite_while_regions_move_and_connections_close() {
    let cluster = Arc::new(FakeCluster::start(3).await);
    let case = AtomicUsize::new(0);
    let disturbance: parking_lot::Mutex<Option<JoinHandle<()>>> = parking_lot::Mutex::default();
    conformance::run_all(async || {
        let case = case.fetch_add(1, Ordering::Relaxed);
        let data = tables(&cluster, case).swap_remove(0);
        let task = disturb(Arc::clone(&cluster), data);
        if let Some(previous) = disturbance.lock().replace(task) {
            previous.abort();
        }
        Arc::new(store(&cluster, &format!("case{case}-")))
    })
    .await;
    disturbance.lock().take().unwrap().abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_passes_the_suite_while_responses_are_lost() {
    let cluster = Arc::new(FakeCluster::start(2).await);
    let case = AtomicUsize::new(0);
    conformance::run_all(async || {
        let case = case.fetch_add(1, Ordering::Relaxed);
        tables(&cluster, case);
        // The third call of each method is executed, but its response is cut off.
        for method in ["Get", "Mutate", "Multi", "Scan"] {
            cluster.inject(InjectedFault::once(method, FaultKind::CloseAfter(3)).after(2));
        }
        Arc::new(store(&cluster, &format!("case{case}-")))
    })
    .await;
}

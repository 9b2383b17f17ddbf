//! The workload of the fault tests against a fake cluster: the same writers, readers and checks, with
//! moves, splits, merges and broken connections between them.

use std::time::Duration;

use hbase_rs::{Client, ClientConfig};
use tokio::time::sleep;
use tsd_testkit::hbase::{FakeCluster, Fault, Misdeed};

use crate::workload::{SPLITS, Workload};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_readers_never_notice_what_happens_to_regions() {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("rehearsal", &SPLITS);
    let mut config = ClientConfig::new("test");
    config.failed_server_pause = Duration::from_millis(20);
    config.backoff.base = Duration::from_millis(2);
    let table = Client::new(config, cluster.discovery()).table(name.clone());
    let workload = Workload::start(&table, Duration::from_millis(4));
    workload.progress().await.expect("a first acknowledgement");
    for round in 0..6_usize {
        let digit = format!("{:x}", (round * 5 + 2) % 16);
        cluster.move_region(&name, &digit, round % 2, round % 3 == 0);
        cluster.split_at(&name, &format!("{digit}8"));
        workload.progress().await.expect("writers go on");
        cluster.merge_at(&name, &digit);
        for method in ["Mutate", "Multi", "Scan"] {
            cluster.fault(Fault::once(method, Misdeed::Close));
        }
        sleep(Duration::from_millis(20)).await;
        cluster.end_leases();
        cluster.kill(1).await;
        cluster.evacuate(1, 0);
        cluster.restart(1).await;
        assert_eq!(workload.prove().await, Ok(0));
    }
    let (counts, complaints) = (workload.counts(), workload.complaints());
    assert_eq!(
        (counts.bad_scans, counts.failed_scans, counts.refused),
        (0, 0, 0),
        "{complaints:?}"
    );
    assert!(workload.take_longest() > Duration::ZERO);
    assert_eq!(workload.finish().await, Ok(Vec::new()));
}

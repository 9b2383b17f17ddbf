//! The workload of the fault tests on a fake cluster: the same writers, readers and checks, while
//! regions move, split and merge and connections break.

#![expect(clippy::expect_used, reason = "tests")]

use std::time::Duration;

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{Client, ClientConfig, TableName};
use tokio::time::sleep;
use tsd_testkit::hbase_workload::TableWorkload;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_readers_see_no_error_while_regions_change() {
    let cluster = FakeCluster::start(2).await;
    let mut config = ClientConfig::new("test");
    config.failed_server_pause = Duration::from_millis(20);
    config.backoff.base = Duration::from_millis(2);
    let client = Client::new(config, cluster.discovery());
    let name: TableName = "workload".parse().expect("a name");
    TableWorkload::create_table(&client, &name).await.expect("a table");
    let table = client.table(name.clone());
    let workload = TableWorkload::start(&table, Duration::from_millis(4));
    workload.wait_for_progress().await.expect("a first acknowledgement");
    for round in 0..6_usize {
        let digit = format!("{:x}", (round * 5 + 2) % 16);
        cluster.move_region(&name, &digit, round % 2, round % 3 == 0);
        cluster.split_at(&name, &format!("{digit}8"));
        workload.wait_for_progress().await.expect("writers continue");
        cluster.merge_at(&name, &digit);
        for method in ["Mutate", "Multi", "Scan"] {
            cluster.inject(InjectedFault::once(method, FaultKind::Close));
        }
        sleep(Duration::from_millis(20)).await;
        cluster.expire_scanners();
        cluster.kill(1).await;
        cluster.evacuate(1, 0);
        cluster.restart(1).await;
        assert_eq!(workload.wait_for_recovery().await, Ok(()));
        assert_eq!(workload.count_lost().await, Ok(0));
    }
    let (counts, problems) = (workload.counts(), workload.problems());
    assert_eq!(
        (counts.wrong_reads, counts.failed_reads, counts.failed_writes),
        (0, 0, 0),
        "{problems:?}"
    );
    assert!(workload.take_longest_wait() > Duration::ZERO);
    assert_eq!(workload.finish().await, Ok(Vec::new()));
}

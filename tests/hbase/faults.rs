//! Runs all faults under the workloads of this program: one on the HBase client, and one on a
//! daemon for each acknowledgement.

use std::{sync::Arc, time::Duration};

use cluster::Cluster;
use hbase_rs::TableName;
use tsd_testkit::hbase_workload::TableWorkload;

use crate::{
    daemon_workload::DaemonWorkload, fault_run::FaultRun, regions::ScenarioResult, tsd,
    workload::Workload,
};

/// Pause between the writes of one writer.
const PAUSE: Duration = Duration::from_millis(40);
/// Tables of the daemons, split by salt bucket.
const TABLES: [(&str, &str); 6] = [
    ("tsd.storage.hbase.data_table", "faults-tsdb"),
    ("tsd.storage.hbase.uid_table", "faults-tsdb-uid"),
    ("tsd.storage.hbase.tree_table", "faults-tsdb-tree"),
    ("tsd.storage.hbase.meta_table", "faults-tsdb-meta"),
    ("tsd.storage.salt.width", "1"),
    ("tsd.storage.salt.buckets", "6"),
];
/// Settings of the daemon whose log acknowledges.
const LOG_SETTINGS: [(&str, &str); 2] =
    [("tsd.storage.ack", "log"), ("tsd.storage.hold_seconds", "2")];

/// Runs all faults under all workloads.
pub(crate) async fn run(cluster: &mut Cluster) -> ScenarioResult<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let rounds = variable("HBASE_ROUNDS").parse().unwrap_or(1);
    let only = variable("HBASE_FAULTS");
    let client = cluster.client();
    let name: TableName = "faults".parse()?;
    TableWorkload::create_table(&client, &name).await?;
    let table = cluster.client().table(name.clone());
    let mut workloads: Vec<Arc<dyn Workload>> = vec![Arc::new(TableWorkload::start(&table, PAUSE))];
    let directory = tempfile::tempdir()?;
    tsd::create_tables(cluster, &TABLES)?;
    let daemons_by_ack =
        [("tsdb, ack = storage", "storage", &[][..]), ("tsdb, ack = log", "log", &LOG_SETTINGS)];
    let mut daemons = Vec::new();
    for (name, ack, settings) in daemons_by_ack {
        let settings = [&TABLES[..], settings].concat();
        let daemon = tsd::start(cluster, &directory.path().join(ack), &settings);
        let workload =
            DaemonWorkload::start(name, &format!("faults.{ack}"), daemon.address(), 3 * PAUSE);
        workloads.push(Arc::new(workload));
        daemons.push(daemon);
    }
    let tables = vec![client.table(name), client.table("faults-tsdb".parse()?)];
    let mut run = FaultRun::new(cluster, client, tables, workloads);
    if only.is_empty() {
        run.run(rounds, |_| true).await?;
    } else {
        run.run_named(rounds, &only).await?;
    }
    run.finish().await
}

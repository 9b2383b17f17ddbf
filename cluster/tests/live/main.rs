//! All operations on a real cluster, and the removal of its processes and files.
//!
//! `cargo test -p cluster --features live`; needs a JDK.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests and their helpers fail by panicking"
)]

mod secured;

use std::{fs, path::Path, time::Duration};

use cluster::{Cluster, ClusterConfig, Node, run_java};
use hbase_rs::{
    Get, Put, Table, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
    region::MetaRow,
};

/// One cluster at a time, for machines with few cores.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const SERVER: Node = Node::RegionServer(1);

async fn table(cluster: &Cluster) -> Table {
    let name: TableName = "t".parse().unwrap();
    let described = TableDescriptor::new(name.clone()).family(FamilyDescriptor::new("f"));
    let client = cluster.client();
    client.admin().create_table(&described, []).await.unwrap();
    client.table(name)
}

async fn put(table: &Table, row: &str) {
    let put = Put::try_new(row.to_owned()).unwrap().cell(b"f", b"q", 5, b"v").unwrap();
    table.mutate(put).await.unwrap();
}

async fn check_rows(table: &Table, rows: &[&str]) {
    for row in rows {
        let get = Get::try_new((*row).to_owned()).unwrap();
        assert!(table.exists(get).await.unwrap(), "{row} is missing");
    }
}

/// Pids of processes with this directory in their command lines.
fn processes(directory: &Path) -> Vec<u32> {
    let directory = directory.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(directory)
    };
    pids.filter(ours).collect()
}

/// One test for all operations, because a start takes as long as all checks.
#[tokio::test]
async fn operations_take_effect_and_shutdown_removes_everything() {
    let _alone = ALONE.lock().await;
    let mut config = ClusterConfig::new(2);
    config.proxied = true;
    let mut cluster = Cluster::start(config).await.unwrap();
    let directory = cluster.directory().to_path_buf();
    assert_eq!(processes(&directory).len(), 5, "four JVMs and a watchdog");
    assert_eq!(cluster.status().await.unwrap().servers.len(), 2);
    let table = table(&cluster).await;
    for row in ["a", "m", "z"] {
        put(&table, row).await;
    }

    cluster.split_region(table.name(), b"m").await.unwrap();
    for (row, to) in [("a", 1), ("z", 0), ("z", 1)] {
        cluster.move_region(table.name(), row.as_bytes(), to).await.unwrap();
        let regions = table.regions().await.unwrap();
        let holds = |found: &&MetaRow| {
            found.region.contains(row.as_bytes()) && !found.region.is_split_parent()
        };
        let region = regions.iter().find(holds).unwrap();
        assert_eq!(region.server, Some(cluster.server_name(to)));
    }
    put(&table, "b").await;

    // The last row was written just before, so it is only in the WAL.
    let before = cluster.server_name(1);
    assert!(cluster.cpu_time(SERVER) > Duration::ZERO);
    cluster.kill(SERVER).unwrap();
    assert!(!cluster.is_running(SERVER).unwrap());
    cluster.restart(SERVER).await.unwrap();
    let after = cluster.server_name(1);
    assert!(after.port() == before.port() && after.start_code() > before.start_code());
    check_rows(&table, &["a", "b", "m", "z"]).await;

    cluster.merge_regions(table.name(), b"a").await.unwrap();
    let regions = table.regions().await.unwrap();
    assert_eq!(regions.iter().filter(|row| !row.region.is_split_parent()).count(), 1);
    check_rows(&table, &["a", "b", "m", "z"]).await;

    links(&cluster, &table).await;
    java(&cluster).await;

    cluster.pause(SERVER).unwrap();
    assert!(cluster.is_paused(SERVER) && cluster.is_running(SERVER).unwrap());
    cluster.resume(SERVER).unwrap();
    assert!(!cluster.is_paused(SERVER));
    for node in [Node::Master, Node::ZooKeeper] {
        cluster.kill(node).unwrap();
        cluster.restart(node).await.unwrap();
        check_rows(&table, &["a", "z"]).await;
    }
    cluster.terminate(SERVER).unwrap();
    check_rows(&table, &["a", "b", "m", "z"]).await;
    cluster.restart(SERVER).await.unwrap();

    cluster.shut_down().await.unwrap();
    assert!(!directory.exists());
    assert_eq!(processes(&directory), [0; 0]);
}

/// The client connects through links only.
async fn links(cluster: &Cluster, table: &Table) {
    let servers = [Node::RegionServer(0), SERVER];
    for server in servers {
        cluster.links().cut(server);
    }
    let get = Get::try_new("a").unwrap();
    let hurried = table.clone().with_timeout(Duration::from_millis(300));
    hurried.get(&get).await.unwrap_err();
    for server in servers {
        cluster.links().restore(server);
    }
    check_rows(table, &["a"]).await;
    cluster.links().break_connections(Node::RegionServer(0));
    cluster.links().break_connections(SERVER);
    check_rows(table, &["a"]).await;
}

async fn java(cluster: &Cluster) {
    let source = cluster.directory().join("tmp/CountTables.java");
    fs::write(
        &source,
        "import org.apache.hadoop.hbase.client.*;
         public class CountTables {
             public static void main(String[] args) throws Exception {
                 try (var connection = ConnectionFactory.createConnection();
                      var admin = connection.getAdmin()) {
                     System.out.println(args[0] + admin.listTableNames().length);
                 }
             }
         }",
    )
    .unwrap();
    let run = run_java(cluster, &source, &["tables: "]).await.unwrap();
    assert_eq!(run.stdout, "tables: 1\n");
    assert!(run.cpu > Duration::from_millis(100) && run.wall > Duration::from_millis(100));
    fs::write(&source, "class CountTables { nonsense }").unwrap();
    let error = run_java(cluster, &source, &[]).await.unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
}

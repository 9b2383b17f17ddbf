//! A daemon on the HBase of the bench, with its own tables, and queries of its counters.

use std::{fmt::Write, fs, net::SocketAddr, path::Path};

use bytes::Bytes;
use hbase_rs::{
    Scan, Selection, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
};
use serde_json::Value;
use tsd_testkit::{Daemon, DaemonBuilder, http, put_load::verify_totals};

use crate::{bench_cluster::BenchCluster, cells::BUCKETS, point_load::PointLoad, table};

/// Its tables and their families.
const TABLES: [(&str, &[&str]); 4] = [
    ("bench-tsdb", &["t"]),
    ("bench-tsdb-uid", &["id", "name"]),
    ("bench-tsdb-tree", &["t"]),
    ("bench-tsdb-meta", &["name"]),
];

/// Recreates the tables. The table of points has a region per salt bucket, like the table of the load.
pub(crate) fn create_tables(cluster: &BenchCluster) {
    for (name, families) in TABLES {
        let family = |family: &&str| FamilyDescriptor::new(family.to_string()).bloom_filter("ROW");
        let table = TableDescriptor::new(table_name(name));
        let table = families.iter().map(family).fold(table, TableDescriptor::family);
        let buckets = if name == TABLES[0].0 { BUCKETS } else { 1 };
        let splits = (1..buckets).map(|bucket| Bytes::from(vec![bucket as u8]));
        cluster.block_on(table::recreate(&cluster.client, &table, splits));
    }
}

/// Truncates the table of the points.
pub(crate) fn truncate_points(cluster: &BenchCluster) {
    cluster.block_on(table::truncate(&cluster.client, &table_name(TABLES[0].0)));
}

/// The table of the points.
pub(crate) fn points_table() -> TableName {
    table_name(TABLES[0].0)
}

/// Number of cells in the table of the points.
pub(crate) fn stored_cells(cluster: &BenchCluster) -> u64 {
    let scan = Scan::all().select(Selection::all().without_block_cache());
    cluster.block_on(async {
        let mut rows = cluster.client.table(table_name(TABLES[0].0)).scan(scan);
        let mut cells = 0;
        while let Some(row) = rows.next().await {
            cells += row.expect("a row").row.len() as u64;
        }
        cells
    })
}

fn table_name(name: &str) -> TableName {
    name.parse().expect("a name")
}

/// The settings that name the tables and their salt, for our daemon and for OpenTSDB.
pub(crate) fn table_settings() -> Vec<(&'static str, String)> {
    let [(data, _), (uid, _), (tree, _), (meta, _)] = TABLES;
    vec![
        ("tsd.storage.hbase.data_table", data.to_owned()),
        ("tsd.storage.hbase.uid_table", uid.to_owned()),
        ("tsd.storage.hbase.tree_table", tree.to_owned()),
        ("tsd.storage.hbase.meta_table", meta.to_owned()),
        ("tsd.storage.salt.width", "1".to_owned()),
        ("tsd.storage.salt.buckets", BUCKETS.to_string()),
    ]
}

/// Starts a daemon, by default without row compaction: the load's hours are so old that every row would be due at once.
pub(crate) fn start(cluster: &BenchCluster, directory: &Path, settings: &[(&str, &str)]) -> Daemon {
    let quorum = cluster.processes().quorum();
    let ours = [
        ("tsd.core.auto_create_metrics", "true"),
        ("tsd.storage.enable_compaction", "false"),
        ("tsd.storage.hbase.zk_quorum", &quorum),
    ];
    let tables = table_settings();
    let tables = tables.iter().map(|(key, value)| (*key, value.as_str()));
    let mut text = String::new();
    for (key, value) in ours.into_iter().chain(tables).chain(settings.iter().copied()) {
        writeln!(text, "{key} = {value}").expect("text");
    }
    fs::create_dir_all(directory).expect("directory");
    let file = directory.join("tsdb.conf");
    fs::write(&file, text).expect("settings");
    let file = file.to_string_lossy();
    DaemonBuilder::of_bench(env!("CARGO_BIN_EXE_tsdb"), &directory.join("data"))
        .args(&["--config", &file, "--log-level", "warn,tsd_cli=info"])
        .start()
}

/// Panics if a point is missing or wrong.
pub(crate) fn verify(address: SocketAddr, load: &PointLoad) {
    let (start, end) = load.seconds();
    verify_totals(address, start, end, &load.totals());
}

/// Number of the daemon's write calls to HBase, and of the mutations in them.
pub(crate) fn batches(address: SocketAddr) -> (f64, f64) {
    let response = http(address, "GET", "/api/stats", None);
    let stats: Value = serde_json::from_str(&response.body).expect("JSON");
    let value = |metric: &str| {
        let mut stats = stats.as_array().expect("a list").iter();
        let stat = stats.find(|stat| stat["metric"] == metric).expect("a statistic");
        let value = &stat["value"];
        value.as_f64().or_else(|| value.as_str()?.parse().ok()).expect("a number")
    };
    (value("tsd.hbase.flushes"), value("tsd.hbase.rpcs.batched"))
}

//! A daemon on the HBase of the bench, with tables of its own.

use std::{fmt::Write, fs, net::SocketAddr, path::Path};

use bytes::Bytes;
use hbase_rs::{FamilyDescriptor, Scan, Selection, TableDescriptor, TableName};
use serde_json::Value;

use crate::{
    cells::BUCKETS,
    daemon::{Daemon, Start},
    load::Lines,
    site::Site,
    socket, table,
};

/// Its tables and their families.
const TABLES: [(&str, &[&str]); 4] = [
    ("bench-tsdb", &["t"]),
    ("bench-tsdb-uid", &["id", "name"]),
    ("bench-tsdb-tree", &["t"]),
    ("bench-tsdb-meta", &["name"]),
];

/// Makes the tables anew: points in a region a salt bucket, as the table of the load.
pub(crate) fn create_tables(site: &Site) {
    for (name, families) in TABLES {
        let family = |family: &&str| FamilyDescriptor::new(family.to_string()).bloom_filter("ROW");
        let table = TableDescriptor::new(table_name(name));
        let table = families.iter().map(family).fold(table, TableDescriptor::family);
        let buckets = if name == TABLES[0].0 { BUCKETS } else { 1 };
        let splits = (1..buckets).map(|bucket| Bytes::from(vec![bucket as u8]));
        site.wait(table::create_as(&site.client, &table, splits));
    }
}

/// Empties the table of points.
pub(crate) fn forget_points(site: &Site) {
    site.wait(table::truncate(&site.client, &table_name(TABLES[0].0)));
}

/// Cells of the points in HBase.
pub(crate) fn stored_cells(site: &Site) -> u64 {
    let scan = Scan::all().select(Selection::all().without_block_cache());
    site.wait(async {
        let mut rows = site.client.table(table_name(TABLES[0].0)).scan(scan);
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

/// Starts a daemon. Rows are not compacted: the load's hours are long past, so that every row would
/// be due at once.
pub(crate) fn start(site: &Site, directory: &Path, settings: &[(&str, &str)]) -> Daemon {
    let quorum = site.cluster().quorum();
    let buckets = BUCKETS.to_string();
    let [(data, _), (uid, _), (tree, _), (meta, _)] = TABLES;
    let ours = [
        ("tsd.core.auto_create_metrics", "true"),
        ("tsd.storage.enable_compaction", "false"),
        ("tsd.storage.hbase.zk_quorum", &quorum),
        ("tsd.storage.hbase.data_table", data),
        ("tsd.storage.hbase.uid_table", uid),
        ("tsd.storage.hbase.tree_table", tree),
        ("tsd.storage.hbase.meta_table", meta),
        ("tsd.storage.salt.width", "1"),
        ("tsd.storage.salt.buckets", &buckets),
    ];
    let mut text = String::new();
    for (key, value) in ours.iter().chain(settings) {
        writeln!(text, "{key} = {value}").expect("text");
    }
    fs::create_dir_all(directory).expect("directory");
    let file = directory.join("tsdb.conf");
    fs::write(&file, text).expect("settings");
    let file = file.to_string_lossy();
    Start::on(&directory.join("data"))
        .args(&["--config", &file, "--log-level", "warn,tsd_cli=info"])
        .serve()
}

/// Stops the bench where a point is missing or wrong.
pub(crate) fn verify(address: SocketAddr, lines: &Lines) {
    for (metric, total) in lines.totals() {
        let count = ask(address, lines, &format!("sum:1h-count:{metric}"));
        assert!(count as u64 == total.count, "{metric}: {count} of {} points", total.count);
        let sum = ask(address, lines, &format!("sum:1h-sum:{metric}"));
        let difference = (sum - total.sum).abs();
        assert!(difference <= total.sum.abs() * 1e-9, "{metric}: sum {sum}, not {}", total.sum);
    }
}

/// Points of a metric that are there.
pub(crate) fn ask(address: SocketAddr, lines: &Lines, query: &str) -> f64 {
    let (start, end) = lines.seconds();
    let uri = format!("/api/query?start={start}&end={}&m={query}", end - 1);
    let answer = socket::http(address, "GET", &uri, None);
    assert_eq!(answer.status, 200, "{uri}: {}", answer.body);
    let series: Value = serde_json::from_str(&answer.body).expect("JSON");
    let points = series[0]["dps"].as_object().map(|dps| dps.values().filter_map(Value::as_f64));
    points.map_or(0.0, Iterator::sum)
}

/// Calls of the daemon that brought mutations to HBase, and these mutations.
pub(crate) fn batches(address: SocketAddr) -> (f64, f64) {
    let answer = socket::http(address, "GET", "/api/stats", None);
    let stats: Value = serde_json::from_str(&answer.body).expect("JSON");
    let value = |metric: &str| {
        let mut stats = stats.as_array().expect("a list").iter();
        let stat = stats.find(|stat| stat["metric"] == metric).expect("a statistic");
        let value = &stat["value"];
        value.as_f64().or_else(|| value.as_str()?.parse().ok()).expect("a number")
    };
    (value("tsd.hbase.flushes"), value("tsd.hbase.rpcs.batched"))
}

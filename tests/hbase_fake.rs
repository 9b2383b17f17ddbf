//! Tests daemon processes on a fake HBase: tables, puts, queries and import.

mod unavailable;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
    thread,
    time::Duration,
};

use hbase_fake::{FakeCluster, FakeEnsemble, FaultKind, InjectedFault};
use serde_json::Value;
use tokio::runtime::Runtime;
use tsd_testkit::{Daemon, DaemonBuilder, Network, exchange, http, wait_for};

use crate::{TSDB, tsdb};

const FIRST_SECOND: u64 = 1_600_000_000;

/// A fake HBase that can be stopped and restarted with its data.
pub(crate) struct HBase {
    runtime: Runtime,
    cluster: FakeCluster,
    ensemble: FakeEnsemble,
}

impl HBase {
    /// Starts a fake HBase without tables.
    fn without_tables() -> Self {
        let runtime = Runtime::new().expect("runtime");
        let (cluster, ensemble) =
            runtime.block_on(async { (FakeCluster::start(2).await, FakeEnsemble::start().await) });
        cluster.publish(&ensemble, "/hbase");
        Self { runtime, cluster, ensemble }
    }

    /// Starts a fake HBase with the tables.
    pub(crate) fn with_tables() -> Self {
        Self::with_tables_of(&[])
    }

    /// Starts a fake HBase with the tables that these settings (environment variables) need.
    pub(crate) fn with_tables_of(settings: &[(&str, &str)]) -> Self {
        let hbase = Self::without_tables();
        let created = hbase.tool(&["table", "create"], settings);
        assert!(created.status.success(), "{created:?}");
        hbase
    }

    /// Makes it reachable for the hosts of a network. Returns the quorum and the hosts there, as values of settings.
    pub(crate) fn expose(&self, network: &Network) -> (String, String) {
        let quorum = self.quorum().rsplit_once(':').expect("a port").1;
        let servers = [0, 1].map(|server| self.cluster.server(server).port());
        for port in servers.into_iter().chain([quorum.parse().expect("a port")]) {
            network.expose(port);
        }
        let gateway = network.gateway();
        (format!("{gateway}:{quorum}"), format!("127.0.0.1={gateway}"))
    }

    pub(crate) fn quorum(&self) -> &str {
        self.ensemble.quorum()
    }

    /// A daemon on it, not yet started.
    pub(crate) fn daemon(&self, data: &Path) -> DaemonBuilder {
        tsdb(data)
            .args(&["--zkquorum", self.quorum(), "--auto-metric"])
            .env("TSD_CORE_TIMEZONE", "UTC")
            .env("TSD_CLUSTER_DRAIN_LINGER", "0")
            .env("TSD_STORAGE_HBASE_OPERATION_TIMEOUT", "5000")
    }

    /// A daemon with `tsd.storage.ack = log`.
    pub(crate) fn daemon_with_log(&self, data: &Path) -> DaemonBuilder {
        self.daemon(data).args(&["--ack", "log"])
    }

    /// A daemon with a log and a long shutdown timeout, so that it can flush the log on a busy
    /// machine.
    fn patient_daemon_with_log(&self, data: &Path) -> DaemonBuilder {
        self.daemon_with_log(data).env("TSD_SHUTDOWN_TIMEOUT", "120")
    }

    /// Runs a `tsdb` command on it.
    fn tsdb(&self, arguments: &[&str]) -> Output {
        self.tool(arguments, &[])
    }

    /// Runs a `tsdb` command on it, with these variables of the environment.
    pub(crate) fn tool(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        Command::new(TSDB)
            .args(arguments)
            .args(["--zkquorum", self.quorum()])
            .envs(variables.iter().copied())
            .output()
            .expect("run tsdb")
    }

    /// Stops the master; the region servers go on.
    pub(crate) fn stop_master(&self) {
        self.cluster.stop_master();
        self.cluster.publish(&self.ensemble, "/hbase");
    }

    pub(crate) fn start_master(&self) {
        self.cluster.set_master(0);
        self.cluster.publish(&self.ensemble, "/hbase");
    }

    /// Disables a table, or enables it again.
    pub(crate) fn set_enabled(&self, table: &str, is_enabled: bool) {
        let state = if is_enabled { "OPEN" } else { "CLOSED" };
        self.cluster.set_region_states(&table.parse().expect("a name"), state);
    }

    pub(crate) fn drop_table(&self, table: &str) {
        self.cluster.drop_table(&table.parse().expect("a name"));
    }

    /// Sets an attribute of a table.
    pub(crate) fn alter_table(&self, table: &str, attribute: &str, value: &str) {
        self.cluster.set_table_attribute(&table.parse().expect("a name"), attribute, value);
    }

    /// Number of cells of a table.
    pub(crate) fn cells(&self, table: &str) -> usize {
        self.cluster.cells(&table.parse().expect("a name"))
    }

    pub(crate) fn stop(&self) {
        self.runtime.block_on(async {
            self.cluster.kill(0).await;
            self.cluster.kill(1).await;
        });
    }

    pub(crate) fn restart(&self) {
        self.runtime.block_on(async {
            self.cluster.restart(0).await;
            self.cluster.restart(1).await;
        });
        self.cluster.publish(&self.ensemble, "/hbase");
    }
}

fn directory() -> tempfile::TempDir {
    crate::in_process::directory()
}

/// Put body of the points `from..to` of a series, one per second; a point's value is its number.
pub(crate) fn body(metric: &str, from: u64, to: u64) -> String {
    let points: Vec<String> = (from..to)
        .map(|n| {
            let second = FIRST_SECOND + n;
            format!(
                r#"{{"metric":"{metric}","timestamp":{second},"value":{n},"tags":{{"host":"a"}}}}"#
            )
        })
        .collect();
    format!("[{}]", points.join(","))
}

#[track_caller]
pub(crate) fn put(address: SocketAddr, metric: &str, from: u64, to: u64) {
    let response = http(address, "POST", "/api/put", Some(&body(metric, from, to)));
    assert_eq!(response.status, 204, "{}", response.body);
}

/// Points of a series by number.
fn points(address: SocketAddr, metric: &str) -> BTreeMap<u64, u64> {
    let (start, end) = (FIRST_SECOND - 1, FIRST_SECOND + 1_000_000);
    let uri = format!("/api/query?start={start}&end={end}&m=none:{metric}");
    let response = http(address, "GET", &uri, None);
    assert_eq!(response.status, 200, "{}", response.body);
    let series: Value = serde_json::from_str(&response.body).expect("JSON");
    let mut points = BTreeMap::new();
    for one in series.as_array().expect("series") {
        for (second, value) in one["dps"].as_object().expect("points") {
            let number = second.parse::<u64>().expect("a second") - FIRST_SECOND;
            let before = points.insert(number, value.as_u64().expect("a number"));
            assert!(before.is_none(), "{number} twice");
        }
    }
    points
}

#[track_caller]
pub(crate) fn check(address: SocketAddr, metric: &str, count: u64) {
    let expected: BTreeMap<u64, u64> = (0..count).map(|n| (n, n)).collect();
    let found = points(address, metric);
    let differs = |n: &u64| found.get(n) != expected.get(n);
    let all: BTreeSet<u64> = found.keys().chain(expected.keys()).copied().collect();
    let wrong: Vec<_> = all.into_iter().filter(differs).collect();
    assert!(
        wrong.is_empty(),
        "{metric}: {} of {count} points, {} wrong: {:?} to {:?}",
        found.len(),
        wrong.len(),
        wrong.first(),
        wrong.last()
    );
}

/// Waits until a daemon answers queries.
fn wait_until_readable(daemon: &Daemon, metric: &str) {
    let uri = format!("/api/query?start={FIRST_SECOND}&m=none:{metric}");
    let read = || (http(daemon.address(), "GET", &uri, None).status == 200).then_some(());
    wait_for(read).expect("HBase is available");
}

/// The value of a metric without labels.
fn metric(daemon: &Daemon, name: &str) -> f64 {
    tsd_testkit::metric(daemon.address(), name).unwrap_or(f64::NAN)
}

#[test]
fn daemon_on_hbase_stores_points_and_finds_them_after_a_restart() {
    let hbase = HBase::without_tables();
    let data = directory();
    let (status, stderr) = hbase.daemon(data.path()).run_to_exit();
    assert!(!status.success());
    assert!(stderr.contains("table tsdb does not exist") && stderr.contains("tsdb table create"));
    let missing = hbase.tsdb(&["table", "status"]);
    assert!(!missing.status.success());
    let dry = hbase.tsdb(&["table", "create", "--dry-run"]);
    assert!(String::from_utf8_lossy(&dry.stdout).contains("tsdb: would be created with 1 region"));
    // Issue 37, case H01.
    let in_namespace = [("TSD_STORAGE_HBASE_DATA_TABLE", "dis:tsdb")];
    let dry = hbase.tool(&["table", "create", "--dry-run"], &in_namespace);
    let shown = String::from_utf8_lossy(&dry.stdout);
    assert!(shown.contains("namespace dis: does not exist and would be created"), "{shown}");
    assert!(shown.contains("dis:tsdb: would be created"), "{shown}");
    let created = hbase.tool(&["table", "create"], &in_namespace);
    let shown = String::from_utf8_lossy(&created.stdout);
    assert!(shown.contains("namespace dis: created"), "{shown}");
    assert!(shown.contains("dis:tsdb: created with"), "{shown}");
    let created = hbase.tsdb(&["table", "create"]);
    assert!(String::from_utf8_lossy(&created.stdout).contains("tsdb: created with"), "{created:?}");
    let status = hbase.tsdb(&["table", "status"]);
    assert!(status.status.success(), "{status:?}");

    let daemon = hbase.daemon(data.path()).start();
    put(daemon.address(), "http", 0, 50);
    let lines: Vec<String> =
        (0..50).map(|n| format!("put telnet {} {n} host=a\n", FIRST_SECOND + n)).collect();
    let received = exchange(daemon.address(), lines.concat().as_bytes());
    assert!(received.is_empty(), "{}", String::from_utf8_lossy(&received));
    check(daemon.address(), "http", 50);
    wait_for(|| (points(daemon.address(), "telnet").len() == 50).then_some(()))
        .expect("points by telnet");
    let stats = http(daemon.address(), "GET", "/api/stats", None).body;
    for name in ["tsd.hbase.rpcs", "tsd.hbase.meta_lookups", "tsd.hbase.latency_95pct"] {
        assert!(stats.contains(name), "{name} in {stats}");
    }
    assert!(metric(&daemon, "tsd_hbase_calls_total") > 0.0);
    assert!(daemon.terminate().success());

    let daemon = hbase.daemon(data.path()).start();
    check(daemon.address(), "http", 50);
    check(daemon.address(), "telnet", 50);
    assert!(daemon.events_at_level("ERROR").is_empty());
}

/// Like a dead region server behind a proxy, until HBase has moved its regions.
#[test]
fn a_start_waits_for_servers_that_close_connections_without_a_byte() {
    let hbase = HBase::with_tables();
    let closes = InjectedFault::once("Scan", FaultKind::Close).of_meta().times(usize::MAX);
    hbase.cluster.inject(closes);
    let data = directory();
    let daemon = thread::scope(|scope| {
        let started = scope.spawn(|| hbase.daemon(data.path()).start());
        thread::sleep(Duration::from_secs(7));
        assert!(!started.is_finished(), "a daemon started without hbase:meta, or ended");
        hbase.cluster.clear_faults();
        started.join().expect("the daemon starts")
    });
    put(daemon.address(), "m", 0, 10);
    check(daemon.address(), "m", 10);
}

#[test]
fn names_assigned_by_one_daemon_are_found_by_another() {
    let hbase = HBase::with_tables();
    let (one, two) = (directory(), directory());
    let one = hbase.daemon(one.path()).start();
    let two = hbase.daemon(two.path()).start();
    // Queried before it exists: a daemon that caches the miss fails below.
    let early = http(two.address(), "GET", "/api/query?start=1h-ago&m=none:shared", None);
    assert_eq!(early.status, 400);
    thread::scope(|scope| {
        for daemon in [&one, &two] {
            scope.spawn(move || {
                for n in 0..20 {
                    put(daemon.address(), &format!("m{n}"), 0, 5);
                }
            });
        }
    });
    put(one.address(), "shared", 0, 10);
    put(two.address(), "shared", 10, 20);
    for daemon in [&one, &two] {
        check(daemon.address(), "shared", 20);
        for n in 0..20 {
            check(daemon.address(), &format!("m{n}"), 5);
        }
    }
}

#[test]
fn graphs_count_the_points_of_compacted_columns() {
    let hbase = HBase::with_tables();
    let data = directory();
    let daemon = hbase.patient_daemon_with_log(data.path()).start();
    put(daemon.address(), "m", 0, 67);
    // Flushed as one column.
    assert!(daemon.terminate().success());
    let daemon = hbase.daemon(data.path()).start();
    put(daemon.address(), "m", 60, 70);
    let uri = format!("/q?start={FIRST_SECOND}&end={}&m=sum:m&json", FIRST_SECOND + 100);
    let summary = http(daemon.address(), "GET", &uri, None);
    assert!(summary.body.contains("\"points\":70"), "{}", summary.body);
}

#[test]
fn series_written_with_several_bucket_counts_are_merged_if_all_buckets_are_read() {
    let hbase = HBase::with_tables();
    let data = directory();
    let mut written = 0;
    for buckets in ["20", "7", "3"] {
        let daemon = hbase
            .daemon(data.path())
            .env("TSD_STORAGE_SALT_WIDTH", "1")
            .env("TSD_STORAGE_SALT_BUCKETS", buckets)
            .start();
        put(daemon.address(), "m", written, written + 10);
        written += 10;
        assert!(daemon.terminate().success());
    }
    let daemon = hbase
        .daemon(data.path())
        .env("TSD_STORAGE_SALT_WIDTH", "1")
        .env("TSD_QUERY_MULTI_GET_GET_ALL_SALTS", "true")
        .start();
    check(daemon.address(), "m", written);
}

/// One of two points of a series.
#[track_caller]
fn put_point(daemon: &Daemon, second: u64, value: u64) {
    let body = format!(
        r#"{{"metric":"c","timestamp":{},"value":{value},"tags":{{"host":"a"}}}}"#,
        FIRST_SECOND + second
    );
    let response = http(daemon.address(), "POST", "/api/put", Some(&body));
    assert_eq!(response.status, 204, "{}", response.body);
}

#[test]
fn corrections_fail_no_query_of_daemons_with_and_without_a_log() {
    let hbase = HBase::with_tables();
    let (one, two) = (directory(), directory());
    let direct = hbase.daemon(one.path()).start();
    let logged = hbase.daemon_with_log(two.path()).env("TSD_STORAGE_HOLD_SECONDS", "0.2").start();
    // `points` fails the test if a query fails.
    let reads = |daemon: &Daemon, first: u64, second: u64| {
        let expected = BTreeMap::from([(0, first), (1, second)]);
        let is_read = || (points(daemon.address(), "c") == expected).then_some(());
        wait_for(is_read).expect("both points");
    };
    for round in 0..3 {
        // Flushed as one column of two points.
        put_point(&logged, 0, 10 * round);
        put_point(&logged, 1, 10 * round + 1);
        reads(&direct, 10 * round, 10 * round + 1);
        // A column for the corrected point, next to the flushed one.
        put_point(&direct, 0, 10 * round + 2);
        for daemon in [&direct, &logged] {
            reads(daemon, 10 * round + 2, 10 * round + 1);
        }
        // A held point for an instant that HBase has twice.
        put_point(&logged, 0, 10 * round + 3);
        for daemon in [&logged, &direct] {
            reads(daemon, 10 * round + 3, 10 * round + 1);
        }
    }
    // The cells are there: a daemon that may not choose names the point.
    let third = directory();
    let strict = hbase.daemon(third.path()).env("TSD_STORAGE_FIX_DUPLICATES", "false").start();
    let uri = format!("/api/query?start={}&m=none:c", FIRST_SECOND - 1);
    let failed = http(strict.address(), "GET", &uri, None);
    assert_eq!(failed.status, 400, "{}", failed.body);
    let expected =
        "Duplicate timestamp 2020-09-13T12:26:40Z (1600000000000 ms) of metric c, tags {host=a}: ";
    assert!(failed.body.contains(expected) && !failed.body.contains("key="), "{}", failed.body);
}

#[test]
fn imported_points_are_queried_on_hbase() {
    let hbase = HBase::with_tables();
    let data = directory();
    let file = data.path().join("points");
    let lines: Vec<String> =
        (0..600).map(|n| format!("m {} {n} host=a\n", FIRST_SECOND + n)).collect();
    std::fs::write(&file, lines.concat()).expect("write");
    let (data, file) = (data.path().to_str().expect("a path"), file.to_str().expect("a path"));
    let imported = hbase.tsdb(&["import", "--auto-metric", "--data", data, file]);
    assert!(imported.status.success(), "{imported:?}");
    // Whole rows were written: one cell per row, not per point.
    let cells = hbase.cluster.cells(&"tsdb".parse().expect("a name"));
    assert!((1..=5).contains(&cells), "{cells} cells");
    let from = FIRST_SECOND.to_string();
    let to = (FIRST_SECOND + 1_000).to_string();
    let queried = hbase.tsdb(&["query", &from, &to, "sum", "m", "host=a"]);
    let stdout = String::from_utf8_lossy(&queried.stdout).into_owned();
    assert_eq!(stdout.lines().count(), 600, "{queried:?}");
}

//! Daemons as processes over a fake HBase: every way in and out, and HBase away for a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
    thread,
    time::Duration,
};

use hbase_fake::{FakeCluster, FakeEnsemble};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    daemon::{Daemon, Start, TSDB, wait_for},
    socket::{connect, converse, http},
};

const FIRST_SECOND: u64 = 1_600_000_000;
const PATIENCE: Duration = Duration::from_secs(50);

/// An HBase in this process that can go away and come back with all it had.
struct HBase {
    runtime: Runtime,
    cluster: FakeCluster,
    ensemble: FakeEnsemble,
}

impl HBase {
    /// Runs one, without tables.
    fn bare() -> Self {
        let runtime = Runtime::new().expect("runtime");
        let (cluster, ensemble) =
            runtime.block_on(async { (FakeCluster::start(2).await, FakeEnsemble::start().await) });
        cluster.publish(&ensemble, "/hbase");
        Self { runtime, cluster, ensemble }
    }

    /// Runs one, with the tables.
    fn with_tables() -> Self {
        let hbase = Self::bare();
        let made = hbase.tsdb(&["table", "create"]);
        assert!(made.status.success(), "{made:?}");
        hbase
    }

    fn quorum(&self) -> &str {
        self.ensemble.quorum()
    }

    /// A daemon on it that is not started yet.
    fn daemon(&self, data: &Path) -> Start {
        Start::on(data)
            .args(&["--zkquorum", self.quorum(), "--auto-metric"])
            .env("TSD_CORE_TIMEZONE", "UTC")
            .env("TSD_STORAGE_HBASE_OPERATION_TIMEOUT", "5000")
    }

    /// A daemon whose log acknowledges.
    fn logging(&self, data: &Path) -> Start {
        self.daemon(data).args(&["--ack", "log"])
    }

    /// Runs a command on it to its end.
    fn tsdb(&self, arguments: &[&str]) -> Output {
        Command::new(TSDB)
            .args(arguments)
            .args(["--zkquorum", self.quorum()])
            .output()
            .expect("run tsdb")
    }

    fn go_away(&self) {
        self.runtime.block_on(async {
            self.cluster.kill(0).await;
            self.cluster.kill(1).await;
        });
    }

    fn come_back(&self) {
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

/// Body of a put of the points `from..to` of a series, a second apart; a point's value is its number.
fn body(metric: &str, from: u64, to: u64) -> String {
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
fn put(address: SocketAddr, metric: &str, from: u64, to: u64) {
    let answer = http(address, "POST", "/api/put", Some(&body(metric, from, to)));
    assert_eq!(answer.status, 204, "{}", answer.body);
}

/// Points of a series by their number; each value must be its number.
fn points(address: SocketAddr, metric: &str) -> BTreeMap<u64, u64> {
    let (start, end) = (FIRST_SECOND - 1, FIRST_SECOND + 1_000_000);
    let uri = format!("/api/query?start={start}&end={end}&m=none:{metric}");
    let answer = http(address, "GET", &uri, None);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let series: Value = serde_json::from_str(&answer.body).expect("JSON");
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
fn check(address: SocketAddr, metric: &str, count: u64) {
    let expected: BTreeMap<u64, u64> = (0..count).map(|n| (n, n)).collect();
    let found = points(address, metric);
    let differs = |n: &u64| found.get(n) != expected.get(n);
    let all: BTreeSet<u64> = found.keys().chain(expected.keys()).copied().collect();
    let wrong: Vec<_> = all.into_iter().filter(differs).collect();
    assert!(
        wrong.is_empty(),
        "{metric}: {} of {count} points are there, {} are not as they should be: {:?} to {:?}",
        found.len(),
        wrong.len(),
        wrong.first(),
        wrong.last()
    );
}

/// Waits until a daemon answers queries again.
fn wait_until_it_reads(daemon: &Daemon, metric: &str) {
    let uri = format!("/api/query?start={FIRST_SECOND}&m=none:{metric}");
    let read = || (http(daemon.address(), "GET", &uri, None).status == 200).then_some(());
    wait_for(PATIENCE, read).expect("HBase is back");
}

/// The number of a `/metrics` line.
fn metric(daemon: &Daemon, name: &str) -> f64 {
    let text = http(daemon.address(), "GET", "/metrics", None).body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
}

#[test]
fn a_daemon_on_hbase_takes_points_answers_queries_and_is_started_again() {
    let hbase = HBase::bare();
    let data = directory();
    let (status, said) = hbase.daemon(data.path()).fail();
    assert!(!status.success());
    assert!(said.contains("table tsdb does not exist") && said.contains("tsdb table create"));
    let missing = hbase.tsdb(&["table", "status"]);
    assert!(!missing.status.success());
    let dry = hbase.tsdb(&["table", "create", "--dry-run"]);
    assert!(String::from_utf8_lossy(&dry.stdout).contains("tsdb: would be created with 1 region"));
    let made = hbase.tsdb(&["table", "create"]);
    assert!(String::from_utf8_lossy(&made.stdout).contains("tsdb-uid: created with"), "{made:?}");
    let status = hbase.tsdb(&["table", "status"]);
    assert!(status.status.success(), "{status:?}");

    let daemon = hbase.daemon(data.path()).serve();
    put(daemon.address(), "http", 0, 50);
    let lines: Vec<String> =
        (0..50).map(|n| format!("put telnet {} {n} host=a\n", FIRST_SECOND + n)).collect();
    let said = converse(daemon.address(), lines.concat().as_bytes());
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
    check(daemon.address(), "http", 50);
    wait_for(PATIENCE, || (points(daemon.address(), "telnet").len() == 50).then_some(()))
        .expect("points by telnet");
    let stats = http(daemon.address(), "GET", "/api/stats", None).body;
    for name in ["tsd.hbase.rpcs", "tsd.hbase.meta_lookups", "tsd.hbase.latency_95pct"] {
        assert!(stats.contains(name), "{name} in {stats}");
    }
    assert!(metric(&daemon, "tsd_hbase_calls_total") > 0.0);
    assert!(daemon.terminate().success());

    let daemon = hbase.daemon(data.path()).serve();
    check(daemon.address(), "http", 50);
    check(daemon.address(), "telnet", 50);
    assert!(daemon.at_level("ERROR").is_empty());
}

#[test]
fn names_that_one_daemon_brings_are_found_by_another() {
    let hbase = HBase::with_tables();
    let (one, two) = (directory(), directory());
    let one = hbase.daemon(one.path()).serve();
    let two = hbase.daemon(two.path()).serve();
    // Asked for before it exists, so whoever remembers what is not there is caught.
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
fn with_the_log_acknowledging_nothing_is_lost_while_hbase_is_away() {
    let hbase = HBase::with_tables();
    let data = directory();
    let daemon = hbase.logging(data.path()).serve();
    put(daemon.address(), "m", 0, 10);
    check(daemon.address(), "m", 10);
    hbase.go_away();
    // The name is known, so points are taken.
    for from in (10..500).step_by(10) {
        put(daemon.address(), "m", from, from + 10);
    }
    daemon.kill();
    // It comes up without HBase, with all that was acknowledged in its log.
    let daemon = hbase.logging(data.path()).serve();
    let ready = daemon.events("ready to serve");
    assert_eq!(ready[0]["replayed_cells"], 500);
    hbase.come_back();
    wait_until_it_reads(&daemon, "m");
    check(daemon.address(), "m", 500);
    put(daemon.address(), "m", 500, 510);
    assert!(daemon.terminate().success());

    // All of it has left: a daemon without a log, and with another directory, has it too.
    let other = directory();
    let daemon = hbase.daemon(other.path()).serve();
    check(daemon.address(), "m", 510);
}

#[test]
fn a_daemon_that_is_stopped_while_hbase_is_away_leaves_its_log() {
    let hbase = HBase::with_tables();
    let data = directory();
    let start = || hbase.logging(data.path()).env("TSD_SHUTDOWN_TIMEOUT", "2");
    let daemon = start().serve();
    put(daemon.address(), "m", 0, 10);
    hbase.go_away();
    put(daemon.address(), "m", 10, 20);
    assert!(daemon.terminate().success());
    hbase.come_back();
    // With another way to acknowledge, what is in the log goes to HBase first.
    let daemon = hbase.daemon(data.path()).serve();
    check(daemon.address(), "m", 20);
    assert!(daemon.terminate().success());
    // The log of one cluster is not replayed into another.
    let daemon = start().serve();
    put(daemon.address(), "m", 20, 30);
    daemon.kill();
    let elsewhere = HBase::with_tables();
    let (status, said) = elsewhere.logging(data.path()).fail();
    assert!(!status.success());
    assert!(said.contains("contains rows of the HBase at"), "{said}");
    let daemon = start().serve();
    wait_until_it_reads(&daemon, "m");
    check(daemon.address(), "m", 30);
}

#[test]
fn a_full_log_refuses_points_and_loses_none() {
    let hbase = HBase::with_tables();
    let data = directory();
    let daemon = hbase
        .logging(data.path())
        .env("TSD_STORAGE_LOG_MAX_SIZE", "1048576")
        .env("TSD_STORAGE_WRITE_DEADLINE", "20000")
        .serve();
    put(daemon.address(), "m", 0, 1);
    hbase.go_away();
    let mut taken = 1;
    let refused = loop {
        let body = body("m", taken, taken + 500);
        let answer = http(daemon.address(), "POST", "/api/put", Some(&body));
        if answer.status != 204 {
            break answer;
        }
        taken += 500;
        assert!(taken < 900_000, "the log has no bound");
    };
    assert_eq!(refused.status, 503, "{}", refused.body);
    // Telnet is told too.
    let mut telnet = connect(daemon.address());
    telnet
        .write_all(format!("put m {} 1 host=a\n", FIRST_SECOND + 999_999).as_bytes())
        .expect("send");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(telnet), &mut line).expect("a line");
    assert!(line.starts_with("put: Please throttle writes"), "{line}");
    assert!(metric(&daemon, "tsd_wal_rejected_writes_total") > 0.0);
    assert!(metric(&daemon, "tsd_wal_log_bytes") > 0.0);
    hbase.come_back();
    let taken_again = || {
        let body = body("m", taken, taken + 500);
        (http(daemon.address(), "POST", "/api/put", Some(&body)).status == 204).then_some(())
    };
    wait_for(PATIENCE, taken_again).expect("the log has room again");
    wait_until_it_reads(&daemon, "m");
    check(daemon.address(), "m", taken + 500);
}

#[test]
fn with_hbase_acknowledging_puts_are_refused_in_time_while_it_is_away() {
    const CLIENTS: u64 = 100;
    let hbase = HBase::with_tables();
    let data = directory();
    let daemon = hbase.daemon(data.path()).env("TSD_STORAGE_WRITE_DEADLINE", "1500").serve();
    let address = daemon.address();
    for client in 0..CLIENTS {
        put(address, &format!("m{client}"), 0, 1);
    }
    hbase.go_away();
    let refused = thread::scope(|scope| {
        let waiting: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let body = body(&format!("m{client}"), 1, 11);
                    http(address, "POST", "/api/put", Some(&body)).status
                })
            })
            .collect();
        waiting.into_iter().map(|one| one.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert!(refused.iter().all(|status| *status == 503), "{refused:?}");
    hbase.come_back();
    for client in 0..CLIENTS {
        let metric = format!("m{client}");
        wait_until_it_reads(&daemon, &metric);
        // As 503 asks: again. What was stored after all is the same cells.
        let again = || {
            let answer = http(address, "POST", "/api/put", Some(&body(&metric, 1, 11)));
            (answer.status == 204).then_some(())
        };
        wait_for(PATIENCE, again).expect("HBase is back");
        check(address, &metric, 11);
    }
}

#[test]
fn series_of_several_bucket_counts_are_one_where_all_buckets_are_read() {
    let hbase = HBase::with_tables();
    let data = directory();
    let mut written = 0;
    for buckets in ["20", "7", "3"] {
        let daemon = hbase
            .daemon(data.path())
            .env("TSD_STORAGE_SALT_WIDTH", "1")
            .env("TSD_STORAGE_SALT_BUCKETS", buckets)
            .serve();
        put(daemon.address(), "m", written, written + 10);
        written += 10;
        assert!(daemon.terminate().success());
    }
    let daemon = hbase
        .daemon(data.path())
        .env("TSD_STORAGE_SALT_WIDTH", "1")
        .env("TSD_QUERY_MULTI_GET_GET_ALL_SALTS", "true")
        .serve();
    check(daemon.address(), "m", written);
}

#[test]
fn import_and_query_work_on_hbase() {
    let hbase = HBase::with_tables();
    let data = directory();
    let file = data.path().join("points");
    let lines: Vec<String> =
        (0..600).map(|n| format!("m {} {n} host=a\n", FIRST_SECOND + n)).collect();
    std::fs::write(&file, lines.concat()).expect("write");
    let (data, file) = (data.path().to_str().expect("a path"), file.to_str().expect("a path"));
    let imported = hbase.tsdb(&["import", "--auto-metric", "--data", data, file]);
    assert!(imported.status.success(), "{imported:?}");
    // Rows went there whole: as many cells as rows, not as points.
    let cells = hbase.cluster.cells(&"tsdb".parse().expect("a name"));
    assert!((1..=5).contains(&cells), "{cells} cells");
    let from = FIRST_SECOND.to_string();
    let to = (FIRST_SECOND + 1_000).to_string();
    let asked = hbase.tsdb(&["query", &from, &to, "sum", "m", "host=a"]);
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert_eq!(said.lines().count(), 600, "{asked:?}");
}

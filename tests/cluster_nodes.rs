//! Three daemon processes with one log table on a fake HBase: queries of each daemon see the acknowledged points
//! of all.

use std::{fs, path::Path, process::Command, thread};

use serde_json::Value;
use tempfile::TempDir;
use tsd_testkit::{Daemon, DaemonBuilder, ProcessClock, http, metric, wait_for};

use crate::{
    TSDB,
    hbase_fake::{HBase, check, put},
    in_process::directory,
};

const ROLLUPS: &str = r#"{"aggregationIds":{"sum":0},"intervals":[{"table":"tsdb-1m","preAggregationTable":"tsdb-agg","interval":"1m","rowSpan":"1h","defaultInterval":true}]}"#;

fn node(hbase: &HBase, name: &str, data: &Path) -> DaemonBuilder {
    // Rows stay held until a flush is asked for.
    hbase
        .daemon(data)
        .args(&["--ack", "cluster"])
        .env("TSD_CLUSTER_NAME", name)
        .env("TSD_STORAGE_HOLD_SECONDS", "3600")
}

/// Three nodes with their data directories.
fn nodes(hbase: &HBase) -> Vec<(Daemon, TempDir)> {
    nodes_with(hbase, &[])
}

/// The same with settings.
fn nodes_with(hbase: &HBase, settings: &[(&str, &str)]) -> Vec<(Daemon, TempDir)> {
    let start = |at: usize| {
        let data = directory();
        let node = node(hbase, &format!("tsd{at}"), data.path());
        let set = |node: DaemonBuilder, (key, value): &(&str, &str)| node.env(key, value);
        (settings.iter().fold(node, set).start(), data)
    };
    let nodes: Vec<_> = (0..3).map(start).collect();
    wait_until_serving(&nodes);
    nodes
}

/// Waits until each node has seen that all nodes serve and have their slots: rows of a slot that moves are flushed.
fn wait_until_serving(nodes: &[(Daemon, TempDir)]) {
    for (daemon, _) in nodes {
        let serving = || {
            let status = cluster_status(daemon);
            let states = states(&status);
            let all = states.len() == nodes.len();
            let owners = status["nodes"].as_array().expect("nodes");
            let settled = status["slots"]["moving"] == 0
                && owners.iter().all(|node| node["slots"]["owned"].as_u64() > Some(0));
            (all && settled && states.iter().all(|(_, state)| state == "serving")).then_some(())
        };
        wait_for(serving).expect("all nodes serve and have slots");
    }
}

fn cluster_status(daemon: &Daemon) -> Value {
    let response = http(daemon.address(), "GET", "/api/cluster", None);
    assert_eq!(response.status, 200, "{}", response.body);
    serde_json::from_str(&response.body).expect("JSON")
}

fn states(status: &Value) -> Vec<(String, String)> {
    let text = |node: &Value, field: &str| node[field].as_str().unwrap_or_default().to_owned();
    let nodes = status["nodes"].as_array().expect("nodes");
    let mut states: Vec<_> =
        nodes.iter().map(|node| (text(node, "name"), text(node, "state"))).collect();
    states.sort_unstable();
    states
}

#[test]
fn what_one_node_acknowledges_is_read_on_all_until_and_after_its_flush() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    for (at, (daemon, _)) in nodes.iter().enumerate() {
        put(daemon.address(), &format!("m{at}"), 0, 50);
        put(daemon.address(), &format!("m{at}"), 50, 100);
    }
    let check_all = || {
        for (daemon, _) in &nodes {
            for metric in ["m0", "m1", "m2"] {
                check(daemon.address(), metric, 100);
            }
        }
    };
    check_all();
    let first = &nodes[0].0;
    let status = cluster_status(first);
    let serving = |at: usize| (format!("tsd{at}"), "serving".to_owned());
    assert_eq!(states(&status), [serving(0), serving(1), serving(2)]);
    assert_eq!(status["silent"], serde_json::json!([]));
    let held = |status: &Value| {
        let rows = |node: &Value| node["heldRows"].as_u64().expect("held rows");
        status["nodes"].as_array().expect("nodes").iter().map(rows).collect::<Vec<u64>>()
    };
    assert!(held(&status).iter().sum::<u64>() > 0, "{status}");

    let url = format!("http://{}", first.address());
    let tsdb = |words: &[&str]| {
        let done = Command::new(TSDB).args(words).args(["--url", &url]).output().expect("tsdb");
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let (code, table) = tsdb(&["cluster", "status"]);
    assert_eq!(code, Some(0));
    assert!(table.contains("tsd0*") && table.contains("tsd2 "), "{table}");
    // Without a URL it asks the daemon of the data directory (issue 37).
    let mut by_directory = Command::new(TSDB);
    by_directory.args(["cluster", "status", "--data"]).arg(nodes[1].1.path());
    let done = by_directory.output().expect("tsdb");
    let [table, stderr] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(table.contains("tsd1*"), "{table} {stderr}");
    assert!(stderr.contains(&format!("asking http://{}/", nodes[1].0.address())), "{stderr}");
    let (code, flushed) = tsdb(&["cluster", "flush"]);
    assert_eq!((code, flushed.lines().count()), (Some(0), 3), "{flushed}");
    assert_eq!(held(&cluster_status(first)), [0, 0, 0]);
    check_all();
    for (daemon, _) in nodes {
        assert!(daemon.terminate().success());
    }
}

#[test]
fn a_query_asks_each_other_node_once_for_all_salt_buckets() {
    let hbase = HBase::with_tables();
    let nodes = nodes_with(
        &hbase,
        &[
            ("TSD_STORAGE_SALT_WIDTH", "1"),
            ("TSD_STORAGE_SALT_BUCKETS", "20"),
            // Each compacted row would ask the nodes, too.
            ("TSD_STORAGE_ENABLE_COMPACTION", "false"),
        ],
    );
    for (daemon, _) in &nodes {
        put(daemon.address(), "m", 0, 100);
        check(daemon.address(), "m", 100);
        let requests = metric(daemon.address(), "tsd_cluster_net_requests_total{kind=\"held\"}");
        assert_eq!(requests, Some(2.0));
    }
}

#[test]
fn corrections_through_one_node_are_read_on_the_others_at_once() {
    let hbase = HBase::with_tables();
    let nodes = nodes(&hbase);
    let (writer, reader) = (&nodes[0].0, &nodes[1].0);
    for round in 0..30_u64 {
        let body = format!(
            r#"{{"metric":"c","timestamp":1600000000,"value":{round},"tags":{{"h":"a"}}}}"#
        );
        let stored = http(writer.address(), "POST", "/api/put", Some(&body));
        assert_eq!(stored.status, 204, "{}", stored.body);
        if round % 10 == 5 {
            let flushed = http(reader.address(), "POST", "/api/cluster/flush", Some(""));
            assert_eq!(flushed.status, 200, "{}", flushed.body);
        }
        let uri = "/api/query?start=1599999000&end=1600001000&m=none:c";
        let read = http(reader.address(), "GET", uri, None);
        assert!(read.body.contains(&format!("\"1600000000\":{round}}}")), "{round}: {}", read.body);
    }
}

#[test]
fn a_killed_node_is_named_or_its_points_are_read() {
    let hbase = HBase::with_tables();
    let mut nodes = nodes(&hbase);
    put(nodes[2].0.address(), "m", 0, 100);
    let (killed, data) = nodes.pop().expect("a node");
    killed.kill();
    fs::remove_dir_all(data.path()).expect("a directory");
    let reader = &nodes[0].0;
    let uri = "/api/query?start=1600000000&m=none:m";
    let read = || {
        let response = http(reader.address(), "GET", uri, None);
        if response.status == 200 {
            return Some(());
        }
        assert!(response.body.contains("tsd2 does not answer"), "{}", response.body);
        None
    };
    wait_for(read).expect("the points of the killed node");
    for (daemon, _) in &nodes {
        check(daemon.address(), "m", 100);
    }
}

#[test]
fn nodes_of_one_name_do_not_run_at_once_and_others_do_not_answer_for_a_cluster() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let one = node(&hbase, "a", first.path()).start();
    let (status, stderr) = node(&hbase, "a", second.path()).run_to_exit();
    assert!(!status.success() && stderr.contains("\"a\"") || stderr.contains(" a "), "{stderr}");
    put(one.address(), "m", 0, 10);
    check(one.address(), "m", 10);
    let alone = crate::tsdb(second.path()).start();
    let response = http(alone.address(), "GET", "/api/cluster", None);
    assert_eq!(response.status, 400, "{}", response.body);
    assert!(response.body.contains("tsd.storage.ack = cluster"), "{}", response.body);
}

/// Points of a metric that a node reads; `None` if the query fails.
fn read(node: &Daemon, metric: &str) -> Option<String> {
    let uri = format!("/api/query?start=1599999000&end=1600001000&m=none:{metric}");
    let response = http(node.address(), "GET", &uri, None);
    (response.status == 200).then_some(response.body)
}

#[test]
fn a_node_that_was_paused_and_recovered_joins_again_by_itself() {
    let hbase = HBase::with_tables();
    let mut nodes = nodes(&hbase);
    nodes.truncate(2);
    let (other, paused) = (&nodes[0].0, &nodes[1].0);
    put(paused.address(), "m", 0, 100);
    let correct = |node: &Daemon, value: u32| {
        let body = format!(
            r#"{{"metric":"c","timestamp":1600000000,"value":{value},"tags":{{"h":"a"}}}}"#
        );
        assert_eq!(http(node.address(), "POST", "/api/put", Some(&body)).status, 204);
    };
    correct(paused, 1);
    let listed = || {
        let status = cluster_status(other);
        let node = status["nodes"].as_array()?.iter().find(|node| node["name"] == "tsd1")?;
        node["incarnation"].as_u64()
    };
    let before = wait_for(listed).expect("a node that the other one knows");
    paused.signal("STOP");
    wait_for(|| read(other, "m")).expect("its points are recovered");
    correct(other, 2);
    paused.signal("CONT");
    let fenced = paused.wait_for_event(
        "this node was fenced; it drops its held rows and joins the cluster again",
        |event| event["level"] == "WARN",
    );
    assert!(fenced["reason"].as_str().is_some_and(|reason| reason.contains("taken over")));
    let _ = paused.wait_for_event("joined the cluster again", |_| true);
    // On its port, without its held rows.
    assert_eq!(http(paused.address(), "GET", "/api/health/ready", None).status, 200);
    let status = cluster_status(paused);
    let member =
        status["nodes"].as_array().expect("nodes").iter().find(|node| node["this"] == true);
    let member = member.expect("this node");
    assert!(member["incarnation"].as_u64() > Some(before), "{status}");
    assert_eq!((&member["name"], &member["heldRows"]), (&"tsd1".into(), &0.into()));
    put(paused.address(), "m", 100, 150);
    for node in [other, paused] {
        check(node.address(), "m", 150);
    }
    let flushed = http(other.address(), "POST", "/api/cluster/flush", Some(""));
    assert_eq!(flushed.status, 200, "{}", flushed.body);
    for node in [other, paused] {
        check(node.address(), "m", 150);
        // The former run has not stored its older value again.
        assert!(read(node, "c").is_some_and(|body| body.contains("\"1600000000\":2}")));
    }
    assert_eq!(metric(paused.address(), "tsd_cluster_log_fenced"), Some(0.0));
    assert!(metric(paused.address(), "tsd_cluster_log_fences_total").is_some_and(|n| n >= 1.0));
    for (daemon, _) in nodes {
        assert!(daemon.terminate().success());
    }
}

/// Starts a node that must not join, and returns the reason. A live node must have noted the same reason.
#[track_caller]
pub(crate) fn refused(node: DaemonBuilder, alive: &Daemon) -> String {
    let (status, stderr) = node.run_to_exit();
    assert!(!status.success(), "{stderr}");
    let noted = alive.wait_for_event("a node does not join the cluster", |event| {
        event["node"].as_str().is_some_and(|name| name.contains('b'))
    });
    let reason = noted["reason"].as_str().expect("a reason").to_owned();
    format!("{reason}\n{stderr}")
}

#[test]
fn a_node_that_others_do_not_reach_does_not_join() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let alive = node(&hbase, "a", first.path()).start();
    put(alive.address(), "m", 0, 10);
    // Nobody listens there.
    let b = node(&hbase, "b", second.path()).env("TSD_CLUSTER_ADVERTISE", "127.0.0.1:1");
    let text = refused(b, &alive);
    let expected = "node b cannot reach this one at 127.0.0.1:1";
    assert!(
        text.matches(expected).count() >= 2 && text.contains("tsd.cluster.advertise"),
        "{text}"
    );
    check(alive.address(), "m", 10);
}

#[test]
fn a_node_with_other_settings_is_refused_on_both_sides() {
    let tables = [
        ("TSD_CORE_META_ENABLE_REALTIME_TS", "true"),
        ("TSD_STORAGE_HBASE_SERIES_INDEX", "complete"),
        ("TSD_ROLLUPS_ENABLE", "true"),
        ("TSD_ROLLUPS_CONFIG", ROLLUPS),
    ];
    let hbase = HBase::with_tables_of(&tables);
    let named = ["data", "uid", "meta", "tree", "series"].map(|kind| {
        (format!("TSD_STORAGE_HBASE_{}_TABLE", kind.to_uppercase()), format!("other-{kind}"))
    });
    let named = named.iter().map(|(name, table)| (name.as_str(), table.as_str()));
    let created = hbase.tool(&["table", "create"], &named.chain(tables).collect::<Vec<_>>());
    assert!(created.status.success(), "{created:?}");
    let (first, second) = (directory(), directory());
    let alive = node(&hbase, "a", first.path()).start();
    put(alive.address(), "m", 0, 10);
    let plain = |text: &str| text.replace(['"', '\\'], "");
    // A value of each setting that is not its default, and the default.
    let others = [
        ("tsd.storage.salt.width", "1", "0"),
        ("tsd.storage.uid.width.tagv", "4", "3"),
        ("tsd.storage.hbase.data_table", "other-data", "tsdb"),
        ("tsd.storage.hbase.uid_table", "other-uid", "tsdb-uid"),
        ("tsd.storage.hbase.meta_table", "other-meta", "tsdb-meta"),
        ("tsd.storage.hbase.tree_table", "other-tree", "tsdb-tree"),
        ("tsd.storage.hbase.series_table", "other-series", "tsdb-series"),
        ("tsd.cluster.slot_tags", "device", "host, instance, pod"),
        ("tsd.cluster.reads", "stored", "held"),
        (
            "tsd.core.histograms.config",
            r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#,
            "not set",
        ),
        ("tsd.core.meta.enable_realtime_ts", "true", "false"),
        ("tsd.core.tag.allow_specialchars", "!", "not set"),
        ("tsd.core.timezone", "Europe/Berlin", "UTC"),
        ("tsd.core.uid.random_metrics", "true", "false"),
        ("tsd.query.multi_get.get_all_salts", "true", "false"),
        ("tsd.rollups.agg_tag_key", "agg", "_aggregate"),
        ("tsd.rollups.enable", "true", "false"),
        ("tsd.storage.enable_appends", "true", "false"),
        ("tsd.storage.fix_duplicates", "false", "true"),
        ("tsd.storage.hbase.series_index", "complete", "off"),
    ];
    let b = node(&hbase, "b", second.path()).env("TSD_ROLLUPS_CONFIG", ROLLUPS);
    let b =
        others.iter().fold(b, |b, (key, own, _)| b.env(&key.to_uppercase().replace('.', "_"), own));
    let text = plain(&refused(b, &alive));
    let (noted, own) = text.split_once('\n').expect("the reasons of both");
    let expected = others
        .map(|(key, own, stored)| plain(&format!("{key} is {own}, and {stored} in the cluster")));
    for difference in &expected {
        assert!(own.contains(difference), "{difference} in {own}");
    }
    // A live node notes the first 1,000 bytes.
    let of_both = expected.iter().filter(|difference| noted.contains(*difference)).count();
    assert!(of_both > 5, "{noted}");
    // What may differ.
    let b = node(&hbase, "b", second.path());
    let free = [
        ("TSD_CLUSTER_READ_TIMEOUT", "7"),
        ("TSD_CORE_AUTO_CREATE_METRICS", "false"),
        ("TSD_QUERY_TIMEOUT", "30000"),
        ("TSD_STORAGE_ENABLE_COMPACTION", "false"),
    ];
    let b = free.into_iter().fold(b, |b, (key, value)| b.env(key, value)).start();
    check(b.address(), "m", 10);
}

#[test]
fn a_node_whose_clock_differs_does_not_join_and_one_whose_clock_is_set_says_so() {
    let hbase = HBase::with_tables();
    let (first, second) = (directory(), directory());
    let clock = match ProcessClock::prepare(second.path()) {
        Ok(clock) => clock,
        Err(error) => {
            crate::report(&format!("skipped: no clock of its own for a process: {error}"));
            return;
        }
    };
    let alive = node(&hbase, "a", first.path()).start();
    put(alive.address(), "m", 0, 10);
    let data = second.path().join("data");
    clock.set_offset(3600);
    let text = refused(clock.apply(node(&hbase, "b", &data)), &alive);
    assert!(text.contains("ahead of the clocks of 1 other nodes"), "{text}");
    clock.set_offset(0);
    let b = clock.apply(node(&hbase, "b", &data)).start();
    let skewed = |node: &Daemon| metric(node.address(), "tsd_cluster_net_clock_skewed");
    assert_eq!(skewed(&b), Some(0.0));
    clock.set_offset(-60);
    wait_for(|| (skewed(&b) == Some(1.0)).then_some(())).expect("it notices");
    let _ = b
        .wait_for_event("the clock of this host differs from those of the other nodes", |event| {
            event["ahead_ms"].as_i64().is_some_and(|ms| (-70_000..=-50_000).contains(&ms))
        });
}

/// Name and state of the nodes in the log table, as read without a daemon.
fn members(hbase: &HBase) -> Vec<(String, String)> {
    let variables = [("TSD_CLUSTER_SUSPECT_AFTER", "1")];
    let listed = hbase.tool(&["cluster", "members", "--json"], &variables);
    assert!(listed.status.success(), "{listed:?}");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    for node in listed["nodes"].as_array().expect("nodes") {
        assert!(node["incarnation"].is_u64() && node["logBytes"].is_u64(), "{node}");
        assert!(node["address"].as_str().is_some_and(|to| to.starts_with("127.0.0.1:")), "{node}");
    }
    states(&listed)
}

#[test]
fn nodes_are_listed_without_a_daemon() {
    let hbase = HBase::with_tables();
    let none = hbase.tool(&["cluster", "members"], &[]);
    let stderr = String::from_utf8_lossy(&none.stderr);
    assert!(!none.status.success() && stderr.contains("no node has started"), "{stderr}");
    let (first, second) = (directory(), directory());
    let killed = node(&hbase, "killed", first.path()).start();
    let stopped = node(&hbase, "stopped", second.path()).start();
    let of = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    let serving = [of("killed", "serving"), of("stopped", "serving")];
    wait_for(|| (members(&hbase) == serving).then_some(())).expect("both");
    assert!(stopped.terminate().success());
    killed.kill();
    wait_for(|| members(&hbase).contains(&of("killed", "suspected")).then_some(()))
        .expect("a node without heartbeats");
    assert!(!members(&hbase).contains(&of("stopped", "serving")));
    let table = hbase.tool(&["cluster", "members"], &[]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.starts_with("NODE") && table.contains(" KiB"), "{table}");
}

#[test]
fn queries_of_all_nodes_are_listed_and_cancelled_on_any() {
    let hbase = HBase::with_tables();
    let nodes: Vec<(Daemon, TempDir)> = (0..3)
        .map(|at| {
            let data = directory();
            let node = node(&hbase, &format!("tsd{at}"), data.path());
            (node.env("TSD_CLUSTER_SUSPECT_AFTER", "3600").start(), data)
        })
        .collect();
    wait_until_serving(&nodes);
    let [first, second, third] = [0, 1, 2].map(|at| &nodes[at].0);
    for node in [first, second, third] {
        put(node.address(), "m", 0, 10);
    }
    // A query waits for the paused node.
    second.signal("STOP");
    let asked = first.address();
    let client = thread::spawn(move || {
        http(asked, "GET", "/api/query?start=1600000000&end=1600000100&m=none:m", None)
    });
    let id = wait_for(|| {
        let list = http(third.address(), "GET", "/api/cluster/queries", None);
        let list: Value = serde_json::from_str(&list.body).expect("JSON");
        // On a busy machine another node may also be silent for a second.
        if list["silent"] != serde_json::json!(["tsd1"]) {
            return None;
        }
        let id = list["nodes"][0]["running"][0]["clusterId"].as_str()?.to_owned();
        assert_eq!(list["nodes"][0]["name"], "tsd0");
        Some(id)
    });
    let id = id.expect("a query");
    let url = format!("http://{}", third.address());
    let tsdb = |words: &[&str]| {
        let mut command = Command::new(TSDB);
        command.args(["cluster", "queries", "--url", &url]).args(words);
        let done = command.output().expect("tsdb");
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let (code, table) = tsdb(&[]);
    assert_eq!(code, Some(0));
    assert!(table.contains(&id) && table.contains("tsd1: no answer in time"), "{table}");
    let silent = cluster_status(third)["nodes"][1].clone();
    assert_eq!((&silent["name"], &silent["state"]), (&"tsd1".into(), &"unreachable".into()));
    assert!(silent["error"].as_str().is_some_and(|error| !error.is_empty()), "{silent}");
    let (code, cancelled) = tsdb(&["--cancel", &id]);
    assert_eq!((code, cancelled), (Some(0), format!("cancelled {id} on tsd0\n")));
    let response = client.join().expect("a response");
    assert!(response.body.contains("cancelled by an operator"), "{}", response.body);
    assert_eq!(tsdb(&["--cancel", &id]).0, Some(1));
    second.signal("CONT");
}

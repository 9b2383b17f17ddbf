//! Tests trees on HBase with processes: the start, trees of new series, and the tools.

use std::path::Path;

use serde_json::Value;
use tsd_testkit::{DaemonBuilder, http, wait_for};

use crate::hbase_fake::HBase;

fn with_trees(hbase: &HBase, data: &Path) -> DaemonBuilder {
    hbase
        .daemon(data)
        .env("TSD_CORE_META_ENABLE_TSUID_TRACKING", "true")
        .env("TSD_CORE_META_ENABLE_REALTIME_TS", "true")
        .env("TSD_CORE_TREE_ENABLE_PROCESSING", "true")
}

#[test]
fn trees_are_built_on_hbase() {
    let hbase = HBase::with_tables();
    let directory = tempfile::tempdir().expect("temporary directory");
    let daemon = with_trees(&hbase, &directory.path().join("data")).start();
    let request = |method: &str, uri: &str, body: Option<&str>| {
        let response = http(daemon.address(), method, uri, body);
        (response.status, response.body)
    };
    let post = |uri: &str, body: &str| {
        let (status, text) = request("POST", uri, Some(body));
        assert!(matches!(status, 200 | 204), "{uri}: {status} {text}");
    };
    post("/api/tree", r#"{"name":"T"}"#);
    let rules = r#"[{"treeId":1,"level":0,"type":"TAGK","field":"host"},{"treeId":1,"level":1,"type":"METRIC"}]"#;
    post("/api/tree/rules", rules);
    post("/api/tree", r#"{"treeId":1,"enabled":true}"#);
    let point = |metric: &str| {
        let tags = r#""tags":{"host":"a"}"#;
        post(
            "/api/put",
            &format!(r#"{{"metric":"{metric}","timestamp":1356998400,"value":1,{tags}}}"#),
        );
    };
    point("m");
    point("n");
    let branch = "/api/tree/branch?branch=000100000061";
    let leaves = || -> Option<Vec<String>> {
        let (status, body) = request("GET", branch, None);
        let body: Value = (status == 200).then(|| serde_json::from_str(&body).ok()).flatten()?;
        let leaves = body["leaves"].as_array()?;
        leaves.iter().map(|leaf| leaf["metric"].as_str().map(str::to_owned)).collect()
    };
    let all = ["m".to_owned(), "n".to_owned()];
    let built = wait_for(|| leaves().filter(|found| *found == all));
    assert!(built.is_some(), "{:?}", request("GET", branch, None));
    // Tools on the daemon's tables.
    let tool = |words: &[&str]| {
        let arguments = [&["uid"], words].concat();
        let output = hbase.tool(&arguments, &[("TSD_CORE_TREE_ENABLE_PROCESSING", "true")]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    tool(&["treepurge", "1"]);
    assert_eq!(request("GET", "/api/tree/branch?treeid=1", None).0, 404);
    let synced = tool(&["treesync"]);
    assert!(synced.contains("2 series, 2 new leaves"), "{synced}");
    assert_eq!(leaves().as_deref(), Some(&all[..]));
    tool(&["treepurge", "1", "true"]);
    assert_eq!(request("GET", "/api/tree", None).1, "[]");
    assert!(daemon.terminate().success());
}

#[test]
fn a_daemon_that_builds_trees_needs_their_table() {
    let hbase = HBase::with_tables();
    let directory = tempfile::tempdir().expect("temporary directory");
    let missing = |builder: DaemonBuilder| builder.env("TSD_STORAGE_HBASE_TREE_TABLE", "no-trees");
    let daemon = missing(with_trees(&hbase, &directory.path().join("a")));
    let (status, log) = daemon.run_to_exit();
    assert!(!status.success(), "{log}");
    assert!(log.contains("no-trees"), "{log}");
    let status = missing(hbase.daemon(&directory.path().join("b"))).start().terminate();
    assert!(status.success(), "{status}");
}

//! Tests trees that grow with new points, and the effect of their rules.

use std::thread;

use serde_json::{Value, json};

use tsd_testkit::wait_for;

use super::TreeDaemon;

#[test]
fn every_type_of_rule_makes_branches() {
    let daemon = TreeDaemon::with_trees(&[]);
    // Names get custom fields before the series that are placed.
    daemon.put("sys.cpu", &[("host", "web01"), ("dc", "dal")]);
    for (kind, field, value) in
        [("metric", "owner", "ops"), ("tagk", "level", "rack"), ("tagv", "row", "r7")]
    {
        let body = format!(
            r#"{{"uid":"000001","type":"{kind}","custom":{{"{field}":"{value}","none":null}}}}"#
        );
        daemon.post("/api/uid/uidmeta", &body);
    }
    let tree = daemon.tree(
        "T",
        &[
            r#""type":"METRIC_CUSTOM","field":"any","customField":"owner""#,
            r#""type":"TAGK_CUSTOM","field":"host","customField":"level""#,
            r#""type":"TAGV_CUSTOM","field":"web01","customField":"row""#,
            r#""type":"TAGK","field":"dc","displayFormat":"{tag_name}: {value}""#,
            r#""type":"METRIC","separator":"\\.""#,
        ],
    );
    daemon.put("sys.cpu", &[("host", "web01"), ("dc", "lax")]);
    let leaf = daemon.leaf(tree, &["ops", "rack", "r7", "dc: lax", "sys"], "cpu");
    assert_eq!(leaf["metric"], "sys.cpu");
    assert_eq!(leaf["tags"], json!({"host": "web01", "dc": "lax"}));
    // Without any of the custom fields.
    daemon.put("sys.mem", &[("dc", "lax")]);
    daemon.leaf(tree, &["dc: lax", "sys"], "mem");
}

/// Result of the test of a tree on the only series.
fn tested(daemon: &TreeDaemon, tree: u64) -> (Vec<String>, Vec<String>) {
    let tsuid = "000001000001000001";
    let uri = format!("/api/tree/test?treeid={tree}&tsuids={tsuid}");
    let result = daemon.eventually(&uri, |result| {
        let result = &result[tsuid];
        (!result["meta"].is_null()).then(|| result.clone())
    });
    let messages = result["messages"].as_array().expect("messages");
    let messages = messages.iter().map(|text| text.as_str().expect("a text").to_owned()).collect();
    let mut names = Vec::new();
    let mut branch = &result["branch"];
    loop {
        let of_leaves = branch["leaves"].as_array().into_iter().flatten();
        names
            .extend(of_leaves.map(|leaf| leaf["displayName"].as_str().expect("a name").to_owned()));
        match branch["branches"].get(0) {
            Some(child) => branch = child,
            None => return (names_of(branch).into_iter().chain(names).collect(), messages),
        }
    }
}

/// Names of the path of a branch below the root.
fn names_of(branch: &Value) -> Vec<String> {
    let path = branch["path"].as_object().expect("a path");
    (1..path.len())
        .map(|depth| path[&depth.to_string()].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn a_test_tells_what_each_rule_did() {
    let daemon = TreeDaemon::with_trees(&[]);
    daemon.put("sys.cpu", &[("host", "web01.dal")]);
    let tagk = |rest: &str| format!(r#""type":"TAGK","field":"host",{rest}"#);
    let metric = r#""type":"METRIC""#;
    for (rule, branch, message) in [
        (tagk(r#""regex":"^([a-z]+)([0-9]+)""#), "web", None),
        (tagk(r#""regex":"^([a-z]+)([0-9]+)","regexGroupIdx":1"#), "01", None),
        (tagk(r#""separator":"\\.""#), "web01", None),
        (
            tagk(r#""regex":"^([a-z]+)","regexGroupIdx":1"#),
            "",
            Some("Regex group index [1] for rule [#:0:0:TAGK] was out of bounds [1]"),
        ),
        (
            tagk(r#""regex":"web""#),
            "",
            Some("Regex group index [0] for rule [#:0:0:TAGK] was out of bounds [0]"),
        ),
        (
            tagk(r#""regex":"web(x?)""#),
            "",
            Some("Extracted value for rule [#:0:0:TAGK] was null or empty"),
        ),
        (tagk(r#""regex":"^db""#), "", None),
        (
            tagk(r#""separator":".""#),
            "",
            Some("Separator did not match, created an empty list on rule: [#:0:0:TAGK]"),
        ),
        (
            r#""type":"TAGK","field":"rack""#.to_owned(),
            "",
            Some("No match on tagk [rack] for rule: [#:0:0:TAGK]"),
        ),
        (
            r#""type":"METRIC","displayFormat":"{tag_name}""#.to_owned(),
            "",
            Some("Display rule [#:0:0:METRIC] was of the wrong type to match on {tag_name}"),
        ),
    ] {
        let tree = daemon.tree("T", &[&rule, metric]);
        let (names, messages) = tested(&daemon, tree);
        let first = if branch.is_empty() { "sys.cpu" } else { branch };
        assert_eq!(names.first().map(String::as_str), Some(first), "{rule}: {messages:?}");
        if let Some(message) = message {
            let message = message.replace('#', &tree.to_string());
            assert!(messages.contains(&message), "{rule}: {messages:?}");
        }
        assert_eq!(
            daemon.request("DELETE", &format!("/api/tree?treeid={tree}&definition=true"), None).0,
            204
        );
    }
    // A tree without rules, and one that is strict.
    let tree = daemon.tree("T", &[]);
    assert_eq!(tested(&daemon, tree), (vec![], vec!["The tree has no rules".to_owned()]));
    let tree = daemon.tree("T", &[r#""type":"TAGK","field":"rack""#, metric, metric]);
    daemon.post("/api/tree", &format!(r#"{{"treeId":{tree},"strictMatch":true}}"#));
    let (names, messages) = tested(&daemon, tree);
    assert_eq!(names, [""; 0]);
    let last = "TSUID failed to match one or more rule levels, will not add: 000001000001000001";
    assert_eq!(messages.last().map(String::as_str), Some(last));
}

#[test]
fn collisions_and_misses_are_listed() {
    let mut daemon = TreeDaemon::with_trees(&[]);
    let tree =
        daemon.tree("T", &[r#""type":"TAGK","field":"dc""#, r#""type":"TAGK","field":"host""#]);
    daemon.post("/api/tree", &format!(r#"{{"treeId":{tree},"strictMatch":true}}"#));
    daemon.put("a", &[("dc", "dal"), ("host", "web01")]);
    daemon.leaf(tree, &["dal"], "web01");
    daemon.put("b", &[("dc", "dal"), ("host", "web01")]);
    daemon.put("c", &[("dc", "dal")]);
    let collisions = format!("/api/tree/collisions?treeid={tree}");
    let (first, second) = ("000001000001000001000002000002", "000002000001000001000002000002");
    let listed = daemon.eventually(&collisions, |found| found.get(second).cloned());
    assert_eq!(listed, first);
    let missed = format!("/api/tree/notmatched?treeid={tree}");
    let listed = daemon.eventually(&missed, |found| found.get("000003000002000002").cloned());
    assert_eq!(listed, format!("[{tree}:1:0:TAGK]"));
    // After a restart, and by TSUID.
    daemon.restart();
    assert_eq!(daemon.get(&format!("{collisions}&tsuids={first}")), json!({}));
    assert_eq!(
        daemon.get(&format!("{collisions}&tsuids={first},{second}")),
        json!({ second: first })
    );
    let body = format!(r#"{{"treeId":{tree},"tsuids":["{second}"]}}"#);
    let (status, found) = daemon.request("POST", "/api/tree/collisions", Some(&body));
    assert_eq!((status, found), (200, format!(r#"{{"{second}":"{first}"}}"#)));
}

#[test]
fn hostile_names_are_only_names() {
    let daemon = TreeDaemon::with_trees(&[("tsd.core.tag.allow_specialchars", " !\"{}<>\\'$:;,")]);
    let tree = daemon.tree(
        "\\\"<script>",
        &[
            r#""type":"TAGK","field":"host","displayFormat":"{value} {ovalue} {tsuid}""#,
            r#""type":"METRIC""#,
        ],
    );
    let host = "{value}{ovalue}\"\\<b>";
    daemon.put("ROOT", &[("host", host)]);
    let root = daemon.eventually(&format!("/api/tree/branch?treeid={tree}"), |root| {
        root["branches"].get(0).cloned()
    });
    let name_of_branch = root["displayName"].as_str().expect("a name");
    assert!(name_of_branch.ends_with("000001000001000001"), "{name_of_branch}");
    daemon.leaf(tree, &[name_of_branch], "ROOT");
    // A branch named as the root is the root.
    let tree = daemon.tree("T", &[r#""type":"METRIC""#, r#""type":"TAGK","field":"host""#]);
    daemon.put("ROOT", &[("host", "ROOT")]);
    daemon.leaf(tree, &[], "ROOT");
}

#[test]
fn trees_may_be_deep_but_not_without_bound() {
    let daemon = TreeDaemon::with_trees(&[]);
    let tree = daemon.tree("T", &[r#""type":"METRIC","separator":"\\.""#]);
    let deep: Vec<String> = (0..200).map(|level| format!("l{level}")).collect();
    daemon.put(&deep.join("."), &[("a", "b")]);
    let (leaf, path) = deep.split_last().expect("names");
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    daemon.leaf(tree, &path, leaf);
    // Nested deeper than a parser of JSON may allow.
    let uri = format!("/api/tree/test?treeid={tree}&tsuids=000001000001000001");
    let (status, body) = daemon.request("GET", &uri, None);
    assert_eq!(status, 200);
    assert!(
        body.contains(r#""displayName":"l199"}],"branches":null,"path":{"0":"ROOT","1":"l0","#)
    );
    let deeper = (0..600).map(|level| format!("x{level}"));
    daemon.put(&deeper.collect::<Vec<_>>().join("."), &[("a", "b")]);
    let uri = format!("/api/tree/test?treeid={tree}&tsuids=000002000001000001");
    let text = wait_for(|| {
        let (status, body) = daemon.request("GET", &uri, None);
        (status == 400).then_some(body)
    });
    let text = text.expect("an error");
    assert!(text.contains("the path has more than 512 levels"), "{text}");
    // Others are placed as before.
    daemon.put("other.m", &[("a", "b")]);
    daemon.leaf(tree, &["other"], "m");
}

#[test]
fn a_tree_is_deleted_while_series_come_in() {
    let daemon = TreeDaemon::with_trees(&[]);
    let rules = [r#""type":"TAGK","field":"host""#, r#""type":"METRIC","separator":"\\.""#];
    let (kept, deleted) = (daemon.tree("kept", &rules), daemon.tree("deleted", &rules));
    thread::scope(|scope| {
        for host in ["a", "b"] {
            let daemon = &daemon;
            scope.spawn(move || {
                for metric in 0..60 {
                    daemon.put(&format!("x.m{metric}"), &[("host", host)]);
                }
            });
        }
        daemon.leaf(deleted, &["a", "x"], "m0");
        let uri = format!("/api/tree?treeid={deleted}&definition=true");
        assert_eq!(daemon.request("DELETE", &uri, None).0, 204);
    });
    for host in ["a", "b"] {
        for metric in 0..60 {
            daemon.leaf(kept, &[host, "x"], &format!("m{metric}"));
        }
    }
    daemon.refused("GET", &format!("/api/tree?treeid={deleted}"), None, 404);
    daemon.refused("GET", &format!("/api/tree/branch?treeid={deleted}"), None, 404);
    // The number of a deleted tree is reused only if it was the highest, as here.
    assert_eq!(daemon.tree("new", &rules), deleted);
    daemon.put("x.last", &[("host", "a")]);
    daemon.leaf(deleted, &["a", "x"], "last");
    let leaves = daemon.branch(deleted, &["a", "x"])["leaves"].as_array().expect("leaves").len();
    assert_eq!(leaves, 1, "nothing of the deleted tree is left");
}

#[test]
fn series_that_exist_are_placed_by_treesync_only() {
    let daemon = TreeDaemon::with_trees(&[]);
    daemon.put("a.b", &[("host", "x")]);
    let rules = [r#""type":"TAGK","field":"host""#, r#""type":"METRIC""#];
    let tree = daemon.tree("T", &rules);
    daemon.put("a.b", &[("host", "x")]);
    daemon.put("c.d", &[("host", "x")]);
    daemon.leaf(tree, &["x"], "c.d");
    let uid = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut out = Vec::new();
        let uid = tsd_cli::uid(daemon.node().engine(), &words, &mut out);
        let status = daemon.runtime.block_on(uid);
        assert_eq!(String::from_utf8(out).expect("text"), "", "{words:?}");
        status
    };
    assert_eq!(uid(&["treesync"]), 0);
    daemon.leaf(tree, &["x"], "a.b");
    assert_eq!(uid(&["treepurge", &tree.to_string()]), 0);
    daemon.refused("GET", &format!("/api/tree/branch?treeid={tree}"), None, 404);
    assert_eq!(daemon.get(&format!("/api/tree?treeid={tree}"))["name"], "T");
    assert_eq!(uid(&["treepurge", &tree.to_string(), "true"]), 0);
    daemon.refused("GET", &format!("/api/tree?treeid={tree}"), None, 404);
    assert_eq!(uid(&["treepurge", &tree.to_string()]), 0);
    for (words, status) in
        [(&["treepurge"][..], 2), (&["treepurge", "x"], 3), (&["treepurge", "65536"], 3)]
    {
        assert_eq!(uid(words), status, "{words:?}");
    }
}

//! Tests requests of trees: ids, bodies, methods and modes.

use super::TreeDaemon;

#[test]
fn ids_are_checked_before_anything_is_read() {
    let daemon = TreeDaemon::start(&[]);
    for (uri, status, message) in [
        ("/api/tree?treeid=x", 400, "Unable to parse 'tree' value"),
        ("/api/tree?treeid=", 400, "Unable to parse 'tree' value"),
        ("/api/tree?treeid=-1", 400, "Invalid Tree ID"),
        ("/api/tree?treeid=65536", 400, "Invalid Tree ID"),
        ("/api/tree?treeid=65535", 404, "Unable to locate tree: 65535"),
        ("/api/tree/branch", 400, "Missing or invalid branch and tree IDs"),
        ("/api/tree/branch?treeid=1", 404, "Unable to locate branch '0001' for tree '1'"),
        ("/api/tree/branch?branch=00", 400, "Branch ID was too short"),
        ("/api/tree/branch?branch=000z", 400, "contains illegal character for hexBinary: 000z"),
        ("/api/tree/branch?branch=0000", 404, "Unable to locate branch '0000' for tree '0'"),
        ("/api/tree/rule?level=0&order=0", 400, "Missing parameter <code>treeid</code>"),
        ("/api/tree/rule?treeid=1&order=0", 400, "Missing parameter <code>level</code>"),
        ("/api/tree/rule?treeid=1&level=0", 400, "Missing parameter <code>order</code>"),
        ("/api/tree/rule?treeid=1&level=x&order=0", 400, "Unable to parse the 'level' parameter"),
        ("/api/tree/rule?treeid=1&level=0&order=0", 404, "Unable to locate tree: 1"),
        ("/api/tree/rules?treeid=1", 404, "Unable to locate tree: 1"),
        ("/api/tree/test", 400, "Missing parameter <code>treeid</code>"),
        ("/api/tree/test?treeid=1&tsuids=01", 404, "Unable to locate tree: 1"),
        ("/api/tree/collisions?treeid=0", 400, "Invalid Tree ID"),
        ("/api/tree/notmatched?treeid=1", 404, "Unable to locate tree: 1"),
        ("/api/tree/other", 404, "This endpoint is not supported"),
    ] {
        assert_eq!(daemon.refused("GET", uri, None, status), message, "{uri}");
    }
    assert_eq!(daemon.get("/api/tree"), serde_json::json!([]));
}

#[test]
fn bodies_are_checked() {
    let daemon = TreeDaemon::start(&[]);
    daemon.tree("T", &[r#""type":"METRIC""#]);
    for (uri, body, status, message) in [
        ("/api/tree", "{", 400, "Unable to parse the given JSON"),
        ("/api/tree", "[]", 400, "Unable to parse the given JSON"),
        ("/api/tree", r#"{"treeId":"x"}"#, 400, "Unable to parse 'tree' value"),
        ("/api/tree", "{}", 400, "Tree was missing the name"),
        ("/api/tree", r#"{"name":""}"#, 400, "Tree was missing the name"),
        ("/api/tree", r#"{"treeId":7,"name":"a"}"#, 404, "Unable to locate tree: 7"),
        ("/api/tree/rule", r#"{"level":0}"#, 400, "Invalid Tree ID"),
        ("/api/tree/rule", r#"{"treeId":7,"level":1}"#, 404, "Unable to locate tree: 7"),
        ("/api/tree/rule", r#"{"treeId":1,"level":1}"#, 400, "Missing rule type"),
        ("/api/tree/rule", r#"{"treeId":1,"level":0,"order":-1}"#, 400, "Invalid rule order"),
        (
            "/api/tree/rule",
            r#"{"treeId":1,"level":1,"type":"TAGK"}"#,
            400,
            "Missing field name required for TAGK rule",
        ),
        (
            "/api/tree/rule",
            r#"{"treeId":1,"level":1,"type":"TAGV_CUSTOM","field":"a"}"#,
            400,
            "Missing custom field name required for TAGV_CUSTOM rule",
        ),
        (
            "/api/tree/rule",
            r#"{"treeId":1,"level":1,"type":"METRIC","regexGroupIdx":-1}"#,
            400,
            "Invalid regex group index. Cannot be less than 0",
        ),
        (
            "/api/tree/rule",
            r#"{"treeId":1,"level":1,"type":"METRIC","regex":"(a"}"#,
            400,
            "Unable to parse the 'regex' parameter",
        ),
        (
            "/api/tree/rule",
            r#"{"treeId":1,"level":1,"type":"METRIC","separator":"*"}"#,
            400,
            "Unable to parse the 'separator' parameter",
        ),
        ("/api/tree/rules", "[]", 400, "Missing tree rules"),
        (
            "/api/tree/rules",
            r#"[{"treeId":1},{"treeId":2}]"#,
            400,
            "All rules must belong to the same tree",
        ),
        ("/api/tree/test", r#"{"tsuids":["01"]}"#, 400, "Missing or invalid Tree ID"),
        ("/api/tree/test", r#"{"treeId":1,"tsuids":[]}"#, 400, "Missing or empty TSUID list"),
        ("/api/tree/test", r#"{"treeId":1}"#, 400, "Missing or empty TSUID list"),
        (
            "/api/tree/collisions",
            r#"{"treeId":1,"tsuids":"01"}"#,
            400,
            "Unable to convert the given data to a list",
        ),
    ] {
        assert_eq!(daemon.refused("POST", uri, Some(body), status), message, "{uri} {body}");
    }
    for uri in ["rule", "rules", "test", "collisions", "notmatched"] {
        daemon.refused("POST", &format!("/api/tree/{uri}"), Some("{"), 400);
    }
    for tsuid in ["", "zz"] {
        daemon.refused("GET", &format!("/api/tree/test?treeid=1&tsuids={tsuid}"), None, 400);
    }
    let tested = daemon.get("/api/tree/test?treeid=1&tsuids=01,000001000001000001");
    for tsuid in ["01", "000001000001000001"] {
        let unknown = serde_json::json!({
            "meta": null, "messages": ["Unable to locate TSUID meta data"], "branch": null
        });
        assert_eq!(tested[tsuid], unknown);
    }
}

#[test]
fn methods_are_real_or_overridden() {
    let daemon = TreeDaemon::start(&[]);
    let created = daemon.get("/api/tree?method_override=post&name=T&enabled=true");
    assert_eq!((created["treeId"].as_u64(), created["enabled"].as_bool()), (Some(1), Some(true)));
    assert!(created["created"].as_i64().expect("seconds") > 1_600_000_000);
    let edited = daemon.get("/api/tree?method_override=PUT&treeid=1&name=U");
    assert_eq!((edited["name"].as_str(), edited["enabled"].as_bool()), (Some("U"), Some(false)));
    assert_eq!(edited["created"], created["created"]);
    for (method, uri) in [
        ("POST", "/api/tree?treeid=1"),
        ("PUT", "/api/tree?treeid=1&name="),
        ("POST", "/api/tree/rule?treeid=1&level=0&order=0"),
    ] {
        assert_eq!(daemon.request(method, uri, None), (304, String::new()), "{uri}");
    }
    daemon.get("/api/tree/rule?method_override=post&treeid=1&level=0&order=2&type=metric");
    let rule = daemon.get("/api/tree/rule?treeid=1&level=0&order=2");
    assert_eq!(rule["type"], "METRIC");
    let same = "/api/tree/rule?treeid=1&level=0&order=2&type=metric";
    assert_eq!(daemon.request("POST", same, None).0, 304);
    assert_eq!(daemon.request("PUT", same, None).0, 200);
    let missing = "/api/tree/rule?treeid=1&level=3&order=4&type=tagk";
    for method in ["GET", "DELETE"] {
        let text = daemon.refused(method, missing, None, 404);
        assert_eq!(text, "Unable to locate rule: [1:3:4:TAGK]");
    }
    let unsupported = "Unsupported HTTP request method";
    for (method, uri) in [
        ("POST", "/api/tree/branch?treeid=1"),
        ("GET", "/api/tree/rules?treeid=1"),
        ("DELETE", "/api/tree/collisions?treeid=1"),
        ("DELETE", "/api/tree/test?treeid=1&tsuids=01"),
    ] {
        assert_eq!(daemon.refused(method, uri, None, 400), unsupported, "{method} {uri}");
    }
    assert_eq!(daemon.refused("PUT", "/api/tree/rules?treeid=1", None, 400), "Missing tree rules");
    assert_eq!(daemon.request("DELETE", "/api/tree/rules?treeid=1", None).0, 204);
    assert_eq!(daemon.get("/api/tree?treeid=1")["rules"], serde_json::Value::Null);
    assert_eq!(daemon.request("DELETE", "/api/tree?treeid=1&definition=true", None).0, 204);
    daemon.refused("DELETE", "/api/tree?treeid=1", None, 404);
    daemon.refused("GET", "/api/tree?method_override=patch", None, 405);
}

#[test]
fn rules_replaced_in_bulk_are_all_or_none() {
    let daemon = TreeDaemon::start(&[]);
    let tree = daemon.tree("T", &[r#""type":"METRIC""#, r#""type":"TAGK","field":"host""#]);
    let bulk = |second: &str| {
        format!(
            r#"[{{"treeId":{tree},"type":"METRIC","notes":"n"}},{{"treeId":{tree},"level":3,{second}}}]"#
        )
    };
    let before = daemon.get(&format!("/api/tree?treeid={tree}"));
    for method in ["POST", "PUT"] {
        let text = daemon.refused(method, "/api/tree/rules", Some(&bulk(r#""type":"TAGK""#)), 400);
        assert_eq!(text, "Missing field name required for TAGK rule");
        assert_eq!(daemon.get(&format!("/api/tree?treeid={tree}")), before);
    }
    let valid = bulk(r#""type":"TAGK","field":"dc""#);
    for _ in 0..2 {
        // The second time nothing changes.
        assert_eq!(daemon.request("POST", "/api/tree/rules", Some(&valid)).0, 204);
    }
    let merged = daemon.get(&format!("/api/tree?treeid={tree}"));
    assert_eq!(merged["rules"].as_object().expect("levels").len(), 3);
    assert_eq!(daemon.request("PUT", "/api/tree/rules", Some(&valid)).0, 204);
    let replaced = daemon.get(&format!("/api/tree?treeid={tree}"));
    let levels = replaced["rules"].as_object().expect("levels");
    assert_eq!(levels.keys().collect::<Vec<_>>(), ["0", "3"]);
    assert_eq!(levels["0"]["0"]["notes"], "n");
}

#[test]
fn a_read_only_daemon_has_no_trees() {
    let daemon = TreeDaemon::start(&[("tsd.mode", "ro")]);
    for uri in ["/api/tree", "/api/tree/branch?treeid=1", "/api/tree/test?treeid=1&tsuids=01"] {
        assert_eq!(daemon.refused("GET", uri, None, 404), "Endpoint not found", "{uri}");
    }
    let daemon = TreeDaemon::start(&[("tsd.mode", "wo")]);
    assert_eq!(daemon.get("/api/tree"), serde_json::json!([]));
    daemon.tree("T", &[]);
}

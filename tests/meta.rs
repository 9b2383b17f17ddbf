//! `/api/uid/uidmeta`, `/api/uid/tsmeta` and the searches of meta objects and annotations, over HTTP. `golden`
//! compares replies to common requests with recorded replies.

use std::{process::Command, thread};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tsd_cli::Node;
use tsd_testkit::{Daemon, http, wait_for};

use crate::{TSDB, hbase_fake::HBase, in_process};

/// A daemon in this process.
struct MetaDaemon {
    runtime: Runtime,
    node: Option<Node>,
    _directory: TempDir,
}

impl MetaDaemon {
    fn start(settings: &[(&str, &str)]) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let directory = in_process::directory();
        let mut all = vec![("tsd.http.show_stack_trace", "false")];
        all.extend(settings);
        let node = in_process::start(&runtime, directory.path(), &all).expect("a daemon");
        Self { runtime, node: Some(node), _directory: directory }
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("a daemon")
    }

    fn send(&self, method: &str, uri: &str, body: &str) -> (u16, String) {
        let body = Some(body).filter(|body| !body.is_empty());
        let response = http(self.node().address(), method, uri, body);
        (response.status, response.body)
    }

    fn get(&self, uri: &str) -> (u16, String) {
        self.send("GET", uri, "")
    }

    /// The JSON of a 200.
    fn json(&self, uri: &str) -> Value {
        let (status, body) = self.get(uri);
        assert_eq!(status, 200, "{uri}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{uri}: {error}: {body}"))
    }

    #[track_caller]
    fn check(&self, method: &str, uri: &str, body: &str, (status, part): (u16, &str)) {
        let (found, text) = self.send(method, uri, body);
        assert_eq!(found, status, "{method} {uri} {body}: {text}");
        assert!(text.contains(part), "{method} {uri} {body}: {text}");
    }

    fn assign(&self) {
        let names = r#"{"metric":["m"],"tagk":["host"],"tagv":["a"]}"#;
        self.check("POST", "/api/uid/assign", names, (200, "000001"));
    }

    /// Puts a point of each host.
    fn put(&self, hosts: impl Iterator<Item = String>) {
        let point = |host: String| {
            json!({"metric": "sys.cpu", "timestamp": 1_356_998_400, "value": 1,
            "tags": {"host": host, "dc": "lga"}})
        };
        let points: Vec<Value> = hosts.map(point).collect();
        self.check("POST", "/api/put", &Value::from(points).to_string(), (204, ""));
    }

    /// Searches until there are `total` results, since meta objects are written after the points.
    fn search_all(&self, uri: &str, total: u64) -> Value {
        let found = wait_for(|| {
            let found = self.json(uri);
            (found["totalResults"] == total).then_some(found)
        });
        found.unwrap_or_else(|| panic!("{uri}: {}", self.json(uri)))
    }
}

impl Drop for MetaDaemon {
    fn drop(&mut self) {
        if let Some(node) = self.node.take()
            && !thread::panicking()
        {
            in_process::stop(&self.runtime, node);
        }
    }
}

#[test]
fn uid_meta_takes_parameters_and_overridden_methods() {
    let daemon = MetaDaemon::start(&[]);
    daemon.assign();
    let id = "uid=000001&type=metric";
    let uri = format!("/api/uid/uidmeta?{id}");
    // Without a stored object, the default object is returned.
    let default = r#"{"uid":"000001","type":"METRIC","name":"m","description":"","notes":"","created":0,"custom":null,"displayName":""}"#;
    daemon.check("GET", &uri, "", (200, default));
    let edit = format!("{uri}&method_override=post&display_name=D%20%C3%A9&notes=n");
    daemon.check("GET", &edit, "", (200, r#""displayName":"D é""#));
    daemon.check("GET", &uri, "", (200, r#""notes":"n""#));
    // Empty fields set nothing.
    daemon.check("POST", &format!("{uri}&notes="), "", (304, ""));
    let replace = format!("{uri}&method_override=PUT&description=d");
    daemon.check("GET", &replace, "", (200, r#""description":"d","notes":"","created":0"#));
    daemon.check("GET", &format!("{uri}&method_override=delete"), "", (204, ""));
    daemon.check("GET", &uri, "", (200, default));
    daemon.check("GET", &format!("{uri}&method_override=patch"), "", (405, ""));
    daemon.check("DELETE", "/api/uid/uidmeta?uid=000009&type=tagk", "", (204, ""));
    daemon.check("GET", "/api/v1/uid/UIDMETA?uid=000001&type=tagk", "", (200, r#""name":"host""#));
}

#[test]
fn invalid_uid_meta_requests_have_opentsdbs_status() {
    let daemon = MetaDaemon::start(&[]);
    daemon.assign();
    let uri = "/api/uid/uidmeta";
    for (method, query, body, status, text) in [
        ("GET", "", "", 400, "Missing parameter <code>uid</code>"),
        ("GET", "?uid=000001", "", 400, "Missing parameter <code>type</code>"),
        ("GET", "?uid=000001&type=x", "", 400, "Invalid type requested: x"),
        (
            "GET",
            "?uid=1&type=metric",
            "",
            400,
            "Wrong id.length = 1 which is != 3 required for 'metrics'",
        ),
        ("GET", "?uid=xyz&type=metric", "", 400, "hexadecimal"),
        ("GET", "?uid=000002&type=metric", "", 404, "Could not find the requested UID"),
        ("POST", "", "{}", 400, "Missing UID"),
        ("POST", "", r#"{"uid":"000001"}"#, 400, "Missing type"),
        ("POST", "", r#"{"uid":"000001","type":"x"}"#, 400, "Unable to parse the given JSON"),
        ("POST", "", "{", 400, "Unable to parse the given JSON"),
        ("POST", "", "[]", 400, "Unable to parse the given JSON"),
        ("POST", "", r#"{"uid":"1","type":"tagk","notes":"n"}"#, 400, "Wrong id.length = 1"),
        ("POST", "", r#"{"uid":"zz","type":"tagk","notes":"n"}"#, 400, "hexadecimal"),
        ("PUT", "", r#"{"uid":"000002","type":"tagk","notes":"n"}"#, 404, "[0, 0, 2]"),
        ("PUT", "", r#"{"uid":"000001","type":"tagk"}"#, 304, ""),
        ("DELETE", "", "{}", 400, "Unable to delete UIDMeta information"),
        ("DELETE", "?type=tagk", "", 400, "Missing parameter <code>uid</code>"),
        ("OPTIONS", "", "", 405, ""),
    ] {
        daemon.check(method, &format!("{uri}{query}"), body, (status, text));
    }
    daemon.check("GET", "/api/uid/other", "", (501, ""));
}

#[test]
fn ts_meta_is_created_listed_and_deleted() {
    let daemon = MetaDaemon::start(&[]);
    daemon.put(["a", "b"].map(str::to_owned).into_iter());
    let uri = "/api/uid/tsmeta";
    let series = |host: &str| format!("m=sys.cpu%7Bhost={host},dc=lga%7D");
    let a = series("a");
    daemon.check("POST", &format!("{uri}?{a}"), r#"{"units":"s"}"#, (400, "create=true"));
    let create = format!("{uri}?{a}&create=true&units=s&max=0.1&retention=3");
    // Parameters have single precision, as in OpenTSDB.
    daemon.check(
        "POST",
        &create,
        "",
        (200, r#""retention":3,"max":0.10000000149011612,"min":"NaN""#),
    );
    daemon.check("POST", &format!("{uri}?{a}&create=true"), "{}", (304, ""));
    daemon.check(
        "POST",
        &format!("{uri}?{a}"),
        r#"{"notes":"中😀"}"#,
        (200, r#""notes":"中\uD83D\uDE00""#),
    );
    daemon.check(
        "PUT",
        &format!("{uri}?{}&create=true", series("b")),
        "{}",
        (200, r#""units":"""#),
    );
    let listed = daemon.json(&format!("{uri}?m=sys.cpu"));
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    let listed = daemon.json(&format!("{uri}?m=sys.cpu%7Bhost=a%7D"));
    assert_eq!((&listed[0]["units"], &listed[1]), (&json!("s"), &Value::Null), "{listed}");
    let tsuid = listed[0]["tsuid"].as_str().expect("a TSUID");
    let one = format!("{uri}?tsuid={tsuid}");
    assert_eq!(daemon.json(&one), listed[0]);
    let lower = one.to_ascii_lowercase();
    assert_eq!(daemon.json(&lower), listed[0], "digits of either case");
    daemon.check("DELETE", &one, "", (204, ""));
    daemon.check("DELETE", &one, "", (204, ""));
    daemon.check("GET", &one, "", (404, "Could not find Timeseries meta data"));
    let edit = format!(r#"{{"tsuid":"{tsuid}","notes":"n"}}"#);
    daemon.check("PUT", uri, &edit, (400, "Requested TSMeta did not exist"));
    let one_left = daemon.json(&format!("{uri}?m=sys.cpu"));
    assert_eq!(one_left.as_array().map(Vec::len), Some(1), "{one_left}");
}

#[test]
fn invalid_ts_meta_requests_have_opentsdbs_status() {
    let daemon = MetaDaemon::start(&[]);
    daemon.assign();
    let uri = "/api/uid/tsmeta";
    for (method, query, body, status, text) in [
        ("GET", "", "", 400, "Missing parameter <code>m</code>"),
        ("GET", "?tsuid=xy", "", 400, "hexadecimal"),
        ("GET", "?tsuid=", "", 400, "empty"),
        ("GET", "?tsuid=0001", "", 404, "Could not find Timeseries meta data"),
        ("GET", "?tsuid=000001000001000001", "", 404, "Could not find Timeseries meta data"),
        ("GET", "?m=other", "", 404, "Unable to find one of the UIDs"),
        ("GET", "?m=m%7Bhost=x%7D", "", 404, "Unable to find one of the UIDs"),
        ("GET", "?m=m%7Bhost", "", 400, ""),
        ("GET", "?m=m", "", 200, "[]"),
        ("POST", "", "{}", 400, "Missing parameter <code>m</code>"),
        ("POST", "", "{", 400, "Unable to parse the given JSON"),
        ("POST", "", r#"{"tsuid":"000001000001000001","max":"x"}"#, 400, "Unable to parse"),
        ("POST", "", r#"{"tsuid":"000001000001000001"}"#, 304, ""),
        ("POST", "", r#"{"tsuid":"000001000001000001","retention":0}"#, 304, ""),
        ("POST", "", r#"{"tsuid":"0001","notes":"n"}"#, 400, "TSUID"),
        ("POST", "", r#"{"tsuid":"00000100000100","notes":"n"}"#, 400, "TSUID"),
        ("POST", "", r#"{"tsuid":"xy","notes":"n"}"#, 400, "TSUID"),
        (
            "POST",
            "",
            r#"{"tsuid":"000001000001000009","notes":"n"}"#,
            404,
            "Unable to find one or more UIDs",
        ),
        ("POST", "?m=m%7Bhost=x%7D", r#"{"notes":"n"}"#, 400, "No such name for 'tagv': 'x'"),
        ("POST", "?m=m&create=true", r#"{"notes":"n"}"#, 400, "missing tags"),
        ("POST", "?tsuid=000001000001000001&max=x", "", 400, "Unable to parse 'max' value"),
        ("DELETE", "", "{}", 400, "Unable to delete TSMeta information"),
        ("DELETE", "?tsuid=zz", "", 400, "Unable to delete TSMeta information"),
    ] {
        daemon.check(method, &format!("{uri}{query}"), body, (status, text));
    }
}

#[test]
fn concurrent_edits_over_http_are_all_kept() {
    let daemon = MetaDaemon::start(&[]);
    daemon.put(std::iter::once("a".to_owned()));
    let series = "/api/uid/tsmeta?m=sys.cpu%7Bhost=a,dc=lga%7D";
    daemon.check("POST", &format!("{series}&create=true"), "{}", (200, ""));
    let fields = ["displayName", "description", "notes"];
    for round in 0..10 {
        thread::scope(|scope| {
            for field in fields {
                let daemon = &daemon;
                scope.spawn(move || {
                    let uid = format!(r#"{{"uid":"000001","type":"metric","{field}":"{round}"}}"#);
                    daemon.check("POST", "/api/uid/uidmeta", &uid, (200, ""));
                    let edit = format!(r#"{{"{field}":"{round}"}}"#);
                    daemon.check("POST", series, &edit, (200, ""));
                });
            }
        });
        let round = json!(round.to_string());
        let uid = daemon.json("/api/uid/uidmeta?uid=000001&type=metric");
        let listed = daemon.json("/api/uid/tsmeta?m=sys.cpu");
        for field in fields {
            assert_eq!((&uid[field], &listed[0][field]), (&round, &round), "{uid} {listed}");
        }
    }
}

#[test]
fn deletes_are_for_administrators_and_modes_restrict_the_rest() {
    let daemon = MetaDaemon::start(&[("tsd.core.admin.peers", "192.0.2.0/24")]);
    let edit = r#"{"uid":"000001","type":"metric","notes":"n"}"#;
    daemon.put(std::iter::once("a".to_owned()));
    daemon.check("POST", "/api/uid/uidmeta", edit, (200, ""));
    daemon.check("DELETE", "/api/uid/uidmeta", edit, (403, "Forbidden"));
    daemon.check(
        "DELETE",
        "/api/uid/tsmeta",
        r#"{"tsuid":"000001000001000001"}"#,
        (403, "Forbidden"),
    );
    drop(daemon);
    let daemon = MetaDaemon::start(&[("tsd.mode", "ro")]);
    daemon.check("POST", "/api/uid/uidmeta", edit, (404, "not allowed in ro mode"));
    daemon.check("PUT", "/api/uid/tsmeta", edit, (404, "not allowed in ro mode"));
    daemon.check("GET", "/api/uid/uidmeta?uid=000001&type=metric", "", (404, "Could not find"));
    drop(daemon);
    let daemon = MetaDaemon::start(&[("tsd.mode", "wo")]);
    daemon.check("GET", "/api/uid/tsmeta?m=m", "", (404, "not allowed in wo mode"));
}

#[test]
fn searches_page_through_many_series() {
    let daemon = MetaDaemon::start(&[
        ("tsd.core.meta.enable_tsuid_tracking", "true"),
        ("tsd.core.meta.enable_realtime_ts", "true"),
        ("tsd.core.meta.enable_realtime_uid", "true"),
    ]);
    daemon.put((0..300).map(|host| format!("web{host:03}")));
    let all = daemon.search_all("/api/search/tsuids?query=name:*&limit=0", 300);
    let all = all["results"].as_array().expect("results").clone();
    assert_eq!(all.len(), 300);
    let mut paged = Vec::new();
    for start in (0..300).step_by(70) {
        let uri = format!("/api/search/tsuids?query=host:web*&limit=70&start_index={start}");
        let page = daemon.json(&uri);
        assert_eq!((&page["startIndex"], &page["limit"]), (&json!(start), &json!(70)), "{page}");
        assert_eq!(page["totalResults"], 300, "{page}");
        paged.extend(page["results"].as_array().expect("results").clone());
    }
    assert_eq!(paged, all);
    let body = r#"{"query":"host:web10*","limit":3,"startIndex":9}"#;
    let (status, text) = daemon.send("POST", "/api/search/tsmeta_summary", body);
    assert_eq!(status, 200, "{text}");
    let page: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&page["type"], &page["totalResults"]), (&json!("TSMETA_SUMMARY"), &json!(10)));
    assert_eq!(page["results"].as_array().map(Vec::len), Some(1), "{page}");
    let tags = &page["results"][0]["tags"];
    assert!(tags["host"].as_str().is_some_and(|host| host.starts_with("web10")), "{page}");
    assert_eq!(tags["dc"], "lga", "{page}");
    let one = daemon.json("/api/search/tsmeta?query=host:web042");
    assert_eq!(one["results"][0]["metric"]["name"], "sys.cpu", "{one}");
    assert!(all.contains(&one["results"][0]["tsuid"]), "{one}");
    // 301 values, two keys and a metric.
    let names = daemon.search_all("/api/search/uidmeta?query=*&limit=1", 304);
    assert_eq!(names["results"].as_array().map(Vec::len), Some(1));
    daemon.search_all("/api/search/uidmeta?query=type:tagk&limit=1", 2);
    let none = daemon.json("/api/search/tsuids?query=host:web042%20host:web043");
    assert_eq!((&none["results"], &none["totalResults"]), (&json!([]), &json!(0)));
}

#[test]
fn annotations_are_found_by_their_texts() {
    let daemon = MetaDaemon::start(&[]);
    daemon.put(std::iter::once("a".to_owned()));
    for body in [
        r#"{"startTime":1356998400,"description":"Deploy one","custom":{"owner":"ops"}}"#,
        r#"{"startTime":1356998300,"tsuid":"000001000001000001000002000002","description":"deploy two"}"#,
        r#"{"startTime":1356998200,"notes":"rollback"}"#,
    ] {
        daemon.check("POST", "/api/annotation", body, (200, ""));
    }
    let found = daemon.json("/api/search/annotation?query=deploy");
    let texts: Vec<_> = (0..2).map(|at| &found["results"][at]["description"]).collect();
    assert_eq!(texts, ["deploy two", "Deploy one"], "{found}");
    assert_eq!(daemon.json("/api/search/annotation?query=owner:ops")["totalResults"], 1);
    assert_eq!(daemon.json("/api/search/annotation?query=notes:*")["totalResults"], 1);
}

#[test]
fn hostile_queries_are_answered_or_refused() {
    let daemon = MetaDaemon::start(&[]);
    daemon.put(std::iter::once("a".to_owned()));
    let long = "a".repeat(100_000);
    let create = "/api/uid/tsmeta?m=sys.cpu%7Bhost=a,dc=lga%7D&create=true";
    daemon.check("POST", create, &json!({"notes": long}).to_string(), (200, ""));
    let search = |query: &str| {
        daemon.send("POST", "/api/search/tsuids", &json!({"query": query}).to_string())
    };
    for (query, status) in [
        (format!("notes:{}b", "a*".repeat(2_000)), 200),
        ("*".repeat(4_000), 200),
        ("x ".repeat(64), 200),
        ("x ".repeat(65), 400),
        (long, 400),
        ("\"".to_owned(), 400),
        ("\\".to_owned(), 400),
        (":".to_owned(), 400),
        ("a:".to_owned(), 400),
        (" \t ".to_owned(), 400),
        (String::new(), 400),
        ("😀:\u{0}\u{202e}".to_owned(), 200),
    ] {
        let (found, body) = search(&query);
        assert_eq!(found, status, "{query:.40}: {body}");
    }
    for (method, uri, body, status, text) in [
        ("GET", "tsmeta", "", 400, "Missing parameter <code>query</code>"),
        ("GET", "tsmeta?query=x&limit=y", "", 400, "Unable to convert 'limit' to a valid number"),
        ("GET", "other?query=x", "", 400, "Invalid search query type supplied"),
        ("POST", "tsmeta", "{", 400, ""),
        ("PUT", "tsmeta?query=x", "", 405, ""),
        ("GET", "tsmeta?query=*&limit=-1&start_index=-5", "", 200, r#""totalResults":1"#),
        (
            "GET",
            "tsmeta?query=*&start_index=2147483647&limit=2147483647",
            "",
            200,
            r#""results":[]"#,
        ),
    ] {
        daemon.check(method, &format!("/api/search/{uri}"), body, (status, text));
    }
}

#[test]
fn searches_can_be_switched_off() {
    let daemon = MetaDaemon::start(&[("tsd.search.enable", "false")]);
    daemon.check("GET", "/api/search/tsuids?query=*", "", (400, "Searching is not enabled"));
    daemon.check("GET", "/api/search/lookup?m=*", "", (200, r#""results":[]"#));
}

#[test]
fn meta_objects_are_kept_in_hbase_beside_other_daemons() {
    let hbase = HBase::with_tables();
    let directory = in_process::directory();
    let daemons: Vec<Daemon> = ["a", "b"]
        .map(|name| hbase.daemon(&directory.path().join(name)).start())
        .into_iter()
        .collect();
    let send = |daemon: usize, method: &str, uri: &str, body: &str| {
        let body = Some(body).filter(|body| !body.is_empty());
        let response = http(daemons[daemon].address(), method, uri, body);
        assert!(response.status < 300, "{method} {uri} {body:?}: {}", response.body);
        response.body
    };
    let point = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;
    send(0, "POST", "/api/put", point);
    let series = "/api/uid/tsmeta?m=m%7Bhost=a%7D";
    send(0, "POST", &format!("{series}&create=true&units=s"), "");
    let send = &send;
    thread::scope(|scope| {
        for (daemon, field) in [(0, "notes"), (1, "description")] {
            scope.spawn(move || {
                for round in 0..20 {
                    let edit = format!(r#"{{"{field}":"{round}"}}"#);
                    send(daemon, "POST", series, &edit);
                    let id = r#""uid":"000001","type":"tagk""#;
                    let edit = format!(r#"{{{id},"{field}":"{round}"}}"#);
                    send(daemon, "POST", "/api/uid/uidmeta", &edit);
                }
            });
        }
    });
    let one = send(1, "GET", series, "");
    assert!(one.contains(r#""description":"19","notes":"19""#), "{one}");
    let name = send(0, "GET", "/api/uid/uidmeta?uid=000001&type=tagk", "");
    assert!(name.contains(r#""name":"host","description":"19","notes":"19""#), "{name}");
    send(0, "POST", "/api/annotation", r#"{"startTime":1356998400,"description":"deploy"}"#);
    for (uri, part) in [
        ("tsuids?query=host:a", r#""results":["000001000001000001"]"#),
        ("tsmeta?query=notes:19", r#""units":"s""#),
        ("uidmeta?query=name:h*", r#""name":"host""#),
        ("annotation?query=deploy", r#""startTime":1356998400"#),
    ] {
        let found = send(1, "GET", &format!("/api/search/{uri}"), "");
        assert!(found.contains(part), "{uri}: {found}");
    }
    let uid = |words: &[&str]| {
        let all = [&["uid"], words, &["--zkquorum", hbase.quorum()]].concat();
        let output = Command::new(TSDB).args(all).output().expect("run tsdb");
        assert!(output.status.success(), "{output:?}");
    };
    uid(&["metasync"]);
    let metric = send(0, "GET", "/api/uid/uidmeta?uid=000001&type=metric", "");
    assert!(metric.contains(r#""created":1356998400"#), "{metric}");
    uid(&["metapurge"]);
    assert_eq!(send(0, "GET", "/api/uid/tsmeta?m=m", ""), "[]");
    let none = send(1, "GET", "/api/search/uidmeta?query=*", "");
    assert!(none.contains(r#""totalResults":0"#), "{none}");
}

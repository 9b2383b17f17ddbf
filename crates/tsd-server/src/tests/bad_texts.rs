//! Issue 37, wrong words: no text in a request causes a 5xx.
//!
//! The tests generate requests: they replace each parameter and field of a valid request by every bad text.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tsd_engine::{EngineConfig, HistogramCodecs};

use super::{
    harness::{POINTS, Tsd, config, engine_config},
    rollups::rollups,
};
use crate::{ServerConfig, auth::requirement_table};

/// Texts that are wrong almost everywhere.
const TEXTS: &[&str] = &[
    "",
    " ",
    "\u{e9}\u{1f600}",
    "\0",
    "\u{1}\n\r\t\u{7f}",
    "\u{202e}\u{feff}",
    "\"",
    "\\",
    "{",
    "}",
    "{a=b=c}",
    "(",
    "[]",
    "null",
    "true",
    "NaN",
    "Infinity",
    "-",
    ".",
    "-1",
    "0",
    "1.5",
    "-1e999",
    "0x10",
    "2147483648",
    "4294967296",
    "9223372036854775808",
    ":",
    "=",
    ",",
    "|",
    "*",
    "%",
    "../../etc/passwd",
    "nowhere",
    "1x-ago",
    "2013/99/99-99:99:99",
    "000001",
    "zz",
    "ffffffffffffffffff",
];

/// Series and patterns that are wrong.
const SERIES: &[&str] = &[
    "{{{{",
    "}}}}",
    "a{a=}",
    "a{=a}",
    ":::::::",
    "sum:nowhere",
    "nope:m",
    "sum:m{host=regexp(()}",
    "sum:m{host=regexp(^(?!XG).*)}",
    "sum:m{host=regexp(a{9999}{9999})}",
    "sum:m{host=wildcard(a)}",
    "sum:m{host=nope(a)}",
    "sum:m{host=a",
    "sum:m{host=a}{",
    "sum:m{host}",
    "sum::m",
    "sum:percentiles[x]:m",
    "sum:percentiles[]:m",
    "sum:percentiles[50]:m",
    "sum:percentiles[101]:m",
    "sum:rate{counter,x}:m",
    "sum:0m-avg:m",
    "sum:1.5mc-avg:m",
    "sum:1m-nope:m",
    "sum:pre-agg:m",
    "scale(sum:m,x)",
    "scale(sum:m",
    "nope(sum:m)",
    "scale(sum:nowhere,2)",
];

/// Parameters and fields that name series or patterns.
const NAMES_OF_SERIES: &[&str] =
    &["m", "exp", "expr", "tsuid", "tsuids", "timeseries", "query", "regex", "match", "filter"];

/// Each field gets every third text, and the next field gets others.
const FIELD_STEP: usize = 3;

/// Values of fields, besides [`TEXTS`].
fn other_values() -> Vec<Value> {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
        json!([]),
        json!({}),
        json!([null]),
        json!([[]]),
        json!({"a": {"b": []}}),
        json!({"": null}),
        deep,
        json!("x".repeat(70_000)),
    ]
}

/// Bodies that are not the expected JSON.
fn bodies() -> Vec<Vec<u8>> {
    let some = TEXTS.iter().step_by(FIELD_STEP);
    let mut bodies: Vec<Vec<u8>> = some.map(|text| text.as_bytes().to_vec()).collect();
    for text in [
        "[null]",
        "[[]]",
        "[{}]",
        "{\"a\":1}{\"b\":2}",
        "{\"a\":",
        "[1,",
        "{\"a\" 1}",
        "1",
        "\"x\"",
    ] {
        bodies.push(text.as_bytes().to_vec());
    }
    bodies.push(b"{\"start\":\"\xff\"}".to_vec());
    bodies.push("[".repeat(200_000).into_bytes());
    bodies.push(format!("{{\"metric\":\"{}\"}}", "x".repeat(200_000)).into_bytes());
    bodies
}

/// Valid parameters of URIs, without numbers that make requests expensive.
const URIS: &[&str] = &[
    "/api/query?start=1356998400&end=1356998500&m=sum:1m-avg:rate{counter,1,2}:m{host=*}&tsuid=sum:000001000001000001000002000002&timezone=UTC&show_query=true&arrays=true&ms=true&global_annotations=true",
    "/api/query?start=1356998400&end=1356998500&exp=scale(sum:m,2)&explain=x",
    "/api/query/gexp?start=1356998400&end=1356998500&exp=scale(sum:m{host=*},2)&show_query=true&timezone=UTC",
    "/api/query/exp?timezone=UTC",
    "/api/query/last?timeseries=m{host=a,dc=x}&tsuids=000001000001000001000002000002&back_scan=1&resolve=true",
    "/api/suggest?type=metrics&q=m&max=10",
    "/suggest?type=metrics&q=m&max=10",
    "/api/search/lookup?m=m{host=*}&limit=10&start_index=0&use_meta=false&start=1&end=2",
    "/api/search/tsmeta?query=m:*&limit=10&start_index=0",
    "/api/search/uidmeta?query=m:*&limit=10&start_index=0",
    "/api/search/annotation?query=m&limit=10&start_index=0",
    "/api/uid/assign?metric=m1&tagk=k1&tagv=v1",
    "/api/uid/rename?metric=n&name=n2",
    "/api/uid/list?type=metric&name=m&uid=000001&match=m&limit=10&after=m",
    "/api/uid/list?match=m&limit=10&after=m",
    "/api/uid/uidmeta?uid=000001&type=metric&display_name=x&description=x&notes=x&method_override=post",
    "/api/uid/uidmeta?uid=000001&type=metric",
    "/api/uid/tsmeta?tsuid=000001000001000001000002000002&retention=1&max=1&min=1&data_type=x&units=x&method_override=put",
    "/api/uid/tsmeta?tsuid=000001000001000001000002000002",
    "/api/uid/tsmeta?m=m{host=a}&create=true&display_name=x&method_override=post",
    "/api/annotation?start_time=1356998400&end_time=1356998500&tsuid=000001000001000001000002000002&description=x&notes=y&method_override=post",
    "/api/annotation?start_time=1356998400&tsuid=000001000001000001000002000002&method_override=delete",
    "/api/annotations?start_time=1356998400&end_time=1356998500",
    "/api/annotation/bulk?start_time=1356998400&end_time=1356998500&tsuids=000001000001000001000002000002&global=true&method_override=delete",
    "/api/tree?treeid=1&name=t&description=x&notes=y&enabled=true&strict_match=true&store_failures=true&definition=x&method_override=put",
    "/api/tree/rule?treeid=1&level=0&order=0&type=tagk&field=host&custom_field=x&regex=(.*)&regex_group_idx=1&separator=x&description=x&notes=y&display_format={ovalue}&method_override=post",
    "/api/tree/rules?treeid=1&method_override=delete",
    "/api/tree/branch?branch=0001&treeid=1",
    "/api/tree/test?treeid=1&tsuids=000001000001000001000002000002",
    "/api/tree/collisions?treeid=1&tsuids=000001000001000001000002000002",
    "/api/tree/notmatched?treeid=1&tsuids=000001000001000001000002000002",
    "/api/stats/cardinality?metric=m&limit=3",
    "/api/stats/query?format=x&text=x&id=1",
    "/api/config?x=y",
    "/api/put?details=true&summary=true&sync=true&sync_timeout=10",
    "/api/version?jsonp=f&serializer=json",
    "/q?start=1356998400&end=1356998500&m=sum:m&o=axis x1y1&json=true&tz=UTC",
    "/q?start=1356998400&end=1356998500&m=sum:m&ascii=true",
    "/q?start=1356998400&end=1356998500&m=sum:m&png=true&wxh=60x60&yrange=[0:9]&y2range=[0:9]&ylabel=a&y2label=b&yformat=%25g&y2format=%25g&ylog=1&y2log=1&title=t&key=out&bgcolor=x000000&fgcolor=xffffff&smooth=csplines&style=linespoint",
    "/logs?level=INFO&logger=tsd_engine&json=true",
    "/stats?json=true",
    "/version?json=true",
    "/aggregators?json=true",
    "/s/x?y=z",
];

/// Valid bodies with their methods and endpoints.
#[expect(clippy::too_many_lines, reason = "one table")]
fn valid_bodies() -> Vec<(Method, &'static str, Value)> {
    let tsuid = "000001000001000001000002000002";
    let point =
        json!({"metric": "m", "timestamp": 1_356_998_400, "value": 1, "tags": {"host": "a"}});
    let with = |fields: Value| {
        let mut point = point.clone();
        point.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        point
    };
    let rule = json!({"treeId": 1, "level": 0, "order": 0, "type": "TAGK", "field": "host",
        "customField": "x", "regex": "(.*)", "regexGroupIdx": 0, "separator": "x",
        "description": "x", "notes": "x", "displayFormat": "{ovalue}"});
    let note = json!({"startTime": 1_356_998_400, "endTime": 1_356_998_500, "tsuid": tsuid,
        "description": "x", "notes": "y", "custom": {"a": "b"}});
    let search = json!({"query": "m:*", "metric": "m", "tags": [{"key": "host", "value": "*"}],
        "limit": 10, "startIndex": 0, "useMeta": false, "start": 1, "end": 2, "skipUnnamed": true});
    let post = Method::POST;
    vec![
        (post.clone(), "/api/put?details", json!([point, with(json!({"value": "1.5"}))])),
        (post.clone(), "/api/put?sync&summary", point.clone()),
        (
            post.clone(),
            "/api/rollup?details",
            with(json!({"interval": "1h", "aggregator": "SUM",
            "groupByAggregator": "MAX", "isGroupBy": true})),
        ),
        (
            post.clone(),
            "/api/histogram?details",
            with(json!({"value": null, "id": 42,
            "buckets": {"0,1": 1}, "underflow": 1, "overflow": 1})),
        ),
        (
            post.clone(),
            "/api/query",
            json!({"start": 1_356_998_400, "end": 1_356_998_500, "timezone": "UTC",
            "useCalendar": true, "padding": true, "msResolution": true, "showQuery": true,
            "globalAnnotations": true, "noAnnotations": false, "showTSUIDs": true, "showSummary": true,
            "showStats": true, "delete": false,
            "queries": [{"metric": "m", "aggregator": "sum", "downsample": "1m-avg", "rate": true,
                "rateOptions": {"counter": true, "counterMax": 9, "resetValue": 1, "dropResets": true},
                "filters": [{"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true}],
                "tags": {"dc": "x"}, "explicitTags": true, "preAggregate": true, "rollupUsage": "ROLLUP_RAW"},
                {"aggregator": "sum", "tsuids": [tsuid]},
                {"aggregator": "sum", "metric": "m", "percentiles": [50], "showHistogramBuckets": true}]}),
        ),
        (
            post.clone(),
            "/api/query/last",
            json!({"queries": [{"metric": "m", "tags": {"host": "a", "dc": "x"}},
            {"tsuids": [tsuid]}], "resolveNames": true, "backScan": 1}),
        ),
        (
            post.clone(),
            "/api/query/gexp",
            json!({"start": 1_356_998_400, "end": 1_356_998_500,
            "exp": ["scale(sum:m{host=*},2)"], "timezone": "UTC"}),
        ),
        (
            post.clone(),
            "/api/query/exp",
            json!({"name": "x", "time": {"start": "1356998400", "end": "1356998500",
            "aggregator": "sum", "downsampler": {"interval": "1m", "aggregator": "avg",
            "fillPolicy": {"policy": "nan", "value": "NaN"}}, "timezone": "UTC", "rate": false},
            "filters": [{"id": "f", "tags": [{"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true}],
                "explicitTags": false}],
            "metrics": [{"id": "a", "metric": "m", "filter": "f", "aggregator": "sum", "timeOffset": "0",
                "fillPolicy": {"policy": "zero"}}],
            "expressions": [{"id": "e", "expr": "a * 2", "join": {"operator": "union", "useQueryTags": false,
                "includeAggTags": true}, "fillPolicy": {"policy": "nan"}}],
            "outputs": [{"id": "e", "alias": "x"}]}),
        ),
        (post.clone(), "/api/suggest", json!({"type": "metrics", "q": "m", "max": 10})),
        (post.clone(), "/api/search/lookup", search.clone()),
        (post.clone(), "/api/search/tsmeta", search.clone()),
        (post.clone(), "/api/search/annotation", search),
        (
            post.clone(),
            "/api/uid/assign",
            json!({"metric": ["m3"], "tagk": ["k3"], "tagv": ["v3"]}),
        ),
        (post.clone(), "/api/uid/rename", json!({"metric": "n", "name": "n3"})),
        (
            post.clone(),
            "/api/uid/uidmeta",
            json!({"uid": "000001", "type": "METRIC", "displayName": "x",
            "description": "x", "notes": "x", "created": 1, "custom": {"a": "b"}}),
        ),
        (
            post.clone(),
            "/api/uid/tsmeta",
            json!({"tsuid": tsuid, "displayName": "x", "description": "x",
            "notes": "x", "created": 1, "units": "x", "dataType": "x", "retention": 1, "max": 1.5, "min": "NaN",
            "custom": {"a": "b"}}),
        ),
        (post.clone(), "/api/annotation", note.clone()),
        (Method::DELETE, "/api/annotation", note.clone()),
        (post.clone(), "/api/annotation/bulk", json!([note])),
        (
            Method::DELETE,
            "/api/annotation/bulk",
            json!({"startTime": 1, "endTime": 2, "global": true,
            "tsuids": [tsuid]}),
        ),
        (
            post.clone(),
            "/api/tree",
            json!({"treeId": "1", "name": "x", "description": "x", "notes": "x",
            "enabled": "true", "strictMatch": "true", "storeFailures": "true"}),
        ),
        (post.clone(), "/api/tree/rule", rule.clone()),
        (post.clone(), "/api/tree/rules", json!([rule])),
        (post.clone(), "/api/tree/test", json!({"treeId": 1, "tsuids": [tsuid]})),
        (post.clone(), "/api/verify", json!({"repair": false})),
        (post.clone(), "/api/snapshot", json!({"target": "/nonexistent/x", "allowDamage": false})),
        (post, "/api/quarantine", json!({"file": "x", "accept": true})),
    ]
}

/// Replaces each value within a document, and the document itself, by each bad value.
fn each_field(document: &Value, mut visit: impl FnMut(&Value)) {
    let mut pointers = vec![String::new()];
    let mut at = 0;
    while let Some(pointer) = pointers.get(at).cloned() {
        at += 1;
        match document.pointer(&pointer).unwrap() {
            Value::Object(fields) => {
                pointers.extend(fields.keys().map(|key| format!("{pointer}/{key}")));
            }
            Value::Array(list) => {
                pointers.extend((0..list.len()).map(|index| format!("{pointer}/{index}")));
            }
            _ => {}
        }
    }
    let others = other_values();
    for (at, pointer) in pointers.iter().enumerate() {
        let name = pointer.rsplit('/').next().unwrap_or_default();
        let texts = TEXTS.iter().skip(at % FIELD_STEP).step_by(FIELD_STEP);
        let series = SERIES.iter().filter(|_| NAMES_OF_SERIES.contains(&name));
        let texts = texts.chain(series).map(|text| json!(text));
        for value in texts.chain(others.iter().cloned()) {
            let mut changed = document.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            visit(&changed);
        }
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// URIs with at most one bad parameter.
fn bad_uris() -> Vec<String> {
    let long = "x".repeat(2_000);
    let mut uris = Vec::new();
    for uri in URIS {
        let (path, query) = uri.split_once('?').unwrap();
        let parameters: Vec<(&str, String)> = query
            .split('&')
            .map(|parameter| parameter.split_once('=').unwrap())
            .map(|(name, value)| (name, encoded(value)))
            .collect();
        let joined = |at: usize, bad: Option<&str>| {
            let texts = parameters.iter().enumerate().filter_map(|(index, (name, value))| {
                let value = if index == at { bad? } else { value };
                Some(format!("{name}={value}"))
            });
            format!("{path}?{}", texts.collect::<Vec<_>>().join("&"))
        };
        for (at, (name, _)) in parameters.iter().enumerate() {
            uris.push(joined(at, None));
            let series = SERIES.iter().filter(|_| NAMES_OF_SERIES.contains(name));
            uris.extend(TEXTS.iter().chain(series).map(|text| joined(at, Some(&encoded(text)))));
            uris.extend([&*long, "%zz", "%ff%fe", "%"].map(|text| joined(at, Some(text))));
        }
        uris.push(joined(parameters.len(), None));
    }
    uris
}

/// Sends requests on one connection after the other, and collects failures.
struct Sender {
    tsd: Tsd,
    connection: Option<http1::SendRequest<Full<Bytes>>>,
    sent: usize,
    failures: Vec<String>,
}

impl Sender {
    async fn send(&mut self, method: &Method, uri: &str, body: Vec<u8>) {
        self.sent += 1;
        let shown = String::from_utf8_lossy(&body).chars().take(300).collect::<String>();
        let Ok(request) =
            Request::builder().method(method).uri(uri).header("host", "test").body(body.into())
        else {
            return;
        };
        let mut open = self.connection.take();
        if let Some(connection) = &mut open
            && connection.ready().await.is_err()
        {
            open = None;
        }
        let mut connection = if let Some(connection) = open {
            connection
        } else {
            let io = TokioIo::new(self.tsd.connect().await);
            let (connection, driver) = http1::handshake(io).await.unwrap();
            tokio::spawn(driver);
            connection
        };
        let (head, body) = connection.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes);
        // OpenTSDB has 501 for sub paths that do not exist.
        let is_failure = head.status.as_u16() >= 500 && head.status != StatusCode::NOT_IMPLEMENTED;
        if is_failure || body.is_err() {
            let body = String::from_utf8_lossy(&body.unwrap_or_default())
                .chars()
                .take(300)
                .collect::<String>();
            self.failures.push(format!("{} {body}\n    {method} {uri} {shown}", head.status));
        }
        self.connection = Some(connection);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_text_of_a_request_is_a_failure_of_the_daemon() {
    let engine = EngineConfig {
        rollups: Some(rollups()),
        histograms: Some(HistogramCodecs::simple(42)),
        ..engine_config()
    };
    let tsd = Tsd::start_with(ServerConfig { allow_delete: true, ..config() }, engine).await;
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    assert_eq!(tsd.post("/api/tree?name=t", "").await.status, 200);
    let mut sender = Sender { tsd, connection: None, sent: 0, failures: Vec::new() };
    for uri in bad_uris() {
        sender.send(&Method::GET, &uri, Vec::new()).await;
    }
    for (method, uri, document) in valid_bodies() {
        let mut bodies = Vec::new();
        each_field(&document, |changed| bodies.push(changed.to_string().into_bytes()));
        for body in bodies {
            sender.send(&method, uri, body).await;
        }
    }
    for (path, ..) in requirement_table::paths() {
        // These stop the daemon.
        if ["/diediedie", "/api/cluster/drain"].contains(&path.as_str()) {
            continue;
        }
        for body in bodies() {
            for method in [Method::POST, Method::PUT, Method::DELETE] {
                sender.send(&method, &path, body.clone()).await;
            }
        }
    }
    let Sender { tsd, sent, failures, .. } = sender;
    assert!(sent > 10_000, "{sent} requests");
    assert!(failures.is_empty(), "{} of {sent}\n{}", failures.len(), failures.join("\n"));
    let stats = tsd.get("/stats").await.text();
    let failed = stats.lines().find(|line| line.contains("http.query.exceptions")).unwrap();
    assert!(failed.contains(" 0 "), "{failed}");
}

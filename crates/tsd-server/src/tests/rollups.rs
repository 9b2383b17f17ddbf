use hyper::Method;
use serde_json::json;
use tsd_engine::{EngineConfig, Rollups};
use tsd_model::RollupConfig;
use tsd_storage::{Fault, Operation, Scan, Storage, StorageError, Table};

use super::harness::{Tsd, config, engine_config};
use crate::{ServerConfig, ServerMode};

const CONFIG: &str = r#"{"aggregationIds":{"sum":0,"count":1,"avg":42},"intervals":[
    {"table":"tsdb","preAggregationTable":"agg","interval":"1m","rowSpan":"1h","defaultInterval":true},
    {"table":"r1h","preAggregationTable":"a1h","interval":"1h","rowSpan":"1n"}]}"#;

pub(super) fn rollups() -> Rollups {
    Rollups::new(RollupConfig::from_json(CONFIG.as_bytes(), |_| true).unwrap())
}

fn with(rollups: Rollups) -> EngineConfig {
    EngineConfig { rollups: Some(rollups), ..engine_config() }
}

/// Cells of a table: row, qualifier, value.
async fn cells(tsd: &Tsd, table: &str) -> Vec<String> {
    tsd.engine.drain_writes().await;
    let mut scanner = tsd.storage.scan(&Table::new(table), Scan::default());
    let mut cells = Vec::new();
    while let Some(rows) = scanner.next_rows().await.unwrap() {
        for row in rows {
            for cell in &row.cells {
                let parts = [&row.key, &cell.qualifier, &cell.value];
                cells.push(parts.map(|part| tsd_model::to_hex(part)).join(" "));
            }
        }
    }
    cells
}

#[tokio::test]
async fn valid_lines_have_no_reply_and_are_stored_in_their_tables() {
    let tsd = Tsd::start_with(config(), with(rollups())).await;
    let lines = "rollup 1h-sum m 1370532925 42 host=a\n\
                 rollup 1h-COUNT:max m 1370532925 42 host=a\n\
                 rollup sum m 1370532925 42.5 host=a\n\
                 rollup sum m 1370532926 1 host=a _aggregate=sum\n";
    // The second time, the series are cached.
    for _ in 0..2 {
        assert_eq!(tsd.exchange(lines.as_bytes()).await, "");
    }
    assert_eq!(cells(&tsd, "r1h").await, ["00000151A93980000001000001 000870 2A"]);
    assert_eq!(cells(&tsd, "a1h").await, ["00000151A93980000001000001000002000002 010870 2A"]);
    assert_eq!(
        cells(&tsd, "agg").await,
        [
            "00000151B0A3F0000001000001000002000003 84DB 422A0000",
            "00000151B0A3F0000001000001000002000003 84E0 01",
        ]
    );
}

#[tokio::test]
async fn the_echo_names_the_rollups_that_were_read() {
    let tsd = Tsd::start_with(config(), with(rollups())).await;
    let lines = "rollup 1h-sum m 1370532925 42 host=a\nput m 1370532925 1 host=a\n";
    assert_eq!(tsd.exchange(lines.as_bytes()).await, "");
    tsd.engine.drain_writes().await;
    for (sub, table) in [("1h-sum:m", "1h"), ("2h-sum:m", "1h"), ("1m-sum:m", "raw"), ("m", "raw")]
    {
        let uri = format!("/api/query?start=1370520000&end=1370540000&show_query&m=sum:{sub}");
        let response = tsd.get(&uri).await;
        assert_eq!(response.json()[0]["query"]["rollupTable"], table, "{}", response.text());
    }
    // Filters of series named by TSUID are not resolved.
    let body = json!({
        "start": 1_370_530_000, "end": 1_370_540_000, "showQuery": true,
        "queries": [{
            "aggregator": "sum", "tsuids": ["000001000001000001"],
            "filters": [{"tagk": "host", "type": "wildcard", "filter": "*"}],
        }],
    });
    let response = tsd.post("/api/query", &body.to_string()).await;
    assert_eq!(response.json()[0]["query"]["filterTagKs"], json!([]), "{}", response.text());
}

#[tokio::test]
async fn each_bad_line_gets_its_reply() {
    let tsd = Tsd::start_with(config(), with(rollups())).await;
    let cases = [
        ("rollup", "illegal argument: not enough arguments (need least 7, got 0)"),
        ("rollup 1h-sum m 1 1", "illegal argument: not enough arguments (need least 7, got 4)"),
        ("rollup  m 1 1 a=b", "illegal argument: Missing interval or aggregator"),
        ("rollup 1h-sum  1 1 a=b", "illegal argument: empty metric name"),
        ("rollup 1h-sum m x 1 a=b", "invalid value: Invalid character 'x' in x"),
        ("rollup 1h-sum m 0 1 a=b", "illegal argument: invalid timestamp: 0"),
        ("rollup 1h-sum m 1  a=b", "illegal argument: empty value"),
        ("rollup 1h-sum m 1 1 a", "illegal argument: invalid tag: a"),
        ("rollup 1h-sum m 1 x a=b", "invalid value: Invalid character 'x' in x"),
        (
            "rollup 1h-sum m 1 1e999 a=b",
            "illegal argument: value is NaN or Infinite: Infinity for metric=m timestamp=1",
        ),
        (
            "rollup 1h-sum m 1370532925123 42 host=a",
            "illegal argument: bad timestamp=1370532925123 when trying to add value=[42]/0 to \
             metric=m, tags={host=a}",
        ),
        (
            "rollup 1h-sum m! 1 1 a=b",
            "illegal argument: Invalid metric name (\"m!\"): illegal character: !",
        ),
        ("rollup 5m-sum m 1 1 a=b", "No such rollup: No rollups configured for the interval: 5m"),
        ("rollup 1h-last m 1 1 a=b", "illegal argument: No ID found mapping to aggregator: last"),
        (
            "rollup nope m 1 1 a=b",
            "illegal argument: Invalid group by aggregator nope with metric m {a=b, _aggregate=NOPE}",
        ),
        (
            "rollup 1h-avg m 1 1 a=b",
            "illegal argument: Derived rollup aggregations are not allowed AVG with metric m {a=b}",
        ),
        (
            "rollup 1h-sum:dev m 1 1 a=b",
            "illegal argument: Derived group by aggregations are not allowed dev with metric m \
             {a=b, _aggregate=DEV}",
        ),
        (
            "rollup sum m 1 1 a=b _aggregate=max",
            "illegal argument: Given tag value for _aggregate of max did not match the group by \
             aggregator of sum for m {a=b, _aggregate=max}",
        ),
    ];
    let sent: String = cases.iter().map(|(line, _)| format!("{line}\n")).collect();
    let replies = tsd.exchange(sent.as_bytes()).await;
    let expected: Vec<String> = cases.iter().map(|(_, text)| format!("rollup: {text}")).collect();
    assert_eq!(replies.lines().collect::<Vec<_>>(), expected);
    assert_eq!(cells(&tsd, "tsdb-uid").await, [""; 0], "no name was created");
}

#[tokio::test]
async fn without_configuration_every_line_is_refused() {
    let tsd = Tsd::start().await;
    let sent = "rollup 1h-sum m 1 1 a=b\nrollup 1h-sum:max m 1 1 a=b\nrollup sum m 1 1 a=b\n\
                rollup sum m 0 1 a=b\n";
    assert_eq!(
        tsd.exchange(sent.as_bytes()).await,
        "rollup: illegal argument: No rollup or aggregations were configured\n\
         rollup: illegal argument: No rollup or aggregations were configured\n\
         rollup: illegal argument: Invalid tag name with value [SUM]: null\n\
         rollup: illegal argument: invalid timestamp: 0\n"
    );
    let body = r#"[{"metric":"m","timestamp":1,"value":1,"tags":{"a":"b"},"interval":"1h","aggregator":"sum"},
        {"metric":"m","timestamp":1,"value":1,"tags":{"a":"b"},"groupByAggregator":"sum"}]"#;
    let reply = tsd.post("/api/rollup?details", body).await.json();
    assert_eq!(reply["errors"][0]["error"], "No rollup or aggregations were configured");
    assert_eq!(reply["errors"][1]["error"], "Invalid tag name with value [SUM]: null");
}

#[tokio::test]
async fn late_failures_name_their_command() {
    let mut engine = with(rollups());
    engine.uids.auto_create_metrics = false;
    let tsd = Tsd::start_with(config(), engine).await;
    assert_eq!(
        tsd.exchange(b"rollup 1h-sum m 1 1 a=b\n").await,
        "rollup: unknown metric: No such name for 'metrics': 'm'\n"
    );
    tsd.get("/api/uid/assign?metric=m").await;
    tsd.storage.script(Operation::Put, [Fault::Error(StorageError::Rejected("too large".into()))]);
    assert_eq!(
        tsd.exchange(b"rollup 1h-sum m 1 1 a=b\n").await,
        "rollup: HBase error: too large\n"
    );
}

#[tokio::test]
async fn bodies_are_stored_and_acknowledged_like_put() {
    let tsd = Tsd::start_with(config(), with(rollups())).await;
    let point = |more: &str| {
        format!(r#"{{"metric":"m","timestamp":1370532925,"value":42,"tags":{{"host":"a"}}{more}}}"#)
    };
    let hourly = point(r#","interval":"1h","aggregator":"SUM""#);
    let grouped = point(r#","groupByAggregator":"SUM""#);
    for _ in 0..2 {
        assert_eq!(tsd.post("/api/rollup", &hourly).await.line(), "204 ");
        assert_eq!(
            tsd.post("/api/rollup?details&sync", &format!("[{hourly},{grouped}]")).await.line(),
            r#"200 {"success":2,"failed":0,"errors":[]}"#
        );
    }
    assert_eq!(cells(&tsd, "r1h").await, ["00000151A93980000001000001 000870 2A"]);
    assert_eq!(cells(&tsd, "agg").await, ["00000151B0A3F0000001000001000002000002 84D0 2A"]);

    let cases = [
        (point(""), "Missing interval"),
        (point(r#","aggregator":"SUM""#), "Missing interval"),
        (point(r#","interval":"1h""#), "Missing aggregator"),
        (
            // Issue 37: the text ended before the reason, as in OpenTSDB.
            point(r#","interval":"5m","aggregator":"sum""#),
            "Unexpected exception: No rollups configured for the interval: 5m",
        ),
        (
            point(r#","interval":"1h","aggregator":"last""#),
            "No ID found mapping to aggregator: last",
        ),
        (
            point(r#","interval":"1h","aggregator":"avg""#),
            "Derived rollup aggregations are not allowed AVG with metric m {host=a}",
        ),
        (
            point(r#","groupByAggregator":"nope""#),
            "Invalid group by aggregator nope with metric m {_aggregate=NOPE, host=a}",
        ),
        (r#"{"timestamp":1,"value":1,"tags":{"a":"b"}}"#.into(), "Metric name was empty"),
        (r#"{"metric":"m","value":1,"tags":{"a":"b"}}"#.into(), "Invalid timestamp"),
        (r#"{"metric":"m","timestamp":1,"tags":{"a":"b"}}"#.into(), "Empty value"),
        (r#"{"metric":"m","timestamp":1,"value":1}"#.into(), "Missing tags"),
        ("null".into(), "Unexpected null datapoint encountered in set."),
        (hourly.replace(":42", r#":"x1""#), "Unable to parse value to a number"),
        (
            hourly.replace("1370532925", "1370532925123"),
            "bad timestamp=1370532925123 when trying to add value=[42]/0 to metric=m, tags={host=a}",
        ),
        (
            hourly.replace(r#""host":"a""#, r#""host":"a!""#),
            "Invalid tag value with key [host] (\"a!\"): illegal character: !",
        ),
    ];
    for (point, text) in cases {
        let answer = tsd.post("/api/rollup?details", &format!("[{hourly},{point}]")).await;
        assert_eq!(answer.status, 400, "{point}");
        let reply = answer.json();
        assert_eq!((&reply["success"], &reply["failed"]), (&json!(1), &json!(1)), "{point}");
        assert_eq!(reply["errors"][0]["error"], text, "{point}");
    }
    let odd = point(r#","aggregator":"SUM","groupByAggregator":null,"x":[{}]"#);
    assert_eq!(
        tsd.post("/api/rollup?details", &odd).await.line(),
        r#"400 {"success":0,"failed":1,"errors":[{"datapoint":{"metric":"m","timestamp":1370532925,"value":"42","tags":{"host":"a"},"aggregator":"SUM"},"error":"Missing interval"}]}"#
    );
}

#[tokio::test]
async fn raw_tags_other_keys_and_derived_aggregators_are_settings() {
    let settings = Rollups {
        aggregate_tag_key: "agg".into(),
        raw_tag_value: "none".into(),
        tag_raw: true,
        block_derived: false,
        ..rollups()
    };
    let tsd = Tsd::start_with(config(), with(settings)).await;
    let lines = b"rollup 1h-sum m 1370532925 42 host=a\nrollup 1h-sum:avg m 1370532925 42 host=a\n\
                  rollup 1h-sum m 1 1 host=a agg=x\n";
    assert_eq!(
        tsd.exchange(lines).await,
        "rollup: illegal argument: Given tag value for agg of x did not match the group by \
         aggregator of null for m {agg=x, host=a}\n"
    );
    assert_eq!(cells(&tsd, "r1h").await.len(), 1);
    assert_eq!(cells(&tsd, "a1h").await.len(), 1);
    assert_eq!(tsd.get("/api/suggest?type=tagv").await.line(), r#"200 ["AVG","a","none"]"#);
}

#[tokio::test]
async fn full_engine_responds_503_to_rollups() {
    let tsd = Tsd::start_with(config(), with(rollups())).await;
    let body = r#"{"metric":"m","timestamp":1,"value":1,"tags":{"a":"b"},"interval":"1h","aggregator":"sum"}"#;
    assert_eq!(tsd.post("/api/rollup", body).await.status, 204);
    let fault = || [Fault::Error(StorageError::Timeout("test"))];
    tsd.storage.script(Operation::Put, fault());
    let answer = tsd.post("/api/rollup", body).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    tsd.storage.script(Operation::Put, fault());
    let answer = tsd.post("/api/rollup?sync&details", body).await;
    assert_eq!((answer.status, &answer.json()["failed"]), (200, &json!(1)));
}

#[tokio::test]
async fn only_posts_to_a_writing_daemon_are_taken() {
    let tsd = Tsd::start_with(config(), with(rollups())).await;
    let rejected = tsd.send(Method::PUT, "/api/rollup", &[], "x").await;
    assert_eq!(rejected.status, 405);
    assert_eq!(tsd.post("/api/rollup", "").await.status, 400);
    assert_eq!(
        tsd.post("/api/rollup", "7").await.line(),
        r#"400 {"error":{"code":400,"message":"The JSON must start as an object or an array"}}"#
    );
    assert_eq!(
        tsd.post("/api/rollup", "[]").await.line(),
        r#"400 {"error":{"code":400,"message":"No datapoints found in content"}}"#
    );
    let read_only = ServerConfig { mode: ServerMode::ReadOnly, ..config() };
    let tsd = Tsd::start_with(read_only, with(rollups())).await;
    assert_eq!(tsd.post("/api/rollup", "x").await.status, 404);
}

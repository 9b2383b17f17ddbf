use hyper::Method;
use serde_json::json;
use tsd_engine::{EngineConfig, HistogramCodecs};
use tsd_storage::{Fault, Get, Operation, Storage, StorageError, Table};

use super::harness::{Tsd, config, engine_config};
use crate::ServerConfig;

const GOOD: &str = r#"{"metric":"m","timestamp":1356998400,"tags":{"host":"a"},"id":42,"buckets":{"0,1":42,"1,5":24},"overflow":1}"#;
const STORED: &str = "060000 2A0002000000003F8000002A3F80000040A00000180001";

fn with_codec() -> EngineConfig {
    EngineConfig { histograms: Some(HistogramCodecs::simple(42)), ..engine_config() }
}

/// Cells of the first hour of the first series: qualifier, value.
async fn cells(tsd: &Tsd) -> Vec<String> {
    tsd.engine.drain_writes().await;
    let row = tsd_model::from_hex(b"00000150E22700000001000001").unwrap();
    let row = tsd.storage.get(&Table::new("tsdb"), Get::row(row.into())).await.unwrap();
    let cells = row.map(|row| row.cells).unwrap_or_default();
    cells
        .iter()
        .map(|cell| [&cell.qualifier, &cell.value].map(|part| tsd_model::to_hex(part)).join(" "))
        .collect()
}

#[tokio::test]
async fn valid_lines_have_no_reply() {
    let tsd = Tsd::start_with(config(), with_codec()).await;
    let lines = "histogram m 1356998400 u=0:o=1:0,1=42:1,5=24 host=a\n\
                 histogram m 1356998400 42 AAIAAAAAP4AAACo/gAAAQKAAABgAAQ== host=a\n\
                 put m 1356998400 7 host=a\n";
    for _ in 0..2 {
        assert_eq!(tsd.exchange(lines.as_bytes()).await, "");
    }
    assert_eq!(cells(&tsd).await, ["0000 07", STORED]);
}

#[tokio::test]
async fn each_bad_line_gets_its_reply() {
    let tsd = Tsd::start_with(config(), with_codec()).await;
    let cases = [
        ("histogram m 1 x a=b", "HBase error: malformed histogram"),
        ("histogram m 1 0,1=1.5 a=b", "HBase error: malformed histogram"),
        ("histogram m 1 NaN,1=5 a=b", "HBase error: malformed histogram"),
        ("histogram", "illegal argument: not enough arguments (need least 5, got 0)"),
        ("histogram  1 0,1=1 a=b", "illegal argument: empty metric name"),
        ("histogram m x 0,1=1 a=b", "invalid value: Invalid character 'x' in x"),
        ("histogram m 0 0,1=1 a=b", "illegal argument: invalid timestamp: 0"),
        ("histogram m 1  a=b", "illegal argument: empty histogram value"),
        ("histogram m 1 0,1=1 a", "illegal argument: invalid tag: a"),
        (
            "histogram m 1 7 AAIAAAAAP4AAACo/gAAAQKAAABgAAQ== a=b",
            "HBase error: No codec found mapped to ID 7",
        ),
        ("histogram m 1 42 !! a=b", "HBase error: Byte array shorter than 6 bytes detected: \"\""),
        (
            "histogram m 99999999999999 u=1 a=b",
            "HBase error: bad timestamp=99999999999999 when trying to add value=[42, 0, 0, 1, \
             0]/0 to metric=m, tags={a=b}",
        ),
        (
            "histogram m! 1 0,1=1 a=b",
            "HBase error: Invalid metric name (\"m!\"): illegal character: !",
        ),
        ("histogram m 1 0,1=1  ", "HBase error: Need at least one tag (metric=m, tags={})"),
    ];
    let sent: String = cases.iter().map(|(line, _)| format!("{line}\n")).collect();
    let replies = tsd.exchange(sent.as_bytes()).await;
    let expected: Vec<String> =
        cases.iter().map(|(_, text)| format!("histogram: {text}")).collect();
    assert_eq!(replies.lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn late_failures_are_reported_as_storage_errors_if_enabled() {
    let expected_text = "histogram: HBase error: No such name for 'metrics': 'm'\n\
                histogram: HBase error: too large\n";
    for (errors, expected) in [(true, expected_text), (false, "")] {
        let mut engine = with_codec();
        engine.uids.auto_create_metrics = false;
        let config = ServerConfig { telnet_return_errors: errors, ..config() };
        let tsd = Tsd::start_with(config, engine).await;
        let line = b"histogram m 1 0,1=1 a=b\n";
        let mut replies = tsd.exchange(line).await;
        tsd.get("/api/uid/assign?metric=m").await;
        tsd.storage
            .script(Operation::Put, [Fault::Error(StorageError::Rejected("too large".into()))]);
        replies += &tsd.exchange(line).await;
        assert_eq!(replies, expected);
    }
}

#[tokio::test]
async fn without_a_codec_there_are_no_histograms() {
    let tsd = Tsd::start().await;
    let text = "Histogram storage has not been enabled. Check the 'tsd.core.histograms.config' \
                configuration.";
    assert_eq!(
        tsd.exchange(b"histogram\n").await,
        format!("histogram: illegal argument: {text}\n")
    );
    let expected = json!({"error": {"code": 503, "message": text}});
    let answer = tsd.post("/api/histogram", GOOD).await;
    assert_eq!((answer.status, answer.json()), (503, expected));
    assert_eq!(tsd.get("/api/histogram").await.status, 503, "before the method is looked at");
}

#[tokio::test]
async fn bodies_are_stored_and_acknowledged_like_put() {
    let tsd = Tsd::start_with(config(), with_codec()).await;
    let base64 = r#"{"metric":"m","timestamp":1356998400,"tags":{"host":"a"},"id":42,"value":"AAI/gAAAQKAAABgAAAAAP4AAACoAAQ=="}"#;
    for body in [GOOD, base64] {
        assert_eq!(tsd.post("/api/histogram", body).await.line(), "204 ");
        assert_eq!(
            tsd.post("/api/histogram?details&sync", body).await.line(),
            r#"200 {"success":1,"failed":0,"errors":[]}"#
        );
        assert_eq!(cells(&tsd).await, [STORED]);
    }
    let point = |more: &str| {
        format!(r#"{{"metric":"m","timestamp":1356998400,"tags":{{"host":"a"}}{more}}}"#)
    };
    let none = "Histogram buckets cannot be null or empty if 'value' is empty.";
    let cases = [
        (point(""), none),
        (point(r#","id":42,"buckets":{}"#), none),
        (point(r#","id":42,"buckets":null,"value":"""#), none),
        (point(r#","id":256,"value":"AA==""#), "Invalid type. Must be from 0 to 255."),
        (point(r#","id":-1,"value":"AA==""#), "Invalid type. Must be from 0 to 255."),
        (point(r#","id":7,"value":"AA==""#), "No codec found mapped to ID 7"),
        (point(r#","id":42,"value":"!!""#), "Byte array shorter than 6 bytes detected: \"\""),
        // Issue 37: the text ended before the reason, as in OpenTSDB.
        (
            point(r#","id":42,"value":"AAIAAAAAP4AA""#),
            "Unexpected exception: histogram of 9 bytes ends early",
        ),
        (
            point(r#","buckets":{"NaN,1":1}"#),
            "Unexpected exception: bucket \"NaN,1\": a bucket bound is not a number",
        ),
        (point(r#","buckets":{"1":1}"#), "Unable to parse bucket bounds: 1"),
        (point(r#","buckets":{"a,b":1}"#), "Unable to parse value to a number"),
        (
            point(r#","buckets":{"0,1":null}"#),
            "Unexpected exception: bucket \"0,1\": the count is null; send an integer",
        ),
        (r#"{"timestamp":1,"tags":{"a":"b"}}"#.into(), "Metric name was empty"),
        (r#"{"metric":"m","tags":{"a":"b"}}"#.into(), "Invalid timestamp"),
        (r#"{"metric":"m","timestamp":1,"value":"AA=="}"#.into(), "Missing tags"),
        ("null".into(), "Unexpected null datapoint encountered in set."),
        (
            GOOD.replace("1356998400", "99999999999999").replace(r#","1,5":24"#, ""),
            "bad timestamp=99999999999999 when trying to add value=[42, 0, 1, 0, 0, 0, 0, 63, -128, \
             0, 0, 42, 0, 1]/0 to metric=m, tags={host=a}",
        ),
        (GOOD.replace("\"m\"", "\"m!\""), "Invalid metric name (\"m!\"): illegal character: !"),
    ];
    for (point, text) in cases {
        let answer = tsd.post("/api/histogram?details", &format!("[{GOOD},{point}]")).await;
        assert_eq!(answer.status, 400, "{point}");
        let reply = answer.json();
        assert_eq!((&reply["success"], &reply["failed"]), (&json!(1), &json!(1)), "{point}");
        assert_eq!(reply["errors"][0]["error"], text, "{point}");
    }
    let odd = point(r#","id":"42","buckets":{"x":1.9,"y":"2"},"underflow":3"#);
    assert_eq!(
        tsd.post("/api/histogram?details", &odd).await.line(),
        r#"400 {"success":0,"failed":1,"errors":[{"datapoint":{"metric":"m","timestamp":1356998400,"tags":{"host":"a"},"id":42,"buckets":{"x":1,"y":2},"underflow":3,"overflow":0},"error":"Unable to parse bucket bounds: x"}]}"#
    );
}

#[tokio::test]
async fn broken_bodies_store_nothing() {
    let tsd = Tsd::start_with(config(), with_codec()).await;
    for body in [
        format!("[{GOOD}"),
        format!(r#"[{GOOD},{{"buckets":[]}}]"#),
        format!(r#"[{GOOD},{{"buckets":{{"0,1":[]}}}}]"#),
        format!(r#"[{GOOD},{{"id":"x"}}]"#),
        format!("[{GOOD},7]"),
    ] {
        let answer = tsd.post("/api/histogram", &body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["message"], "Unable to parse the given JSON", "{body}");
    }
    assert_eq!(cells(&tsd).await, [""; 0]);
    assert_eq!(tsd.send(Method::DELETE, "/api/histogram", &[], "").await.status, 405);
}

#[tokio::test]
async fn buckets_in_reverse_order_are_read_fast() {
    let tsd = Tsd::start_with(config(), with_codec()).await;
    let buckets: String =
        (0..70_000).rev().map(|n| format!(r#""{n},{}":1,"#, n + 1)).collect::<String>();
    let body = GOOD.replace(r#""0,1":42,"#, &buckets);
    let answer = tsd.post("/api/histogram?details", &body).await;
    assert_eq!(
        answer.json()["errors"][0]["error"],
        "Unexpected exception: the histogram has 70001 buckets; the limit is 65535",
        "more than a cell counts"
    );
}

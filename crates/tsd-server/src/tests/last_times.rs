//! Times after the last time of a row key, 2106-02-07 06:28:15 UTC (issue 37): they were stored 2^32 seconds
//! earlier and overwrote other points.

use hyper::Method;
use tsd_engine::{EngineConfig, HistogramCodecs};
use tsd_storage::{Scan, Storage, Table};

use super::{
    harness::{Tsd, config, engine_config},
    rollups::rollups,
};

const REASON: &str = "is after 2106-02-07 06:28:15 UTC, the last that a row key can have";
/// The first and the last rejected number of 13 digits.
const TIMES: [&str; 2] = ["4294967296000", "9999999999999"];

async fn start() -> Tsd {
    let engine = EngineConfig {
        rollups: Some(rollups()),
        histograms: Some(HistogramCodecs::simple(42)),
        ..engine_config()
    };
    Tsd::start_with(config(), engine).await
}

async fn rows(tsd: &Tsd, table: &str) -> usize {
    tsd.engine.drain_writes().await;
    let mut scanner = tsd.storage.scan(&Table::new(table), Scan::default());
    let mut count = 0;
    while let Some(rows) = scanner.next_rows().await.unwrap() {
        count += rows.len();
    }
    count
}

async fn nothing_is_stored(tsd: &Tsd) {
    for table in ["tsdb", "r1h", "a1h", "agg"] {
        assert_eq!(rows(tsd, table).await, 0, "{table}");
    }
}

#[tokio::test]
async fn points_after_the_last_time_are_refused_by_every_protocol() {
    let tsd = start().await;
    for time in TIMES {
        let text = format!("timestamp {time} {REASON}");
        for line in [
            format!("put m {time} 1 host=a"),
            format!("put m {}.{} 1 host=a", &time[..10], &time[10..]),
            format!("rollup 1h-sum m {time} 1 host=a"),
            format!("rollup sum m {time} 1 host=a"),
            format!("histogram m {time} u=0:o=1:0,1=42 host=a"),
        ] {
            let reply = tsd.exchange(format!("{line}\n").as_bytes()).await;
            assert!(reply.contains(&text), "{line}: {reply}");
        }
        for (uri, fields) in [
            ("/api/put", r#""value":1"#),
            ("/api/rollup", r#""value":1,"interval":"1h","aggregator":"sum""#),
            ("/api/rollup", r#""value":1,"groupByAggregator":"sum""#),
            ("/api/histogram", r#""buckets":{"0,1":42}"#),
        ] {
            let body =
                format!(r#"{{"metric":"m","timestamp":{time},"tags":{{"host":"a"}},{fields}}}"#);
            let answer = tsd.post(&format!("{uri}?details"), &body).await;
            assert_eq!(answer.status, 400, "{body}");
            assert_eq!(answer.json()["errors"][0]["error"], text, "{body}");
        }
    }
    nothing_is_stored(&tsd).await;
}

#[tokio::test]
async fn annotations_after_the_last_time_are_refused() {
    let tsd = start().await;
    for time in TIMES {
        let text = format!("timestamp {time} {REASON}");
        let start = format!(r#"{{"startTime":{time},"description":"d"}}"#);
        let end = format!(r#"{{"startTime":1356998400,"endTime":{time},"description":"d"}}"#);
        for body in [&start, &end] {
            for (method, uri, body) in [
                (Method::POST, "/api/annotation", body.clone()),
                (Method::PUT, "/api/annotation", body.clone()),
                (Method::POST, "/api/annotation/bulk", format!("[{body}]")),
            ] {
                let answer = tsd.send(method, uri, &[], body.clone()).await;
                assert_eq!(answer.status, 400, "{uri} {body}");
                assert!(answer.text().contains(&text), "{body}: {}", answer.text());
            }
        }
        let uri = format!("/api/annotation?start_time={time}&description=d&method_override=post");
        let answer = tsd.get(&uri).await;
        assert!(answer.text().contains(&text), "{}", answer.text());
    }
    nothing_is_stored(&tsd).await;
}

#[tokio::test]
async fn ranges_that_end_after_the_last_time_reach_to_it() {
    let tsd = start().await;
    let last = "put m 4294967295 1 host=a\nput m 4294967295999 2 host=a\n\
                rollup 1h-sum m 4294967295 3 host=a\nrollup sum m 4294967295 4 host=a\n";
    assert_eq!(tsd.exchange(last.as_bytes()).await, "");
    let annotation = r#"{"startTime":4294967295,"description":"d"}"#;
    assert_eq!(tsd.post("/api/annotation", annotation).await.status, 200);
    tsd.engine.drain_writes().await;
    for end in ["4294967295999", "4294967296000", "9999999999999"] {
        for (start, sub, points) in [
            ("4294967200", "m", 1),
            ("1", "m", 1),
            ("4294960000", "1h-sum:m", 1),
            ("4294960000", "pre-agg:m", 1),
        ] {
            let uri = format!("/api/query?start={start}&end={end}&m=sum:{sub}");
            let answer = tsd.get(&uri).await;
            assert_eq!(answer.status, 200, "{uri}: {}", answer.text());
            let found = answer.json()[0]["dps"].as_object().map(serde_json::Map::len);
            assert_eq!(found, Some(points), "{uri}: {}", answer.text());
        }
        let uri = format!("/api/annotations?start_time=4294967200&end_time={end}");
        let listed = tsd.get(&uri).await;
        assert_eq!(listed.json().as_array().map(Vec::len), Some(1), "{}", listed.text());
    }
    // Nothing wraps to 1970 or 2014.
    for (start, end) in [("1", "100000000"), ("1410000000", "1411000000")] {
        let answer = tsd.get(&format!("/api/query?start={start}&end={end}&m=sum:m")).await;
        assert_eq!(answer.line(), "200 []");
    }
    let beyond = "/api/query?start=4294970000000&end=9999999999999&m=sum:m";
    assert_eq!(tsd.get(beyond).await.line(), "200 []");
}

//! Query endpoints and their options.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::Method;
use serde_json::{Value, json};
use tsd_meta::AnnotationEdit;

use super::harness::{RANGE, Tsd, config, with_points};
use crate::ServerConfig;

#[tokio::test]
async fn flags_of_a_query() {
    let tsd = with_points(config()).await;
    let dps = async |rest: &str| {
        tsd.get(&format!("/api/query?{RANGE}&m=sum:m%7Bhost=a%7D&{rest}")).await.json()[0]["dps"]
            .clone()
    };
    let plain = json!({"1356998400": 1, "1356998410": 2});
    assert_eq!(dps("").await, plain);
    assert_eq!(dps("padding").await, plain);
    assert_eq!(dps("delete").await, plain);
    assert_eq!(dps("arrays=false").await, json!([[1_356_998_400, 1], [1_356_998_410, 2]]));
    assert_eq!(dps("ms").await, json!({"1356998400000": 1, "1356998410000": 2}));
    // Noon in Kabul is 07:30 in London.
    let uri = "/api/query?start=2013/01/01-04:30&end=2013/01/01-05:30&m=sum:m&timezone=Asia/Kabul";
    assert_eq!(tsd.get(uri).await.json()[0]["dps"]["1356998400"], 11.0);
    let body = r#"{"start":"2013/01/01-04:30","end":"2013/01/01-05:30",
        "queries":[{"aggregator":"sum","metric":"m"}]}"#;
    assert_eq!(tsd.post("/api/query", body).await.json(), json!([]));
    let answer = tsd.post("/api/query?timezone=Asia/Kabul&arrays", body).await.json();
    assert_eq!(answer[0]["dps"][0], json!([1_356_998_400, 11.0]));
}

#[tokio::test]
async fn points_are_rows_of_csv() {
    let tsd = with_points(config()).await;
    for (query, expected) in [
        (
            "/api/query?m=sum:m%7Bhost=*%7D&format=csv",
            "time,timestamp_ms,metric,dc,host,value\r\n\
             2013-01-01T00:00:00.000Z,1356998400000,m,x,a,1\r\n\
             2013-01-01T00:00:10.000Z,1356998410000,m,x,a,2\r\n\
             2013-01-01T00:00:00.000Z,1356998400000,m,x,b,10\r\n\
             2013-01-01T00:00:10.000Z,1356998410000,m,x,b,2.5\r\n",
        ),
        (
            "/api/query/gexp?exp=scale(sum:m%7Bhost=a%7D,2)&format=CSV",
            "time,timestamp_ms,metric,dc,host,value\r\n\
             2013-01-01T00:00:00.000Z,1356998400000,m,x,a,2\r\n\
             2013-01-01T00:00:10.000Z,1356998410000,m,x,a,4\r\n",
        ),
    ] {
        let answer = tsd.get(&format!("{query}&{RANGE}")).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, expected));
        assert_eq!(answer.header("content-type"), Some("text/csv; charset=UTF-8"));
    }
    let failed = tsd.get(&format!("/api/query?m=sum:unknown&format=csv&{RANGE}")).await;
    assert!(failed.json()["error"]["message"].is_string());
}

#[tokio::test]
async fn explain_returns_the_plan() {
    let tsd = with_points(config()).await;
    let by_uri = tsd.get(&format!("/api/query?{RANGE}&m=sum:m%7Bhost=*%7D&explain")).await.json();
    let read = &by_uri["explain"][0]["reads"][0];
    assert_eq!(read["table"], "tsdb");
    assert!(read["ranges"][0]["start"].is_string(), "{read}");
    assert_eq!(read["summaries"]["mayServe"], false, "{read}");
    assert_eq!(read["summaries"]["reason"], "points are not downsampled");
    let body =
        r#"{"start":1356998400,"explain":true,"queries":[{"aggregator":"sum","metric":"m"}]}"#;
    let by_body = tsd.post("/api/query", body).await.json();
    assert_eq!(by_body["explain"].as_array().unwrap().len(), 1);
    let unknown = tsd.get(&format!("/api/query?{RANGE}&m=sum:nowhere&explain")).await;
    assert_eq!(unknown.status, 400);
}

#[tokio::test]
async fn global_annotations_are_in_every_series() {
    let tsd = with_points(config()).await;
    let note = |start_time, description: &str| AnnotationEdit {
        start_time,
        description: Some(description.to_owned()),
        tsuid: None,
        end_time: None,
        notes: None,
        custom: None,
    };
    for (at, text) in [(1_356_998_405, "inside"), (1_356_990_000, "before")] {
        tsd.engine.annotations().edit(note(at, text), false).await.unwrap();
    }
    let uri = format!("/api/query?{RANGE}&m=none:m&global_annotations");
    let answer = tsd.get(&uri).await.json();
    for series in answer.as_array().unwrap() {
        let notes = series["globalAnnotations"].as_array().unwrap();
        assert_eq!(notes.len(), 1, "{series}");
        assert_eq!(notes[0]["description"], "inside");
    }
    let gexp = format!("/api/query/gexp?{RANGE}&exp=scale(sum:m,2)&global_annotations");
    assert_eq!(tsd.get(&gexp).await.json()[0]["globalAnnotations"][0]["description"], "inside");
    for uri in [format!("{uri}&no_annotations"), format!("/api/query?{RANGE}&m=none:m")] {
        assert!(!tsd.get(&uri).await.text().contains("globalAnnotations"), "{uri}");
    }
}

#[tokio::test]
async fn annotations_are_shown_with_their_series() {
    let tsd = with_points(config()).await;
    let tsuid = tsd.get(&format!("/api/query?{RANGE}&m=sum:m%7Bhost=a%7D&show_tsuids")).await;
    let tsuid = tsuid.json()[0]["tsuids"][0].as_str().unwrap().to_owned();
    for (start, text) in
        [(1_356_998_420, "second"), (1_356_998_405, "first"), (1_356_999_000, "late")]
    {
        let note = json!({"tsuid": tsuid, "startTime": start, "description": text}).to_string();
        assert_eq!(tsd.post("/api/annotation", &note).await.status, 200);
    }
    let query = format!("/api/query?{RANGE}&m=none:m");
    let answer = tsd.get(&query).await.json();
    let texts = |notes: &Value| -> Vec<String> {
        let notes = notes.as_array().unwrap();
        notes.iter().map(|note| note["description"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts(&answer[0]["annotations"]), ["first", "second"]);
    assert_eq!(answer[1]["annotations"], Value::Null);
    let keys: Vec<&String> = answer[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["metric", "tags", "aggregateTags", "annotations", "dps"]);
    let without = tsd.get(&format!("{query}&no_annotations")).await.text();
    assert!(!without.contains("annotations"), "{without}");
}

#[tokio::test]
async fn deleting_query_returns_the_deleted_rows() {
    let query = format!("/api/query?{RANGE}&m=sum:m%7Bhost=a%7D");
    let body = r#"{"start":1356998400,"end":1356998500,"delete":true,
        "queries":[{"aggregator":"sum","metric":"m","tags":{"host":"a"}}]}"#;
    for way in ["verb", "override", "body"] {
        let tsd = with_points(ServerConfig { allow_delete: true, ..config() }).await;
        // `explain` deletes nothing.
        let explain = format!("{query}&explain");
        assert_eq!(tsd.send(Method::DELETE, &explain, &[], "").await.status, 200);
        let answer = match way {
            "verb" => tsd.send(Method::DELETE, &query, &[], "").await,
            "override" => tsd.get(&format!("{query}&method_override=DELETE")).await,
            _ => tsd.post("/api/query", body).await,
        };
        assert_eq!(answer.json()[0]["dps"]["1356998410"], 2, "{way}: {}", answer.line());
        assert_eq!(tsd.get(&query).await.json(), json!([]), "{way}");
        let other = tsd.get(&format!("/api/query?{RANGE}&m=sum:m")).await.json();
        assert_eq!(other[0]["dps"]["1356998400"], 10.0, "{way}");
    }
}

/// Issue 37: a dry run counts the points that a delete would delete.
#[tokio::test]
async fn a_dry_run_of_a_delete_counts_and_deletes_nothing() {
    let query = format!("/api/query?{RANGE}&m=sum:m%7Bhost=a%7D");
    let body = r#"{"start":1356998400,"end":1356998500,"delete":true,"dryRun":true,
        "queries":[{"aggregator":"sum","metric":"m","tags":{"host":"a"}}]}"#;
    let tsd = with_points(ServerConfig { allow_delete: true, ..config() }).await;
    let before = tsd.get(&query).await.text();
    let by_verb = tsd.send(Method::DELETE, &format!("{query}&dry_run"), &[], "").await;
    for answer in [by_verb, tsd.post("/api/query", body).await] {
        let counts = json!({"dryRun": true, "points": 2, "series": 1, "rows": 1});
        assert_eq!(answer.json(), counts, "{}", answer.line());
    }
    assert_eq!(tsd.get(&query).await.text(), before);
    let without_delete = tsd.get(&format!("{query}&dry_run")).await;
    assert_eq!(without_delete.status, 400);
    assert!(without_delete.text().contains("with the verb DELETE"), "{}", without_delete.line());
}

#[tokio::test]
async fn expression_responses_repeat_the_request() {
    let tsd = with_points(config()).await;
    let body = r#"{"time":{"start":1356998400,"end":1356998500,"aggregator":"sum"},
        "metrics":[{"id":"a","metric":"m"},{"id":"b","metric":"n"}],
        "expressions":[{"id":"e","expr":"a + b"}],"outputs":[{"id":"e","alias":"both"},{"id":"a"}]}"#;
    insta::assert_snapshot!(tsd.post("/api/query/exp", body).await.line());
    let wrapped = tsd.post("/api/query/exp?jsonp=f", body).await.text();
    assert!(wrapped.starts_with(r#"f({"outputs":[{"id":"e","#) && wrapped.ends_with("})"));
}

#[tokio::test]
async fn function_responses_have_the_format_of_queries() {
    let tsd = with_points(config()).await;
    let uri = format!("/api/query/gexp?{RANGE}&exp=scale(sum:m%7Bhost=*%7D,10)&show_tsuids");
    let by_uri = tsd.get(&uri).await;
    insta::assert_snapshot!(by_uri.line());
    let body = r#"{"start":1356998400,"end":1356998500,"showTSUIDs":true,
        "exp":["scale(sum:m{host=*},10)"]}"#;
    assert_eq!(tsd.post("/api/query/gexp", body).await.json(), by_uri.json());
    // An expression in a plain query only adds its metrics.
    let plain = tsd.get(&format!("/api/query?{RANGE}&m=sum:n&exp=scale(sum:m,10)")).await.json();
    assert_eq!(plain[0]["metric"], "n");
    assert_eq!(plain[1]["dps"]["1356998400"], 11.0);
    let summary = tsd.get(&format!("{uri}&show_summary")).await.json();
    assert!(summary[2]["statsSummary"]["queryIdx_00"].is_object(), "{summary}");
}

#[tokio::test]
async fn newest_points_are_found_backwards() {
    let tsd = with_points(config()).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let point = format!(
        r#"{{"metric":"m","timestamp":{},"value":7.5,"tags":{{"host":"a","dc":"x"}}}}"#,
        now - 3_600
    );
    assert_eq!(tsd.post("/api/put", &point).await.status, 204);
    let expected = json!([{
        "metric": "m",
        "timestamp": (now - 3_600) * 1_000,
        "value": "7.5",
        "tags": {"host": "a", "dc": "x"},
        "tsuid": "000001000001000001000002000002",
    }]);
    let uri = "/api/query/last?timeseries=m%7Bhost=a,dc=x%7D&back_scan=3&resolve";
    let by_uri = tsd.get(uri).await;
    let tsuid = by_uri.json()[0]["tsuid"].as_str().unwrap().to_owned();
    let mut shown = by_uri.json();
    shown[0]["tsuid"] = expected[0]["tsuid"].clone();
    assert_eq!(shown, expected);
    let body = r#"{"queries":[{"metric":"m","tags":{"host":"a","dc":"x"}}],"backScan":3,"resolveNames":true}"#;
    assert_eq!(tsd.post("/api/query/last", body).await.text(), by_uri.text());
    let by_tsuid = tsd.get(&format!("/api/query/last?tsuids={tsuid}&back_scan=3")).await;
    assert_eq!(
        by_tsuid.text(),
        format!(r#"[{{"timestamp":{}000,"value":"7.5","tsuid":"{tsuid}"}}]"#, now - 3_600)
    );
    // Without `back_scan` the query reads the meta table, which is empty.
    assert_eq!(tsd.get("/api/query/last?timeseries=m").await.text(), "[]");
}

#[tokio::test]
async fn series_are_looked_up() {
    let tsd = with_points(config()).await;
    // The meta table is not maintained, so the lookup reads the data table.
    let by_uri = tsd.get("/api/search/lookup?m=m%7Bhost=a,dc=%7D&limit=3").await.json();
    let series = json!({
        "tsuid": "000001000001000001000002000002",
        "metric": "m",
        "tags": {"host": "a", "dc": "x"},
    });
    let head = json!({"type": "LOOKUP", "metric": "m", "limit": 3, "results": [series]});
    for (key, value) in head.as_object().unwrap() {
        assert_eq!(&by_uri[key], value, "{by_uri}");
    }
    assert_eq!(
        by_uri["tags"],
        json!([{"key": "host", "value": "a"}, {"key": "dc", "value": null}])
    );
    let body = r#"{"metric":"m","tags":[{"key":"host","value":"b"}],"useMeta":false}"#;
    let found = tsd.post("/api/search/lookup", body).await.json();
    assert_eq!(found["totalResults"], 1, "{found}");
    assert_eq!(found["results"][0]["metric"], "m");
    assert_eq!(found["results"][0]["tags"], json!({"host": "b", "dc": "x"}));
    assert!(found["time"].is_f64());
}

#[tokio::test]
async fn filters_are_described() {
    let tsd = Tsd::start().await;
    let filters = tsd.get("/api/config/filters").await.json();
    let names: Vec<&String> = filters.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "regexp",
            "iwildcard",
            "iliteral_or",
            "not_iliteral_or",
            "not_literal_or",
            "literal_or",
            "wildcard"
        ]
    );
    assert!(filters["wildcard"]["description"].is_string());
}

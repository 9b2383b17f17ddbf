use std::time::Duration;

use hyper::Method;
use tsd_model::UidKind;
use tsd_storage::{Fault, Operation, StorageError};

use super::harness::{TestResponse, Tsd, config, engine_config};
use crate::{ServerConfig, ServerMode};

const LOCAL: &str = r#"{"tsuid":"000001000001000001","startTime":1356998405,"description":"d"}"#;

async fn put(tsd: &Tsd, uri: &str, body: &str) -> TestResponse {
    tsd.send(Method::PUT, uri, &[], body.to_owned()).await
}

async fn delete(tsd: &Tsd, uri: &str, body: &str) -> TestResponse {
    tsd.send(Method::DELETE, uri, &[], body.to_owned()).await
}

#[tokio::test]
async fn annotations_are_written_read_and_deleted_by_body_and_by_parameters() {
    let tsd = Tsd::start().await;
    let shown = r#"200 {"tsuid":"000001000001000001","description":"d","notes":"","startTime":1356998405,"endTime":0}"#;
    assert_eq!(tsd.post("/api/annotation", LOCAL).await.line(), shown);
    let uri = "/api/annotation?tsuid=000001000001000001&start_time=1356998405";
    assert_eq!(tsd.get(uri).await.line(), shown);
    assert_eq!(tsd.get(&format!("{uri}&method_override=POST&notes=n")).await.status, 200);
    let merged = tsd.get(uri).await.json();
    assert_eq!((&merged["description"], &merged["notes"]), (&"d".into(), &"n".into()));
    let replaced = tsd.get(&format!("{uri}&method_override=put&notes=o")).await.json();
    assert_eq!((&replaced["description"], &replaced["notes"]), (&"".into(), &"o".into()));
    for _ in 0..2 {
        assert_eq!(delete(&tsd, uri, "").await.line(), "204 ");
    }
    assert_eq!(
        tsd.get(uri).await.line(),
        r#"404 {"error":{"code":404,"message":"Unable to locate annotation in storage"}}"#
    );
    let by_body = tsd.send(Method::GET, "/api/annotation", &[], LOCAL).await;
    assert_eq!(by_body.status, 404);
}

#[tokio::test]
async fn custom_fields_are_shown_in_javas_order() {
    let tsd = Tsd::start().await;
    let body =
        r#"{"startTime":1356998400000,"custom":{"owner":"ops","a":"1","Z":"2","_":"","n":null}}"#;
    assert_eq!(
        tsd.post("/api/annotation", body).await.line(),
        r#"200 {"tsuid":"","description":"","notes":"","custom":{"owner":"ops","a":"1","Z":"2","n":null,"_":""},"startTime":1356998400000,"endTime":0}"#
    );
}

#[tokio::test]
async fn requests_that_set_nothing_change_nothing() {
    let tsd = Tsd::start().await;
    for body in [r#"{"startTime":1}"#, r#"{"startTime":1,"description":"","endTime":0}"#] {
        let answer = tsd.post("/api/annotation", body).await;
        assert_eq!(answer.line(), "304 ");
        assert_eq!(answer.header("content-type"), None);
        assert_eq!(put(&tsd, "/api/annotation", body).await.status, 304);
    }
    tsd.post("/api/annotation", r#"{"startTime":1,"description":"d"}"#).await;
    let again = tsd.post("/api/annotation", r#"{"startTime":1,"description":"d"}"#).await;
    assert_eq!(again.status, 200, "the stored values again");
}

#[tokio::test]
async fn bad_requests_have_their_messages() {
    let tsd = Tsd::start().await;
    let error_body = |status: u16, message: &str, details: &str| {
        let details =
            if details.is_empty() { String::new() } else { format!(r#","details":"{details}""#) };
        format!(r#"{status} {{"error":{{"code":{status},"message":"{message}"{details}}}}}"#)
    };
    let missing = error_body(400, "Missing start time", "");
    assert_eq!(tsd.get("/api/annotation").await.line(), missing);
    assert_eq!(delete(&tsd, "/api/annotation", "").await.line(), missing);
    let unset = "The start timestamp has not been set";
    let zero = r#"{"startTime":0,"description":"x"}"#;
    assert_eq!(tsd.post("/api/annotation", zero).await.line(), error_body(400, unset, unset));
    assert_eq!(
        delete(&tsd, "/api/annotation", zero).await.line(),
        error_body(400, "Unable to delete Annotation information", unset)
    );
    assert_eq!(tsd.get("/api/annotation?start_time=1&method_override=x").await.status, 405);
    assert_eq!(tsd.get("/api/annotation?start_time=soon").await.status, 400);
    assert_eq!(tsd.post("/api/annotation", "{").await.status, 400);
    for tsuid in ["xyz", "0001", "00000100000100000"] {
        let uri = format!("/api/annotation?start_time=1&tsuid={tsuid}");
        assert_eq!(tsd.get(&uri).await.status, 400, "{tsuid}");
    }
    assert_eq!(
        tsd.post("/api/annotation/bulk", r#"[{"startTime":0,"description":"x"}]"#).await.line(),
        error_body(400, unset, "Annotation error: TSUID:  Start: 0  Description: x")
    );
    assert_eq!(
        tsd.post("/api/annotation/bulk", "").await.json()["error"]["message"],
        "Missing message content"
    );
    let unread = tsd.post("/api/annotation/bulk", "[{]").await;
    let error = &unread.json()["error"];
    assert_eq!((unread.status, &error["message"]), (400, &error["details"]));
    for (body, message) in [
        (r#"{"global":true}"#, "Missing the start time value"),
        (r#"{"startTime":1}"#, "Missing the TSUIDs or global annotations flag"),
    ] {
        assert_eq!(
            delete(&tsd, "/api/annotation/bulk", body).await.line(),
            error_body(400, message, "")
        );
    }
    assert_eq!(
        delete(&tsd, "/api/annotation/bulk?global", "").await.line(),
        error_body(400, "Missing parameter <code>start_time</code>", "")
    );
    assert_eq!(
        tsd.get("/api/annotation/bulk").await.line(),
        error_body(
            405,
            "Method not allowed",
            "The HTTP method [GET] is not permitted for this endpoint"
        )
    );
    let backwards = tsd.get("/api/annotations?start_time=2000&end_time=1000").await;
    assert_eq!(
        backwards.line(),
        error_body(400, "The end timestamp cannot be less than the start timestamp", "")
    );
}

#[tokio::test]
async fn annotations_are_written_and_deleted_in_bulk() {
    let tsd = Tsd::start().await;
    let body = format!(
        r#"[{{"startTime":1356998400,"description":"g"}},{{"startTime":7}},{LOCAL},{LOCAL}]"#
    );
    let stored = tsd.post("/api/annotation/bulk", &body).await.json();
    let starts: Vec<i64> =
        stored.as_array().unwrap().iter().map(|n| n["startTime"].as_i64().unwrap()).collect();
    assert_eq!(starts, [1_356_998_400, 1_356_998_405, 1_356_998_405], "one sets nothing");
    let uri = "/api/annotation/bulk?start_time=1356998400&end_time=1356998410";
    assert_eq!(
        delete(&tsd, &format!("{uri}&tsuids=000001000001000001&global"), "").await.line(),
        r#"200 {"tsuids":["000001000001000001"],"global":true,"startTime":1356998400000,"endTime":1356998410000,"totalDeleted":2}"#
    );
    let range = r#"{"startTime":"2013/01/01-00:00:00","endTime":1356998410,"global":true}"#;
    assert_eq!(
        tsd.send(Method::GET, "/api/annotation/bulk?method_override=delete", &[], range)
            .await
            .line(),
        r#"200 {"tsuids":null,"global":true,"startTime":1356998400000,"endTime":1356998410000,"totalDeleted":0}"#
    );
}

#[tokio::test]
async fn global_annotations_are_listed_until_an_end_or_now() {
    let tsd = Tsd::start().await;
    for start in [1_356_998_400, 1_356_998_460, 1_357_009_999] {
        let body = format!(r#"{{"startTime":{start},"description":"x"}}"#);
        assert_eq!(tsd.post("/api/annotation", &body).await.status, 200);
    }
    tsd.post("/api/annotation", LOCAL).await;
    let count = async |uri: &str| tsd.get(uri).await.json().as_array().unwrap().len();
    assert_eq!(count("/api/annotations?start_time=1356998400").await, 3);
    assert_eq!(
        count("/api/annotations?start_time=1356998401&end_time=2013/01/01-00:01:00").await,
        1
    );
    let posted =
        tsd.post("/api/annotations", r#"{"startTime":1356998400,"notes":"n"}"#).await.json();
    assert_eq!((&posted["description"], &posted["notes"]), (&"x".into(), &"n".into()));
    let with_notes = "/api/query?start=1356998400&end=1356998410&m=sum:m&global_annotations";
    assert_eq!(tsd.exchange(b"put m 1356998400 1 host=a\n").await, "");
    let answer = tsd.get(with_notes).await.json();
    assert_eq!(answer[0]["globalAnnotations"].as_array().unwrap().len(), 1);
    assert_eq!(answer[0]["annotations"][0]["description"], "d");
}

#[tokio::test]
async fn storage_failures_are_reported() {
    let tsd = Tsd::start().await;
    // The reads of UID counters at the start must not consume the fault of the script.
    while tsd.engine.uid_space().len() < UidKind::ALL.len() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for operation in [Operation::Get, Operation::CompareAndSet] {
        tsd.storage.script(operation, [Fault::Error(StorageError::DiskFull)]);
        assert_eq!(
            tsd.post("/api/annotation", LOCAL).await.line(),
            r#"503 {"error":{"code":503,"message":"no space left on the data disk","details":"no space left on the data disk"}}"#
        );
    }
    assert_eq!(tsd.post("/api/annotation", LOCAL).await.status, 200);
}

#[tokio::test]
async fn read_only_daemons_serve_no_annotations() {
    let read_only = ServerConfig { mode: ServerMode::ReadOnly, ..config() };
    let tsd = Tsd::start_with(read_only, engine_config()).await;
    for uri in ["/api/annotation?start_time=1", "/api/annotations?start_time=1"] {
        assert_eq!(tsd.get(uri).await.status, 404);
    }
}

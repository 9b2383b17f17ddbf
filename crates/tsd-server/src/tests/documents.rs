//! Bodies with text after their first JSON document (issue 37).

use hyper::Method;

use super::harness::{Tsd, config, with_points};

const GOOD: &str = r#"{"metric":"m","timestamp":1356998400,"value":42,"tags":{"host":"a"}}"#;

#[tokio::test]
async fn points_of_all_documents_are_stored_and_counted() {
    let tsd = Tsd::start().await;
    let later = GOOD.replace("8400", "8401");
    let body = format!("{GOOD}\n[{later}]");
    assert_eq!(tsd.post("/api/put?summary", &body).await.line(), r#"200 {"success":2,"failed":0}"#);
    let answer = tsd.get("/api/query?start=1356998400&end=1356998500&m=sum:m").await;
    assert_eq!(answer.json()[0]["dps"].as_object().map(serde_json::Map::len), Some(2));
}

#[tokio::test]
async fn a_fault_after_the_first_document_leaves_nothing_stored() {
    let tsd = Tsd::start().await;
    for after in ["x", "{\"metric\":", ",{}", "null"] {
        let answer = tsd.post("/api/put?summary", &format!("{GOOD}\n{after}")).await;
        assert_eq!(answer.status, 400, "{after}");
        assert!(answer.text().contains("line 2, column"), "{}", answer.text());
    }
    let answer = tsd.get("/api/suggest?type=metrics").await;
    assert_eq!(answer.line(), "200 []");
}

#[tokio::test]
async fn no_route_ignores_text_after_the_document() {
    let tsd = with_points(config()).await;
    let query = r#"{"start":1356998400,"queries":[{"metric":"m","aggregator":"sum"}]}"#;
    for (method, uri, document) in [
        (Method::POST, "/api/query", query),
        (Method::POST, "/api/query/gexp", query),
        (Method::POST, "/api/query/exp", r#"{"time":{"start":"1h-ago","aggregator":"sum"}}"#),
        (Method::POST, "/api/query/last", r#"{"queries":[]}"#),
        (Method::POST, "/api/search/lookup", r#"{"metric":"m"}"#),
        (Method::POST, "/api/annotation", r#"{"startTime":1356998400,"description":"d"}"#),
        (Method::POST, "/api/annotation/bulk", r#"[{"startTime":1356998400,"description":"d"}]"#),
        (Method::DELETE, "/api/annotation/bulk", r#"{"startTime":"1356998400","global":true}"#),
        (Method::POST, "/api/suggest", r#"{"type":"metrics"}"#),
        (Method::POST, "/api/uid/assign", r#"{"metric":["n"]}"#),
        (Method::POST, "/api/uid/rename", r#"{"metric":"m","name":"n"}"#),
        (Method::POST, "/api/uid/uidmeta", r#"{"uid":"000001","type":"metric","notes":"n"}"#),
        (Method::POST, "/api/uid/tsmeta", r#"{"tsuid":"000001000001000001","notes":"n"}"#),
        (Method::POST, "/api/tree", r#"{"name":"t"}"#),
        (Method::POST, "/api/tree/rule", r#"{"treeId":1,"level":0,"order":0,"type":"METRIC"}"#),
        (Method::POST, "/api/tree/rules", r#"[{"treeId":1,"level":0,"order":0,"type":"METRIC"}]"#),
        (Method::POST, "/api/tree/test", r#"{"treeId":1,"tsuids":["000001000001000001"]}"#),
    ] {
        for after in ["x", document] {
            let answer = tsd.send(method.clone(), uri, &[], format!("{document}\n{after}")).await;
            assert_eq!(answer.status, 400, "{method} {uri} {after}: {}", answer.text());
            let text = answer.text();
            assert!(
                text.contains("line 2, column 1") || text.contains("line 2 column 1"),
                "{uri}: {text}"
            );
        }
    }
}

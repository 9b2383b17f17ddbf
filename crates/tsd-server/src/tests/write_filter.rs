//! The time series filter: rejected points over each protocol, and changes of its rules.

use std::sync::Arc;

use hyper::Method;
use tsd_engine::{FilterRules, UidKind};

use super::harness::{RANGE, Tsd};

fn set(tsd: &Tsd, rules: &str) {
    tsd.engine.set_write_filter(Some(Arc::new(FilterRules::parse(rules).unwrap())));
}

#[tokio::test]
async fn refused_series_are_reported_and_get_no_uids() {
    let tsd = Tsd::start().await;
    set(&tsd, "# rules\ndeny tmp.*\ndeny * env=test");
    let sent =
        b"put m 1356998400 1 host=a\nput tmp.x 1356998400 1 dc=b\nput m 1356998400 1 env=test\n";
    assert_eq!(
        tsd.exchange(sent).await,
        "put: illegal argument: the time series filter does not allow this series \
         (line 2 of its rules, tsd.timeseriesfilter.rules_file)\n\
         put: illegal argument: the time series filter does not allow this series \
         (line 3 of its rules, tsd.timeseriesfilter.rules_file)\n"
    );
    let body = r#"[{"metric":"m","timestamp":1356998401,"value":2,"tags":{"host":"a"}},
                   {"metric":"m","timestamp":1356998401,"value":2,"tags":{"env":"test"}}]"#;
    let answer = tsd.send(Method::POST, "/api/put?details", &[], body).await;
    assert_eq!((answer.status, answer.json()["success"].as_u64()), (400, Some(1)));
    let error = answer.json()["errors"][0]["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("Filtered: the time series filter does not allow"), "{error}");
    assert_eq!(tsd.engine.uids().suggest(UidKind::Metric, "", 9).await.unwrap(), ["m"]);
    assert_eq!(tsd.engine.uids().suggest(UidKind::Tagk, "", 9).await.unwrap(), ["host"]);
    let stats = tsd.get("/stats").await.text();
    let line = stats.lines().find(|line| line.contains("uid.filter.rejected")).unwrap();
    assert!(line.contains(" 3 kind=raw"), "{line}");
}

#[tokio::test]
async fn new_rules_apply_to_cached_series() {
    let tsd = Tsd::start().await;
    let put = |time: u32| format!("put m {time} 1 host=a\n");
    assert_eq!(tsd.exchange(put(1_356_998_400).as_bytes()).await, "");
    set(&tsd, "deny m");
    assert!(tsd.exchange(put(1_356_998_401).as_bytes()).await.contains("line 1 of its rules"));
    set(&tsd, "allow m\ndeny *");
    assert_eq!(tsd.exchange(put(1_356_998_402).as_bytes()).await, "");
    let points = tsd.get(&format!("/api/query?{RANGE}&m=sum:m")).await.json();
    assert_eq!(points[0]["dps"].as_object().unwrap().len(), 2);
}

//! Every recorded query case at the level of this crate: points in, numbers out.
//!
//! The results were recorded from OpenTSDB. Each case builds a small table, executes its query
//! through the crate's public interface and compares every series, timestamp and value, doubles to
//! the last bit and integers distinct from doubles.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod compare;
mod execute;
mod request;
mod table;

use serde_json::{Value as Json, json};

/// Endpoints of cases that other parts of the server cover, with the reason.
const SKIPPED_ENDPOINTS: &[(&str, &str)] = &[
    ("/api/query/last", "last points are read by key, not planned or evaluated here"),
    ("/api/search/lookup", "lookup reads the meta table"),
];

fn read(file: &str) -> Vec<Json> {
    let path = format!("{}/../../tests/data/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn skip_reason(case: &Json) -> Option<&'static str> {
    let uri = case["request"]["uri"].as_str().unwrap_or("/api/query");
    let path = uri.split('?').next().unwrap();
    SKIPPED_ENDPOINTS.iter().find(|(endpoint, _)| *endpoint == path).map(|(_, why)| *why)
}

fn run(file: &str) {
    let mut failures = Vec::new();
    let (mut passed, mut skipped) = (0, 0);
    for case in read(file) {
        let name = case["name"].as_str().unwrap();
        if let Some(why) = skip_reason(&case) {
            println!("{name}: skipped, {why}");
            skipped += 1;
            continue;
        }
        for salt_buckets in [0, 20] {
            match compare::check(&case, &execute::execute(&case, salt_buckets)) {
                Ok(()) => passed += 1,
                Err(why) => failures.push(format!("{name} ({salt_buckets} buckets): {why}")),
            }
        }
        println!("{name}: run");
    }
    println!("{file}: {passed} runs passed, {} failed, {skipped} cases skipped", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn recorded_cases_match_to_the_last_bit() {
    run("query-cases.json");
}

#[test]
fn value_filter_cases_match_to_the_last_bit() {
    run("value-filter-cases.json");
}

/// As a real OpenTSDB answered: without tags of filters all series have one key. The last of them is the
/// column, but the others' times are rows too.
#[test]
fn series_with_the_same_join_key_add_their_times() {
    let point = |host: &str, timestamp: u32, value: i32| json!({"metric": "m", "timestamp": timestamp, "value": value, "tags": {"host": host}});
    for operator in ["union", "intersection"] {
        let case = json!({
            "name": "exp-one-key",
            "points": [
                point("a", 1_356_998_400, 5), point("a", 1_356_998_460, 6),
                point("b", 1_356_998_520, 7), point("b", 1_356_998_580, 8),
            ],
            "request": {"method": "POST", "uri": "/api/query/exp"},
            "query": {
                "time": {"start": "1356998400", "end": "1357002000", "aggregator": "sum"},
                "metrics": [{"id": "a", "metric": "m", "aggregator": "none"}],
                "expressions": [{"id": "e", "expr": "a + '1'",
                    "join": {"operator": operator, "useQueryTags": true}}],
            },
        });
        let found = execute::execute(&case, 0).unwrap();
        let expected = json!([
            [1_356_998_400_000_i64, 1.0],
            [1_356_998_460_000_i64, 1.0],
            [1_356_998_520_000_i64, 8.0],
            [1_356_998_580_000_i64, 9.0],
        ]);
        assert_eq!(found["outputs"][0]["dps"], expected, "{operator}");
    }
}

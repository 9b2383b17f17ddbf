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

use serde_json::Value as Json;

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

//! Every recorded query case at the level of this crate: points in, numbers out.
//!
//! The answers were taken from a real OpenTSDB. Each case builds a small table, asks its query
//! through the crate's public interface and compares every series, timestamp and value, doubles to
//! the last bit and integers apart from doubles.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod ask;
mod compare;
mod request;
mod table;

use serde_json::Value as Json;

/// Cases about other parts of the server, by endpoint.
const ELSEWHERE: &[(&str, &str)] = &[
    ("/api/query/last", "last points are read by key, not planned or evaluated here"),
    ("/api/search/lookup", "lookup reads the meta table"),
];

fn read(file: &str) -> Vec<Json> {
    let path = format!("{}/../../tests/data/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn not_covered(case: &Json) -> Option<&'static str> {
    let uri = case["request"]["uri"].as_str().unwrap_or("/api/query");
    let path = uri.split('?').next().unwrap();
    ELSEWHERE.iter().find(|(endpoint, _)| *endpoint == path).map(|(_, why)| *why)
}

fn run(file: &str) {
    let mut failures = Vec::new();
    let (mut passed, mut left_out) = (0, 0);
    for case in read(file) {
        let name = case["name"].as_str().unwrap();
        if let Some(why) = not_covered(&case) {
            println!("{name}: not run here, {why}");
            left_out += 1;
            continue;
        }
        for salt_buckets in [0, 20] {
            match compare::check(&case, &ask::ask(&case, salt_buckets)) {
                Ok(()) => passed += 1,
                Err(why) => failures.push(format!("{name} ({salt_buckets} buckets): {why}")),
            }
        }
        println!("{name}: run");
    }
    println!(
        "{file}: {passed} runs passed, {} failed, {left_out} cases not run here",
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn recorded_cases_are_answered_to_the_last_bit() {
    run("query-cases.json");
}

#[test]
fn value_filter_cases_are_answered_to_the_last_bit() {
    run("value-filter-cases.json");
}

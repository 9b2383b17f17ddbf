//! Query responses recorded from a real OpenTSDB, replayed over HTTP against a daemon per case.
//!
//! Each case runs with unsalted keys and with twenty salt buckets, by the series index and by scans. Series, timestamps and values are
//! compared, doubles bit by bit, and so are error responses.

mod compare;
pub(crate) mod json;
mod replay;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use json::Json;
use replay::replay;
use tokio::runtime::Runtime;

use crate::report;

/// Cases replayed at once.
const WORKERS: usize = 2;
/// Salt buckets of a run, 0 is unsalted, and when it uses the series index.
const SETTINGS: [(u32, &str); 3] = [(0, "always"), (20, "always"), (20, "never")];

#[test]
fn responses_equal_those_recorded_from_opentsdb() {
    let queries = load(include_str!("data/query-cases.json"));
    let value_filters = load(include_str!("data/value-filter-cases.json"));
    let runs: Vec<(&Json, (u32, &str))> = queries
        .iter()
        .chain(&value_filters)
        .flat_map(|case| SETTINGS.map(|settings| (case, settings)))
        .collect();
    let failures = run(&runs);
    for failure in &failures {
        report(failure);
    }
    report(&format!(
        "conformance: {} cases x {} settings + {} x {1} value-filter cases: {} passed, {} \
         failed",
        queries.len(),
        SETTINGS.len(),
        value_filters.len(),
        runs.len() - failures.len(),
        failures.len()
    ));
    assert!(failures.is_empty(), "{} cases differ", failures.len());
}

fn load(text: &str) -> Vec<Json> {
    Json::parse(text).expect("a list of cases").items().to_vec()
}

/// Replays all; returns the failures in the order of the list.
fn run(runs: &[(&Json, (u32, &str))]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let runtime = Runtime::new().expect("a runtime");
        let mut failures = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((case, (buckets, index_use))) = runs.get(index) else { break failures };
            if let Err(difference) = replay(&runtime, case, *buckets, index_use) {
                let name = case.text_of("name").unwrap_or("an unnamed case");
                failures.push((
                    index,
                    format!("{name}, {buckets} buckets, index {index_use}: {difference}"),
                ));
            }
        }
    };
    let mut failures = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|w| w.join().expect("no panic")).collect::<Vec<_>>()
    });
    failures.sort();
    failures.into_iter().map(|(_, failure)| failure).collect()
}

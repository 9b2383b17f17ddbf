//! What OpenTSDB 2.4.1 left in its tables after the same steps: cell for cell, on every store.
//!
//! Cases whose steps need what is not there yet stand by name in `golden/not_yet.txt` and are
//! counted; every other case runs. The recording is in `data/golden/`, explained by its README.

mod case;
mod mend;
mod replay;

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use case::{Case, TOPICS, load};
use replay::{Store, replay};

use crate::report;

const NOT_YET: &str = include_str!("golden/not_yet.txt");
/// Cases at once; most of a case is waiting.
const WORKERS: usize = 4;

#[test]
fn tables_equal_the_recorded_ones_on_the_memory_store() {
    run(Store::Memory);
}

#[test]
fn tables_equal_the_recorded_ones_on_the_embedded_store() {
    run(Store::Embedded);
}

#[test]
fn cases_not_yet_run_are_cases_of_the_recording() {
    let names: BTreeSet<String> = TOPICS.into_iter().flat_map(load).map(|c| title(&c)).collect();
    let strangers: Vec<_> = not_yet().difference(&names).cloned().collect();
    assert!(strangers.is_empty(), "not in the recording: {strangers:#?}");
}

fn run(store: Store) {
    let not_yet = not_yet();
    let (waiting, mut cases): (Vec<_>, Vec<_>) =
        TOPICS.into_iter().flat_map(load).partition(|case| not_yet.contains(&title(case)));
    for case in &mut cases {
        mend::mend(case);
    }
    let next = AtomicUsize::new(0);
    let failures: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut failures = Vec::new();
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(difference) = replay(case, store) {
                            failures.push(format!("{}: {difference}", title(case)));
                        }
                    }
                    failures
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    report(&format!(
        "golden: {} run, {} passed, {} not yet run ({store:?})",
        cases.len(),
        cases.len() - failures.len(),
        waiting.len()
    ));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn title(case: &Case) -> String {
    format!("{}: {}", case.topic, case.name)
}

fn not_yet() -> BTreeSet<String> {
    NOT_YET
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

//! Tables recorded from OpenTSDB 2.4.1 are compared, cell by cell, with ours after the same steps.
//!
//! `golden/not_yet.txt` lists the cases whose steps are not implemented; they are counted, every other
//! case runs. The recording is in `data/golden/`, explained by its README.

mod case;
mod defects;
mod fsck;
mod replay;

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use case::{GoldenCase, TOPICS, load};
use replay::{GoldenStore, replay};

use crate::report;

const NOT_YET: &str = include_str!("golden/not_yet.txt");
/// Cases replayed at once; a case mostly waits.
const WORKERS: usize = 4;

#[test]
fn tables_equal_the_recorded_ones_on_the_memory_store() {
    run(GoldenStore::Memory);
}

#[test]
fn tables_equal_the_recorded_ones_on_the_embedded_store() {
    run(GoldenStore::Embedded);
}

#[test]
fn skipped_cases_exist_in_the_recording() {
    let names: BTreeSet<String> = TOPICS.into_iter().flat_map(load).map(|c| title(&c)).collect();
    let unknown: Vec<_> = not_yet().difference(&names).cloned().collect();
    assert!(unknown.is_empty(), "not in the recording: {unknown:#?}");
}

fn run(store: GoldenStore) {
    let not_yet = not_yet();
    let (skipped, mut cases): (Vec<_>, Vec<_>) =
        TOPICS.into_iter().flat_map(load).partition(|case| not_yet.contains(&title(case)));
    for case in &mut cases {
        defects::correct(case);
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
        skipped.len()
    ));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn title(case: &GoldenCase) -> String {
    format!("{}: {}", case.topic, case.name)
}

fn not_yet() -> BTreeSet<String> {
    NOT_YET
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

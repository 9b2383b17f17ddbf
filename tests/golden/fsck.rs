//! Replays `fsck`: runs the check on the daemon's store and compares its lines with the recorded ones.

use parking_lot::Mutex;
use std::sync::{Arc, atomic::AtomicBool};

use bytes::Bytes;
use tokio::runtime::Runtime;
use tsd_engine::EngineHandle;
use tsd_tools::{FsckLevel, FsckObserver, FsckOptions, FsckReport, FsckRun};

/// The lines of a check.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl FsckObserver for Lines {
    fn found(&self, level: FsckLevel, text: &str) {
        let text = format!("{level} {text}");
        self.0.lock().extend(text.split('\n').map(str::to_owned));
    }

    fn advanced(&self, _: usize, _: &Bytes, _: u64, _: &FsckReport) {}
}

/// Runs a recorded check.
pub(crate) fn check(
    runtime: &Runtime,
    engine: &EngineHandle,
    flags: &[String],
    exit: i64,
    output: &[String],
) -> Result<(), String> {
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let one = |flag: &str| has(flag) || has("--fix-all");
    let options = FsckOptions {
        fix: one("--fix"),
        compact: one("--compact"),
        resolve_duplicates: one("--resolve-duplicates"),
        last_write_wins: has("--last-write-wins"),
        delete_orphans: one("--delete-orphans"),
        delete_unknown_columns: one("--delete-unknown-columns"),
        delete_bad_values: one("--delete-bad-values"),
        delete_bad_rows: one("--delete-bad-rows"),
        delete_bad_compacts: one("--delete-bad-compacts"),
    };
    let run = FsckRun {
        options,
        selections: Vec::new(),
        threads: 1,
        max_rows_per_sec: None,
        checked: [].into(),
    };
    let lines = Arc::new(Lines::default());
    let checked =
        tsd_tools::fsck(engine, run, Arc::<Lines>::clone(&lines), Arc::new(AtomicBool::new(false)));
    let report = runtime.block_on(checked).map_err(|error| error.to_string())?;
    engine.drop_caches();
    let mut found = lines.0.lock().clone();
    let counters = report.lines().into_iter().filter(|(_, count)| *count > 0);
    found.extend(counters.map(|(label, count)| format!("INFO {label}: {count}")));
    let found: Vec<String> = found.iter().map(|line| without_times(line)).collect();
    // Lines of columns that are put in order are not part of the corrected output.
    let output: Vec<String> = output.iter().map(|line| without_times(line)).collect();
    let all_in_order = output
        .iter()
        .try_fold(found.iter(), |mut rest, line| rest.any(|found| found == line).then_some(rest));
    let expected_exit = i64::from(report.errors() > 0);
    if expected_exit != exit || all_in_order.is_none() {
        return Err(format!(
            "fsck: exit {expected_exit} instead of {exit}\n{}\n  instead of\n{}",
            found.join("\n"),
            output.join("\n")
        ));
    }
    Ok(())
}

/// A line without the times of cells, which are recorded as 0.
pub(crate) fn without_times(line: &str) -> String {
    let mut line = line.to_owned();
    for (before, after) in [("timestamp=", ")"), ("write time: (", ")")] {
        if let Some((start, rest)) = line.split_once(before)
            && let Some((_, end)) = rest.split_once(after)
        {
            line = format!("{start}{before}0{after}{end}");
        }
    }
    line
}

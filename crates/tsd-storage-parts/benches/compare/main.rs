//! Parts against the LSM tree: the same flushes, the same queries, answers checked against a model.
//!
//! Options: `--design parts|lsm-series|lsm-hour`, `--data wide|long`, `--series N`, `--days N`,
//! `--interval SECS`, `--span-days N`. One design per process, so that the peak memory is its own.
//!
//! - `parts`: this crate. Spans that closed are merged as they close.
//! - `lsm-series`: the tree with keys in the order metric, day, series, hour.
//! - `lsm-hour`: the tree with keys as they are today: metric, hour, series. A selection walks over
//!   all rows of the time range, as today.
//!
//! Flushes are in order of time. 3 % of the points come later, 1 % are corrected later. The queries run
//! in the middle of the load, at its end, and when all merges are done (`settled`); the tree is measured
//! once more after the rows were compacted (`compacted`), which parts do by merging.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a bench may panic"
)]

mod design;
mod load;
mod queries;
mod report;

use std::{collections::BTreeMap, fs, path::PathBuf};

use crate::{
    design::{Design, open, wait_for_compaction},
    load::{BenchRows, DAY, HOUR, Load, load, option},
    queries::queries,
    report::{cpu, peak_mib, run_queries, thread_cpu, written},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|a| a != "--bench" && a != "--test").collect();
    let arguments: BTreeMap<String, String> =
        words.chunks(2).filter(|p| p.len() == 2).map(|p| (p[0].clone(), p[1].clone())).collect();
    let wide = arguments.get("--data").is_none_or(|d| d == "wide");
    let name = arguments.get("--design").map_or("parts", String::as_str).to_owned();
    let load = load(&arguments, wide);
    let span = option(&arguments, "--span-days", 1) * DAY;
    let dir: PathBuf = tempfile::tempdir().unwrap().keep();
    let design = open(&name, &dir, span);
    println!("design {name}, {load:?}, span {} days", span / DAY);
    let queries = queries(&load, wide);
    let flushes = load.flushes();
    let points = u64::from(load.series) * u64::from(load.steps);
    let (mut flush_cpu, mut merge_cpu, mut rows_built) = (0.0, 0.0, 0_u64);
    let io_before = written();
    let half = flushes.len() / 2 + 3;
    for (index, flush) in flushes.iter().enumerate() {
        let rows = BenchRows::build(&load, design.order(), &load.points(flush), false);
        rows_built += rows.cells.len() as u64;
        let before = cpu();
        design.flush(rows);
        flush_cpu += cpu() - before;
        let before = cpu();
        // Spans whose late points have come are closed.
        let now = load.time(flush.steps.start.saturating_sub(load.lag)).saturating_sub(HOUR);
        design.merge(now);
        if let Design::Parts { store, .. } = &design
            && !wide
        {
            while store.merge_closed(now).unwrap() {}
        }
        merge_cpu += cpu() - before;
        if index == half {
            if let Design::Lsm { lsm, .. } = &design {
                wait_for_compaction(lsm);
            }
            run_queries(&design, &load, &queries, "half", false);
        }
    }
    if let Design::Lsm { lsm, .. } = &design {
        wait_for_compaction(lsm);
        merge_cpu = thread_cpu("lsm-compactor");
    }
    run_queries(&design, &load, &queries, "loaded", true);
    let report = |state: &str, merge_cpu: f64| {
        let million = rows_built as f64 / 1e6;
        println!(
            "{state:>10} | {points} points, {rows_built} written | {:.3} B/point on disk | {:.2} B/point \
             written | amplification {:.2} | flush {flush_cpu:.2} cpu-s, merge {merge_cpu:.2} cpu-s \
             ({:.3} per million points) | peak {:.0} MiB",
            design.disk_bytes() / points as f64,
            (written() - io_before) / rows_built as f64,
            (written() - io_before) / design.disk_bytes(),
            merge_cpu / million,
            peak_mib()
        );
    };
    report("loaded", merge_cpu);
    let before = cpu();
    design.settle();
    merge_cpu += cpu() - before;
    if let Design::Lsm { .. } = &design {
        merge_cpu = thread_cpu("lsm-compactor");
    }
    report("settled", merge_cpu);
    run_queries(&design, &load, &queries, "settled", true);
    if let Design::Parts { store, .. } = &design {
        println!("{:>10} | {:?}", "parts", store.stats());
    }
    if matches!(design, Design::Lsm { .. }) && !wide {
        // The rows as row compaction leaves them; its log is not counted. Wide rows have one point.
        let before = cpu();
        for flush in &flushes {
            let steps = flush.steps.start.min(load.steps)..flush.steps.end.min(load.steps);
            let all: Vec<_> = flush
                .series
                .clone()
                .flat_map(|s| steps.clone().map(move |t| (s, t, Load::is_corrected(s, t))))
                .collect();
            design.flush(BenchRows::build(&load, design.order(), &all, true));
        }
        design.settle();
        println!("{:>10} | {:.2} cpu-s (building the rows included)", "rows", cpu() - before);
        report("compacted", thread_cpu("lsm-compactor"));
        run_queries(&design, &load, &queries, "compacted", true);
    }
    drop(design);
    fs::remove_dir_all(&dir).unwrap();
}

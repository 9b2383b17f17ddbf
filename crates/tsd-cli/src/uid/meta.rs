//! `tsdb uid metasync` and `metapurge`: runs over all names and series, with their progress on a terminal.

use std::{
    future::Future,
    io::{IsTerminal, stderr},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tsd_engine::{EngineHandle, MetaPurgeProgress, MetaSyncProgress};

use super::{output::UidOutput, status::FAILED};
use crate::tell;

/// Time between two updates of the progress.
const INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn sync(engine: &EngineHandle, out: &mut UidOutput<'_>) -> u8 {
    let progress = Arc::new(MetaSyncProgress::default());
    // Twice the processors, as in OpenTSDB.
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get() * 2);
    let run = engine.sync_meta(threads, Arc::clone(&progress));
    let result = shown(run, "series", &progress.rows, &progress.series).await;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = [
        ("series", count(&progress.series)),
        ("counters created", count(&progress.counters)),
        ("TSMeta created", count(&progress.ts_metas)),
        ("UIDMeta created", count(&progress.uid_metas)),
        ("creation times corrected", count(&progress.corrected_times)),
        ("skipped", count(&progress.skipped)),
    ];
    ended("metasync", result.map_err(|error| format!("{error:#}")), &counts, out)
}

pub(super) async fn purge(engine: &EngineHandle, out: &mut UidOutput<'_>) -> u8 {
    let progress = Arc::new(MetaPurgeProgress::default());
    let run = engine.purge_meta(Arc::clone(&progress));
    let result = shown(run, "UIDMeta deleted", &progress.rows, &progress.uid_metas).await;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = [
        ("UIDMeta deleted", count(&progress.uid_metas)),
        ("TSMeta and counters deleted", count(&progress.series_cells)),
    ];
    ended("metapurge", result.map_err(|error| format!("{error:#}")), &counts, out)
}

fn ended(
    what: &str,
    result: Result<(), String>,
    counts: &[(&str, u64)],
    out: &mut UidOutput<'_>,
) -> u8 {
    out.counted(what, counts);
    match result {
        Ok(()) => 0,
        Err(error) => {
            tell!("tsdb: {what} has failed, it can be repeated: {error}");
            FAILED
        }
    }
}

/// Waits for a run and shows how far it is, on a terminal.
async fn shown<T>(
    run: impl Future<Output = T>,
    what: &'static str,
    rows: &AtomicU64,
    done: &AtomicU64,
) -> T {
    let bar = ProgressBar::no_length();
    let is_terminal = stderr().is_terminal();
    bar.set_draw_target(if is_terminal {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    });
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} rows  {per_sec}  {msg}") {
        bar.set_style(style);
    }
    let mut run = pin!(run);
    let mut ticks = tokio::time::interval(INTERVAL);
    let result = loop {
        tokio::select! {
            result = &mut run => break result,
            _ = ticks.tick() => {
                bar.set_position(rows.load(Ordering::Relaxed));
                bar.set_message(format!("{} {what}", done.load(Ordering::Relaxed)));
            }
        }
    };
    bar.finish_and_clear();
    result
}

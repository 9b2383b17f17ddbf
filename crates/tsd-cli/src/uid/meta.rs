//! `tsdb uid metasync` and `metapurge`: run over all names and series, and show their progress on a terminal.

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tsd_engine::{EngineHandle, MetaPurgeProgress, MetaSyncProgress};

use super::{output::UidOutput, status::FAILED};
use crate::{progress_bar::progress_bar, tell, tool::default_threads};

/// Time between two updates of the progress.
const INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn sync(engine: &EngineHandle, out: &mut UidOutput<'_>) -> u8 {
    let progress = Arc::new(MetaSyncProgress::default());
    let run = engine.sync_meta(default_threads(), Arc::clone(&progress));
    let result = shown(run, "series", &progress.rows, &progress.series).await;
    let counts = [
        ("series", &progress.series),
        ("counters created", &progress.counters),
        ("TSMeta created", &progress.ts_metas),
        ("UIDMeta created", &progress.uid_metas),
        ("creation times corrected", &progress.corrected_times),
        ("skipped", &progress.skipped),
    ];
    ended("metasync", result, &counts, out)
}

pub(super) async fn purge(engine: &EngineHandle, out: &mut UidOutput<'_>) -> u8 {
    let progress = Arc::new(MetaPurgeProgress::default());
    let run = engine.purge_meta(Arc::clone(&progress));
    let result = shown(run, "UIDMeta deleted", &progress.rows, &progress.uid_metas).await;
    let counts = [
        ("UIDMeta deleted", &progress.uid_metas),
        ("TSMeta and counters deleted", &progress.series_cells),
    ];
    ended("metapurge", result, &counts, out)
}

fn ended(
    what: &str,
    result: Result<(), impl fmt::Display>,
    counts: &[(&str, &AtomicU64)],
    out: &mut UidOutput<'_>,
) -> u8 {
    let counts = counts.iter().map(|(name, counter)| (*name, counter.load(Ordering::Relaxed)));
    out.counted(what, &counts.collect::<Vec<_>>());
    match result {
        Ok(()) => 0,
        Err(error) => {
            tell!("tsdb: {what} failed and can be repeated: {error:#}");
            FAILED
        }
    }
}

/// Waits for a run and shows its progress on a terminal.
async fn shown<T>(
    run: impl Future<Output = T>,
    what: &'static str,
    rows: &AtomicU64,
    done: &AtomicU64,
) -> T {
    let bar = progress_bar(None, "{spinner} {pos} rows  {per_sec}  {msg}");
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

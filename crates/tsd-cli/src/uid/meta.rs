//! `tsdb uid metasync` and `metapurge`: run over all names and series.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tsd_engine::{EngineHandle, MetaPurgeProgress, MetaSyncProgress};

use super::{
    command::UidFlags,
    output::UidOutput,
    status::{FAILED, stopped},
};
use crate::{console::Console, tell, tool::default_threads};

pub(super) async fn sync(engine: &EngineHandle, flags: UidFlags, out: &mut UidOutput<'_>) -> u8 {
    let progress = Arc::new(MetaSyncProgress::default());
    let run = engine.sync_meta(default_threads(), Arc::clone(&progress));
    let counts = [
        ("series", &progress.series),
        ("counters created", &progress.counters),
        ("TSMeta created", &progress.ts_metas),
        ("UIDMeta created", &progress.uid_metas),
        ("creation times corrected", &progress.corrected_times),
        ("skipped", &progress.skipped),
    ];
    shown(run, MetaCounts { what: "metasync", rows: &progress.rows, counts: &counts }, flags, out)
        .await
}

pub(super) async fn purge(engine: &EngineHandle, flags: UidFlags, out: &mut UidOutput<'_>) -> u8 {
    let progress = Arc::new(MetaPurgeProgress::default());
    let run = engine.purge_meta(Arc::clone(&progress));
    let counts = [
        ("UIDMeta deleted", &progress.uid_metas),
        ("TSMeta and counters deleted", &progress.series_cells),
    ];
    shown(run, MetaCounts { what: "metapurge", rows: &progress.rows, counts: &counts }, flags, out)
        .await
}

/// The counts of a run, which other tasks increase.
struct MetaCounts<'a> {
    what: &'static str,
    rows: &'a AtomicU64,
    counts: &'a [(&'static str, &'a AtomicU64)],
}

/// Waits for a run, and shows the rows and the first count. Prints all counts at the end; returns the exit status.
async fn shown<E: Into<anyhow::Error>>(
    run: impl Future<Output = Result<(), E>>,
    MetaCounts { what, rows, counts }: MetaCounts<'_>,
    flags: UidFlags,
    out: &mut UidOutput<'_>,
) -> u8 {
    let counted = || counts.iter().map(|(name, count)| (*name, count.load(Ordering::Relaxed)));
    let console = Console::new(what, flags.json, flags.stops_on_signals);
    let show = async || {
        let done = counted().take(1).map(|(name, count)| format!(", {count} {name}"));
        let rows = rows.load(Ordering::Relaxed);
        console.show(None, &[(rows, "rows")], &done.collect::<String>());
    };
    let result = console.watch(run, show, "it can be repeated").await;
    drop(console);
    out.counted(what, &counted().collect::<Vec<_>>());
    match result {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            let error: anyhow::Error = error.into();
            tell!("tsdb: {what} failed and can be repeated: {error:#}");
            FAILED
        }
        Err(by_signal) => stopped(&by_signal),
    }
}

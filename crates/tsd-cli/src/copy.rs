//! `tsdb copy`: copies a store to another one, catches up, and compares both.
//!
//! This process opens both stores. A file keeps the progress, so that the copy can be interrupted at any moment, and
//! so that cells written to the source meanwhile can be copied later ([`state_file`]).

mod location;
mod progress;
mod report;
mod state_file;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tsd_tools::{CopyRun, CopySelection, CopyStores, TableComparison};

use crate::{
    args::CopyArgs,
    config::Settings,
    console::Stopped,
    krb5_environment, logging,
    node::OpenEngine,
    output::print_result,
    query, tell,
    tool::{NotClosed, checked, default_threads},
};
use location::{OpenFor, StoreLocation, resolved, whole};
use progress::CopyProgress;
use report::CopyReport;
use state_file::{CopyState, StateFile};

/// Name of the state file if no place is a data directory.
const STATE_FILE: &str = "tsdb-copy-state.json";
/// Suffix of the state file next to a data directory, after the directory's name.
const STATE_SUFFIX: &str = ".copy-state.json";

/// Runs the command. The exit status is 0 if everything was copied unchanged and nothing differs, else 1; 2 if the
/// command failed; 128 plus the number of a signal that stopped it.
pub(crate) fn main(args: &CopyArgs) -> ExitCode {
    let hint = if args.repair {
        "repairs that were made stay"
    } else if args.compare || args.dry_run {
        "nothing was changed"
    } else {
        "run the same command again to continue"
    };
    checked(run(args).and_then(|ended| {
        print_result(args.json, &ended.as_json(), || Ok(ended.as_lines()))?;
        let stopped = ended.signal.map(|signal| Stopped { signal, hint });
        stopped.map_or(Ok(ended.is_clean()), |stopped| Err(stopped.into()))
    }))
}

fn run(args: &CopyArgs) -> anyhow::Result<CopyReport> {
    let from = StoreLocation::source(args)?;
    let mut to = StoreLocation::target(args)?;
    let settings = from.settings()?;
    // Both places share one krb5.conf; the source's comes first.
    krb5_environment::set(&settings.storage.hbase)?;
    krb5_environment::set(&to.settings()?.storage.hbase)?;
    logging::start(&settings.log);
    let selection = selection(args, &settings)?;
    ensure!(from.identity()? != to.identity()?, "--from and --to name the same store");
    if let (Some(source), Some(target)) = (from.directory()?, to.directory()?) {
        let (source, target) = (resolved(&source), resolved(&target));
        ensure!(
            !target.starts_with(&source) && !source.starts_with(&target),
            "the data directories {} and {} lie one inside the other; name a target outside the source",
            source.display(),
            target.display()
        );
    }
    from.check_tables()?;
    if args.compare {
        to.check_tables()?;
    }
    tokio::runtime::Runtime::new()?.block_on(run_open(args, &from, &mut to, &settings, selection))
}

async fn run_open(
    args: &CopyArgs,
    from: &StoreLocation,
    to: &mut StoreLocation,
    settings: &Settings,
    selection: CopySelection,
) -> anyhow::Result<CopyReport> {
    let source = from.open(OpenFor::Reading).await?;
    let limit = settings.shutdown_timeout;
    let opened = async {
        to.follow(from, source.engine.config().schema)?;
        to.open(if args.dry_run { OpenFor::DryRun } else { OpenFor::writing(!args.compare) }).await
    };
    let target = match opened.await {
        Ok(target) => target,
        Err(error) => {
            source.close(limit).await?;
            return Err(error);
        }
    };
    let command = CopyCommand { args, from, to, settings };
    let ended = command.copy(&source, &target, selection).await;
    let closed = target.close(limit).await.map_err(|error| error.context(NotClosed));
    let source_closed = source.close(limit).await;
    let ended = ended?;
    closed.and(source_closed)?;
    Ok(ended)
}

/// The selected tables, metrics and times.
fn selection(args: &CopyArgs, settings: &Settings) -> anyhow::Result<CopySelection> {
    let clock = query::clock(&settings.zone_name);
    let second = |text: &Option<String>| -> anyhow::Result<Option<u32>> {
        let Some(text) = text else { return Ok(None) };
        let ms = time_ms(text, &clock)?;
        Ok(Some(u32::try_from(ms.max(0) / 1_000).unwrap_or(u32::MAX)))
    };
    let (start, end) = (second(&args.start)?, second(&args.end)?);
    let seconds = (start.is_some() || end.is_some())
        .then_some((start.unwrap_or_default(), end.unwrap_or(u32::MAX)));
    if let Some((first, last)) = seconds {
        ensure!(first <= last, "--start is later than --end");
    }
    let kinds = args.tables.iter().map(|table| table.kind()).collect();
    Ok(CopySelection { metrics: args.metric.clone(), seconds, kinds })
}

/// A time in the notations of queries.
fn time_ms(text: &str, clock: &tsd_query::Clock) -> anyhow::Result<i64> {
    let parsed = tsd_query::parse_time(text, None, clock).ok().flatten();
    parsed.with_context(|| {
        format!(
            "{text:?} is not a time; expected 30d-ago, 2013/01/01-00:00:00, or seconds since 1970"
        )
    })
}

/// The command line of a copy, with the stores that it names.
struct CopyCommand<'a> {
    args: &'a CopyArgs,
    from: &'a StoreLocation,
    to: &'a StoreLocation,
    /// Of the source.
    settings: &'a Settings,
}

impl CopyCommand<'_> {
    async fn copy(
        &self,
        source: &OpenEngine,
        target: &OpenEngine,
        selection: CopySelection,
    ) -> anyhow::Result<CopyReport> {
        let args = self.args;
        let ends = CopyStores { from: source.engine.clone(), to: target.engine.clone() };
        let by_name = args.rekey || ends.keys_differ();
        let mut run = CopyRun {
            selection,
            by_name: args.rekey,
            since_ms: None,
            keeps_newer: false,
            copied_before_ms: None,
            threads: args.threads.map_or_else(default_threads, usize::from),
            max_cells_per_sec: args.rate,
            max_bytes_per_sec: args.byte_rate,
            dry_run: args.dry_run,
            repairs: args.repair,
            copied: std::collections::BTreeMap::new(),
        };
        for text in ends.doubts_about_keys().await? {
            tell!("tsdb: {text}");
        }
        let state = if args.compare { None } else { Some(self.state_file()?) };
        let copying = match &state {
            None => None,
            Some(file) => Some(self.begin(file, &ends, &mut run).await?),
        };
        let started = Instant::now();
        let file = state.filter(|_| !args.dry_run);
        let progress = Arc::new(CopyProgress::new(args, copying.clone(), file)?);
        let stop = &progress.console.stop;
        let mut result = Ok(());
        if copying.is_some() {
            let observer = Arc::<CopyProgress>::clone(&progress);
            result = ends.copy(run.clone(), observer, Arc::clone(&stop.flag)).await;
        }
        let is_whole = result.is_ok() && stop.signal().is_none();
        progress.end(is_whole)?;
        result?;
        let mut compared: Option<Vec<TableComparison>> = None;
        if is_whole && (args.compare || args.verify) {
            progress.console.begin("compare");
            let observer = Arc::<CopyProgress>::clone(&progress);
            compared = Some(ends.compare(run.clone(), observer, Arc::clone(&stop.flag)).await?);
        }
        let (tables, findings) = progress.close()?;
        Ok(CopyReport {
            is_copy: !args.compare,
            is_dry: args.dry_run,
            by_name,
            since_ms: run.since_ms,
            tables,
            compared,
            findings,
            duration: started.elapsed(),
            signal: stop.signal(),
        })
    }

    /// The state of the copy that begins or continues.
    async fn begin(
        &self,
        file: &StateFile,
        ends: &CopyStores,
        run: &mut CopyRun,
    ) -> anyhow::Result<CopyState> {
        let args = self.args;
        let scope = self.scope()?;
        let mut former = if args.restart { None } else { file.read(&scope)? };
        let has_copied = |state: &CopyState| state.tables.values().any(|table| table.cells > 0);
        if former.as_ref().is_some_and(has_copied) && !ends.target_has_rows(&run.selection).await? {
            // The target was created again, or emptied: the state is about another target.
            tell!("tsdb: the target is empty, so the copy begins from the start");
            former = None;
        }
        if args.since.is_some() {
            ensure!(
                !self.from.has_times_of_points()?,
                "with tsd.storage.use_otsdb_timestamp cells have the times of their points, which do not tell when \
                 they were written: copy again without --since, which copies newer cells"
            );
        }
        let state = match (former, &args.since) {
            (Some(former), None) if !former.is_complete && former.since_ms.is_none() => former,
            (Some(former), Some(_)) if !former.is_complete && former.since_ms.is_some() => former,
            (Some(former), Some(_)) if !former.is_complete => {
                bail!(
                    "the copy that began at {} is not complete; run it without --since first",
                    former.started_ms
                );
            }
            (former, since) => {
                let since_ms = self.since_ms(since.as_deref(), former.as_ref())?;
                let is_exclusive = self.to.directory()?.is_some();
                let has_rows = since_ms.is_some() || ends.target_has_rows(&run.selection).await?;
                CopyState {
                    scope,
                    started_ms: now_ms(),
                    since_ms,
                    copied_before_ms: former.map(|former| former.started_ms),
                    keeps_newer: is_exclusive && has_rows,
                    ..CopyState::default()
                }
            }
        };
        let has_begun = (!state.ranges.is_empty()).then_some(state.started_ms);
        run.copied_before_ms = state.copied_before_ms.max(has_begun);
        run.since_ms = state.since_ms;
        run.keeps_newer = state.keeps_newer;
        run.copied.clone_from(&state.ranges);
        Ok(state)
    }

    /// The time from which cells are copied.
    fn since_ms(
        &self,
        since: Option<&str>,
        former: Option<&CopyState>,
    ) -> anyhow::Result<Option<i64>> {
        let Some(since) = since else { return Ok(None) };
        if since.eq_ignore_ascii_case("last") {
            let former = former.context(
                "--since last: there is no state of an earlier copy; name a time, or the state file with --state",
            )?;
            let margin_ms = i64::from(self.args.margin) * 1_000;
            return Ok(Some(former.started_ms.saturating_sub(margin_ms).max(0)));
        }
        let clock = query::clock(&self.settings.zone_name);
        Ok(Some(time_ms(since, &clock)?))
    }

    /// Both places, and the selection as written on the command line.
    fn scope(&self) -> anyhow::Result<Value> {
        let Self { args, from, to, .. } = self;
        let kinds: Vec<String> = args.tables.iter().map(|table| format!("{table:?}")).collect();
        Ok(json!({
            "from": from.identity()?,
            "to": to.identity()?,
            "metrics": args.metric,
            "start": args.start,
            "end": args.end,
            "tables": kinds,
            "rekey": args.rekey,
        }))
    }

    /// The given file, else a file next to the data directory of the target or of the source.
    fn state_file(&self) -> anyhow::Result<StateFile> {
        if let Some(path) = &self.args.state {
            return Ok(StateFile { path: path.clone() });
        }
        let beside = |directory: PathBuf| {
            let mut name = whole(&directory).into_os_string();
            name.push(STATE_SUFFIX);
            PathBuf::from(name)
        };
        let directory = self.to.directory()?.or(self.from.directory()?);
        Ok(StateFile { path: directory.map_or_else(|| STATE_FILE.into(), beside) })
    }
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

//! `tsdb fsck`: finds damage in the data table and repairs it, with OpenTSDB's output.

mod checkpoint;

use parking_lot::Mutex;
use std::{
    fs,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tsd_engine::EngineHandle;
use tsd_tools::{FsckLevel, FsckObserver, FsckOptions, FsckReport, FsckRun, FsckSelection};

use crate::{
    args::FsckArgs,
    config::{EngineKind, Settings},
    console::{Console, StopSignal, Stopped},
    output::print_result,
    query,
    store::Purpose,
    tool::{checked, default_threads, failed, prepare, with_engine},
};
use checkpoint::{Checked, Checkpoint};

/// The result of a check.
#[derive(Debug)]
struct Ended {
    report: FsckReport,
    duration: Duration,
    signal: Option<StopSignal>,
}

/// Runs the command. The exit status is 0 without errors; 1 with errors, even if all were repaired, or if no rows are
/// named; 2 if the check failed; 128 plus the number of a signal that stopped it.
pub(crate) fn main(args: &FsckArgs) -> ExitCode {
    let hint = if args.checkpoint.is_some() {
        "run the same command again to continue"
    } else {
        "with --checkpoint FILE the same command would continue where it stopped"
    };
    let result = run(args).and_then(|ended| {
        print_result(args.json, &as_json(&ended), || Ok(as_lines(&ended)))?;
        let stopped = ended.signal.map(|signal| Stopped { signal, hint });
        stopped.map_or(Ok(ended.report.errors() == 0), |stopped| Err(stopped.into()))
    });
    match result {
        Err(error) if error.is::<NoRows>() => failed(&error),
        result => checked(result),
    }
}

/// The command line names no rows.
#[derive(Debug, thiserror::Error)]
#[error("name the rows to check: --full-scan, or START [END] FUNC METRIC [TAGK=TAGV ...]")]
struct NoRows;

fn run(args: &FsckArgs) -> anyhow::Result<Ended> {
    ensure!(args.full_scan == args.words.is_empty(), NoRows);
    let options = args.options();
    ensure!(
        options.fix
            || options
                == (FsckOptions {
                    last_write_wins: options.last_write_wins,
                    ..FsckOptions::default()
                }),
        "repairs are written only with --fix"
    );
    let (config, settings) = prepare(args.config()?)?;
    let selections = if args.full_scan {
        Vec::new()
    } else {
        let parsed = query::parse(&args.words)?;
        selections(&parsed, &query::clock(&settings.zone_name))?
    };
    let checkpoint = args.checkpoint.as_ref();
    let checkpoint =
        checkpoint.map(|path| Checkpoint::open(path.clone(), scope(args, options, &settings)));
    let (checkpoint, checked) = checkpoint.transpose()?.unzip();
    let checked = checked.unwrap_or_default();
    if let Some(checkpoint) = &checkpoint {
        // Fails now if the file cannot be written, not after hours.
        checkpoint.write(&checked)?;
    }
    let mut run = FsckRun {
        options,
        selections,
        threads: args.threads.map_or_else(default_threads, usize::from),
        max_rows_per_sec: args.rate,
        checked: checked.rows.clone(),
    };
    with_engine(&config, &settings, Purpose::Import { create: false }, async |open| {
        // The newest point wins by default in Saltern's tables, and with this setting in OpenTSDB's.
        run.options.last_write_wins |= open.engine.config().rows.fix_duplicates;
        check(&open.engine, run, args, checkpoint, checked).await
    })
}

/// Identifies a check in its checkpoint. Another selection, table or store has other key ranges, and rows that were
/// checked without a repair lack it.
fn scope(args: &FsckArgs, options: FsckOptions, settings: &Settings) -> Value {
    let storage = &settings.storage;
    let store = match storage.engine {
        EngineKind::HBase => {
            let (quorum, znode) = storage.hbase.cluster.discovery.identity();
            json!({ "quorum": quorum, "znode": znode })
        }
        EngineKind::Embedded | EngineKind::Memory => {
            let data = &storage.data_directory;
            let whole = fs::canonicalize(data).unwrap_or_else(|_| data.clone());
            json!({ "data": whole.to_string_lossy() })
        }
    };
    let FsckOptions {
        fix,
        compact,
        resolve_duplicates,
        last_write_wins,
        delete_orphans,
        delete_unknown_columns,
        delete_bad_values,
        delete_bad_rows,
        delete_bad_compacts,
    } = options;
    json!({
        "rows": args.words,
        "store": store,
        "table": settings.engine.tables.data.to_string(),
        "repairs": {
            "fix": fix,
            "compact": compact,
            "resolveDuplicates": resolve_duplicates,
            "lastWriteWins": last_write_wins || settings.engine.rows.fix_duplicates,
            "deleteOrphans": delete_orphans,
            "deleteUnknownColumns": delete_unknown_columns,
            "deleteBadValues": delete_bad_values,
            "deleteBadRows": delete_bad_rows,
            "deleteBadCompacts": delete_bad_compacts,
        },
    })
}

/// Converts queries to selections of rows.
fn selections(
    parsed: &query::ParsedArgs,
    clock: &tsd_query::Clock,
) -> anyhow::Result<Vec<FsckSelection>> {
    let query = parsed.query.clone().validate(clock)?;
    let second = |ms: i64| u32::try_from(ms.max(0) / 1_000).unwrap_or(u32::MAX);
    let seconds = (second(query.start_ms), second(query.end_ms));
    let queries = parsed.query.queries.iter().flatten().zip(&parsed.tags);
    let selection = |(query, tags): (&tsd_query::RawSubQuery, &Vec<(String, String)>)| {
        let tag = |(tagk, tagv): &(String, String)| match tagv.as_str() {
            "*" => Ok((tagk.clone(), Vec::new())),
            value if value.contains(['*', '(', ')']) => {
                bail!("{tagk}={value}: expected a value, alternatives (a|b) or *")
            }
            value => Ok((tagk.clone(), value.split('|').map(str::to_owned).collect())),
        };
        Ok(FsckSelection {
            metric: query.metric.clone().unwrap_or_default(),
            tags: tags.iter().map(tag).collect::<anyhow::Result<_>>()?,
            seconds,
        })
    };
    queries.map(selection).collect()
}

async fn check(
    engine: &EngineHandle,
    run: FsckRun,
    args: &FsckArgs,
    checkpoint: Option<Checkpoint>,
    checked: Checked,
) -> anyhow::Result<Ended> {
    let started = Instant::now();
    let mut total = checked.report;
    let progress = Arc::new(FsckProgress::new(args.json, checked, checkpoint));
    let stop = &progress.console.stop;
    let observer = Arc::<FsckProgress>::clone(&progress);
    let report = tsd_tools::fsck(engine, run, observer, Arc::clone(&stop.flag)).await;
    let signal = stop.signal();
    progress.end(report.is_ok() && signal.is_none())?;
    total.add(&report?);
    Ok(Ended { report: total, duration: started.elapsed(), signal })
}

/// Prints findings and progress, and writes the checkpoint.
struct FsckProgress {
    console: Console,
    state: Mutex<FsckState>,
}

struct FsckState {
    rows: u64,
    checked: Checked,
    checkpoint: Option<Checkpoint>,
}

impl FsckProgress {
    fn new(is_json: bool, checked: Checked, checkpoint: Option<Checkpoint>) -> Self {
        let state = FsckState { rows: checked.report.rows, checked, checkpoint };
        Self { console: Console::new("fsck", is_json, true), state: Mutex::new(state) }
    }

    /// Writes the checkpoint, or removes it after a complete check.
    fn end(&self, is_whole: bool) -> anyhow::Result<()> {
        let failed = self.console.close();
        let FsckState { checkpoint, checked, .. } = &*self.state.lock();
        match checkpoint {
            Some(checkpoint) if is_whole => checkpoint.remove()?,
            Some(checkpoint) => checkpoint.write(checked)?,
            None => {}
        }
        failed
    }
}

impl FsckObserver for FsckProgress {
    fn found(&self, level: FsckLevel, text: &str) {
        self.console.print(&format!("{level} {text}\n"));
    }

    fn advanced(&self, range: usize, row: &Bytes, rows: u64, checked: &FsckReport) {
        let state = &mut *self.state.lock();
        state.rows += rows;
        let total = &mut state.checked.report;
        total.add(checked);
        let note = format!(", {} errors, {} fixed", total.errors(), total.errors_fixed());
        state.checked.rows.insert(range, row.clone());
        if self.console.show(None, &[(state.rows, "rows")], &note)
            && let Some(checkpoint) = &state.checkpoint
        {
            self.console.keep(checkpoint.write(&state.checked));
        }
    }
}

/// OpenTSDB's lines.
fn as_lines(ended: &Ended) -> String {
    let counters = ended.report.lines().map(|(label, count)| format!("INFO {label}: {count}\n"));
    let seconds = ended.duration.as_secs();
    let last = match ended.signal {
        None => format!("INFO Completed fsck in [{seconds}] seconds\n"),
        Some(_) => format!("WARN Stopped fsck after [{seconds}] seconds\n"),
    };
    counters.concat() + &last
}

/// The counters by OpenTSDB's labels.
fn as_json(ended: &Ended) -> Value {
    let counters = ended.report.lines().map(|(label, count)| (label.trim_end(), count));
    json!({
        "completed": ended.signal.is_none(),
        "seconds": ended.duration.as_secs_f64(),
        "counters": Value::from_iter(counters),
    })
}

//! `tsdb import`: imports points from text files by the rules of OpenTSDB's importer.

mod daemon_sink;
mod engine_sink;
mod importer;
mod json_line;
mod line;
mod order;
mod source;
mod stats_lines;

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::json;
use tsd_engine::EngineHandle;

pub use importer::{ImportError, ImportOptions, Imported};

use self::{
    daemon_sink::DaemonSink,
    engine_sink::EngineSink,
    importer::{Importer, PointSink},
};
use crate::{console::Console, daemon_client::DaemonClient};

/// Imports files in order. Prints a line per file and a total, even if the import fails.
pub async fn import(
    engine: &EngineHandle,
    paths: &[PathBuf],
    options: ImportOptions,
) -> Result<Imported, ImportError> {
    let sink = EngineSink::new(engine, options.settle_new_series);
    run(sink, paths, options, Console::new("import", false, false)).await
}

/// As [`import`]. SIGINT and SIGTERM stop it after the points that were read; a second signal exits at once. With
/// `is_json` the total is JSON, and all other lines go to standard error. `with_statistics` prints the engine's
/// statistics to standard error at the end, like OpenTSDB's importer.
pub(crate) async fn import_until_signal(
    engine: &EngineHandle,
    paths: &[PathBuf],
    options: ImportOptions,
    is_json: bool,
    with_statistics: bool,
) -> Result<Imported, ImportError> {
    let sink = EngineSink::new(engine, options.settle_new_series);
    let done = run(sink, paths, options, Console::new("import", is_json, true)).await?;
    if with_statistics || tracing::enabled!(tracing::Level::DEBUG) {
        let statistics = stats_lines::stats_lines(engine).await;
        // The statistics are not part of the result.
        let _ = io::stderr().lock().write_all(statistics.as_bytes());
    }
    Ok(done)
}

/// As [`import_until_signal`], through the HTTP API of a daemon.
pub(crate) async fn import_to_daemon(
    client: DaemonClient,
    paths: &[PathBuf],
    options: ImportOptions,
    is_json: bool,
) -> Result<Imported, ImportError> {
    run(DaemonSink::new(client), paths, options, Console::new("import", is_json, true)).await
}

async fn run(
    sink: impl PointSink,
    paths: &[PathBuf],
    options: ImportOptions,
    console: Console,
) -> Result<Imported, ImportError> {
    let start = Instant::now();
    let mut importer = Importer::new(sink, options, total_bytes(paths), &console);
    let mut result = Ok(());
    for path in paths {
        result = importer.import(path).await;
        if result.is_err() {
            break;
        }
    }
    let done = importer.done();
    drop(importer);
    let secs = start.elapsed().as_secs_f64().max(0.001);
    let Imported { points, bad_lines, unconfirmed } = done;
    let mut total = format!(
        "Total: imported {points} data points in {secs:.3}s ({:.1} points/s)\n",
        points as f64 / secs
    );
    if bad_lines > 0 {
        total = format!("{total}{bad_lines} lines skipped\n");
    }
    if unconfirmed > 0 {
        total = format!("{total}{unconfirmed} more data points may be stored or not\n");
    }
    let json = json!({
        "completed": result.is_ok(),
        "seconds": secs,
        "points": points,
        "skippedLines": bad_lines,
        "unconfirmedPoints": unconfirmed,
    });
    let printed = console.end(&json, &total);
    result?;
    printed.map_err(|error| ImportError::Total(error.0))?;
    Ok(done)
}

/// Total size of the inputs in bytes; `None` unless each is a regular file.
fn total_bytes(paths: &[PathBuf]) -> Option<u64> {
    paths
        .iter()
        .map(|path| match path {
            path if path == Path::new("-") => None,
            path => fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|m| m.len()),
        })
        .sum()
}

#[cfg(test)]
mod tests;

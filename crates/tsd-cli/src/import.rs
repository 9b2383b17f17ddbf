//! `tsdb import`: imports points from text files by the rules of OpenTSDB's importer.

mod daemon_sink;
mod engine_sink;
mod importer;
mod json_line;
mod line;
mod order;
mod progress;
mod source;
mod stats_lines;
mod stop;

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Instant,
};

use tsd_engine::EngineHandle;

pub use importer::{ImportError, ImportOptions, Imported};
pub(crate) use stop::StopRequest;
pub use stop::StopSignal;

use self::{
    daemon_sink::DaemonSink,
    engine_sink::EngineSink,
    importer::{Importer, PointSink},
    stop::Stop,
};
use crate::{daemon_client::DaemonClient, print_lines};

/// Imports files in order. Prints a line per file and a total, even if the import fails.
pub async fn import(
    engine: &EngineHandle,
    paths: &[PathBuf],
    options: ImportOptions,
) -> Result<Imported, ImportError> {
    run(EngineSink::new(engine, options.settle_new_series), paths, options, Stop::never()).await
}

/// As [`import`]. SIGINT and SIGTERM stop it after the points that were read; a second signal exits at once.
/// `with_statistics` prints the engine's statistics to standard error at the end, like OpenTSDB's importer.
pub(crate) async fn import_until_signal(
    engine: &EngineHandle,
    paths: &[PathBuf],
    options: ImportOptions,
    with_statistics: bool,
) -> Result<Imported, ImportError> {
    let sink = EngineSink::new(engine, options.settle_new_series);
    let done = run(sink, paths, options, Stop::on_signals()).await?;
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
) -> Result<Imported, ImportError> {
    run(DaemonSink::new(client), paths, options, Stop::on_signals()).await
}

async fn run(
    sink: impl PointSink,
    paths: &[PathBuf],
    options: ImportOptions,
    stop: Stop,
) -> Result<Imported, ImportError> {
    let start = Instant::now();
    let progress = progress::Progress::new(total_bytes(paths));
    let mut importer = Importer::new(sink, options, progress, stop);
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
    let mut total = format!(
        "Total: imported {} data points in {secs:.3}s ({:.1} points/s)\n",
        done.points,
        done.points as f64 / secs
    );
    if done.bad_lines > 0 {
        total = format!("{total}{} lines skipped\n", done.bad_lines);
    }
    if done.unconfirmed > 0 {
        total = format!("{total}{} more data points may be stored or not\n", done.unconfirmed);
    }
    let printed = print_lines(&total);
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

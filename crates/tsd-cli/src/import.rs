//! `tsdb import`: imports points from text files by the rules of OpenTSDB's importer.

mod importer;
mod line;
mod order;
mod progress;
mod source;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use tsd_engine::EngineHandle;

pub use importer::{ImportError, ImportOptions, Imported};

/// Imports files in order and prints a line per file and a total.
pub async fn import(
    engine: &EngineHandle,
    paths: &[PathBuf],
    options: ImportOptions,
) -> Result<Imported, ImportError> {
    let start = Instant::now();
    let progress = progress::Progress::new(total_bytes(paths));
    let mut importer = importer::Importer::new(engine, options, progress);
    for path in paths {
        importer.import(path).await?;
    }
    let done = importer.done();
    drop(importer);
    let secs = start.elapsed().as_secs_f64().max(0.001);
    println!(
        "Total: imported {} data points in {secs:.3}s ({:.1} points/s)",
        done.points,
        done.points as f64 / secs
    );
    if done.bad_lines > 0 {
        println!("{} lines skipped", done.bad_lines);
    }
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

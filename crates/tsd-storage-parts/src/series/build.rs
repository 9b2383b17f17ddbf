//! Builds a series index from the sections of a table, in the background.
//!
//! The build reads only series and the base times of chunks. For packed points, that is a range of hours, so the
//! index may get hours without rows: it is a superset.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tsd_model::BaseTime;
use tsd_storage::StorageError;

use super::TableSeries;
use crate::{
    chunk::{ChunkKind, ChunkView},
    cursor::SectionCursor,
    error::{Malformed, PartError},
    layout::PartLayout,
    part::BlockUse,
    section_reader::SectionReader,
    series_selection::SeriesSelection,
    store::PartStore,
};

/// Rows that are added to the index in one batch.
const BATCH_ROWS: usize = 4_096;
/// Pause between two batches, so that queries and writes come first.
const PAUSE: Duration = Duration::from_millis(1);
/// Time between two progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failure. Meanwhile, the damage may be repaired, or its loss accepted.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Interval at which a pause checks whether the store is closed.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// A build in progress. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Build {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Build {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Build {
    /// Starts to build the index of a table.
    pub(crate) fn start(table: Arc<PartStore>, series: Arc<TableSeries>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("series-index".to_owned())
            .spawn(move || run(&table, &series, &stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

/// Rebuilds an index that lacks rows or has wrong entries. Queries scan meanwhile.
pub(crate) fn rebuild(table: &PartStore, series: &TableSeries) -> Result<(), StorageError> {
    series.index.set_complete(false);
    series.index.restore_postings();
    read_all(table, series, &AtomicBool::new(false))?;
    series.complete()
}

fn run(table: &PartStore, series: &TableSeries, stop: &AtomicBool) {
    let started = Instant::now();
    loop {
        match read_all(table, series, stop) {
            Ok(true) => match series.complete() {
                Ok(()) => {
                    let (rows, millis) = (series.rows(), started.elapsed().as_millis() as u64);
                    let count = series.index.size().series;
                    tracing::info!(table = %table.table(), series = count, rows, millis, "series index built");
                    return;
                }
                Err(error) => {
                    tracing::warn!(table = %table.table(), %error, "the series index cannot be written now; queries scan");
                }
            },
            Ok(false) => return,
            Err(error) => {
                let error = tsd_storage::error_chain(&error);
                tracing::warn!(table = %table.table(), error, "the series index cannot be built now; queries scan");
            }
        }
        let paused = Instant::now();
        while paused.elapsed() < RETRY_PAUSE {
            if stop.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(STOP_INTERVAL);
        }
    }
}

/// Adds all rows of all sections. Returns false if it was stopped.
fn read_all(table: &PartStore, series: &TableSeries, stop: &AtomicBool) -> Result<bool, PartError> {
    let mut reported = Instant::now();
    let mut next_span = Some(0);
    let mut batch = Vec::with_capacity(BATCH_ROWS);
    while let Some(first) = next_span {
        // Takes a new snapshot for each span, so that replaced parts are not kept open. The flush of a later row
        // adds it.
        let snapshot = table.snapshot();
        snapshot.check_losses(0, u32::MAX)?;
        let Some((&span, sections)) = snapshot.spans().range(first..).next() else { break };
        next_span = span.checked_add(1);
        for section in sections {
            let (part, all) = (Arc::clone(&section.part), Arc::new(SeriesSelection::All));
            let bases = (0, u32::MAX);
            let (how, damage) = (BlockUse::Once, snapshot.damage_use(section));
            let cursor = SectionReader::open(part, section.section, how, damage)
                .and_then(|section| SectionCursor::open(section, &all, bases));
            let mut cursor = match cursor {
                Err(error) => return Err(quarantined(table, error)),
                Ok(cursor) => cursor,
            };
            while cursor.advance().map_err(|error| quarantined(table, error))? {
                for chunk in &cursor.chunks {
                    add_rows(table.layout(), &cursor.series, cursor.span(), chunk, &mut batch)
                        .map_err(cursor.part().malformed(chunk.block))
                        .map_err(|error| quarantined(table, error))?;
                }
                if batch.len() < BATCH_ROWS {
                    continue;
                }
                if stop.load(Ordering::Acquire) {
                    return Ok(false);
                }
                series.add(&mut batch);
                if reported.elapsed() >= PROGRESS_INTERVAL {
                    reported = Instant::now();
                    let rows = series.rows();
                    tracing::info!(table = %table.table(), rows, "the series index is being built");
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
    series.add(&mut batch);
    Ok(!stop.load(Ordering::Acquire))
}

/// The error of a read. A part with damage is quarantined.
fn quarantined(table: &PartStore, error: PartError) -> PartError {
    if let Err(failed) = table.quarantine(&error) {
        tracing::warn!(error = %failed, "a damaged part stays live");
    }
    error
}

/// Appends the keys of all rows that a chunk may have.
fn add_rows(
    layout: PartLayout,
    series: &[u8],
    span: u32,
    chunk: &ChunkView,
    keys: &mut Vec<Vec<u8>>,
) -> Result<(), Malformed> {
    match chunk.kind {
        // Rows with other base times do not pack.
        ChunkKind::Points => {
            let hours =
                (chunk.first_base..=chunk.last_base).step_by(BaseTime::SPAN_SECONDS as usize);
            keys.extend(hours.map(|base| layout.join_key(series, base)));
        }
        ChunkKind::Cells => {
            let mut last = None;
            chunk.cells(span, |base, _| {
                if last.replace(base) != Some(base) {
                    keys.push(layout.join_key(series, base));
                }
            })?;
        }
        ChunkKind::Tombstones | ChunkKind::Summaries => {}
    }
    Ok(())
}

impl TableSeries {
    fn rows(&self) -> u64 {
        self.built_rows.load(Ordering::Relaxed)
    }

    /// Adds rows by their keys and empties the list.
    fn add(&self, keys: &mut Vec<Vec<u8>>) {
        self.index.add_rows(keys.iter().map(Vec::as_slice));
        self.built_rows.fetch_add(keys.len() as u64, Ordering::Relaxed);
        keys.clear();
    }
}

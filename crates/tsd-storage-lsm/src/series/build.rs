//! Builds a series index by a scan of the table's keys, in the background.

use std::{
    cell::RefCell,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tsd_storage::StorageError;

use super::TableSeries;
use crate::{read::RowCursor, table::TableStore};

/// Rows that are added to the index together.
const BATCH_ROWS: usize = 4_096;
/// Batches after which the scan is opened again, so that it does not keep replaced files.
const BATCHES_PER_SCAN: usize = 256;
/// Pause between two batches: queries and writes come first.
const PAUSE: Duration = Duration::from_millis(1);
/// Time between two messages about the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failure: the damage that caused it may be repaired, or its loss accepted.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// How often a pause looks whether the store is closed.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// A build in progress. Dropping it ends it.
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
    pub(crate) fn start(table: Arc<TableStore>, series: Arc<TableSeries>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("series-index".to_owned())
            .spawn(move || run(&table, &series, &stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

fn run(table: &TableStore, series: &TableSeries, stop: &AtomicBool) {
    let started = Instant::now();
    let mut next = Vec::new();
    loop {
        match scan(table, series, stop, &mut next)
            .and_then(|ended| if ended { series.complete().map(|()| true) } else { Ok(false) })
        {
            Ok(true) => {
                let (rows, millis) = (series.rows(), started.elapsed().as_millis() as u64);
                let count = series.index.size().series;
                tracing::info!(table = %table.name, series = count, rows, millis, "series index built");
                return;
            }
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(table = %table.name, %error, "the series index cannot be built now; queries scan");
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

/// Adds all rows from `next` on. Returns false if it was stopped.
fn scan(
    table: &TableStore,
    series: &TableSeries,
    stop: &AtomicBool,
    next: &mut Vec<u8>,
) -> Result<bool, StorageError> {
    let mut reported = Instant::now();
    loop {
        let mut cursor = RowCursor::open(table, next, &[])?;
        for _ in 0..BATCHES_PER_SCAN {
            if stop.load(Ordering::Acquire) {
                return Ok(false);
            }
            let batch = RefCell::new(Vec::with_capacity(BATCH_ROWS));
            let is_last = |key: &[u8]| {
                let mut batch = batch.borrow_mut();
                batch.push(key.to_vec());
                batch.len() == BATCH_ROWS
            };
            let more = cursor.next_row(table, is_last)?;
            let batch = batch.into_inner();
            series.index.add_rows(batch.iter().map(Vec::as_slice));
            series.count_rows(batch.len());
            if let Some(last) = batch.last() {
                next.clone_from(last);
                next.push(0);
            }
            if more.is_none() {
                return Ok(true);
            }
            if reported.elapsed() >= PROGRESS_INTERVAL {
                reported = Instant::now();
                let rows = series.rows();
                tracing::info!(table = %table.name, rows, "the series index is being built");
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl TableSeries {
    fn rows(&self) -> u64 {
        self.built_rows.load(Ordering::Relaxed)
    }

    fn count_rows(&self, rows: usize) {
        self.built_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

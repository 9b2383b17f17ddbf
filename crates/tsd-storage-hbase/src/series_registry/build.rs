//! Fills the index with the series of existing rows, by one scan of the table's keys at a bounded rate.
//!
//! With a log, the scan begins after this daemon and all others register their series, which
//! [`SeriesIndexMode::Complete`] guarantees. So each writer registers the series of rows that it writes behind
//! the scan. The entry at the end of the scan makes the index complete for all daemons. Two daemons that scan at
//! the same time do no harm.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use hbase_rs::{Scan as HBaseScan, Scanner, Selection, filter::Filter};
use tokio::time::{Instant, sleep, sleep_until};
use tsd_model::{Family, Tsuid};
use tsd_storage::{StorageError, Table};

use super::{SeriesRegistry, entry::Entry};
use crate::{
    config::SeriesIndexMode, context::StoreContext, error::storage_error, request::family_name,
};

/// Pause before another attempt.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Rows of one call, and between two looks at the log.
const CALL_ROWS: u32 = 4_096;
/// Size of one response of the server, bytes.
const CALL_BYTES: u64 = 1 << 20;

/// Loads the index, and fills it unless it is built. Ends with the store.
pub(crate) async fn run(of: Weak<StoreContext>) {
    let mut progress = Progress::default();
    loop {
        let Some(context) = of.upgrade() else { return };
        let Some(registry) = context.registry.clone() else { return };
        if context.check_open().is_err() {
            return;
        }
        match registry.fill(&context, &mut progress).await {
            Ok(()) | Err(StorageError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "the series index cannot be filled, trying again");
            }
        }
        drop(context);
        sleep(RETRY_PAUSE).await;
    }
}

/// Progress of a scan of keys.
#[derive(Debug, Default)]
struct Progress {
    /// The last row that the scan has returned.
    last: Bytes,
}

impl SeriesRegistry {
    async fn fill(
        &self,
        context: &Arc<StoreContext>,
        progress: &mut Progress,
    ) -> Result<(), StorageError> {
        self.refresh(context).await?;
        let meta = match self.config.mode {
            SeriesIndexMode::Register => return Ok(()),
            SeriesIndexMode::Complete if self.is_settled() => return Ok(()),
            SeriesIndexMode::Complete => None,
            SeriesIndexMode::Estimate => self.config.meta.as_ref(),
        };
        if let Some(meta) = meta {
            return self.scan(context, (meta, Family::Name), progress).await.map(drop);
        }
        let table = &self.config.data;
        tracing::info!(%table, "scanning the keys of the table for its series");
        let began = Instant::now();
        if !self.scan(context, (table, Family::T), progress).await? {
            return Ok(());
        }
        if self.config.mode == SeriesIndexMode::Complete {
            self.end_build(context).await?;
        }
        tracing::info!(%table, seconds = began.elapsed().as_secs_f64(), "the series index is filled");
        Ok(())
    }

    /// Adds the series of the keys of a table of points or of series. Returns false if the scan stopped early
    /// because the index needs no more series.
    async fn scan(
        &self,
        context: &Arc<StoreContext>,
        (table, family): (&Table, Family),
        progress: &mut Progress,
    ) -> Result<bool, StorageError> {
        let mut scanner = keys(context, table, family, &progress.last)?;
        let mut batch: Vec<Bytes> = Vec::new();
        loop {
            let ended = !next_keys(table, &mut scanner, &mut batch).await?;
            self.scanned_rows.fetch_add(batch.len() as u64, Ordering::Relaxed);
            if family == Family::T {
                self.register(context, batch.iter().map(AsRef::as_ref)).await?;
            } else {
                let is_series = |key: &&Bytes| Tsuid::try_new(&self.config.schema, key).is_ok();
                self.index.add_registered(batch.iter().filter(is_series).map(AsRef::as_ref));
                self.count_memory(batch.len() as u64);
            }
            if let Some(last) = batch.last() {
                progress.last = last.clone();
            }
            let is_settled = self.is_settled();
            if is_settled || ended {
                return Ok(!is_settled);
            }
            self.pace(batch.len()).await;
            batch.clear();
        }
    }

    /// True if the index needs no more series.
    fn is_settled(&self) -> bool {
        self.index.is_full() && self.config.mode == SeriesIndexMode::Estimate
            || self.is_built.load(Ordering::Acquire)
            || self.is_closed()
    }

    async fn end_build(&self, context: &Arc<StoreContext>) -> Result<(), StorageError> {
        let mut log = self.log.lock().await;
        while !self.is_settled() {
            if !log.is_known {
                self.read_log(context, &mut log).await?;
            } else if self.index.is_full() {
                self.append(context, &mut log, self.entry_of_full_index()).await?;
            } else {
                self.append(context, &mut log, Entry::Built).await?;
            }
        }
        Ok(())
    }

    /// Waits for the time that `rows` rows may take.
    async fn pace(&self, rows: usize) {
        let per_second = self.config.scan_rows_per_second;
        if per_second > 0 {
            let seconds = rows as f64 / f64::from(per_second);
            sleep_until(Instant::now() + Duration::from_secs_f64(seconds)).await;
        }
    }
}

/// Returns a scan of the keys after a row.
fn keys(
    context: &Arc<StoreContext>,
    table: &Table,
    family: Family,
    after: &Bytes,
) -> Result<Scanner, StorageError> {
    let selection = Selection::all()
        .columns(family_name(family), [])
        .without_block_cache()
        .filter(Filter::all_of([Filter::first_key_only(), Filter::key_only()]));
    let scan = HBaseScan::range(after.clone(), Bytes::new())
        .inclusive(after.is_empty(), false)
        .select(selection)
        .per_call(CALL_ROWS, CALL_BYTES);
    let rows = context.table(table)?.rows.clone();
    let _guard = context.runtime.enter();
    Ok(rows.scan(scan))
}

/// Reads keys until a batch is full. Returns false after the last.
async fn next_keys(
    table: &Table,
    scanner: &mut Scanner,
    batch: &mut Vec<Bytes>,
) -> Result<bool, StorageError> {
    while batch.len() < CALL_ROWS as usize {
        let Some(row) = scanner.next().await else { return Ok(false) };
        let row = row.map_err(|error| storage_error(table, &error))?.row;
        batch.push(Bytes::copy_from_slice(row.key()));
    }
    Ok(true)
}

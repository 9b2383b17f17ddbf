//! Copies the tables of one store to another (`tsdb copy`), and compares them.
//!
//! If both stores have the same keys, cells are copied as they are. If the stores differ in salting or UID widths, or
//! if the caller asks for it, keys are rebuilt from names ([`key_map`]): with the target's UIDs of the names, or new
//! ones. Cells keep their timestamps, so the newest wins in the target as in the source.
//!
//! Ranges of the tables are copied concurrently. The observer gets the progress of each range, so an interrupted copy
//! can continue there. A range holds one batch of rows, and the observer gets findings one by one, so memory does not
//! grow with the damage. The command stores the progress in files.

mod checksum;
mod compare;
mod context;
mod error;
mod key_map;
mod names;
mod options;
mod pace;
mod progress;
mod range_rows;
mod ranges;
mod report;
mod rows;
mod tables;
mod writer;

use std::sync::{Arc, atomic::AtomicBool};

use futures_util::{StreamExt, stream};
use tsd_engine::EngineHandle;
use tsd_model::{MetricUid, RowKey};

use self::{
    context::CopyContext, key_map::KeyMap, pace::CopyPace, progress::TotalProgress,
    range_rows::ReadSide, ranges::TableRange, tables::CopiedTable,
};

pub use self::{
    error::CopyError,
    options::{CopiedKind, CopiedRange, CopyObserver, CopyRun, CopySelection, RangeProgress},
    report::{CopiedRows, TableComparison, TableDigest},
};

/// Rows of a data table that are checked before a copy.
const SAMPLE_ROWS: usize = 32;

/// Two open stores.
#[derive(Clone, Debug)]
pub struct CopyStores {
    /// The source.
    pub from: EngineHandle,
    /// The target.
    pub to: EngineHandle,
}

impl CopyStores {
    /// True if the keys of both stores differ in salting or widths, so they must be rebuilt.
    #[must_use]
    pub fn keys_differ(&self) -> bool {
        let (from, to) = (self.from.config().schema, self.to.config().schema);
        let widths = |schema: tsd_model::TableSchema| {
            let salt = schema.salt_width();
            let buckets = if salt == 0 { 0 } else { schema.salt_buckets() };
            (schema.metric_width(), schema.tagk_width(), schema.tagv_width(), salt, buckets)
        };
        widths(from) != widths(to)
    }

    /// True if a table of the target has rows.
    ///
    /// # Errors
    ///
    /// If a table is missing or cannot be read.
    pub async fn target_has_rows(&self, selection: &CopySelection) -> Result<bool, CopyError> {
        for table in self.tables(selection).await? {
            let scan = tsd_storage::Scan { limit: Some(1), ..Default::default() };
            let mut rows = self.to.storage().scan(&table.to, scan);
            if rows.next_rows().await.map_err(CopyError::target(&table.to))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reasons to doubt the configured salting and widths of a side. It has one if, of the first rows of its data
    /// table, no key has a metric with a name. Only a store on HBase does not record salting and widths.
    ///
    /// # Errors
    ///
    /// If a table cannot be read.
    pub async fn doubts_about_keys(&self) -> Result<Vec<String>, CopyError> {
        let mut doubts = Vec::new();
        for (side, engine) in [("source", &self.from), ("target", &self.to)] {
            let (schema, table) = (engine.config().schema, &engine.config().tables.data);
            let scan = tsd_storage::Scan { limit: Some(SAMPLE_ROWS), ..Default::default() };
            let mut rows = engine.storage().scan(table, scan);
            let (mut read, mut fitting) = (0, 0);
            while let Some(batch) = rows.next_rows().await.map_err(CopyError::source(table))? {
                for row in batch {
                    read += 1;
                    let key = RowKey::decode(&schema, &row.key);
                    let Ok(metric) = key.map(|key| key.metric_uid()) else { continue };
                    let name = engine.uids().name_of(MetricUid::KIND, metric.uid()).await;
                    let is_global = metric.to_number() == 0;
                    fitting += u64::from(is_global || name.is_ok());
                }
            }
            if read > 0 && fitting == 0 {
                doubts.push(format!(
                    "none of the first {read} rows of {table} in the {side} has a metric with a name: check \
                     tsd.storage.salt.width ({}) and the UID widths ({}, {}, {}) of the {side}",
                    schema.salt_width(),
                    schema.metric_width(),
                    schema.tagk_width(),
                    schema.tagv_width()
                ));
            }
        }
        Ok(doubts)
    }

    /// Copies what a run selects, until everything is copied or `stop` is set.
    ///
    /// # Errors
    ///
    /// See [`CopyError`]. If the same run is repeated with the progress that the observer got, it continues where it
    /// ended.
    pub async fn copy(
        &self,
        run: CopyRun,
        observer: Arc<dyn CopyObserver>,
        stop: Arc<AtomicBool>,
    ) -> Result<(), CopyError> {
        let tables = self.tables(&run.selection).await?;
        let by_name = run.by_name || self.keys_differ();
        let map = by_name.then(|| KeyMap::new(self.from.clone(), self.to.clone()));
        let metrics = ranges::selected_metrics(&self.from, &run.selection, true).await?;
        let mut all_ranges = Vec::new();
        for table in &tables {
            all_ranges.extend(ranges::of_table(
                &self.from,
                table,
                &run.selection,
                metrics.as_ref(),
            ));
        }
        let progress = TotalProgress::new(&self.from, &all_ranges, &run.copied, run.threads).await;
        let pace = CopyPace::new(run.max_cells_per_sec, run.max_bytes_per_sec);
        let (from, to) = (self.from.clone(), self.to.clone());
        let source = ReadSide { engine: from.clone(), is_target: false };
        let context = Arc::new(CopyContext {
            from,
            to,
            source,
            run,
            map,
            pace,
            metrics,
            observer,
            stop,
            progress,
        });
        if !by_name && let Some(uid) = tables.iter().find(|of| of.kind == CopiedKind::Uid) {
            names::check(&context, uid).await?;
        }
        // Names first, so that the rows of an interrupted copy can be read.
        let (uid, others): (Vec<_>, Vec<_>) =
            all_ranges.into_iter().partition(|range| range.kind == CopiedKind::Uid);
        context.copy_ranges(uid.clone()).await?;
        context.copy_ranges(others).await?;
        let has_selected_names = by_name && context.metrics.is_some();
        let may_have_new_names = !by_name && context.from.config().multi_writer;
        if has_selected_names || may_have_new_names {
            // Names that were assigned meanwhile, because series of the rows above may have them.
            context.copy_ranges(uid.into_iter().map(TableRange::again).collect()).await?;
        }
        Ok(())
    }

    /// Compares what a run selects: rows, cells, bytes and a checksum of each table in both stores. Names the rows
    /// that differ.
    ///
    /// # Errors
    ///
    /// See [`CopyError`].
    pub async fn compare(
        &self,
        run: CopyRun,
        observer: Arc<dyn CopyObserver>,
        stop: Arc<AtomicBool>,
    ) -> Result<Vec<TableComparison>, CopyError> {
        let tables = self.tables(&run.selection).await?;
        let by_name = run.by_name || self.keys_differ();
        let mut compared = Vec::new();
        let has_selected_names = by_name && !run.selection.metrics.is_empty();
        for table in tables {
            if table.kind == CopiedKind::Uid && has_selected_names {
                // Either side may have names that are not selected.
                continue;
            }
            let comparison =
                compare::Comparison::new((&self.from, &self.to), &run, by_name, &observer, &stop);
            compared.push(comparison.table(&table).await?);
        }
        Ok(compared)
    }

    async fn tables(&self, selection: &CopySelection) -> Result<Vec<CopiedTable>, CopyError> {
        tables::pairs(&self.from, &self.to, selection).await
    }
}

impl CopyContext {
    async fn copy_ranges(self: &Arc<Self>, ranges: Vec<TableRange>) -> Result<(), CopyError> {
        let tasks = ranges.into_iter().map(|range| {
            let context = Arc::clone(self);
            async move { tokio::spawn(rows::copy_range(context, range)).await }
        });
        let mut tasks = stream::iter(tasks).buffer_unordered(self.run.threads.max(1));
        let mut result = Ok(());
        // After an error, the other ranges finish their batch and report its progress.
        while let Some(ended) = tasks.next().await {
            let ended = ended.map_err(|error| CopyError::Panicked(error.to_string())).flatten();
            if ended.is_err() && result.is_ok() {
                self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
                result = ended;
            }
        }
        result
    }
}

#[cfg(test)]
mod tests;

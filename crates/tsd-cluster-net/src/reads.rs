//! A decorator of a store whose reads see what all nodes hold.
//!
//! It stands above the log of this node. A read first takes what every member holds of its rows, this one too,
//! and then opens the read of the store: what is flushed in between is in both. The own rows are taken as well,
//! although the store below has them, for the sake of their deletes: they hide older cells of other nodes.
//!
//! Rows of the data table may also be changed by a compaction on this node. One that another node holds is
//! left alone until its flush, as one that this node holds is.
//!
//! The series of rows that another node holds are registered with its flush. Until then the series index of this
//! node lacks them, so no read of such a table relies on it.

mod fetch;
mod group_rows;
mod proof_failures;
mod scanner;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use tsd_model::Row;
use tsd_storage::{
    Get, HealthImpact, HealthProblem, HeldRowReader, KeyRange, RowRewrite, RowScanner, Scan,
    SeriesRead, SeriesScanner, SeriesVersion, Storage, StorageError, StorageFuture, StorePart,
    Table, forward_storage,
};

use self::{fetch::HeldFetch, scanner::ClusterScanner};
use crate::{peers::Peers, row_merge::overlay, service::HeldQuery};

/// Memory of rows of other nodes in reads in progress.
pub trait ReadMemory: fmt::Debug + Send + Sync + 'static {
    /// Reserves bytes until the result is dropped; `None`: there is no memory.
    fn try_reserve(&self, bytes: usize) -> Option<Box<dyn Send + Sync>>;
}

/// How reads ask the other nodes.
#[derive(Debug)]
pub struct ReadConfig {
    /// Tables whose rows nodes hold.
    pub tables: Vec<Table>,
    /// How long a read waits for a node that does not answer, or for its recovery.
    pub patience: Duration,
    /// Memory of the rows of other nodes.
    pub memory: Arc<dyn ReadMemory>,
}

/// A store whose reads see what all nodes hold.
#[derive(Debug)]
pub struct ClusterReads<S: ?Sized> {
    fetch: Arc<HeldFetch>,
    inner: Arc<S>,
}

impl<S: Storage + ?Sized> ClusterReads<S> {
    /// Reads of `inner`, whose log holds `rows`, see what `peers` hold too.
    #[must_use]
    pub fn new(
        inner: Arc<S>,
        rows: Arc<dyn HeldRowReader>,
        peers: Arc<Peers>,
        config: ReadConfig,
    ) -> Self {
        Self { fetch: Arc::new(HeldFetch::new(rows, peers, config)), inner }
    }

    fn is_held(&self, table: &Table) -> bool {
        self.fetch.tables().contains(table)
    }

    async fn held_multi_get(
        &self,
        table: &Table,
        gets: Vec<Get>,
    ) -> Result<Vec<Option<Row>>, StorageError> {
        let mut keys: Vec<&Bytes> = gets.iter().map(|get| &get.row).collect();
        keys.sort_unstable();
        keys.dedup();
        let ranges = keys.into_iter().map(|key| range_of(key)).collect();
        let query = HeldQuery { table: table.clone(), ranges, filter: None };
        let held = self.fetch.fetch(&query).await?;
        let stored = self.inner.multi_get(table, gets.clone()).await?;
        gets.into_iter()
            .zip(stored)
            .map(|(get, stored)| match held.find(&get.row) {
                Some(row) => overlay(row, stored, |f, q, _| get.selects(f, q)),
                None => Ok(stored),
            })
            .collect()
    }
}

/// The range of one row.
fn range_of(key: &[u8]) -> KeyRange {
    KeyRange { start: Bytes::copy_from_slice(key), stop: [key, &[0]].concat().into() }
}

impl<S: Storage + ?Sized> Storage for ClusterReads<S> {
    fn get<'a>(&'a self, table: &'a Table, get: Get) -> StorageFuture<'a, Option<Row>> {
        if !self.is_held(table) {
            return self.inner.get(table, get);
        }
        Box::pin(async move {
            let rows = self.held_multi_get(table, vec![get]).await?;
            Ok(rows.into_iter().next().flatten())
        })
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> StorageFuture<'a, Vec<Option<Row>>> {
        if gets.is_empty() || !self.is_held(table) {
            return self.inner.multi_get(table, gets);
        }
        Box::pin(self.held_multi_get(table, gets))
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        if !self.is_held(table) {
            return self.inner.scan(table, scan);
        }
        let (fetch, inner) = (Arc::clone(&self.fetch), Arc::clone(&self.inner));
        let open = table.clone();
        let open = move |scan| inner.scan(&open, scan);
        Box::new(ClusterScanner::new(fetch, table.clone(), scan, Box::new(open)))
    }

    fn read_series(&self, table: &Table, read: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        // Held rows are read by rows.
        if self.is_held(table) { None } else { self.inner.read_series(table, read) }
    }

    fn series_version(&self, table: &Table, read: &SeriesRead) -> Option<SeriesVersion> {
        if self.is_held(table) { None } else { self.inner.series_version(table, read) }
    }

    fn rewrite_row<'a>(&'a self, table: &'a Table, rewrite: RowRewrite) -> StorageFuture<'a, ()> {
        if !self.is_held(table) {
            return self.inner.rewrite_row(table, rewrite);
        }
        Box::pin(async move {
            // The compacted column would have the time of the newest point that was read, and hide a
            // correction of another point that a node holds since before.
            let ranges = vec![range_of(&rewrite.row)];
            let query = HeldQuery { table: table.clone(), ranges, filter: None };
            if !self.fetch.fetch(&query).await?.is_empty() {
                return Err(StorageError::Throttled("the row is not flushed yet"));
            }
            self.inner.rewrite_row(table, rewrite).await
        })
    }

    fn refresh_series_index<'a>(&'a self, table: &'a Table) -> StorageFuture<'a, ()> {
        if !self.is_held(table) {
            return self.inner.refresh_series_index(table);
        }
        Box::pin(async move {
            // For those that count series, and miss some.
            self.inner.refresh_series_index(table).await?;
            let text = "other nodes may hold rows of series that are not registered yet";
            Err(StorageError::Unavailable(text.into()))
        })
    }

    fn health(&self) -> Vec<HealthProblem> {
        let failures = self.fetch.failures();
        let problem = match failures.fence() {
            Some(reason) => Some((StorePart::Commit, HealthImpact::Unavailable, reason)),
            // Other nodes could not read either.
            None => failures
                .lasting()
                .map(|reason| (StorePart::Backend, HealthImpact::SomeReadsFail, reason)),
        };
        let problem =
            problem.map(|(part, impact, reason)| HealthProblem::new(part, impact, reason));
        self.inner.health().into_iter().chain(problem).collect()
    }

    forward_storage!(
        inner: series_splits, put, append, increment, compare_and_set, compare_and_set_at, compare_and_delete, delete, read_version, table_exists, flush, close, quarantine, verifier, pin_files, series_index, compacts_rows, gauges,
    );
}

#[cfg(test)]
mod tests;

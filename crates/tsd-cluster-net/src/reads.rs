//! Decorates a store so that reads include the held rows of all nodes.
//!
//! It stands above the log of this node. A read first takes the held rows of every member, then opens the read
//! of the store: rows that are flushed in between are in both. It also takes this node's held rows, although the
//! store below includes them, because their deletes hide older cells of other nodes.
//!
//! A row compaction on this node skips rows that any node holds, until they are flushed.
//!
//! Another node registers the series of its held rows when it flushes them. Until then this node's series index
//! lacks them, so no read of such a table relies on the index.

mod config;
mod fetch;
mod group_rows;
mod proof_failures;
mod scanner;

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::Row;
use tsd_storage::{
    BytePermit, Get, HealthImpact, HealthProblem, HeldRowReader, KeyRange, Maintenance, RowScanner,
    Scan, SeriesRead, SeriesReads, SeriesScanner, SeriesVersion, Storage, StorageError,
    StorageFuture, StoreComponent, Table, Write, WriteResult, forward_storage,
};

pub use self::config::{ReadConfig, ReadMemory};
use self::{fetch::HeldFetch, scanner::ClusterScanner};
use crate::{held_query::HeldQuery, peers::Peers, row_merge::overlay};

/// A store whose reads include the held rows of all nodes.
#[derive(Debug)]
pub struct ClusterReads<S: ?Sized> {
    fetch: Arc<HeldFetch>,
    inner: Arc<S>,
}

impl<S: Storage + ?Sized> ClusterReads<S> {
    /// Decorates `inner`, whose log holds `rows`, with the held rows of `peers`.
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

    /// Rejects a row compaction while any node holds the row. The compacted column would get the time of the newest
    /// point that was read. It would hide an older correction of another point that a node holds.
    async fn check_flushed(
        &self,
        table: &Table,
        ranges: Vec<KeyRange>,
    ) -> Result<(), StorageError> {
        let query = HeldQuery { table: table.clone(), ranges, filter: None };
        if self.fetch.fetch(&query).await?.is_empty() {
            return Ok(());
        }
        Err(StorageError::Throttled("the row is not flushed yet"))
    }
}

/// Returns the range of one row.
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

    fn write<'a>(
        &'a self,
        table: &'a Table,
        write: Write,
        permit: Option<&'a BytePermit>,
    ) -> StorageFuture<'a, WriteResult> {
        match &write {
            Write::Rewrite(rewrite) if self.is_held(table) => {
                let ranges = vec![range_of(&rewrite.row)];
                Box::pin(async move {
                    self.check_flushed(table, ranges).await?;
                    self.inner.write(table, write, permit).await
                })
            }
            _ => self.inner.write(table, write, permit),
        }
    }

    fn series(&self) -> &dyn SeriesReads {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }

    forward_storage!(inner: read_version, table_exists, flush, close);
}

impl<S: Storage + ?Sized> SeriesReads for ClusterReads<S> {
    fn below(&self) -> Option<&dyn SeriesReads> {
        Some(self.inner.series())
    }

    fn read_series(&self, table: &Table, read: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        // Tables with held rows are read by rows, not by series.
        if self.is_held(table) { None } else { self.inner.series().read_series(table, read) }
    }

    fn series_version(&self, table: &Table, read: &SeriesRead) -> Option<SeriesVersion> {
        if self.is_held(table) { None } else { self.inner.series().series_version(table, read) }
    }

    fn refresh_series_index<'a>(&'a self, table: &'a Table) -> StorageFuture<'a, ()> {
        if !self.is_held(table) {
            return self.inner.series().refresh_series_index(table);
        }
        Box::pin(async move {
            // Refreshes the index for callers that only count series, and reports that some may be missing.
            self.inner.series().refresh_series_index(table).await?;
            let text = "other nodes may hold rows of series that are not registered yet";
            Err(StorageError::Unavailable(text.into()))
        })
    }
}

impl<S: Storage + ?Sized> Maintenance for ClusterReads<S> {
    fn below(&self) -> Option<&dyn Maintenance> {
        Some(self.inner.maintenance())
    }

    fn health(&self) -> Vec<HealthProblem> {
        let failures = self.fetch.failures();
        let problem = match failures.fence() {
            Some(reason) => Some((StoreComponent::Commit, HealthImpact::Unavailable, reason)),
            // A failure of HBase: other nodes could not read either.
            None => failures
                .lasting()
                .map(|reason| (StoreComponent::Backend, HealthImpact::SomeReadsFail, reason)),
        };
        let problem = problem
            .map(|(component, impact, reason)| HealthProblem::new(component, impact, reason));
        self.inner.maintenance().health().into_iter().chain(problem).collect()
    }
}

#[cfg(test)]
mod tests;

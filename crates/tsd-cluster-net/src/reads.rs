//! Decorates a store so that reads include the held rows of all nodes.
//!
//! It stands above the log of this node. A read first takes the held rows of the slots that it touches from their
//! owners, then opens the read of the store: rows that are flushed in between are in both. It also takes this node's
//! held rows, although the store below includes them, because their deletes hide older cells of other nodes.
//!
//! Row compaction asks no node: only the owner of a slot compacts its rows, and a slot comes to its owner flushed,
//! recovered, or with the log that it has replayed.
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
    Get, HealthImpact, HealthProblem, HeldRowReader, KeyRange, Maintenance, RowScanner, Scan,
    SeriesRead, SeriesReads, SeriesScanner, SeriesVersion, Storage, StorageError, StorageFuture,
    StoreComponent, Table, forward_storage,
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

    fn series(&self) -> &dyn SeriesReads {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }

    forward_storage!(inner: write, read_version, table_exists, flush, close);
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

    fn has_unregistered_series(&self, table: &Table) -> bool {
        self.is_held(table) || self.inner.series().has_unregistered_series(table)
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

//! Delete by query: deletes the points that were read and are in the query range.
//!
//! Each row is read again and planned like a row compaction, so the points that stay are durable before their old
//! column is deleted. Only points that still have the value that the query read are deleted; newer values stay.
//! Deletion starts after the result is complete, so a failed query deletes nothing. Annotations stay; requests of
//! their own delete them. With `tsd.query.delete.whole_rows`, a query deletes as OpenTSDB does: whole rows of the data
//! table, whichever table it read.

mod read_row;

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU32, Ordering},
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use tokio::sync::Mutex;
use tsd_model::{
    Cell, Family, PointDelete, ReplacedColumn, Row, RowError, Value, plan_point_delete,
};
use tsd_query::{DataError, QueryError};
use tsd_storage::{
    Column, Delete, Get, NewValue, RowRewrite, Storage, StorageError, StorageExt, Table,
};

pub(crate) use self::read_row::ReadRow;
use super::{engine::QueryEngine, failure::QueryFailure};

/// Most concurrent deletes. Stores with group commit sync several of them at once.
const MAX_CONCURRENT_DELETES: usize = 64;
/// Most flushes for a query whose rows are written meanwhile.
const MAX_FLUSHES: u32 = 3;
/// Most attempts to delete points of a row that is written meanwhile; after these the delete fails.
const MAX_PLANS: usize = 32;

/// Counts of what a query deleted, or would delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletedPoints {
    /// Points, rolled-up values and histograms; for whole rows, all that were read.
    pub points: u64,
    /// Series of these points.
    pub series: u64,
    /// Rows of these points.
    pub rows: u64,
}

/// Flushes of all nodes on behalf of a query.
#[derive(Debug, Default)]
struct Flushes {
    ended: AtomicU32,
    flushing: Mutex<()>,
}

impl Flushes {
    fn ended(&self) -> u32 {
        self.ended.load(Ordering::Acquire)
    }

    /// Flushes, unless a flush has ended since `known` were counted. Fails with the cause after the last flush.
    async fn flush(
        &self,
        storage: &dyn Storage,
        known: u32,
        cause: StorageError,
    ) -> Result<(), StorageError> {
        let _flushing = self.flushing.lock().await;
        if self.ended() > known {
            return Ok(());
        }
        if known >= MAX_FLUSHES {
            return Err(cause);
        }
        storage.flush_all_nodes().await?;
        self.ended.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

impl QueryEngine {
    /// Deletes what the query read, or only counts it. After an error, some of it may have been deleted.
    pub(crate) async fn delete_read(
        &self,
        rows: Vec<ReadRow>,
        dry_run: bool,
    ) -> Result<DeletedPoints, QueryFailure> {
        let rows = ReadRow::merged(rows);
        let counts = self.count(&rows);
        if dry_run || rows.is_empty() {
            return Ok(counts);
        }
        // Rows that keep points come first: if the store rejects a rewrite for now, nothing is deleted yet.
        let (cut, whole): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_cut);
        let flushes = Flushes::default();
        if self.shared.storage.may_be_held_elsewhere() {
            // A former owner of a row flushes what it holds after the row has moved. That would restore the points.
            self.shared.storage.flush_all_nodes().await?;
        }
        for rows in cut.chunks(MAX_CONCURRENT_DELETES).chain(whole.chunks(MAX_CONCURRENT_DELETES)) {
            try_join_all(rows.iter().map(|row| self.delete_row(row, &flushes))).await?;
        }
        let DeletedPoints { points, series, rows } = counts;
        tracing::info!(points, series, rows, "a query has deleted what it read");
        Ok(counts)
    }

    fn count(&self, rows: &[ReadRow]) -> DeletedPoints {
        let (salt, base) = (self.shared.schema.salt_width(), self.shared.schema.base_time_start());
        let series_of = |row: &ReadRow| {
            let key = &*row.key;
            let metric = key.get(salt..base).unwrap_or_default();
            [metric, key.get(base + size_of::<u32>()..).unwrap_or_default()].concat()
        };
        let series: HashSet<Vec<u8>> = rows.iter().map(series_of).collect();
        DeletedPoints {
            points: rows.iter().map(|row| row.len() as u64).sum(),
            series: series.len() as u64,
            rows: rows.len() as u64,
        }
    }

    async fn delete_row(&self, row: &ReadRow, flushes: &Flushes) -> Result<(), QueryFailure> {
        if self.shared.config.delete_whole_rows {
            let delete = Delete::Row(row.key.clone());
            return Ok(self.shared.storage.delete(&self.shared.tables.data, delete).await?);
        }
        let mut is_begun = false;
        for _ in 0..MAX_PLANS {
            let known = flushes.ended();
            match self.delete_points(row, &mut is_begun).await {
                Err(QueryFailure::Storage(StorageError::Changed)) => {}
                // The log of a node holds the row. After a flush, the backend can rewrite it.
                Err(QueryFailure::Storage(error @ StorageError::Throttled(_))) => {
                    flushes.flush(&*self.shared.storage, known, error).await?;
                }
                result => return result,
            }
        }
        Err(StorageError::Throttled("a row was written each time its points were to be deleted")
            .into())
    }

    /// Deletes the points of one row by one plan.
    async fn delete_points(&self, row: &ReadRow, is_begun: &mut bool) -> Result<(), QueryFailure> {
        let (storage, table) = (&*self.shared.storage, &row.table);
        let read = storage.read_version(table);
        let get = Get { family: Some(Family::T), ..Get::row(row.key.clone()) };
        let Some(found) = storage.get(table, get).await? else { return Ok(()) };
        let cells = cells_of(found)?;
        let mut plan = PointDelete::default();
        if !row.points.is_empty() {
            // After a column of the row is deleted, an older value of the same instant may become visible.
            let selects =
                |offset_ms, value: Value| row.has(offset_ms, (!*is_begun).then_some(value));
            plan = plan_point_delete(&row.key, &cells, self.merge, selects).map_err(failed)?;
        }
        plan.delete.extend(cells.iter().filter(|cell| row.has_cell(cell)).map(|cell| {
            ReplacedColumn {
                family: cell.family,
                qualifier: cell.qualifier.clone(),
                timestamp_ms: cell.timestamp_ms,
            }
        }));
        let PointDelete { put, superseded_ms, delete, appends, .. } = plan;
        if put.is_some() || !delete.is_empty() {
            let whole_row = put.is_none() && delete.len() == cells.len();
            let row = row.key.clone();
            let rewrite = RowRewrite { row, put, superseded_ms, delete, read, whole_row };
            storage.rewrite_row(table, rewrite).await?;
            *is_begun = true;
        }
        for (cell, new) in appends {
            self.replace(table, &row.key, cell, new).await?;
            *is_begun = true;
        }
        Ok(())
    }

    /// Replaces the value of an append column, unless another writer appended to it since.
    async fn replace(
        &self,
        table: &Table,
        key: &Bytes,
        cell: Cell,
        new: Option<Bytes>,
    ) -> Result<(), StorageError> {
        let Cell { family, qualifier, value, timestamp_ms } = cell;
        let column = Column { row: key.clone(), family, qualifier };
        let storage = &self.shared.storage;
        let is_replaced = match new {
            Some(new) => {
                storage
                    .compare_and_set_at(table, column, Some(value), NewValue::at(new, timestamp_ms))
                    .await?
            }
            None => storage.compare_and_delete(table, column, value).await?,
        };
        if is_replaced { Ok(()) } else { Err(StorageError::Changed) }
    }
}

fn cells_of(row: Row) -> Result<Vec<Cell>, QueryFailure> {
    let key = row.key.clone();
    row.into_cells().map_err(|source| failed(RowError::Run { key, source }))
}

fn failed(error: RowError) -> QueryFailure {
    QueryError::from(DataError::Row(Box::new(error))).into()
}

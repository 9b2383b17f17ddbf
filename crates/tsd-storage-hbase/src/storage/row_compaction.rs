//! Puts the column of a row compaction without hiding a newer value.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hbase_rs::{
    Delete as HBaseDelete, Mutation, OperationError, TimeRange, condition::Condition,
    errors::Failure,
};
use tokio::time::sleep;
use tsd_model::{Cell, ColumnKind};
use tsd_storage::{Column, ReplacedColumn, Storage, StorageError, Table};

use super::HBaseStorage;
use crate::{
    conditional::{RETRY_PAUSE, read_cell},
    context::{OpenTable, StoreContext},
    error::{invalid, storage_error},
    metrics, read_back,
    request::{family_name, get_points, put_cells},
    superseded::{
        ColumnOrigin, Evidence, RowHistory, WrittenPoint, cells_to_restore, compaction_mark,
        written_points,
    },
};

impl HBaseStorage {
    /// Rejects a row compaction while a log may hold points that are older than the compacted column, because the
    /// column would supersede them. Also rejects it while points of the row wait for their read-back: they may be
    /// superseded in the columns that were read. After such points were put again, they wait once more.
    pub(super) fn check_settled(
        &self,
        table: &Table,
        row: &Bytes,
        compacted: &Cell,
    ) -> Result<(), StorageError> {
        let StoreContext { clock, config, .. } = &*self.context;
        if self.context.table(table)?.read_backs.is_waiting(row) {
            return Err(StorageError::Throttled("points of the row wait to be read back"));
        }
        let unsettled = config.settled_after();
        let unsettled_since = clock.now_ms().saturating_sub(unsettled.as_millis() as i64);
        if compacted.timestamp_ms > unsettled_since && !unsettled.is_zero() {
            return Err(StorageError::Throttled(
                "the row was written within the hold time of logs",
            ));
        }
        Ok(())
    }

    /// Puts the column of a row compaction with its timestamp. Before the replaced columns are deleted, the column
    /// must be visible, and points written since the row was read must take precedence over it.
    ///
    /// Meanwhile a flush may have written the same column with an earlier time. The compaction would supersede it,
    /// and no read would find it. So the column is put only while it is unchanged since the read
    /// ([`Self::put_over`]).
    ///
    /// The first put has the time of the newest replaced column, so a delete of the row since the read hides it.
    /// Each later put is newer. It is executed only while the cell on which it depends is visible, because
    /// otherwise a deleted point would come back.
    pub(super) async fn put_compacted(
        &self,
        table: &Table,
        row: &Bytes,
        (compacted, superseded_ms): (&Cell, Option<i64>),
        replaced: &[ReplacedColumn],
    ) -> Result<(), StorageError> {
        let read = async || {
            let found = self.get(table, get_points(row)).await?;
            Ok::<_, StorageError>(found.map_or_else(Vec::new, |found| found.cells))
        };
        self.put_over(table, row, compacted, superseded_ms).await?;
        let Some(newest) = replaced.iter().max_by_key(|old| old.timestamp_ms) else {
            return Ok(());
        };
        let is_compacted =
            |cell: &Cell| cell.qualifier == compacted.qualifier && cell.value == compacted.value;
        let is_same = |cell: &Cell, old: &ReplacedColumn| {
            old.qualifier == cell.qualifier && old.timestamp_ms == cell.timestamp_ms
        };
        let mut cells = read().await?;
        if !cells.iter().any(is_compacted) {
            let Some(source) = cells.iter().find(|cell| is_same(cell, newest)) else {
                return Err(StorageError::Changed);
            };
            let timestamp_ms = self.after_markers(table, row, compacted).await?;
            let later = Cell { timestamp_ms, ..compacted.clone() };
            self.put_while(table, row, &later, source).await?;
            self.put_marked(table, row, &later, None).await?;
            cells = read().await?;
        }
        if !cells.iter().any(is_compacted) {
            return Err(StorageError::Unavailable(
                "a delete marker with a later time hides the compacted column".into(),
            ));
        }
        if self.context.table(table)?.compactible.is_none() {
            return Ok(());
        }
        let is_replaced =
            |cell: &Cell| is_compacted(cell) || replaced.iter().any(|old| is_same(cell, old));
        let written_since: Vec<_> = cells.iter().filter(|cell| !is_replaced(cell)).collect();
        self.restore_absorbed(table, row, (compacted, &cells), &written_since).await
    }

    /// Puts points again that were written since the row was read, and that the compacted column supersedes. These
    /// are single points, and points of a flush.
    async fn restore_absorbed(
        &self,
        table: &Table,
        row: &Bytes,
        (compacted, cells): (&Cell, &[Cell]),
        written_since: &[&Cell],
    ) -> Result<(), StorageError> {
        let points: Vec<WrittenPoint> =
            written_since.iter().flat_map(|cell| written_points(cell)).collect();
        let written_ms = |cell: &Cell| cell.timestamp_ms;
        let evidence = Evidence {
            origin: &|_| ColumnOrigin::Compaction,
            written_ms: &written_ms,
            history: &RowHistory::default(),
        };
        if cells_to_restore(&points, cells, &evidence).is_empty() {
            return Ok(());
        }
        let history = self.history(table, row).await?;
        let is_compacted =
            |cell: &Cell| cell.qualifier == compacted.qualifier && cell.value == compacted.value;
        let origin = |column: &Cell| match history.origin(column) {
            _ if is_compacted(column) => ColumnOrigin::Compaction,
            origin => origin,
        };
        let is_write = |cell: &&&Cell| {
            let is_single = ColumnKind::of(&cell.qualifier) == ColumnKind::Point;
            is_single || history.origin(cell) == ColumnOrigin::Write
        };
        let points: Vec<WrittenPoint> =
            written_since.iter().filter(is_write).flat_map(|cell| written_points(cell)).collect();
        let evidence = Evidence { origin: &origin, written_ms: &written_ms, history: &history };
        for restored in cells_to_restore(&points, cells, &evidence) {
            ::metrics::counter!(metrics::RESTORED_POINTS).increment(1);
            self.put_while(table, row, &restored.cell, compacted).await?;
        }
        Ok(())
    }

    async fn history(&self, table: &Table, row: &Bytes) -> Result<RowHistory, StorageError> {
        let row = row.clone();
        self.run_write(table, move |of, table, _| async move {
            read_back::history(&of, &table, &row).await
        })
        .await
    }

    /// Puts a compacted column if the stored column has no cell newer than the one that was read.
    async fn put_over(
        &self,
        table: &Table,
        row: &Bytes,
        cell: &Cell,
        superseded_ms: Option<i64>,
    ) -> Result<(), StorageError> {
        if self.context.table(table)?.compactible.is_none() {
            return self.put_marked(table, row, cell, None).await;
        }
        let since = superseded_ms.map_or(0, |read| read.saturating_add(1).max(0).unsigned_abs());
        let newer = TimeRange::try_new(since, u64::MAX >> 1).map_err(invalid)?;
        let absent = Condition::absent(family_name(cell.family), cell.qualifier.clone());
        self.put_marked(table, row, cell, Some(absent.time_range(newer))).await
    }

    /// Puts a compacted column in one step with the mark by which daemons distinguish it from a flush.
    async fn put_marked(
        &self,
        table: &Table,
        row: &Bytes,
        cell: &Cell,
        condition: Option<Condition>,
    ) -> Result<(), StorageError> {
        let (row, cell) = (row.clone(), cell.clone());
        self.run_write(table, move |to, table, timeout| async move {
            let mutations = marked_column(&to, row.clone(), &cell)?;
            let column = Column { row, family: cell.family, qualifier: cell.qualifier.clone() };
            let put = ConditionalPut { column, cell: &cell, mutations, condition }
                .execute(&to, &table, timeout)
                .await?;
            if put { Ok(()) } else { Err(StorageError::Changed) }
        })
        .await
    }

    /// Returns the first time at which no delete marker of the row hides the cell. Later writes of this process are
    /// not before it.
    async fn after_markers(
        &self,
        table: &Table,
        row: &Bytes,
        cell: &Cell,
    ) -> Result<i64, StorageError> {
        let newest = self.history(table, row).await?.newest_marker_ms(&cell.qualifier);
        let newest = newest.map_or(cell.timestamp_ms, |newest| newest.max(cell.timestamp_ms));
        self.context.table(table)?.clock.pass(newest);
        Ok(newest.saturating_add(1))
    }

    /// Puts a cell only while the row has the cell `other`, in one step.
    async fn put_while(
        &self,
        table: &Table,
        row: &Bytes,
        cell: &Cell,
        other: &Cell,
    ) -> Result<(), StorageError> {
        let (row, cell, other) = (row.clone(), cell.clone(), other.clone());
        self.run_write(table, move |to, table, _| async move {
            let put = put_cells(row, [&cell])?;
            let condition =
                Condition::equals(family_name(other.family), other.qualifier, other.value);
            match to.rows.check_and_mutate(&condition, put).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(StorageError::Changed),
                Err(error) => Err(storage_error(&table, &error)),
            }
        })
        .await
    }
}

/// Returns the put of the column. In the table of points its mark is added.
fn marked_column(of: &OpenTable, row: Bytes, cell: &Cell) -> Result<Vec<Mutation>, StorageError> {
    let mut mutations = vec![put_cells(row.clone(), [cell])?.into()];
    let mark = compaction_mark(&cell.qualifier, cell.timestamp_ms);
    if let Some((qualifier, mark_ms)) = mark.filter(|_| of.compactible.is_some()) {
        let mark = HBaseDelete::try_new(row)
            .and_then(|mark| {
                mark.version(cell.family.as_str().as_bytes(), &qualifier, mark_ms.unsigned_abs())
            })
            .map_err(invalid)?;
        mutations.push(mark.into());
    }
    Ok(mutations)
}

/// A put of a column that is made if a condition holds.
struct ConditionalPut<'a> {
    column: Column,
    cell: &'a Cell,
    /// The put, with its mark in the table of points.
    mutations: Vec<Mutation>,
    condition: Option<Condition>,
}

impl ConditionalPut<'_> {
    /// Returns true if the row has the column. An attempt without a response may have been executed, or may be
    /// executed later. Then the condition of the next attempt fails, and a read of the column decides.
    async fn execute(
        &self,
        to: &OpenTable,
        table: &Table,
        timeout: Duration,
    ) -> Result<bool, StorageError> {
        let Self { column, cell, mutations, condition } = self;
        let started = Instant::now();
        let mut is_in_doubt = false;
        loop {
            let error = match to.put_once(mutations, condition.as_ref()).await {
                Ok(false) if is_in_doubt => {
                    let found = read_cell(&to.rows, column).await;
                    let found = found.map_err(|error| storage_error(table, &error))?;
                    return Ok(found == (Some(cell.value.clone()), Some(cell.timestamp_ms)));
                }
                Ok(is_done) => return Ok(is_done),
                Err(error) => error,
            };
            let failure = storage_error(table, &error);
            let is_permanent =
                error.class().is_some() && matches!(failure, StorageError::Backend(_));
            if !error.in_doubt || is_permanent || started.elapsed() >= timeout {
                return Err(failure);
            }
            is_in_doubt = true;
            sleep(RETRY_PAUSE).await;
        }
    }
}

impl OpenTable {
    /// Makes one attempt of a conditional put. Servers before HBase 2.4 cannot check the condition, so the put is
    /// unconditional there, and the second read-back repairs superseded points.
    async fn put_once(
        &self,
        mutations: &[Mutation],
        condition: Option<&Condition>,
    ) -> Result<bool, OperationError> {
        let condition = condition.filter(|_| !self.has_old_servers.load(Relaxed));
        match self.rows.mutate_row(mutations.to_vec(), condition).await {
            Err(error) if is_too_old(&error) => {
                self.has_old_servers.store(true, Relaxed);
                self.rows.mutate_row(mutations.to_vec(), None).await
            }
            result => result,
        }
    }
}

/// True if nothing was sent because the server would ignore the condition.
fn is_too_old(error: &OperationError) -> bool {
    matches!(*error.cause, Failure::ServerTooOld { .. }) && !error.in_doubt
}

//! The first read-back of rows, right after the put of their points. It repairs points that were superseded or
//! hidden before HBase had them, before the write completes.
//!
//! Rows that are read back again later are read once here, so that a row that others keep rewriting does not
//! delay the flush of other rows. The remaining rows are read until no point has to be put again.

use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hbase_rs::{Get as HBaseGet, Row as HBaseRow, TimeRange, buffer::MutationBatch};
use tsd_model::Cell;
use tsd_storage::{FlushRow, StorageError, Table};

use super::{MAX_CONCURRENT_ROWS, PutAgain, cells_of, history, put_again};
use crate::{
    compacted_column::PlacedPoint,
    context::OpenTable,
    error::storage_error,
    metrics::{READ_BACK_DEFERRED_ROWS, READ_BACK_WAIT_SECONDS},
    mutations::write_batch,
    request::{get_points, hbase_get},
    superseded::{
        ColumnOrigin, Evidence, RestoredPoint, RowHistory, WrittenPoint, cells_to_restore,
        is_doubtful,
    },
};

/// Attempts to make the points of a row visible. After these the write fails and is retried later.
const MAX_RESTORES: usize = 4;

/// Written points of a row that was not read back yet.
pub(crate) struct UnverifiedRow {
    key: Bytes,
    points: Vec<WrittenPoint>,
    /// Only cells from this time on can supersede the points.
    since_ms: i64,
    /// The columns that this write has put, with their times; `None` if no daemon compacts the row.
    put: Option<Vec<(Bytes, i64)>>,
}

/// Why a row may differ from what was written.
struct RowDoubt {
    cells: Vec<Cell>,
    restored: Vec<RestoredPoint>,
    /// True if the repair needs the history of the row.
    needs_history: bool,
}

impl UnverifiedRow {
    /// Returns a flushed row to verify. `None` if its cells have exact times, and no daemon compacts it.
    pub(crate) fn of_flush(
        row: &FlushRow<'_>,
        placed: &[PlacedPoint],
        put: Option<Vec<(Bytes, i64)>>,
    ) -> Option<Self> {
        let mut since_ms = i64::MAX;
        let point = |placed: &PlacedPoint| {
            let cell = row.cells.get(placed.cell)?;
            let is_exact = placed.column_ms == cell.timestamp_ms;
            if is_exact && put.is_none() {
                return None;
            }
            since_ms = since_ms.min(placed.column_ms);
            let (written_ms, column_ms) = (cell.timestamp_ms, placed.column_ms);
            WrittenPoint::new(cell.family, cell.qualifier, cell.value, written_ms, column_ms)
        };
        let points: Vec<_> = placed.iter().filter_map(point).collect();
        if points.is_empty() {
            return None;
        }
        Some(Self { key: Bytes::copy_from_slice(row.key), points, since_ms, put })
    }

    /// Returns a row that daemons compact, with points that were put as single cells.
    pub(crate) fn of_points(key: Bytes, points: Vec<WrittenPoint>) -> Self {
        let put =
            |point: &WrittenPoint| (Bytes::copy_from_slice(point.qualifier()), point.written_ms);
        let put = Some(points.iter().map(put).collect());
        let since_ms = points.iter().map(|point| point.written_ms).min().unwrap_or_default();
        Self { key, points, since_ms, put }
    }

    /// Returns the Get of the row, with all its cells if the row can be compacted.
    fn get(&self) -> Option<HBaseGet> {
        let since = self.since_ms.max(0).unsigned_abs();
        let times = TimeRange::try_new(since, u64::MAX >> 1).ok().filter(|_| self.put.is_none());
        hbase_get(get_points(&self.key), times)
    }

    /// Returns the doubt about the row; `None` if the found cells return all its points, as in most rows.
    fn doubt(&self, of: &OpenTable, found: &HBaseRow) -> Option<RowDoubt> {
        let cells = cells_of(found);
        let restored = self.to_restore(of, &cells, &RowHistory::default());
        let needs_history = self.needs_history(of, &cells, &restored);
        let is_read = restored.is_empty() && !needs_history;
        (!is_read).then_some(RowDoubt { cells, restored, needs_history })
    }

    /// Puts points again that the row does not return.
    async fn check(
        mut self,
        of: &OpenTable,
        table: &Table,
        doubt: RowDoubt,
    ) -> Result<(Self, PutAgain), StorageError> {
        let RowDoubt { cells, mut restored, needs_history } = doubt;
        if needs_history {
            // A later write that a compaction has absorbed is not superseded, and a compaction may
            // lack an instant that was written during it.
            let needs_deletes = self.is_read_back_later(of);
            let history = RowHistory { needs_deletes, ..history(of, table, &self.key).await? };
            restored = self.to_restore(of, &cells, &history);
        }
        self.restored(&restored);
        let again = put_again(of, table, &self.key, restored).await?;
        Ok((self, again))
    }

    fn needs_history(&self, of: &OpenTable, cells: &[Cell], restored: &[RestoredPoint]) -> bool {
        let is_own_time = |point: &RestoredPoint| point.cell.timestamp_ms == point.written_ms;
        let written_ms = |cell: &Cell| of.read_backs.written_ms(&self.key, cell);
        !restored.iter().all(is_own_time)
            || self.put.is_some() && is_doubtful(&self.points, cells, written_ms)
    }

    /// Returns the points to put again, so that a row with these cells returns them.
    fn to_restore(
        &self,
        of: &OpenTable,
        cells: &[Cell],
        history: &RowHistory,
    ) -> Vec<RestoredPoint> {
        let origin = |column: &Cell| match self.put {
            None => ColumnOrigin::Write,
            Some(_) => history.origin(column),
        };
        let written_ms = |cell: &Cell| of.read_backs.written_ms(&self.key, cell);
        let evidence = Evidence { origin: &origin, written_ms: &written_ms, history };
        // The points are read back once more anyway.
        cells_to_restore(&self.points, cells, &evidence)
    }

    /// Records that points were put again.
    fn restored(&mut self, restored: &[RestoredPoint]) {
        for RestoredPoint { point, cell, .. } in restored {
            if let Some(point) = self.points.get_mut(*point)
                && cell.timestamp_ms == point.written_ms
            {
                point.column_ms = point.written_ms;
            }
            if let Some(put) = &mut self.put {
                put.push((cell.qualifier.clone(), cell.timestamp_ms));
            }
        }
    }

    /// True if the row is read back once more after the delay.
    fn is_read_back_later(&self, of: &OpenTable) -> bool {
        self.put.is_some() && of.read_backs.has_room()
    }
}

/// Reads rows back, and puts points again that an older value supersedes or hides.
///
/// # Errors
///
/// If HBase fails, or if other daemons keep rewriting a row that is not read back later.
pub(crate) async fn restore_superseded(
    of: &OpenTable,
    table: &Table,
    mut rows: Vec<UnverifiedRow>,
) -> Result<(), StorageError> {
    if rows.is_empty() {
        return Ok(());
    }
    let began = Instant::now();
    let mut settled = Vec::new();
    let mut deferred = 0;
    for _ in 0..MAX_RESTORES {
        let mut unsettled = Vec::new();
        for (row, is_unsettled) in check_rows(of, table, rows).await? {
            if is_unsettled && !row.is_read_back_later(of) {
                unsettled.push(row);
            } else {
                deferred += u64::from(is_unsettled);
                settled.push(row);
            }
        }
        rows = unsettled;
        if rows.is_empty() {
            break;
        }
    }
    // OpenTSDB may be compacting one of these rows right now.
    let compactible = settled.into_iter().filter(|row| row.put.is_some());
    of.read_backs.add_rows(compactible.map(|row| (row.key, row.points)), of.clock.system_ms());
    metrics::counter!(READ_BACK_DEFERRED_ROWS).increment(deferred);
    metrics::histogram!(READ_BACK_WAIT_SECONDS).record(began.elapsed());
    if rows.is_empty() {
        return Ok(());
    }
    Err(StorageError::Unavailable(
        format!("{} rows of {table} are rewritten by another daemon at the same time", rows.len())
            .into(),
    ))
}

/// Reads rows back once. Returns each row with whether it has to be read again.
async fn check_rows(
    of: &OpenTable,
    table: &Table,
    rows: Vec<UnverifiedRow>,
) -> Result<Vec<(UnverifiedRow, bool)>, StorageError> {
    // Every key was put: all are valid.
    let gets: Vec<_> = rows.iter().filter_map(UnverifiedRow::get).collect();
    let found = of.rows.get_many(gets).await.map_err(|error| storage_error(table, &error))?;
    let mut checked = Vec::with_capacity(found.len());
    let mut checks = Vec::new();
    for (row, found) in rows.into_iter().zip(&found) {
        tokio::task::consume_budget().await;
        match row.doubt(of, found) {
            None => checked.push((row, false)),
            Some(doubt) => checks.push(row.check(of, table, doubt)),
        }
    }
    let mut checks = stream::iter(checks).buffer_unordered(MAX_CONCURRENT_ROWS);
    let mut puts = MutationBatch::default();
    while let Some(result) = checks.next().await {
        let (row, again) = result?;
        again.add_to(&mut puts, &row.key)?;
        checked.push((row, again.is_unsettled));
    }
    write_batch(&of.writer, table, puts).await?;
    Ok(checked)
}

//! The second read-back of written points, against compactions of OpenTSDB.
//!
//! OpenTSDB compacts a row in three steps. It reads the row, puts the compacted column when its buffer is
//! sent (a second later by default), and then deletes the columns that it read, up to the time of the server.
//! The column supersedes a point that is written in between, or the delete marker hides the point, because it
//! also covers later cells of a column. No read at the time of the write can see that. So the store reads
//! points in rows that OpenTSDB may compact back once more, after the end of every compaction that may have
//! read the row before ([`HBaseConfig::read_back_delay`](crate::HBaseConfig::read_back_delay)). A compaction
//! that reads the row later has the point. Points that are put again are read back again, until they stay.
//!
//! OpenTSDB does not compact the row of the current hour. Its compaction queue waits until the hour has been
//! over for a second, and a query that reads the row does not write what it merged. So points in rows of the
//! current hour, which are nearly all points, cost nothing. The last minute of the hour counts as over
//! because clocks differ.
//!
//! The points wait in memory. If a daemon ends, its points are not read back again, unless its log still has
//! them and flushes them at the next start. The memory is bounded. Points beyond the bound are not read back
//! again; they are counted.

mod first;

use std::{sync::Weak, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hbase_rs::{
    CellKind, Get as HBaseGet, ReadType, Row as HBaseRow, Scan, Selection, TimeRange,
    buffer::MutationBatch, condition::Condition,
};
use tokio::time::sleep;
use tsd_model::{Cell, Family};
use tsd_storage::{CellRef, StorageError, Table};

use crate::{
    context::{OpenTable, StoreContext},
    error::{invalid, storage_error},
    metrics::RESTORED_POINTS,
    mutations::{put, write_batch},
    read_back_queue::DueRow,
    request::{family_name, get_points, hbase_get, put_cells},
    row::model_row,
    superseded::{
        Basis, Evidence, RestoredPoint, RowHistory, WrittenPoint, cells_to_restore, is_doubtful,
    },
};

pub(crate) use first::{UnverifiedRow, restore_superseded};

/// Maximum number of versions of a column in the history of a row.
const HISTORY_VERSIONS: u32 = 1_000;
/// Reads of due rows per delay.
const READS_PER_DELAY: u32 = 8;
/// Rows of one call that are processed concurrently: reads of histories and further puts.
const MAX_CONCURRENT_ROWS: usize = 32;

/// Reads due points back, until the store is closed.
pub(crate) async fn run(of: Weak<StoreContext>, delay: Duration) {
    loop {
        sleep(delay / READS_PER_DELAY).await;
        let Some(of) = of.upgrade() else { return };
        if of.check_open().is_err() {
            return;
        }
        if let Err(error) = read_due(&of).await {
            tracing::warn!(%error, "cannot read written points back, trying again");
        }
    }
}

/// Reads due points back, and puts points again that a compaction superseded or hid.
pub(crate) async fn read_due(context: &StoreContext) -> Result<(), StorageError> {
    let Some((table, _)) = &context.config.compacted_table else { return Ok(()) };
    let of = &*context.table(table)?;
    loop {
        let now_ms = of.clock.system_ms();
        let mut due = of.read_backs.take_due(now_ms);
        if due.is_empty() {
            return Ok(());
        }
        let result = read_back(of, table, &mut due).await;
        if let Ok(is_unsettled) = &result {
            // Points that were put again may be superseded again.
            let mut is_unsettled = is_unsettled.iter();
            due.retain(|_| is_unsettled.next().is_some_and(|unsettled| *unsettled));
        }
        of.read_backs.add_rows(due, now_ms);
        result?;
    }
}

/// Reads rows back once. Returns for each row whether it has to be read again.
///
/// A cell that supersedes or hides a point is newer than the point. So the store reads only the newer cells
/// of a row, and the whole row if these leave a doubt.
async fn read_back(
    of: &OpenTable,
    table: &Table,
    rows: &mut [DueRow],
) -> Result<Vec<bool>, StorageError> {
    // Every key was put: all are valid.
    let gets: Vec<_> = rows.iter().filter_map(|(key, points)| newer_cells(key, points)).collect();
    let found = of.rows.get_many(gets).await.map_err(|error| storage_error(table, &error))?;
    let mut is_unsettled = vec![false; rows.len()];
    let mut checks = Vec::new();
    for (at, (row, found)) in rows.iter_mut().zip(&found).enumerate() {
        tokio::task::consume_budget().await;
        // Most rows are unchanged, and need no future.
        if is_row_doubtful(of, row, &cells_of(found)) {
            let check = check_row(of, table, row);
            checks.push(async move { Ok::<_, StorageError>((at, check.await?)) });
        }
    }
    let mut checks = stream::iter(checks).buffer_unordered(MAX_CONCURRENT_ROWS);
    let mut puts = MutationBatch::default();
    while let Some(result) = checks.next().await {
        let (at, (key, again)) = result?;
        again.add_to(&mut puts, &key)?;
        if let Some(is_unsettled) = is_unsettled.get_mut(at) {
            *is_unsettled = again.is_unsettled;
        }
    }
    write_batch(&of.writer, table, puts).await?;
    Ok(is_unsettled)
}

fn cells_of(found: &HBaseRow) -> Vec<Cell> {
    model_row(found).map_or_else(Vec::new, |row| row.cells)
}

/// True if a read of these cells may not return all points of the row.
fn is_row_doubtful(of: &OpenTable, (key, points): &DueRow, cells: &[Cell]) -> bool {
    is_doubtful(points, cells, |cell: &Cell| of.read_backs.written_ms(key, cell))
}

/// Reads a row whose newer cells leave a doubt, and puts points again that the row does not return.
async fn check_row(
    of: &OpenTable,
    table: &Table,
    row: &mut DueRow,
) -> Result<(Bytes, PutAgain), StorageError> {
    let mut restored = Vec::new();
    if let Some(get) = hbase_get(get_points(&row.0), None) {
        let found = of.rows.get(&get).await.map_err(|error| storage_error(table, &error))?;
        let cells = cells_of(&found);
        if is_row_doubtful(of, row, &cells) {
            let (key, points) = &*row;
            let history = RowHistory { needs_deletes: true, ..history(of, table, key).await? };
            let written_ms = |cell: &Cell| of.read_backs.written_ms(key, cell);
            let origin = |column: &Cell| history.origin(column);
            let evidence = Evidence { origin: &origin, written_ms: &written_ms, history: &history };
            restored = cells_to_restore(points, &cells, &evidence);
        }
    }
    let (key, points) = row;
    for RestoredPoint { point, .. } in &restored {
        if let Some(point) = points.get_mut(*point) {
            point.column_ms = point.written_ms;
        }
    }
    let again = put_again(of, table, key, restored).await?;
    Ok((key.clone(), again))
}

/// Returns the Get of the cells of a row that are not older than the points.
fn newer_cells(key: &Bytes, points: &[WrittenPoint]) -> Option<HBaseGet> {
    let since = points.iter().map(|point| point.column_ms).min().unwrap_or(0);
    let times = TimeRange::try_new(since.max(0).unsigned_abs(), u64::MAX >> 1).ok();
    hbase_get(get_points(key), times)
}

/// Remaining work after points of a row were put again.
pub(crate) struct PutAgain {
    /// Points that still have to be put, with the times of their writes.
    own_times: Vec<Cell>,
    /// True if the row has to be read once more, because points were put, or the row has changed since it was
    /// read.
    pub(crate) is_unsettled: bool,
}

impl PutAgain {
    /// Adds the points that still have to be put.
    pub(crate) fn add_to(&self, puts: &mut MutationBatch, key: &[u8]) -> Result<(), StorageError> {
        puts.begin();
        self.own_times.iter().try_for_each(|cell| put(puts, key, cell_ref(cell)))
    }
}

/// Puts points again, except points with the times of their writes.
///
/// A point with a later time is put by one conditional step, only while the row still has the cell that was
/// read instead of the point. Otherwise a delete of the row in between would not hide the point. A put of
/// another daemon in between is newer, or has replaced the cell that was read.
pub(crate) async fn put_again(
    of: &OpenTable,
    table: &Table,
    key: &Bytes,
    mut restored: Vec<RestoredPoint>,
) -> Result<PutAgain, StorageError> {
    restored.retain(|point| of.read_backs.remember(key, point));
    let mut own_times = Vec::new();
    let mut later: Vec<(Basis, Vec<RestoredPoint>)> = Vec::new();
    for point in &restored {
        // Later writes of this process are newer.
        of.clock.pass(point.cell.timestamp_ms);
        if point.basis == Basis::OwnTime {
            own_times.push(point.cell.clone());
        } else if let Some((_, same)) = later.iter_mut().find(|(basis, _)| *basis == point.basis) {
            same.push(point.clone());
        } else {
            later.push((point.basis.clone(), vec![point.clone()]));
        }
    }
    let mut put_now = own_times.len();
    for (basis, points) in later {
        if put_on_basis(of, table, key, &basis, &points).await? {
            put_now += points.len();
        } else {
            for point in &points {
                of.read_backs.forget_restored(key, point);
            }
        }
    }
    metrics::counter!(RESTORED_POINTS).increment(put_now as u64);
    Ok(PutAgain { own_times, is_unsettled: !restored.is_empty() })
}

/// Puts points if the row still has their basis. Returns true if it had.
async fn put_on_basis(
    of: &OpenTable,
    table: &Table,
    key: &Bytes,
    basis: &Basis,
    points: &[RestoredPoint],
) -> Result<bool, StorageError> {
    let family = family_name(Family::T);
    let condition = match (basis, points.first()) {
        (Basis::Cell(cell), _) => {
            Condition::equals(family, cell.qualifier.clone(), cell.value.clone())
        }
        (_, Some(first)) => Condition::absent(family, first.cell.qualifier.clone()),
        (_, None) => return Ok(true),
    };
    let put = put_cells(key.clone(), points.iter().map(|point| &point.cell))?;
    let result = of.rows.check_and_mutate(&condition, put).await;
    result.map_err(|error| storage_error(table, &error))
}

fn cell_ref(cell: &Cell) -> CellRef<'_> {
    let Cell { family, qualifier, value, timestamp_ms } = cell;
    CellRef { family: *family, qualifier, value, timestamp_ms: Some(*timestamp_ms) }
}

/// Reads the history of a row.
pub(crate) async fn history(
    of: &OpenTable,
    table: &Table,
    key: &Bytes,
) -> Result<RowHistory, StorageError> {
    let selection = Selection::all().family(family_name(Family::T));
    let selection = selection.max_versions(HISTORY_VERSIONS).map_err(invalid)?;
    let scan = Scan::range(key.clone(), key.clone()).inclusive(true, true).select(selection);
    let mut rows = of.rows.scan(scan.raw().limit(1).read_type(ReadType::Pread));
    let compactible_since_ms = of.compactible_since_ms(key);
    let mut history = RowHistory { compactible_since_ms, ..RowHistory::default() };
    while let Some(row) = rows.next().await {
        let row = row.map_err(|error| storage_error(table, &error))?.row;
        for cell in row.cells() {
            let qualifier = Bytes::copy_from_slice(cell.qualifier);
            let timestamp_ms = cell.timestamp.cast_signed();
            match cell.kind {
                CellKind::Put => history.writes.push(Cell {
                    family: Family::T,
                    qualifier,
                    value: Bytes::copy_from_slice(cell.value),
                    timestamp_ms,
                }),
                CellKind::DeleteColumn => history.deleted.push((qualifier, timestamp_ms)),
                CellKind::DeleteFamily => history.deleted_rows.push(timestamp_ms),
                CellKind::Delete => {
                    history.marks.insert((qualifier, timestamp_ms));
                }
                CellKind::DeleteFamilyVersion => {}
            }
        }
    }
    Ok(history)
}

//! The second read-back of written points, for the compactions of OpenTSDB.
//!
//! OpenTSDB compacts a row in three steps: it reads the row, puts the compacted column when its buffer is
//! sent (a second later by default), and then deletes the columns that it read, up to the time of the
//! server. A point that is written in between is superseded by the column or hidden by the delete marker,
//! which covers later cells of a column too. No read at the time of the write can see that, so points of
//! rows that OpenTSDB may compact are read back once more when every compaction that has read the row
//! before is over ([`HBaseConfig::read_back_delay`](crate::HBaseConfig::read_back_delay)). A compaction
//! that reads the row later has the point. What is put again is read back again, until it stays.
//!
//! OpenTSDB does not compact the row of the current hour: its compaction queue waits until the hour has
//! been over for a second, and a query that reads the row does not write what it merged. So points that are
//! written to rows of the current hour, nearly all of them, cost nothing. The last minute of the hour
//! counts as over because clocks differ.
//!
//! The points wait in memory: those of a daemon that ends are not read back again, unless its log still has
//! them and flushes them at the next start. The memory is bounded; points beyond that are not read back
//! again, and counted.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use hbase_rs::{CellKind, Condition, MutationBatch, Put, ReadType, Scan, Selection};
use tokio::time::sleep;
use tsd_model::{BaseTime, Cell, Family, Qualifier, RowKey, TableSchema};
use tsd_storage::{CellRef, Get, StorageError, Table};

use crate::{
    context::{OpenTable, StoreContext},
    error::{request_error, storage_error},
    metrics::{READ_BACK_DROPPED_POINTS, RESTORED_POINTS},
    mutations::put,
    request::{family_name, hbase_get, timestamp},
    row::model_row,
    storage::write_batch,
    superseded::{
        Basis, Evidence, Restoration, RestoredPoint, RowHistory, WrittenPoint, cells_to_restore,
        is_doubtful, point_qualifier,
    },
};

/// Limit on the memory of the points that wait, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Memory of a row and of a point in addition to key, qualifier and value.
const ROW_OVERHEAD: usize = 160;
const POINT_OVERHEAD: usize = 160;
/// Rows of one call.
const CALL_ROWS: usize = 256;
/// Limit on the instants whose points were put again and are remembered.
const MAX_RESTORED: usize = 65_536;
/// Limit on the remembered points of an instant.
const MAX_RESTORED_PER_INSTANT: usize = 16;
/// Versions of a column that the history of a row has.
const HISTORY_VERSIONS: u32 = 1_000;
/// Rows count as compactible this long before another daemon may compact them: clocks differ.
const CLOCK_TOLERANCE: Duration = Duration::from_mins(1);
/// Reads of due rows per delay.
const READS_PER_DELAY: u32 = 8;

/// Decides which rows another daemon may have compacted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactibleRows {
    pub(crate) schema: TableSchema,
}

impl CompactibleRows {
    /// True if the hour of the row is over at `now_ms`, or nearly.
    pub(crate) fn contains(self, key: &[u8], now_ms: i64) -> bool {
        let Ok(key) = RowKey::decode(&self.schema, key) else { return false };
        let end_secs = i64::from(key.base_time().as_secs()) + i64::from(BaseTime::SPAN_SECONDS);
        let tolerance_ms = CLOCK_TOLERANCE.as_millis() as i64;
        end_secs.saturating_mul(1_000) <= now_ms.saturating_add(tolerance_ms)
    }
}

/// Row key and milliseconds of the hour.
type Instant = (Bytes, u32);

/// Points of a table that were written to rows that OpenTSDB may compact.
#[derive(Debug)]
pub(crate) struct ReadBacks {
    delay: Duration,
    queue: Mutex<Queue>,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    rows: HashMap<Bytes, BTreeMap<u32, WaitingPoint>>,
    /// Rows in the order of their times; a row has an entry for every time.
    due: VecDeque<(i64, Bytes)>,
    bytes: usize,
    /// Points that were put again, and the order in which they were.
    restored: HashMap<Instant, VecDeque<PutAgain>>,
    restored_order: VecDeque<Instant>,
}

/// The last point of an instant that this process has written.
#[derive(Clone, Debug)]
struct WaitingPoint {
    point: WrittenPoint,
    due_ms: i64,
}

/// A cell that has a later time than that of the write of its value.
#[derive(Clone, Copy, Debug)]
struct PutAgain {
    timestamp_ms: i64,
    written_ms: i64,
}

impl WaitingPoint {
    fn bytes(&self) -> usize {
        POINT_OVERHEAD + self.point.qualifier.len() + self.point.value.len()
    }
}

impl Queue {
    fn remove(&mut self, key: &Bytes, offset_ms: u32) -> Option<WaitingPoint> {
        let row = self.rows.get_mut(key)?;
        let point = row.remove(&offset_ms)?;
        self.bytes = self.bytes.saturating_sub(point.bytes());
        if row.is_empty() {
            self.rows.remove(key);
            self.bytes = self.bytes.saturating_sub(ROW_OVERHEAD + key.len());
        }
        Some(point)
    }
}

impl ReadBacks {
    /// `delay` is the longest duration of a compaction of OpenTSDB.
    pub(crate) fn new(delay: Duration) -> Self {
        Self { delay, queue: Mutex::default(), dropped: AtomicU64::new(0) }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if points are read back.
    pub(crate) const fn is_enabled(&self) -> bool {
        !self.delay.is_zero()
    }

    /// Compactions of OpenTSDB that have put their column before this time are over.
    pub(crate) const fn settled_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.delay.as_millis() as i64)
    }

    /// Rows and bytes that wait.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let queue = self.queue();
        (queue.rows.len(), queue.bytes)
    }

    /// True if points of the row wait.
    pub(crate) fn is_waiting(&self, key: &Bytes) -> bool {
        self.queue().rows.contains_key(key)
    }

    /// Adds points that HBase has, to be read back after the delay. Of the points of an instant the one
    /// that was written last is kept.
    pub(crate) fn add(
        &self,
        rows: impl IntoIterator<Item = (Bytes, Vec<WrittenPoint>)>,
        now_ms: i64,
    ) {
        if self.delay.is_zero() {
            return;
        }
        let due_ms = now_ms.saturating_add(self.delay.as_millis() as i64);
        let mut queue = self.queue();
        let mut dropped = 0;
        for (key, points) in rows {
            let mut is_queued = false;
            for point in points {
                let Some(qualifier) = Qualifier::decode(&point.qualifier) else { continue };
                let offset_ms = qualifier.offset_ms();
                let waiting = queue.remove(&key, offset_ms);
                let is_later = |old: &WaitingPoint| old.point.written_ms <= point.written_ms;
                let added = match waiting {
                    Some(old) if !is_later(&old) => old,
                    _ => WaitingPoint { point, due_ms },
                };
                if queue.bytes >= MAX_BYTES {
                    dropped += 1;
                    continue;
                }
                let is_new = !queue.rows.contains_key(&key);
                queue.bytes += added.bytes() + if is_new { ROW_OVERHEAD + key.len() } else { 0 };
                queue.rows.entry(key.clone()).or_default().insert(offset_ms, added);
                is_queued = true;
            }
            if is_queued {
                queue.due.push_back((due_ms, key));
            }
        }
        drop(queue);
        if dropped > 0 {
            self.dropped.fetch_add(dropped, Ordering::Relaxed);
            metrics::counter!(READ_BACK_DROPPED_POINTS).increment(dropped);
        }
    }

    /// The row was deleted, or columns of it: its points are not put again.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut queue = self.queue();
        if let Some((key, row)) = queue.rows.remove_entry(key) {
            let points: usize = row.values().map(WaitingPoint::bytes).sum();
            queue.bytes = queue.bytes.saturating_sub(points + ROW_OVERHEAD + key.len());
        }
    }

    /// Removes points that are due, of a limited number of rows.
    fn take_due(&self, now_ms: i64) -> Vec<(Bytes, Vec<WrittenPoint>)> {
        let mut queue = self.queue();
        let mut rows = Vec::new();
        while rows.len() < CALL_ROWS
            && let Some((_, key)) = queue.due.pop_front_if(|(due_ms, _)| *due_ms <= now_ms)
        {
            let waiting = queue.rows.get(&key).into_iter().flatten();
            let due: Vec<u32> = waiting
                .filter(|(_, waiting)| waiting.due_ms <= now_ms)
                .map(|(offset_ms, _)| *offset_ms)
                .collect();
            let removed = due.into_iter().filter_map(|offset_ms| queue.remove(&key, offset_ms));
            let points: Vec<_> = removed.map(|waiting| waiting.point).collect();
            if !points.is_empty() {
                rows.push((key, points));
            }
        }
        rows
    }

    /// Time of the write of a cell of one point.
    pub(crate) fn written_ms(&self, key: &Bytes, cell: &Cell) -> i64 {
        let point = point_qualifier(cell.family, &cell.qualifier, &cell.value);
        let Some(qualifier) = point else { return cell.timestamp_ms };
        let queue = self.queue();
        let again = queue.restored.get(&(key.clone(), qualifier.offset_ms()));
        let again = again.into_iter().flatten().rfind(|a| a.timestamp_ms == cell.timestamp_ms);
        again.map_or(cell.timestamp_ms, |again| again.written_ms)
    }

    /// Remembers a point that is put again, unless this process has written a later one: returns false
    /// then.
    pub(crate) fn remember(&self, key: &Bytes, restored: &RestoredPoint) -> bool {
        let Some(qualifier) = Qualifier::decode(&restored.cell.qualifier) else { return false };
        let offset_ms = qualifier.offset_ms();
        let mut queue = self.queue();
        let waiting = queue.rows.get(key).and_then(|row| row.get(&offset_ms));
        if waiting.is_some_and(|waiting| waiting.point.written_ms > restored.written_ms) {
            return false;
        }
        let (timestamp_ms, written_ms) = (restored.cell.timestamp_ms, restored.written_ms);
        if timestamp_ms == written_ms {
            return true;
        }
        let instant = (key.clone(), offset_ms);
        let is_new = !queue.restored.contains_key(&instant);
        let again = queue.restored.entry(instant.clone()).or_default();
        if again.len() >= MAX_RESTORED_PER_INSTANT {
            again.pop_front();
        }
        again.push_back(PutAgain { timestamp_ms, written_ms });
        if is_new {
            queue.restored_order.push_back(instant);
        }
        if queue.restored_order.len() > MAX_RESTORED
            && let Some(oldest) = queue.restored_order.pop_front()
        {
            queue.restored.remove(&oldest);
        }
        true
    }

    /// A point that is remembered was not put again.
    fn forget_restored(&self, key: &Bytes, restored: &RestoredPoint) {
        let Some(qualifier) = Qualifier::decode(&restored.cell.qualifier) else { return };
        let mut queue = self.queue();
        // The instant keeps its place in the order, also if nothing of it is left.
        if let Some(again) = queue.restored.get_mut(&(key.clone(), qualifier.offset_ms())) {
            let (timestamp_ms, written_ms) = (restored.cell.timestamp_ms, restored.written_ms);
            again.retain(|one| (one.timestamp_ms, one.written_ms) != (timestamp_ms, written_ms));
        }
    }
}

/// Reads points back when they are due, until the store is closed.
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

/// Reads the points back that are due, and puts those again that a compaction superseded or hid.
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
        of.read_backs.add(due, now_ms);
        result?;
    }
}

/// Reads rows back once. Returns for each whether it has to be read again.
async fn read_back(
    of: &OpenTable,
    table: &Table,
    rows: &mut [(Bytes, Vec<WrittenPoint>)],
) -> Result<Vec<bool>, StorageError> {
    let get =
        |key: &Bytes| Get { row: key.clone(), family: Some(Family::T), qualifiers: Vec::new() };
    // Every key was put: all are valid.
    let gets: Vec<_> = rows.iter().filter_map(|(key, _)| hbase_get(get(key), None)).collect();
    let found = of.rows.get_many(gets).await.map_err(|error| storage_error(table, &error))?;
    let mut puts = MutationBatch::default();
    let mut is_unsettled = Vec::with_capacity(rows.len());
    for ((key, points), found) in rows.iter_mut().zip(&found) {
        let cells = model_row(found).map_or_else(Vec::new, |row| row.cells);
        let written_ms = |cell: &Cell| of.read_backs.written_ms(key, cell);
        let mut restoration = Restoration::default();
        if is_doubtful(points, &cells, written_ms) {
            let history = history(of, table, key).await?;
            let settled_ms = of.read_backs.settled_ms(of.clock.system_ms());
            let origin = |column: &Cell| history.origin(column, settled_ms);
            let evidence = Evidence { origin: &origin, written_ms: &written_ms, history: &history };
            restoration = cells_to_restore(points, &cells, &evidence);
        }
        for RestoredPoint { point, .. } in &restoration.points {
            if let Some(point) = points.get_mut(*point) {
                point.column_ms = point.written_ms;
            }
        }
        let is_put = put_again(of, table, key, restoration.points, &mut puts).await?;
        is_unsettled.push(is_put || restoration.is_unsettled);
    }
    write_batch(of, table, puts).await?;
    Ok(is_unsettled)
}

/// Puts points again, those with the times of their writes by adding them to `puts`. Returns true if
/// the row has to be read once more: points were put, or the row has changed since it was read.
///
/// A point with a later time is put only while the row still has what was read instead of it, in one
/// step: a delete of the row in between would not hide it. A put of another daemon in between is newer,
/// or has replaced what was read.
pub(crate) async fn put_again(
    of: &OpenTable,
    table: &Table,
    key: &Bytes,
    mut restored: Vec<RestoredPoint>,
    puts: &mut MutationBatch,
) -> Result<bool, StorageError> {
    restored.retain(|point| of.read_backs.remember(key, point));
    let mut put_now = 0;
    let mut later: Vec<(Basis, Vec<RestoredPoint>)> = Vec::new();
    puts.begin();
    for point in &restored {
        // Later writes of this process are newer.
        of.clock.pass(point.cell.timestamp_ms);
        if point.basis == Basis::OwnTime {
            put_now += 1;
            put(puts, key, cell_ref(&point.cell))?;
        } else if let Some((_, same)) = later.iter_mut().find(|(basis, _)| *basis == point.basis) {
            same.push(point.clone());
        } else {
            later.push((point.basis.clone(), vec![point.clone()]));
        }
    }
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
    Ok(!restored.is_empty())
}

/// Puts points if the row has what they depend on. Returns true if it had.
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
    let mut put = Put::try_new(key.clone()).map_err(|error| request_error(&error))?;
    for RestoredPoint { cell, .. } in points {
        let at = timestamp(cell.timestamp_ms)?;
        let family = cell.family.as_str().as_bytes();
        put = put
            .cell(family, &cell.qualifier, at, &cell.value)
            .map_err(|error| request_error(&error))?;
    }
    let result = of.rows.check_and_mutate(&condition, put).await;
    result.map_err(|error| storage_error(table, &error))
}

fn cell_ref(cell: &Cell) -> CellRef<'_> {
    let Cell { family, qualifier, value, timestamp_ms } = cell;
    CellRef { family: *family, qualifier, value, timestamp_ms: Some(*timestamp_ms) }
}

/// Reads what a row had.
pub(crate) async fn history(
    of: &OpenTable,
    table: &Table,
    key: &Bytes,
) -> Result<RowHistory, StorageError> {
    let selection = Selection::all().family(family_name(Family::T));
    let selection = selection.max_versions(HISTORY_VERSIONS).map_err(|e| request_error(&e))?;
    let scan = Scan::range(key.clone(), key.clone()).inclusive(true, true).select(selection);
    let mut rows = of.rows.scan(scan.raw().limit(1).read_type(ReadType::Pread));
    let mut history = RowHistory::default();
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
                CellKind::Delete | CellKind::DeleteFamilyVersion => {}
            }
        }
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn point(second: u8, value: Bytes, written_ms: i64) -> WrittenPoint {
        let qualifier = Bytes::from(vec![second >> 4, second << 4]);
        WrittenPoint { qualifier, value, written_ms, column_ms: written_ms }
    }

    fn row(key: &'static str, points: Vec<WrittenPoint>) -> (Bytes, Vec<WrittenPoint>) {
        (Bytes::from_static(key.as_bytes()), points)
    }

    fn read_backs() -> ReadBacks {
        ReadBacks::new(Duration::from_secs(1))
    }

    #[test]
    fn last_point_of_an_instant_is_read_back_when_it_is_due() {
        let read_backs = read_backs();
        let value = |byte: u8| Bytes::from(vec![byte]);
        read_backs.add([row("a", vec![point(0, value(1), 5), point(1, value(2), 5)])], 5);
        read_backs.add([row("a", vec![point(0, value(3), 9)])], 9);
        // A flush of an older value is no reason to forget the later one.
        read_backs.add([row("a", vec![point(0, value(4), 7)])], 10);
        assert!(read_backs.take_due(1_004).is_empty());
        assert_eq!(read_backs.take_due(1_005), [row("a", vec![point(1, value(2), 5)])]);
        assert!(read_backs.is_waiting(&Bytes::from_static(b"a")));
        assert_eq!(read_backs.take_due(1_010), [row("a", vec![point(0, value(3), 9)])]);
        assert_eq!(read_backs.waiting(), (0, 0));
    }

    #[test]
    fn points_beyond_the_limit_are_counted() {
        let read_backs = read_backs();
        let value = Bytes::from(vec![0; 1 << 20]);
        let points = (0..=64).map(|second| point(second, value.clone(), 5)).collect();
        read_backs.add([row("a", points)], 5);
        assert_eq!(read_backs.dropped.load(Ordering::Relaxed), 1);
        assert!(read_backs.waiting().1 >= MAX_BYTES);
        read_backs.forget(b"a");
        assert_eq!(read_backs.waiting(), (0, 0));
        assert!(read_backs.take_due(i64::MAX).is_empty());
    }

    #[test]
    fn times_of_points_that_were_put_again_are_remembered() {
        let read_backs = read_backs();
        let key = Bytes::from_static(b"a");
        let cell = |timestamp_ms| Cell {
            family: Family::T,
            qualifier: Bytes::from_static(&[0, 0]),
            value: Bytes::from_static(&[7]),
            timestamp_ms,
        };
        let restored_at = |at, written_ms| RestoredPoint {
            point: 0,
            cell: cell(at),
            written_ms,
            basis: Basis::EmptyRow,
        };
        for (at, written_ms) in [(20, 5), (30, 6)] {
            let restored = restored_at(at, written_ms);
            assert!(read_backs.remember(&key, &restored));
        }
        let written = [20, 25, 30].map(|at| read_backs.written_ms(&key, &cell(at)));
        assert_eq!(written, [5, 25, 6]);
        read_backs.forget_restored(&key, &restored_at(30, 6));
        assert_eq!(read_backs.written_ms(&key, &cell(30)), 30, "it was not put");
        assert_eq!(read_backs.written_ms(&key, &cell(20)), 5);
        // This process has written a later value since.
        read_backs.add([row("a", vec![point(0, Bytes::from_static(&[8]), 9)])], 9);
        let restored = restored_at(40, 6);
        assert!(!read_backs.remember(&key, &restored));
        for instant in 0..MAX_RESTORED as u64 {
            let restored = restored_at(20, 5);
            let key = Bytes::from(instant.to_be_bytes().to_vec());
            assert!(read_backs.remember(&key, &restored));
        }
        assert_eq!(read_backs.written_ms(&key, &cell(20)), 20, "the oldest is forgotten");
    }

    #[test]
    fn rows_of_the_present_hour_are_not_compactible() {
        let rows = CompactibleRows { schema: TableSchema::opentsdb_default() };
        let key = |base: u32| [&[0, 0, 1][..], &base.to_be_bytes(), &[0, 0, 1, 0, 0, 1]].concat();
        let now_ms = 1_400_000_400_000_i64;
        let hour = u32::try_from(now_ms / 1_000).unwrap() / 3_600 * 3_600;
        assert!(!rows.contains(&key(hour), now_ms));
        assert!(rows.contains(&key(hour - 3_600), now_ms));
        let end_ms = (i64::from(hour) + 3_600) * 1_000;
        assert!(rows.contains(&key(hour), end_ms - 30_000), "clocks differ");
        assert!(!rows.contains(b"short", end_ms));
    }
}

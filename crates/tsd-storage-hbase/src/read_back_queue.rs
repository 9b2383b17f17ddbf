//! Queue of written points that wait for their read-back, in the order of their writes, and of points that
//! were put again. It makes no calls to HBase.
//!
//! A load of past hours writes hundreds of thousands of points a second. So a write appends its points as
//! one batch with its keys in one buffer, without an allocation for each point. Rows are found by the hash
//! of their key. Of the points of an instant only the last written one is read back: an older point that is
//! read after it would be put again over it. Instants are indexed only in rows whose points do not come in
//! the order of their instants. In nearly all rows they do, so no instant occurs twice.

mod written_rows;

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasher,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use tsd_model::{Cell, Qualifier};

pub(crate) use written_rows::WrittenRows;

use self::written_rows::NO_ROW;
use crate::{
    metrics::READ_BACK_DROPPED_POINTS,
    superseded::{RestoredPoint, WrittenPoint, point_qualifier},
};

/// Limit on the memory of the points that wait, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Rows of one call.
const CALL_ROWS: usize = 1_024;
/// Limit on the instants whose points were put again and are remembered.
const MAX_RESTORED: usize = 65_536;
/// Limit on the remembered points of an instant.
const MAX_RESTORED_PER_INSTANT: usize = 16;
/// Row key and milliseconds of the hour.
type Instant = (Bytes, u32);
/// A row and its points.
pub(crate) type DueRow = (Bytes, Vec<WrittenPoint>);

/// Points of a table in rows that OpenTSDB may compact.
#[derive(Debug)]
pub(crate) struct ReadBacks {
    delay: Duration,
    hasher: foldhash::fast::RandomState,
    queue: Mutex<Queue>,
    /// Bytes in the queue.
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    /// Batches in the order of their writes.
    batches: VecDeque<WaitingBatch>,
    /// Rows with waiting points, by the hash of their keys.
    rows: HashMap<u64, WaitingRow, foldhash::fast::RandomState>,
    next_row: u64,
    /// The last written point of each instant, by the hash of row and offset, in rows that may have an
    /// instant twice.
    instants: HashMap<u64, LastWrite, foldhash::fast::RandomState>,
    next_point: u64,
    /// Points that were put again, and their order.
    restored: HashMap<Instant, VecDeque<PutAgain>>,
    restored_order: VecDeque<Instant>,
}

#[derive(Debug)]
struct WaitingBatch {
    due_ms: i64,
    /// Number of the first row.
    first: u64,
    /// Number of the first point.
    first_point: u64,
    /// Number of rows already taken.
    taken: usize,
    written: WrittenRows,
}

/// A row with waiting points: the numbers of its rows in the batches.
#[derive(Clone, Copy, Debug)]
struct WaitingRow {
    first: u64,
    last: u64,
    /// The greatest offset of its points.
    newest_offset_ms: u32,
    /// True if its instants are indexed, because one may occur twice.
    is_indexed: bool,
}

/// The waiting point of an instant that was written last. Within a millisecond the point that was added
/// last counts.
#[derive(Clone, Copy, Debug)]
struct LastWrite {
    number: u64,
    written_ms: i64,
}

/// A cell with a later time than the write of its value.
#[derive(Clone, Copy, Debug)]
struct PutAgain {
    timestamp_ms: i64,
    written_ms: i64,
}

impl WaitingBatch {
    /// Iterates over the points of a row, with their numbers.
    fn points(&self, row: usize) -> impl Iterator<Item = (u64, WrittenPoint)> {
        let range = self.written.points(row);
        let numbers = self.first_point + range.start as u64..;
        numbers.zip(self.written.points.get(range).unwrap_or_default().iter().copied())
    }
}

impl Queue {
    /// Returns the waiting points of a row, with their numbers, in any order.
    fn points_of(&self, hash: u64) -> Vec<(u64, WrittenPoint)> {
        let mut next = self.rows.get(&hash).map(|row| row.last);
        let mut found = Vec::new();
        while let Some(row) = next
            && let Some(batch) =
                self.batches.partition_point(|batch| batch.first <= row).checked_sub(1)
            && let Some(batch) = self.batches.get(batch)
            && let Ok(at) = usize::try_from(row - batch.first)
            && let Some(row) = batch.written.rows.get(at).filter(|_| at >= batch.taken)
        {
            found.extend(batch.points(at));
            next = Some(row.previous).filter(|previous| *previous != NO_ROW);
        }
        found
    }

    /// Adds a point to the index of its instant.
    fn index(&mut self, instant: u64, number: u64, point: &WrittenPoint) {
        let last = LastWrite { number, written_ms: point.written_ms };
        let of_instant = self.instants.entry(instant).or_insert(last);
        let is_later = (of_instant.written_ms, of_instant.number) <= (last.written_ms, last.number);
        if is_later {
            *of_instant = last;
        }
    }
}

impl ReadBacks {
    /// Returns an empty queue. `delay` is the longest duration of a compaction of OpenTSDB.
    pub(crate) fn new(delay: Duration) -> Self {
        let (hasher, queue) = (foldhash::fast::RandomState::default(), Mutex::default());
        Self { delay, hasher, queue, bytes: AtomicUsize::new(0) }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// True if points are read back.
    pub(crate) const fn is_enabled(&self) -> bool {
        !self.delay.is_zero()
    }

    /// True if points that are added now will be read back.
    pub(crate) fn has_room(&self) -> bool {
        self.is_enabled() && self.bytes.load(Ordering::Relaxed) < MAX_BYTES
    }

    /// Returns the number of rows and bytes that wait.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.queue().rows.len(), self.bytes.load(Ordering::Relaxed))
    }

    /// True if points of the row wait.
    pub(crate) fn is_waiting(&self, key: &[u8]) -> bool {
        self.queue().rows.contains_key(&self.hasher.hash_one(key))
    }

    fn instant(&self, row_hash: u64, offset_ms: u32) -> u64 {
        self.hasher.hash_one((row_hash, offset_ms))
    }

    /// Adds stored points, to be read back after the delay. If too many points wait already, they are
    /// counted and dropped, and older points of their instants are not read back either.
    pub(crate) fn add(&self, mut written: WrittenRows, now_ms: i64) {
        if self.delay.is_zero() || written.rows.is_empty() {
            return;
        }
        let due_ms = now_ms.saturating_add(self.delay.as_millis() as i64);
        let is_full = self.bytes.load(Ordering::Relaxed) >= MAX_BYTES;
        for row in 0..written.rows.len() {
            let hash = self.hasher.hash_one(written.key(row));
            if let Some(row) = written.rows.get_mut(row) {
                row.hash = hash;
            }
        }
        let mut guard = self.queue();
        let queue = &mut *guard;
        let (first, first_point) = (queue.next_row, queue.next_point);
        let (rows, all_points, bytes) = (written.rows.len(), written.points.len(), written.bytes());
        queue.batches.push_back(WaitingBatch { due_ms, first, first_point, taken: 0, written });
        let mut points: Vec<(u64, WrittenPoint)> = Vec::new();
        for (number, at) in (first..).zip(0..rows) {
            let Some(batch) = queue.batches.back() else { continue };
            let Some(hash) = batch.written.rows.get(at).map(|row| row.hash) else { continue };
            points.clear();
            points.extend(batch.points(at));
            let known = queue.rows.get(&hash).copied();
            if is_full && known.is_none() {
                continue;
            }
            let offsets = || points.iter().map(|(_, point)| point.offset_ms());
            let newest_offset_ms = offsets().max().unwrap_or_default();
            let mut row = known.unwrap_or(WaitingRow {
                first: number,
                last: number,
                newest_offset_ms,
                is_indexed: false,
            });
            let is_ascending = offsets().is_sorted_by(|a, b| a < b)
                && (known.is_none() || offsets().all(|at| at > row.newest_offset_ms));
            if !row.is_indexed && !is_ascending {
                if known.is_some() {
                    points.extend(queue.points_of(hash));
                }
                row.is_indexed = true;
            }
            if row.is_indexed {
                for (number, point) in &points {
                    queue.index(self.instant(hash, point.offset_ms()), *number, point);
                }
            }
            row.newest_offset_ms = row.newest_offset_ms.max(newest_offset_ms);
            if is_full {
                // Dropped points are not read back, so older points of their instants must not be either.
                points.retain(|(number, _)| *number >= first_point);
                for (_, point) in &points {
                    queue.instants.remove(&self.instant(hash, point.offset_ms()));
                }
            } else if let Some(added) =
                queue.batches.back_mut().and_then(|batch| batch.written.rows.get_mut(at))
            {
                added.previous = known.map_or(NO_ROW, |known| known.last);
                row.last = number;
            }
            queue.rows.insert(hash, row);
        }
        if is_full {
            queue.batches.pop_back();
            drop(guard);
            metrics::counter!(READ_BACK_DROPPED_POINTS).increment(all_points as u64);
            return;
        }
        queue.next_row += rows as u64;
        queue.next_point += all_points as u64;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds rows that were read back, to be read back once more.
    pub(crate) fn add_rows(&self, rows: impl IntoIterator<Item = DueRow>, now_ms: i64) {
        let mut written = WrittenRows::default();
        for (key, points) in rows {
            for point in points {
                written.push(&key, point);
            }
        }
        self.add(written, now_ms);
    }

    /// Forgets the points of a row because the row or some of its columns were deleted.
    pub(crate) fn forget(&self, key: &[u8]) {
        let hash = self.hasher.hash_one(key);
        let mut guard = self.queue();
        let queue = &mut *guard;
        for (_, point) in queue.points_of(hash) {
            queue.instants.remove(&self.instant(hash, point.offset_ms()));
        }
        queue.rows.remove(&hash);
    }

    /// Removes due points, of a limited number of rows.
    pub(crate) fn take_due(&self, now_ms: i64) -> Vec<DueRow> {
        let mut guard = self.queue();
        let queue = &mut *guard;
        let mut rows: Vec<DueRow> = Vec::new();
        let mut places: HashMap<Bytes, usize, foldhash::fast::RandomState> = HashMap::default();
        while rows.len() < CALL_ROWS
            && let Some(batch) = queue.batches.front_mut()
            && batch.due_ms <= now_ms
        {
            let at = batch.taken;
            let Some(row) = batch.written.rows.get(at).copied() else {
                self.bytes.fetch_sub(batch.written.bytes(), Ordering::Relaxed);
                queue.batches.pop_front();
                continue;
            };
            batch.taken += 1;
            let number = batch.first + at as u64;
            // A row that is missing here was forgotten.
            let waiting = queue.rows.get(&row.hash).copied().filter(|row| row.first <= number);
            let Some(waiting) = waiting else { continue };
            if waiting.last == number {
                queue.rows.remove(&row.hash);
            }
            let mut due = batch.points(at).filter_map(|(number, point)| {
                if !waiting.is_indexed {
                    return Some(point);
                }
                let instant = self.instant(row.hash, point.offset_ms());
                let is_last =
                    queue.instants.get(&instant).is_some_and(|last| last.number == number);
                is_last.then(|| {
                    queue.instants.remove(&instant);
                    point
                })
            });
            let Some(first) = due.next() else { continue };
            let key = Bytes::copy_from_slice(batch.written.key(at));
            let place = *places.entry(key).or_insert_with_key(|key| {
                rows.push((key.clone(), Vec::new()));
                rows.len() - 1
            });
            if let Some((_, of_row)) = rows.get_mut(place) {
                of_row.push(first);
                of_row.extend(due);
            }
        }
        if queue.batches.is_empty() {
            // Releases the memory after a load of past hours.
            queue.rows.shrink_to_fit();
            queue.instants.shrink_to_fit();
        }
        rows
    }

    /// Returns the time of the write of a cell of one point.
    pub(crate) fn written_ms(&self, key: &Bytes, cell: &Cell) -> i64 {
        let point = point_qualifier(cell.family, &cell.qualifier, &cell.value);
        let Some(qualifier) = point else { return cell.timestamp_ms };
        let queue = self.queue();
        if queue.restored.is_empty() {
            return cell.timestamp_ms;
        }
        let again = queue.restored.get(&(key.clone(), qualifier.offset_ms()));
        let again = again.into_iter().flatten().rfind(|a| a.timestamp_ms == cell.timestamp_ms);
        again.map_or(cell.timestamp_ms, |again| again.written_ms)
    }

    /// Remembers a point that is put again. Returns false if this process has written a later point.
    pub(crate) fn remember(&self, key: &Bytes, restored: &RestoredPoint) -> bool {
        let Some(qualifier) = Qualifier::decode(&restored.cell.qualifier) else { return false };
        let offset_ms = qualifier.offset_ms();
        let mut queue = self.queue();
        // A waiting point of the same millisecond was added later: it is read back itself.
        let is_later = |(_, point): &(u64, WrittenPoint)| {
            point.offset_ms() == offset_ms && point.written_ms >= restored.written_ms
        };
        if queue.points_of(self.hasher.hash_one(&key[..])).iter().any(is_later) {
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

    /// Forgets a remembered point that was not put again after all.
    pub(crate) fn forget_restored(&self, key: &Bytes, restored: &RestoredPoint) {
        let Some(qualifier) = Qualifier::decode(&restored.cell.qualifier) else { return };
        let mut queue = self.queue();
        // The instant keeps its position in the order, even if no point of it is left.
        if let Some(again) = queue.restored.get_mut(&(key.clone(), qualifier.offset_ms())) {
            let (timestamp_ms, written_ms) = (restored.cell.timestamp_ms, restored.written_ms);
            again.retain(|one| (one.timestamp_ms, one.written_ms) != (timestamp_ms, written_ms));
        }
    }
}

#[cfg(test)]
mod tests;

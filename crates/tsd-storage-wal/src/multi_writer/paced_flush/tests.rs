#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, MemoryStorage, Table};

use super::{flush_round::MAX_CONSECUTIVE_FAILURES, memtable_flush::Pace, *};
use crate::{
    WalConfig,
    change::Change,
    files::faulty::FaultyDisk,
    flush_queue::FlushJob,
    local_files::LocalFiles,
    log::FileLog,
    memtable::{BufferPool, NewRows},
    metrics::Metrics,
};

const ROWS: u32 = 2_000;
const OK: Result<(), StorageError> = Ok(());

fn memtable(id: u64) -> Arc<Memtable> {
    let memtable = Memtable::new(id, 0, Arc::new(BufferPool::new(0)));
    let mut batch = CellBatch::new();
    for row in 0..ROWS {
        batch.begin_row(&row.to_be_bytes()).unwrap();
        let (family, qualifier, value) = (Family::T, &b"q"[..], &b"v"[..]);
        batch.push(CellRef { family, qualifier, value, timestamp_ms: None }).unwrap();
    }
    memtable.apply(TableId(0), &Change::Put(batch), 5, 1);
    Arc::new(memtable)
}

/// A flush with four ranges.
fn flush_of(id: u64, flush_over: Option<Duration>) -> MemtableFlush {
    let (position, bytes) = (None, 0);
    let memtable = memtable(id);
    MemtableFlush::new(FlushJob { memtable, position, bytes, flush_over })
}

fn flusher() -> (PacedFlusher<MemoryStorage>, FaultyDisk) {
    let (disk, table) = (FaultyDisk::new(1), Table::new("tsdb"));
    let (config, files) = (WalConfig::new("faulty"), LocalFiles::new(Arc::new(disk.clone())));
    let metrics = Arc::new(Metrics::new());
    let log = FileLog::new(files.clone(), &config, &metrics, Box::new(|_| Ok(())));
    let state = WalState::new(config, metrics, Arc::new(log), Some(files));
    state.tables.add(&table, NewRows::default());
    let backend = Arc::new(MemoryStorage::new([table]));
    let progress = Arc::default();
    (PacedFlusher::new(Arc::new(state), backend, Executor::OneCall, progress), disk)
}

fn unavailable() -> Result<(), StorageError> {
    Err(StorageError::Unavailable("region".into()))
}

fn rejected() -> Result<(), StorageError> {
    Err(StorageError::Backend("rejected".into()))
}

#[test]
fn ranges_are_due_evenly() {
    let started = Instant::now();
    let pace = Pace { window: Duration::from_secs(12), ranges: 4 };
    let due: Vec<u64> = [4, 3, 2, 1]
        .iter()
        .map(|remaining| (pace.due(started, *remaining) - started).as_secs())
        .collect();
    assert_eq!(due, [0, 3, 6, 9]);
}

#[test]
fn batch_has_the_ranges_that_are_due() {
    let mut flush = flush_of(0, Some(Duration::from_secs(12)));
    let started = flush.started;
    let mut select = |after_secs, is_urgent| {
        let mut round = FlushRound { is_urgent, ..FlushRound::default() };
        let now = started + Duration::from_secs(after_secs);
        let first = flush.select_first(&mut round, now, |_| true)?;
        Some(flush.select_batch(first, &round, now, |_| false).len())
    };
    assert_eq!(select(1, false), Some(1));
    assert_eq!(select(7, false), Some(2));
    assert_eq!(select(7, true), Some(1), "it is due later, but a caller waits");
    assert_eq!(select(7, true), None);
}

#[test]
fn overlap_with_an_unflushed_range_is_deferred() {
    let (mut older, mut newer) = (flush_of(0, None), flush_of(1, None));
    let mut round = FlushRound::default();
    let range = older.select_first(&mut round, Instant::now(), |_| true).unwrap();
    older.defer(range.clone(), &mut round);
    let first = newer.select_first(&mut round, Instant::now(), |_| true).unwrap();
    let batch = newer.select_batch(first, &round, Instant::now(), |_| false);
    assert_eq!(batch.len(), 3);
    assert!(!batch.iter().any(|other| other.overlaps(&range)));
    assert_eq!(newer.deferred, [range]);
}

#[test]
fn consecutive_failures_defer_all_ranges() {
    let (mut flusher, _) = flusher();
    let (mut flush, mut round) = (flush_of(0, None), FlushRound::default());
    for _ in 0..MAX_CONSECUTIVE_FAILURES {
        let range = flush.select_first(&mut round, Instant::now(), |_| true).unwrap();
        flusher.settle(&mut flush, &mut round, range, unavailable()).unwrap();
    }
    assert_eq!(flush.select_first(&mut round, Instant::now(), |_| true), None);
    assert_eq!((round.flushed, flush.pending.len(), flush.deferred.len()), (0, 0, 4));
}

#[test]
fn success_ends_a_series_of_failures() {
    let (mut flusher, _) = flusher();
    let (mut flush, mut round) = (flush_of(0, None), FlushRound::default());
    for result in [unavailable(), unavailable(), OK, unavailable()] {
        let range = flush.select_first(&mut round, Instant::now(), |_| true).unwrap();
        flusher.settle(&mut flush, &mut round, range, result).unwrap();
    }
    assert_eq!((round.consecutive_failures, round.flushed), (1, 1));
    assert_eq!(flusher.progress.flushed_ranges.load(Ordering::Relaxed), 1);
}

#[test]
fn permanently_failing_range_is_halved_down_to_the_rejected_row() {
    let (mut flusher, _) = flusher();
    let (mut flush, mut round) = (flush_of(0, None), FlushRound::default());
    let range = flush.select_first(&mut round, Instant::now(), |_| true).unwrap();
    flusher.settle(&mut flush, &mut round, range, OK).unwrap();
    // 512 rows: nine halvings, then a rejection.
    for _ in 0..10 {
        assert!(flush.deferred.is_empty());
        let range = flush.pending.pop_front().unwrap();
        flusher.settle(&mut flush, &mut round, range, rejected()).unwrap();
    }
    assert_eq!(flush.deferred.len(), 1);
    let row = flush.deferred.pop_front().unwrap();
    assert!(row.retry_at.is_some() && row.halves(&flush.memtable).is_none());
    assert_eq!(flusher.progress.rejected_rows.load(Ordering::Relaxed), 1);
    // The row is retried later, or at once if a caller waits, and is flushed in the end.
    let mut round = FlushRound::default();
    flush.pending = VecDeque::from([row.clone()]);
    assert_eq!(flush.select_first(&mut round, Instant::now(), |_| true), None);
    let mut round = FlushRound { is_urgent: true, ..FlushRound::default() };
    flush.pending = VecDeque::from([row]);
    let row = flush.select_first(&mut round, Instant::now(), |_| true).unwrap();
    flusher.settle(&mut flush, &mut round, row, OK).unwrap();
    assert_eq!(flusher.progress.rejected_rows.load(Ordering::Relaxed), 0);
}

#[test]
fn permanently_rejected_row_is_a_dead_letter() {
    let (mut flusher, disk) = flusher();
    let (mut flush, mut round) = (flush_of(0, None), FlushRound::default());
    let mut row = flush.pending[0].clone();
    row.narrow_to_first_row(&flush.memtable);
    let too_large = Err(StorageError::Rejected("too large".into()));
    flusher.settle(&mut flush, &mut round, row, too_large).unwrap();
    assert_eq!((round.flushed, flush.deferred.len()), (1, 0));
    assert!(round.errors.is_empty());
    assert!(disk.contents_without("log.state").contains_key("refused-000001"));
}

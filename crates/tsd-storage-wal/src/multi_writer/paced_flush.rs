//! The flusher over a backend that others write too, and that may be away in part or as a whole.
//!
//! Rows leave in pieces of a few hundred, for three reasons:
//!
//! * **No storm.** Rows that leave because they are old leave evenly over a part of the time they may
//!   be held ([`Pace`]).
//! * **One region that cannot be reached holds up its own rows only.** A piece that fails is tried
//!   again, for ever; the others go on. Rows of a later generation that lie in the range of such a
//!   piece wait behind it, so a row leaves in the order it was written.
//! * **A row that the backend refuses holds up nobody.** A piece that keeps failing for good while
//!   others pass is halved until the row is alone. Where the backend will never take it, it is written
//!   to a file beside the log ([`SetAside`]) and counts as left. Else, or where that file is full, it is
//!   named as an error, counted, and tried again every minute: it was acknowledged, so it is never
//!   dropped. It keeps its generation in memory and the log from then on; if nobody mends the cause,
//!   the bound of the log is reached in the end and writes are refused, loudly, rather than the row
//!   forgotten.
//!
//! A backend that is away as a whole is told by a few pieces in a row that fail: then the flusher
//! pauses, longer each time up to [`LONGEST_PAUSE`], and begins anew, oldest rows first.

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join_all};
use tsd_storage::{FlushRows, FlushTarget, Recovery, StorageError};

use crate::{
    commit_time,
    executor::Executor,
    flusher::{FIRST_PAUSE, LONGEST_PAUSE, remove_segment},
    memtable::{FrozenRows, Generation, TableId, successor},
    set_aside::{Hex, SetAside},
    shared::{Frozen, FrozenSegment, Shared},
};

/// Fewest rows of a piece, unless there are no more.
const LEAST_ROWS: usize = 512;
/// Pieces of a generation that leaves evenly.
const MOST_PIECES: usize = 256;
/// Pieces that are handed over at once: a server answers for one while the next are on their way.
const AT_ONCE: usize = 16;
/// Failures in a row after which the backend counts as away.
const FAILURES_IN_A_ROW: usize = 3;
/// Failures for good after which a piece is halved though nothing else passes.
const STRIKES: u32 = 3;
/// Pause before a row that was refused is tried again.
const REFUSED_PAUSE: Duration = Duration::from_mins(1);

/// Rows of one table of a generation: from `from` up to `stop` (empty: the end).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    table: TableId,
    from: Vec<u8>,
    stop: Vec<u8>,
    /// Failures that looked as if they were for good.
    strikes: u32,
    /// It is a single row that the backend refuses; when it is tried again.
    refused_until: Option<Instant>,
}

impl Piece {
    /// Whether nothing is known against it.
    const fn is_new(&self) -> bool {
        self.strikes == 0 && self.refused_until.is_none()
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.table == other.table
            && (other.stop.is_empty() || self.from < other.stop)
            && (self.stop.is_empty() || other.from < self.stop)
    }
}

/// A generation on its way.
struct Work {
    generation: Arc<Generation>,
    segments: Vec<FrozenSegment>,
    bytes: u64,
    pieces: VecDeque<Piece>,
    pace: Option<Pace>,
    started: Instant,
}

/// When the pieces of a generation are due that leaves evenly.
struct Pace {
    window: Duration,
    pieces: u32,
}

/// How a round over all pieces ended.
#[derive(Default)]
struct Round {
    passed: usize,
    failed: Option<StorageError>,
    stopped: bool,
}

pub(crate) struct SpreadFlusher<B> {
    shared: Arc<Shared>,
    backend: Arc<B>,
    executor: Executor,
    /// Oldest first.
    works: VecDeque<Work>,
    doomed: VecDeque<FrozenSegment>,
    set_aside: SetAside,
    /// Rows set aside that nobody was told of yet, and when somebody was told last.
    unsaid: u64,
    said: Option<Instant>,
}

impl<B: FlushTarget> SpreadFlusher<B> {
    pub(crate) fn new(shared: Arc<Shared>, backend: Arc<B>, executor: Executor) -> Self {
        Self {
            shared,
            backend,
            executor,
            works: VecDeque::new(),
            doomed: VecDeque::new(),
            set_aside: SetAside::default(),
            unsaid: 0,
            said: None,
        }
    }

    /// Runs until it is stopped.
    pub(crate) fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut rest = Duration::MAX;
        // Without work it waits for a generation; with work that failed, for a while.
        while let Some(new) = self.shared.flushing.next_after(self.works.len(), rest) {
            self.works.extend(new.into_iter().map(Work::new));
            let round = self.round();
            if round.stopped {
                return;
            }
            self.shared.away.store(round.failed.is_some() && round.passed == 0, Ordering::Relaxed);
            if let Some(error) = &round.failed {
                tracing::warn!(%error, passed = round.passed, retry_in = ?pause, "flush failed");
            }
            rest = if round.failed.is_some() {
                pause
            } else if self.works.is_empty() {
                Duration::MAX
            } else {
                // Only refused rows are left.
                REFUSED_PAUSE
            };
            pause = if round.failed.is_some() && round.passed == 0 {
                (pause * 2).min(LONGEST_PAUSE)
            } else {
                FIRST_PAUSE
            };
            self.shared.note_flush(round.failed);
        }
    }

    /// Tries every piece once, oldest generation first.
    fn round(&mut self) -> Round {
        let mut round = Round::default();
        let mut blocked: Vec<Piece> = Vec::new();
        let mut failures = 0;
        let hurry = self.shared.flushing.is_waited_for();
        for at in 0..self.works.len() {
            let Some(work) = self.works.get_mut(at) else { break };
            let mut waiting = std::mem::take(&mut work.pieces);
            let mut kept = VecDeque::new();
            while let Some(mut piece) = waiting.pop_front() {
                let refused = piece.refused_until.is_some_and(|until| until > Instant::now());
                let mut is_behind = false;
                if let Some(other) = blocked.iter().find(|other| other.overlaps(&piece)) {
                    let (before, after) = piece.narrow_to(other);
                    waiting.extend(after);
                    waiting.extend(before);
                    is_behind = true;
                }
                if failures >= FAILURES_IN_A_ROW || (refused && !hurry) || is_behind {
                    blocked.push(piece.clone());
                    kept.push_back(piece);
                    continue;
                }
                let Some(work) = self.works.get(at) else { break };
                let left = waiting.len() + 1;
                if work.pace.as_ref().is_some_and(|pace| {
                    self.shared.flushing.rest_until(pace.due(work.started, left))
                }) {
                    round.stopped = true;
                    return round;
                }
                let mut together = vec![piece];
                while failures == 0
                    && together.len() < AT_ONCE
                    && let Some(next) = waiting.pop_front_if(|next| {
                        next.is_new() && !blocked.iter().any(|other| other.overlaps(next))
                    })
                {
                    let left = waiting.len() + 1;
                    if !hurry && work.is_due_later(left) {
                        waiting.push_front(next);
                        break;
                    }
                    together.push(next);
                }
                let generation = Arc::clone(&work.generation);
                let outcomes = self.hand_over(&generation, &together);
                for (mut piece, outcome) in together.into_iter().zip(outcomes) {
                    match outcome {
                        Ok(()) => {
                            round.passed += 1;
                            failures = 0;
                            self.shared.passed.fetch_add(1, Ordering::Relaxed);
                            self.shared.flushing.wake();
                            if piece.refused_until.is_some() {
                                self.shared.refused_rows.fetch_sub(1, Ordering::Relaxed);
                            }
                            continue;
                        }
                        Err(_) if self.shared.flushing.is_stopping() => {
                            round.stopped = true;
                            return round;
                        }
                        Err(error) => {
                            failures += 1;
                            self.shared.metrics.flush_failures.increment(1);
                            if error.recovery() == Recovery::GiveUp {
                                piece.strikes += 1;
                                let is_permanent = error.is_permanent();
                                if is_permanent || round.passed > 0 || piece.strikes >= STRIKES {
                                    let halves = piece.halves(&generation);
                                    if let Some((first, second)) = halves {
                                        waiting.push_front(second);
                                        waiting.push_front(first);
                                        round.failed = Some(error);
                                        continue;
                                    }
                                    if is_permanent && self.put_aside(&generation, &piece, &error) {
                                        round.passed += 1;
                                        failures = 0;
                                        continue;
                                    }
                                    self.refuse(&generation, &mut piece, &error);
                                }
                            }
                            round.failed = Some(error);
                        }
                    }
                    blocked.push(piece.clone());
                    kept.push_back(piece);
                }
            }
            if let Some(work) = self.works.get_mut(at) {
                work.pieces = kept;
            }
        }
        self.finish();
        round
    }

    /// Hands pieces over at the same time; says of each what became of it.
    fn hand_over(
        &self,
        generation: &Arc<Generation>,
        pieces: &[Piece],
    ) -> Vec<Result<(), StorageError>> {
        let tables = self.shared.tables.all();
        let call = |piece: &Piece| {
            let generation = Arc::clone(generation);
            let (from, stop) = (piece.from.clone(), piece.stop.clone());
            let rows = FrozenRows::between(generation, piece.table, from, stop);
            let stopped = self.shared.flushing.stopped();
            let table = tables.get(piece.table.0);
            async move {
                let Some(table) = table else { return Ok(()) };
                let ingested = AssertUnwindSafe(async {
                    self.backend.flush_rows(table, Box::new(rows)).await
                });
                tokio::select! {
                    // A panic in a backend must not end the flusher: nothing would ever be flushed again.
                    done = ingested.catch_unwind() => done.unwrap_or_else(|_| {
                        Err(StorageError::Backend("ingestion panicked".into()))
                    }),
                    // What hangs must not keep the process from ending; the rows are in the log.
                    () = stopped => Err(StorageError::Closed),
                }
            }
        };
        let calls = join_all(pieces.iter().map(call));
        match self.executor.wait(async { Ok(calls.await) }) {
            Ok(outcomes) => outcomes,
            Err(error) => pieces.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Writes the one row of a piece, which will never be taken, to the file of such rows. Says whether
    /// it is there.
    fn put_aside(
        &mut self,
        generation: &Arc<Generation>,
        piece: &Piece,
        error: &StorageError,
    ) -> bool {
        let tables = self.shared.tables.all();
        let Some(table) = tables.get(piece.table.0) else { return false };
        let (from, stop) = (piece.from.clone(), piece.stop.clone());
        let mut rows = FrozenRows::between(Arc::clone(generation), piece.table, from, stop);
        let Some(row) = rows.next_row() else { return true };
        let dir = &*self.shared.dir;
        match self.set_aside.write(dir, table, &row) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                tracing::warn!(dir = %dir.path().display(), %error, "cannot set a refused row aside");
                return false;
            }
        }
        if piece.refused_until.is_some() {
            self.shared.refused_rows.fetch_sub(1, Ordering::Relaxed);
        }
        self.shared.metrics.set_aside.increment(1);
        self.unsaid += 1;
        if self.said.is_none_or(|said| said.elapsed() >= REFUSED_PAUSE) {
            tracing::error!(
                %table,
                row = %Hex(row.key),
                rows = self.unsaid,
                dir = %dir.path().display(),
                %error,
                "the backend refuses rows for good; they are in a file beside the log"
            );
            (self.unsaid, self.said) = (0, Some(Instant::now()));
        }
        true
    }

    /// Notes that a row is refused.
    fn refuse(&self, generation: &Generation, piece: &mut Piece, error: &StorageError) {
        if piece.refused_until.is_none() {
            self.shared.refused_rows.fetch_add(1, Ordering::Relaxed);
            self.shared.metrics.refused.increment(1);
        }
        piece.refused_until = Some(Instant::now() + REFUSED_PAUSE);
        let row = generation.first_key(piece.table, &piece.from).unwrap_or_default();
        // Rows beside it need not wait behind it.
        piece.from.clone_from(&row);
        piece.stop = successor(&row);
        let table = self.shared.tables.all().get(piece.table.0).map(ToString::to_string);
        tracing::error!(
            table = table.unwrap_or_default(),
            row = %Hex(&row),
            %error,
            retry_in = ?REFUSED_PAUSE,
            "the backend refuses a row; it stays in the log and is tried again"
        );
    }

    /// Takes generations out of memory that have left, and their segments, oldest first.
    fn finish(&mut self) {
        let shared = Arc::clone(&self.shared);
        for work in &mut self.works {
            if work.pieces.is_empty() && shared.memtable.retire(work.generation.id()) {
                let metrics = &shared.metrics;
                metrics.flushes.increment(1);
                metrics.flush_seconds.record(work.started.elapsed());
                metrics.flushed_cells.increment(work.generation.cell_count() as u64);
                tracing::debug!(
                    generation = work.generation.id(),
                    rows = work.generation.row_count(),
                    cells = work.generation.cell_count(),
                    millis = work.started.elapsed().as_millis() as u64,
                    "flushed"
                );
            }
        }
        // Memory may be free for those who wait for it.
        shared.flushing.wake();
        // A replay must never meet an old segment without those that came after it.
        while self.works.front().is_some_and(|work| work.pieces.is_empty()) {
            let Some(work) = self.works.pop_front() else { return };
            self.doomed.extend(work.segments);
            self.remove();
            shared.frozen_bytes.fetch_sub(work.bytes, Ordering::Relaxed);
            shared.flushing.done(work.generation.id());
        }
    }

    fn remove(&mut self) {
        let dir = &*self.shared.dir;
        let warn = |error: std::io::Error| {
            tracing::warn!(dir = %dir.path().display(), %error, "cannot remove log segments");
        };
        if self.doomed.is_empty() {
            return;
        }
        if let Err(error) = commit_time::save(dir, self.shared.last_commit.load(Ordering::Acquire))
        {
            warn(error);
            return;
        }
        while let Some(segment) = self.doomed.front().copied() {
            if let Err(error) = remove_segment(dir, segment) {
                warn(error);
                return;
            }
            self.doomed.pop_front();
            self.shared.segments.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Work {
    fn new(frozen: Frozen) -> Self {
        let Frozen { generation, segments, bytes, leave_within } = frozen;
        generation.settle();
        let mut pieces = Vec::new();
        for table in generation.tables() {
            let rows = (generation.row_count() / MOST_PIECES).max(LEAST_ROWS);
            let starts = generation.every_key(table, rows);
            let stops = starts.iter().skip(1).cloned().chain([Vec::new()]);
            pieces.extend(starts.iter().cloned().zip(stops).map(|(from, stop)| Piece {
                table,
                from,
                stop,
                strikes: 0,
                refused_until: None,
            }));
        }
        let pieces = spread(pieces);
        let pace = leave_within.map(|window| Pace { window, pieces: pieces.len() as u32 });
        Self { generation, segments, bytes, pieces, pace, started: Instant::now() }
    }
}

impl Work {
    /// Whether the piece behind which, itself counted, so many are left has time.
    fn is_due_later(&self, left: usize) -> bool {
        self.pace.as_ref().is_some_and(|pace| pace.due(self.started, left) > Instant::now())
    }
}

impl Pace {
    /// When the piece is due behind which, itself counted, so many are left.
    fn due(&self, started: Instant, left: usize) -> Instant {
        let gone = self.pieces.saturating_sub(left as u32);
        started + self.window * gone / self.pieces.max(1)
    }
}

impl Piece {
    /// Leaves of it what it has in common with another one; gives back what is before and after that.
    fn narrow_to(&mut self, other: &Self) -> (Option<Self>, Option<Self>) {
        let mut before = None;
        if self.from < other.from {
            before = Some(Self { stop: other.from.clone(), ..self.clone() });
            self.from.clone_from(&other.from);
        }
        let mut after = None;
        if !other.stop.is_empty() && (self.stop.is_empty() || other.stop < self.stop) {
            after = Some(Self { from: other.stop.clone(), ..self.clone() });
            self.stop.clone_from(&other.stop);
        }
        (before, after)
    }

    /// The two halves, if it has more than one row.
    fn halves(&self, generation: &Generation) -> Option<(Self, Self)> {
        let middle = generation.middle_key(self.table, &self.from, &self.stop)?;
        let first = Self { stop: middle.clone(), strikes: 0, ..self.clone() };
        Some((first, Self { from: middle, strikes: 0, ..self.clone() }))
    }
}

/// The pieces in an order in which those that are handed over at once lie far from each other: their
/// rows are then of different regions, and different servers take them.
fn spread(pieces: Vec<Piece>) -> VecDeque<Piece> {
    let stride = pieces.len().div_ceil(AT_ONCE).max(1);
    let mut pieces: Vec<_> = pieces.into_iter().enumerate().collect();
    pieces.sort_by_key(|(at, _)| at % stride);
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(from: &[u8], stop: &[u8]) -> Piece {
        let (from, stop) = (from.to_vec(), stop.to_vec());
        Piece { table: TableId(0), from, stop, strikes: 0, refused_until: None }
    }

    #[test]
    fn pieces_overlap_where_a_row_may_be_in_both() {
        for (a, b, expected) in [
            (piece(b"", b"m"), piece(b"m", b""), false),
            (piece(b"", b"m"), piece(b"a", b"b"), true),
            (piece(b"", b""), piece(b"z", b""), true),
            (piece(b"c", b"d"), piece(b"a", b"c"), false),
            (piece(b"c", b"d"), piece(b"a", b"ca"), true),
        ] {
            assert_eq!(a.overlaps(&b), expected, "{a:?} {b:?}");
            assert_eq!(b.overlaps(&a), expected, "{b:?} {a:?}");
        }
        let other = Piece { table: TableId(1), ..piece(b"", b"") };
        assert!(!other.overlaps(&piece(b"", b"")));
    }

    #[test]
    fn a_piece_goes_around_another() {
        let around = |piece: &Piece, other: &Piece| {
            let mut piece = piece.clone();
            let (before, after) = piece.narrow_to(other);
            [before, Some(piece), after]
        };
        let all = piece(b"", b"");
        let parts = [Some(piece(b"", b"c")), Some(piece(b"c", b"d")), Some(piece(b"d", b""))];
        assert_eq!(around(&all, &piece(b"c", b"d")), parts);
        assert_eq!(around(&piece(b"c", b"d"), &all), [None, Some(piece(b"c", b"d")), None]);
        let parts = [Some(piece(b"a", b"b")), Some(piece(b"b", b"c")), None];
        assert_eq!(around(&piece(b"a", b"c"), &piece(b"b", b"")), parts);
    }

    #[test]
    fn pieces_that_leave_at_once_lie_far_from_each_other() {
        let pieces: Vec<_> = (0..100_u8).map(|at| piece(&[at], &[at + 1])).collect();
        let spread = spread(pieces.clone());
        let first = spread.iter().take(AT_ONCE - 2);
        let at_once: Vec<u8> = first.filter_map(|piece| piece.from.first().copied()).collect();
        assert!(at_once.is_sorted_by(|one, next| next - one == 7), "{at_once:?}");
        assert_eq!(spread.len(), pieces.len());
        assert!(pieces.iter().all(|piece| spread.contains(piece)));
    }

    #[test]
    fn pieces_are_due_evenly() {
        let started = Instant::now();
        let pace = Pace { window: Duration::from_secs(12), pieces: 4 };
        let due: Vec<u64> = [4, 3, 2, 1]
            .iter()
            .map(|left| (pace.due(started, *left) - started).as_secs())
            .collect();
        assert_eq!(due, [0, 3, 6, 9]);
    }
}

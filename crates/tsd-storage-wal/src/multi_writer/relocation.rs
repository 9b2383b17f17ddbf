//! Relocates the rows of stuck tables, so that the segments of their memtables can be removed.

use std::{
    collections::VecDeque,
    fmt, io,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use tsd_storage::FlushTarget;

use super::paced_flush::{MemtableFlush, PacedFlusher};
use crate::{
    local_files::LocalFiles,
    log_space::FullDiskError,
    memtable::Memtable,
    state::WalState,
    survivors::{self, RelocatedRange, SurvivorSize, survivor_name, survivors_in, visit_rows},
};

/// Disk space in addition to the file, for blocks of the file system and the state of the log.
const SPACE_MARGIN: u64 = 64 << 10;

/// Why rows were not relocated. They stay in the log.
#[derive(Debug)]
enum RelocationError {
    /// The disk lacks space for the rows.
    DiskFull {
        /// Bytes of the file.
        needed: u64,
        /// Description of the disk.
        disk: FullDiskError,
    },
    Io(io::Error),
}

impl From<io::Error> for RelocationError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for RelocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows of tables that cannot be flushed stay in the log, ")?;
        match self {
            Self::DiskFull { needed, disk } => {
                write!(f, "a file of their own needs {needed} bytes: {disk}")
            }
            Self::Io(error) => write!(f, "a file of their own cannot be written: {error}"),
        }
    }
}

impl<B: FlushTarget> PacedFlusher<B> {
    /// Relocates the oldest memtables whose remaining rows all belong to stuck tables.
    pub(super) fn relocate_stuck(&mut self) {
        // A log outside of local files keeps these rows, within its limit.
        let Some(files) = self.state.files.clone() else { return };
        let mut problem = None;
        while let Some(at) = self.flushes.iter().position(|flush| !flush.memtable.is_survivor())
            && at <= 1
            && let Some(flush) = self.flushes.get(at)
            && flush.pending.iter().all(|range| self.failing.is_stuck(range.table))
            // A front memtable without remaining rows is completed instead.
            && (at == 1 || !flush.pending.is_empty())
        {
            let Some(flush) = self.flushes.remove(at) else { return };
            if let Err(error) = self.relocate(&files, &flush) {
                self.flushes.insert(at, flush);
                self.relocation_failed(&error);
                problem = Some(error.to_string());
                break;
            }
        }
        self.progress.set_relocation_problem(problem);
    }

    fn relocation_failed(&self, error: &RelocationError) {
        self.state.metrics.relocation_failures.increment(1);
        if let Some(suppressed) = self.survivor_files.log.admit() {
            tracing::warn!(log = self.state.log.name(), suppressed, "{error}");
        }
    }

    /// Copies the pending rows of a memtable to the survivors, then removes the memtable and its segments.
    fn relocate(
        &mut self,
        files: &LocalFiles,
        flush: &MemtableFlush,
    ) -> Result<(), RelocationError> {
        let state = Arc::clone(&self.state);
        let ranges = self.relocated_ranges(flush);
        let size = self.write_survivors(files, flush, &ranges)?;
        let front = self.flushes.front().filter(|front| front.memtable.is_survivor());
        let survivor = front.map_or_else(
            || {
                let (id, base_ms) = (flush.memtable.id(), flush.memtable.base_ms());
                Arc::new(Memtable::new_survivor(id, base_ms, Arc::clone(&state.buffer_pool)))
            },
            |front| Arc::clone(&front.memtable),
        );
        let base_ms = flush.memtable.base_ms();
        for range in &ranges {
            let added: Result<(), io::Error> = visit_rows(&flush.memtable, range, |copied| {
                survivor.add_rows(range.id, copied, base_ms);
                Ok(())
            });
            added?;
        }
        let first_ms = flush.memtable.first_commit_ms().unwrap_or(i64::MAX);
        survivor.cover(first_ms, flush.memtable.last_sequence());
        state.memtables.relocate(&flush.memtable, &survivor);
        state.flush_queue.relocate_oldest(&survivor);
        for range in &flush.pending {
            self.uncount_rejected(range);
        }
        if self.flushes.front().is_some_and(|front| front.memtable.is_survivor()) {
            self.flushes.pop_front();
        }
        let last_id = flush.last_id;
        self.flushes.push_front(MemtableFlush { last_id, ..MemtableFlush::of_survivors(survivor) });
        state.trim(flush.position, flush.bytes);
        state.flush_queue.wake();
        tracing::warn!(
            memtable = flush.memtable.id(),
            rows = size.rows,
            bytes = size.bytes,
            "rows of tables that cannot be flushed were relocated; the log of the others goes on"
        );
        Ok(())
    }

    fn relocated_ranges(&self, flush: &MemtableFlush) -> Vec<RelocatedRange> {
        let tables = self.state.tables.all();
        let relocated = flush.pending.iter().filter_map(|range| {
            let table = tables.get(range.table.0)?.clone();
            let (start, stop) = (range.start.clone(), range.stop.clone());
            Some(RelocatedRange { id: range.table, table, start, stop })
        });
        relocated.collect()
    }

    /// Writes the rows durably and records the file before segments are removed.
    fn write_survivors(
        &mut self,
        local: &LocalFiles,
        flush: &MemtableFlush,
        ranges: &[RelocatedRange],
    ) -> Result<SurvivorSize, RelocationError> {
        if ranges.is_empty() {
            return Ok(SurvivorSize::default());
        }
        let (state, memtable) = (&self.state, &flush.memtable);
        let needed = survivors::size_bound(memtable, ranges) + SPACE_MARGIN;
        // Held until the file is written. Then the segments are removed.
        let _permit = state
            .promise_copy(needed, flush.bytes)
            .map_err(|disk| RelocationError::DiskFull { needed, disk })?;
        let files = &mut self.survivor_files;
        if files.next_number == 0 {
            files.next_number = survivors_in(&*local.dir)?.last().map_or(1, |last| last + 1);
        }
        let number = files.next_number;
        let size = survivors::write(&*local.dir, number, memtable, ranges)?;
        // A number is used only once. The next start removes a file that the state does not name.
        files.next_number += 1;
        local.tie.relocated(number)?;
        files.are_flushed = false;
        state.survivor_bytes.fetch_add(size.bytes, Ordering::Relaxed);
        Ok(size)
    }

    /// Removes the survivor files after the flush of their rows. Retried until it succeeds.
    pub(super) fn remove_survivors(&mut self) {
        let has_survivors = self.flushes.iter().any(|flush| flush.memtable.is_survivor());
        if !self.survivor_files.are_flushed || has_survivors {
            return;
        }
        let Some(files) = &self.state.files else { return };
        match remove_files(&self.state, files) {
            Ok(()) => self.survivor_files.are_flushed = false,
            Err(error) => {
                let dir = files.dir.path().display();
                tracing::warn!(%dir, %error, "cannot remove the files of relocated rows");
            }
        }
    }

    pub(super) const fn survivors_flushed(&mut self) {
        self.survivor_files.are_flushed = true;
    }

    /// Adopts the survivors of an earlier process. Their tables are stuck until a flush succeeds.
    pub(super) fn adopt_survivors(&mut self) {
        if std::mem::replace(&mut self.survivor_files.are_adopted, true) {
            return;
        }
        let now = Instant::now();
        let survivors = self.flushes.iter().filter(|flush| flush.memtable.is_survivor());
        let tables: Vec<_> = survivors.flat_map(|flush| flush.memtable.tables()).collect();
        for table in tables {
            self.failing.add_stuck(table, now);
        }
    }
}

fn remove_files(state: &WalState, files: &LocalFiles) -> io::Result<()> {
    files.tie.survivors_flushed()?;
    state.survivor_bytes.store(0, Ordering::Relaxed);
    for number in survivors_in(&*files.dir)? {
        survivors::remove_if_present(&*files.dir, &survivor_name(number))?;
    }
    files.dir.sync()
}

impl MemtableFlush {
    fn of_survivors(survivor: Arc<Memtable>) -> Self {
        survivor.sort();
        Self {
            last_id: survivor.id(),
            pending: super::flush_range::FlushRange::all_of(&survivor),
            memtable: survivor,
            position: None,
            bytes: 0,
            deferred: VecDeque::new(),
            pace: None,
            started: Instant::now(),
        }
    }
}

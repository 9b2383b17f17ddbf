//! The thread that hands frozen generations to the backend.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tsd_storage::{FlushTarget, StorageError};

use crate::{
    executor::Executor,
    files::LogDir,
    log::segment_name,
    memtable::{FrozenRows, Generation, TableId},
    shared::{FrozenSegment, Shared},
};

pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) struct Flusher<B> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) backend: Arc<B>,
    pub(crate) executor: Executor,
}

impl<B: FlushTarget> Flusher<B> {
    /// Runs until it is stopped. A flush that fails is tried again for ever: the rows are safe in the
    /// log, and there is nowhere else for them to go.
    pub(crate) fn run(self) {
        let mut doomed = VecDeque::new();
        while let Some(frozen) = self.shared.flushing.next() {
            let mut pause = FIRST_PAUSE;
            while let Err(error) = self.flush(&frozen.generation) {
                let generation = frozen.generation.id();
                tracing::warn!(generation, %error, retry_in = ?pause, "flush failed");
                self.shared.metrics.flush_failures.increment(1);
                self.shared.note_flush(Some(error));
                if self.shared.flushing.pause(pause) {
                    return;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            self.shared.note_flush(None);
            self.shared.memtable.retire_oldest();
            doomed.extend(frozen.segments);
            self.remove(&mut doomed);
            self.shared.flushing.done(frozen.generation.id());
        }
    }

    fn flush(&self, generation: &Arc<Generation>) -> Result<(), StorageError> {
        let started = Instant::now();
        ingest(&*self.backend, &self.executor, &self.shared, generation)?;
        let metrics = &self.shared.metrics;
        metrics.flushes.increment(1);
        metrics.flush_seconds.record(started.elapsed());
        metrics.flushed_cells.increment(generation.cell_count() as u64);
        tracing::debug!(
            generation = generation.id(),
            rows = generation.row_count(),
            cells = generation.cell_count(),
            millis = started.elapsed().as_millis() as u64,
            "flushed"
        );
        Ok(())
    }

    /// Removes segments, oldest first and each durably before the next: a replay must never meet an
    /// old segment without those that came after it.
    fn remove(&self, doomed: &mut VecDeque<FrozenSegment>) {
        while let Some(segment) = doomed.front().copied() {
            if let Err(error) = remove_segment(&*self.shared.dir, segment) {
                let dir = self.shared.dir.path().display();
                let segment = segment.segment;
                tracing::warn!(%dir, segment, %error, "cannot remove a log segment");
                return;
            }
            doomed.pop_front();
            self.shared.segments.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Hands a generation to the backend, table by table.
pub(crate) fn ingest<B: FlushTarget>(
    backend: &B,
    executor: &Executor,
    shared: &Shared,
    generation: &Arc<Generation>,
) -> Result<(), StorageError> {
    generation.settle();
    for (id, table) in shared.tables.all().iter().enumerate() {
        let id = TableId(id);
        if generation.rows_of(id) == 0 {
            continue;
        }
        let rows = Box::new(FrozenRows::new(Arc::clone(generation), id));
        // A panic in a backend must not end the flusher: nothing would ever be flushed again.
        catch_unwind(AssertUnwindSafe(|| executor.wait(backend.flush_rows(table, rows))))
            .unwrap_or_else(|_| Err(StorageError::Backend("ingestion panicked".into())))?;
    }
    Ok(())
}

/// Removes a segment durably, or puts it aside where its damage was accepted.
pub(crate) fn remove_segment(dir: &dyn LogDir, segment: FrozenSegment) -> io::Result<()> {
    let name = segment_name(segment.segment);
    let removed = if segment.damaged {
        dir.rename(&name, &format!("{name}.damaged"))
    } else {
        dir.remove(&name)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => dir.sync(),
    }
}

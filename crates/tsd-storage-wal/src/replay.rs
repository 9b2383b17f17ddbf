//! Brings the log back into memory when a store is opened.

use std::{io, sync::Arc, time::Instant};

use tsd_storage::{FlushTarget, Table};

use crate::{
    OpenError, ReplayReport, TornTail,
    change::{Change, ChangeKind},
    executor::Executor,
    files::LogDir,
    flusher::{ingest, remove_segment},
    log::{Found, LogPosition, Verified, Walk, segment_name, verify},
    memtable::{Generation, TableId},
    shared::{Frozen, FrozenSegment, Shared},
};

/// What a replay leaves behind.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Rows that were replayed and wait for their flush, oldest first.
    pub(crate) frozen: Vec<Frozen>,
    /// The last commit time in the log.
    pub(crate) last_commit_ms: i64,
    /// Tables in the log that are not among those to be held.
    pub(crate) more_tables: Vec<Table>,
    pub(crate) position: LogPosition,
    pub(crate) next_generation: u64,
    pub(crate) report: ReplayReport,
}

/// Replays the log. The memtable of `shared` is not touched.
///
/// The log is checked whole before any of it is used. Memory stays bounded: what is more than one
/// generation goes to the backend right away. A shared backend, which may be away, is not asked:
/// there the log itself was bounded, and all of it comes back into memory.
pub(crate) fn replay<B: FlushTarget>(
    shared: &Shared,
    backend: &B,
    executor: &Executor,
) -> Result<Replayed, OpenError> {
    let started = Instant::now();
    let dir = &*shared.dir;
    let io_error = |source| OpenError::Io { directory: dir.path().to_path_buf(), source };
    let log = verify(dir).map_err(io_error)?;
    if !log.lost.is_empty() && !shared.config.accept_damage {
        return Err(OpenError::Damaged { lost: log.lost });
    }
    for lost in &log.lost {
        tracing::error!(%lost, "records of the log are lost, as was accepted");
    }
    tidy(dir, &log).map_err(io_error)?;

    let mut replay = Replay {
        shared,
        backend,
        executor,
        generation: None,
        full: Vec::new(),
        next_generation: 0,
        last_commit_ms: i64::MIN,
        must_flush: false,
        more_tables: Vec::new(),
        report: ReplayReport::default(),
    };
    for segment in &log.segments {
        let bytes = dir.read(&segment_name(segment.segment), 0, segment.len).map_err(io_error)?;
        replay.segment(&bytes, segment.segment)?;
        replay.report.segments += 1;
        replay.report.bytes += bytes.len() as u64;
    }
    if replay.must_flush {
        replay.flush()?;
    }
    let segments: Vec<FrozenSegment> = log
        .segments
        .iter()
        .map(|s| FrozenSegment { segment: s.segment, damaged: s.damaged })
        .collect();
    let mut generations = replay.full;
    generations.extend(replay.generation);
    // The segments stay until the last of the generations is in the backend.
    let frozen = if let Some(last) = generations.pop() {
        let alone = |generation| Frozen {
            generation: Arc::new(generation),
            segments: Vec::new(),
            bytes: 0,
            leave_within: None,
        };
        let bytes = replay.report.bytes;
        let last = Frozen { segments, bytes, ..alone(last) };
        generations.into_iter().map(alone).chain([last]).collect()
    } else {
        // All of it is in the backend by now.
        for segment in segments {
            remove_segment(dir, segment).map_err(io_error)?;
        }
        Vec::new()
    };
    let mut report = replay.report;
    report.duration = started.elapsed();
    report.torn_tail = log.tail.map(|tail| TornTail {
        file: dir.path().join(tail.name),
        offset: tail.offset,
        bytes: tail.bytes,
    });
    report.lost = log.lost;
    let previous = log.segments.last().map_or((0, 0), |last| (last.segment, last.len as u64));
    Ok(Replayed {
        frozen,
        position: LogPosition {
            next_segment: log.next_segment,
            next_sequence: log.next_sequence,
            previous,
        },
        next_generation: replay.next_generation,
        last_commit_ms: replay.last_commit_ms,
        more_tables: replay.more_tables,
        report,
    })
}

/// Makes what was found durable, cuts the torn end off and removes what never counted.
fn tidy(dir: &dyn LogDir, log: &Verified) -> io::Result<()> {
    if let Some(tail) = &log.tail {
        let file = dir.path().join(&tail.name);
        tracing::warn!(
            file = %file.display(),
            offset = tail.offset,
            bytes = tail.bytes,
            "cut the end of the log: its last write was never finished, nor acknowledged"
        );
    }
    // A process that was killed may have left what it wrote unsynced. From here on it counts, the
    // next segment will say so, and it must be on disk before that. Damaged segments stay as they
    // are, for whoever wants to look.
    if let Some(last) = log.segments.last().filter(|last| !last.damaged) {
        dir.truncate(&segment_name(last.segment), last.len as u64)?;
    }
    dir.sync()?;
    for name in &log.void {
        let file = dir.path().join(name);
        tracing::warn!(file = %file.display(), "removed a log segment that was never used");
        dir.remove(name)?;
        dir.sync()?;
    }
    Ok(())
}

struct Replay<'a, B> {
    shared: &'a Shared,
    backend: &'a B,
    executor: &'a Executor,
    generation: Option<Generation>,
    /// Generations before it, where the backend is not asked.
    full: Vec<Generation>,
    next_generation: u64,
    last_commit_ms: i64,
    /// A table is in the log that is not held any more; reads of it go past the memtable.
    must_flush: bool,
    more_tables: Vec<Table>,
    report: ReplayReport,
}

impl<B: FlushTarget> Replay<'_, B> {
    fn segment(&mut self, bytes: &[u8], segment: u64) -> Result<(), OpenError> {
        for found in Walk::new(bytes, segment, true) {
            let Found::Record { header, table, body, .. } = found else { continue };
            // The check before has named what cannot be read.
            let Some((table, change)) = decode(header.kind, table, body) else { continue };
            self.record(&table, &change, header.commit_ms)?;
        }
        Ok(())
    }

    fn record(&mut self, table: &str, change: &Change, commit_ms: i64) -> Result<(), OpenError> {
        let id = self.table(table)?;
        let next = self.next_generation;
        let spare = &self.shared.spare;
        let generation = self
            .generation
            .get_or_insert_with(|| Generation::new(next, commit_ms, Arc::clone(spare)));
        generation.apply(id, change, commit_ms);
        self.next_generation = generation.id() + 1;
        let full = generation.bytes() >= self.shared.config.generation_bytes();
        self.last_commit_ms = self.last_commit_ms.max(commit_ms);
        self.report.records += 1;
        self.report.cells += change.cell_count() as u64;
        if full { self.flush() } else { Ok(()) }
    }

    fn table(&mut self, name: &str) -> Result<TableId, OpenError> {
        let table = Table::new(name);
        if let Some(id) = self.shared.tables.id(&table) {
            return Ok(id);
        }
        if self.shared.config.shared_backend {
            // Whether it is there shows when its rows leave.
            if !self.shared.config.held.contains(&table) {
                self.more_tables.push(table.clone());
            }
            return Ok(self.shared.tables.add(&table));
        }
        match self.executor.wait(self.backend.table_exists(&table)) {
            Ok(true) => {}
            Ok(false) => return Err(OpenError::NoSuchTable(table)),
            Err(error) => return Err(OpenError::Backend(error)),
        }
        self.must_flush |= !self.shared.config.held.contains(&table);
        Ok(self.shared.tables.add(&table))
    }

    fn flush(&mut self) -> Result<(), OpenError> {
        let Some(generation) = self.generation.take() else { return Ok(()) };
        if self.shared.config.shared_backend {
            self.full.push(generation);
            return Ok(());
        }
        let generation = Arc::new(generation);
        ingest(self.backend, self.executor, self.shared, &generation).map_err(OpenError::Backend)
    }
}

fn decode(kind: u8, table: &[u8], body: &[u8]) -> Option<(String, Change)> {
    let change = Change::decode(ChangeKind::from_byte(kind)?, body)?;
    Some((String::from_utf8(table.to_vec()).ok()?, change))
}

/// Said once, when a store is opened.
pub(crate) fn log_report(directory: &std::path::Path, report: &ReplayReport) {
    tracing::info!(
        directory = %directory.display(),
        segments = report.segments,
        records = report.records,
        cells = report.cells,
        bytes = report.bytes,
        millis = report.duration.as_millis() as u64,
        lost = report.lost.len(),
        "log replayed"
    );
}

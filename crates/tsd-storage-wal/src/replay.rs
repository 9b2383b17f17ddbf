//! Reads the log back into memory when a store is opened.

mod former;

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use bytes::Bytes;
use tsd_storage::{Column, FlushTarget, Get, StorageError, Table};

use crate::{
    OpenError, ReplayReport, TornTail,
    append_record::{APPEND, AppendRecord},
    change::Change,
    commit_log::LogPosition,
    executor::Executor,
    files::LogDir,
    flush_queue::FlushJob,
    local_files::LocalFiles,
    log::{
        ClosedSegment, ContinuityCheck, LogTail, RecordHeader, SegmentItem, SegmentReader,
        StateFile, VerifiedLog, segment_name, verify,
    },
    memtable::{CellPrecedence, ColumnLookup, MAX_ADDED_MS, Memtable, NewRows, TableId},
    replay_target::ReplayTarget,
    sharing::SharingPolicy,
    state::WalState,
    survivors::{self, Survivors},
    unknown_version::{unknown_file, unknown_mark_version},
};

pub(crate) use self::former::{replay_former, replay_in_parts};

/// Result of a replay.
#[derive(Debug, Default)]
pub(crate) struct ReplayedLog {
    /// Memtables to be flushed, oldest first.
    pub(crate) jobs: Vec<FlushJob>,
    /// Last commit time in the log.
    pub(crate) last_commit_ms: i64,
    /// Tables to log in addition to the configured tables.
    pub(crate) more_tables: Vec<Table>,
    pub(crate) end: LogTail,
    /// The segments that the replay found.
    pub(crate) segments: Vec<ClosedSegment>,
    pub(crate) next_memtable_id: u64,
    pub(crate) report: ReplayReport,
}

/// A verified log that may be replayed.
struct CheckedLog {
    log: VerifiedLog,
    survivors: Survivors,
    /// First sequence number to replay. Earlier records are in the backend.
    replay_from: u64,
}

/// Verifies the whole log before any of its records is used, and makes its records durable.
fn checked_log<B: FlushTarget>(
    state: &WalState,
    files: &LocalFiles,
    backend: &B,
    executor: &Executor,
    now_ms: i64,
) -> Result<CheckedLog, OpenError> {
    let dir = &*files.dir;
    let io_error = |source| OpenError::Io { directory: dir.path().to_path_buf(), source };
    let mark = executor.wait(backend.log_mark()).map_err(OpenError::Backend)?;
    // This comes first, because a file of another release may look like damage.
    let unknown = unknown_file(dir).map_err(io_error)?;
    if let Some(unknown) = unknown.or_else(|| unknown_mark_version(&mark, dir.path())) {
        return Err(OpenError::UnknownVersion(unknown));
    }
    let mut log = verify(dir).map_err(io_error)?;
    let (state_file, found) = StateFile::load(&files.dir).map_err(io_error)?;
    let survivors = Survivors::find(dir, found).map_err(io_error)?;
    let mut checked = ContinuityCheck { directory: dir.path(), log: &mut log }
        .run(found, &mark, random_id, now_ms);
    log.lost.extend(survivors.lost(dir));
    checked.state.survivors = survivors.range();
    if !log.lost.is_empty() && !state.config.accept_damage {
        return Err(OpenError::Damaged { lost: log.lost });
    }
    for lost in &log.lost {
        tracing::error!(%lost, "log records are lost; the damage was accepted");
    }
    // Notes the loss before the log forgets it, so that data derived from the lost cells is checked.
    if !log.lost.is_empty()
        && let Some(quarantine) = backend.maintenance().quarantine()
    {
        quarantine.note_loss().map_err(OpenError::Backend)?;
    }
    if checked.is_unusable {
        rename_segments(dir, &mut log).map_err(io_error)?;
    }
    clean_up(dir, &log).map_err(io_error)?;
    survivors.clean_up(dir).map_err(io_error)?;
    let set_mark = |mark| executor.wait(backend.set_log_mark(mark));
    files.tie.open(state_file, &checked, set_mark).map_err(OpenError::Backend)?;
    Ok(CheckedLog { log, survivors, replay_from: checked.replay_from })
}

/// Replays the log without changing the memtables of `state`.
pub(crate) fn replay<B: FlushTarget>(
    state: &WalState,
    files: &LocalFiles,
    backend: &B,
    executor: &Executor,
    policy: &SharingPolicy,
) -> Result<ReplayedLog, OpenError> {
    let started = Instant::now();
    let dir = &*files.dir;
    let now_ms = (state.config.clock)();
    let CheckedLog { log, survivors, replay_from } =
        checked_log(state, files, backend, executor, now_ms)?;
    let target = ReplayTarget::new(state, backend, executor);
    let mut replay = Replay::new(target, policy, replay_from);
    let survivor = replay.survivors(dir, &survivors)?;
    for segment in &log.segments {
        let bytes = dir.read(&segment_name(segment.number), 0, segment.len);
        let bytes = bytes
            .map_err(|source| OpenError::Io { directory: dir.path().to_path_buf(), source })?;
        replay.segment(&bytes, segment.number)?;
        replay.report.segments += 1;
        replay.report.bytes += bytes.len() as u64;
    }
    let segments = log.closed_segments();
    let mut memtables = replay.target.memtables;
    memtables.extend(replay.memtable.map(Arc::new));
    if memtables.is_empty() && !segments.is_empty() {
        // All rows are in the backend. The flush of an empty memtable removes the segments.
        let pool = Arc::clone(&state.buffer_pool);
        memtables.push_back(Arc::new(Memtable::new(replay.next_memtable_id, now_ms, pool)));
        replay.next_memtable_id += 1;
    }
    let mut jobs = jobs(memtables, log.next_sequence, replay.report.bytes);
    if let Some(survivor) = survivor {
        jobs.insert(0, flush_job(Arc::new(survivor)));
        state.survivor_bytes.store(survivors.bytes, Ordering::Relaxed);
    }
    let mut report = replay.report;
    report.duration = started.elapsed();
    report.torn_tail = log.tail.map(|tail| TornTail {
        file: dir.path().join(tail.name),
        offset: tail.offset,
        bytes: tail.bytes,
    });
    report.lost = log.lost;
    let previous = log.segments.last().map_or((0, 0), |last| (last.number, last.len as u64));
    Ok(ReplayedLog {
        jobs,
        end: LogTail { next_segment: log.next_segment, next_sequence: log.next_sequence, previous },
        segments,
        next_memtable_id: replay.next_memtable_id,
        last_commit_ms: replay.last_commit_ms,
        more_tables: replay.target.more_tables,
        report,
    })
}

/// Creates flush jobs for memtables. The segments are removed after the flush of the last memtable.
fn jobs(memtables: VecDeque<Arc<Memtable>>, end_sequence: u64, bytes: u64) -> Vec<FlushJob> {
    let mut jobs: Vec<FlushJob> = memtables.into_iter().map(flush_job).collect();
    if let Some(last) = jobs.last_mut() {
        last.position = Some(LogPosition { incarnation: 0, sequence: end_sequence });
        last.bytes = bytes;
    }
    jobs
}

/// A flush job that trims nothing.
const fn flush_job(memtable: Arc<Memtable>) -> FlushJob {
    FlushJob { memtable, position: None, bytes: 0, flush_over: None }
}

/// Renames the segments of a log that must not be replayed into the store.
fn rename_segments(dir: &dyn LogDir, log: &mut VerifiedLog) -> io::Result<()> {
    for segment in log.segments.drain(..) {
        ClosedSegment { damaged: true, ..segment.closed() }.remove(dir)?;
    }
    log.tail = None;
    Ok(())
}

/// A number that no other log has.
fn random_id() -> u128 {
    let random = || u128::from(RandomState::new().build_hasher().finish());
    (random() << 64) | random()
}

/// Makes the verified log durable, zeroes its torn end and removes unused segments.
fn clean_up(dir: &dyn LogDir, log: &VerifiedLog) -> io::Result<()> {
    if let Some(tail) = &log.tail {
        let file = dir.path().join(&tail.name);
        tracing::warn!(
            file = %file.display(),
            offset = tail.offset,
            bytes = tail.bytes,
            "truncated the log: its last write was incomplete and not acknowledged"
        );
    }
    // A killed process may have left unsynced bytes. They now belong to the log, and the header of the next
    // segment will state that, so they must reach the disk first. Damaged segments are not changed.
    if let Some(last) = log.segments.last().filter(|last| !last.damaged) {
        let mut file = dir.open(&segment_name(last.number))?;
        file.zero_from(last.len as u64)?;
        // From now on, the state of the log names the segment.
        if let Some(len) = last.bare_of {
            file.set_len(len)?;
        }
        file.sync_data()?;
    }
    dir.sync()?;
    for name in &log.unused {
        let file = dir.path().join(name);
        tracing::warn!(file = %file.display(), "removed an unused log segment");
        dir.remove(name)?;
        dir.sync()?;
    }
    Ok(())
}

/// An error of reading a survivor file.
enum ReplayError {
    Open(OpenError),
    Io(io::Error),
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<OpenError> for ReplayError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl ReplayError {
    fn into_open_error(self, dir: &dyn LogDir) -> OpenError {
        match self {
            Self::Open(error) => error,
            Self::Io(source) => OpenError::Io { directory: dir.path().to_path_buf(), source },
        }
    }
}

struct Replay<'a, B> {
    target: ReplayTarget<'a, B>,
    policy: &'a SharingPolicy,
    /// The memtable that is being filled.
    memtable: Option<Memtable>,
    next_memtable_id: u64,
    last_commit_ms: i64,
    /// Lower bound of the commit times in that memtable.
    floor_ms: i64,
    /// Bytes at which a memtable is full.
    memtable_limit: usize,
    /// First sequence number to replay. Earlier records are in the backend.
    from_sequence: u64,
    report: ReplayReport,
}

impl<'a, B: FlushTarget> Replay<'a, B> {
    fn new(target: ReplayTarget<'a, B>, policy: &'a SharingPolicy, from_sequence: u64) -> Self {
        let memtable_limit = policy.rotation_limits(&target.state.config).memtable_bytes;
        Self {
            target,
            policy,
            memtable: None,
            next_memtable_id: 0,
            last_commit_ms: i64::MIN,
            floor_ms: i64::MIN,
            memtable_limit,
            from_sequence,
            report: ReplayReport::default(),
        }
    }

    /// Reads the survivor files into one memtable, which is older than all memtables of segments.
    fn survivors(
        &mut self,
        dir: &dyn LogDir,
        survivors: &Survivors,
    ) -> Result<Option<Memtable>, OpenError> {
        let mut memtable: Option<Memtable> = None;
        for number in survivors.intact() {
            survivors::read(dir, number, |table, base_ms, copied| {
                let id = self.table(table)?;
                let next_id = &mut self.next_memtable_id;
                let pool = &self.target.state.buffer_pool;
                let memtable = memtable.get_or_insert_with(|| {
                    *next_id += 1;
                    Memtable::new_survivor(*next_id - 1, base_ms, Arc::clone(pool))
                });
                memtable.add_rows(id, copied, base_ms);
                memtable.cover(base_ms, 0);
                Ok::<_, ReplayError>(())
            })
            .map_err(|error| error.into_open_error(dir))?;
        }
        Ok(memtable)
    }

    fn segment(&mut self, bytes: &[u8], segment: u64) -> Result<(), OpenError> {
        for item in SegmentReader::new(bytes, segment, true) {
            let SegmentItem::Record { header, table, body, .. } = item else { continue };
            self.last_commit_ms = self.last_commit_ms.max(header.commit_ms);
            if header.sequence >= self.from_sequence {
                // The report of the verification has unreadable records.
                self.read_record(header, table, body)?;
            }
        }
        Ok(())
    }

    /// Replays a record. Returns false if the record cannot be read.
    fn read_record(
        &mut self,
        header: RecordHeader,
        table: &[u8],
        body: &[u8],
    ) -> Result<bool, OpenError> {
        let Ok(table) = std::str::from_utf8(table) else { return Ok(false) };
        let change = if header.kind == APPEND {
            let Some(record) = AppendRecord::decode(body) else { return Ok(false) };
            let put = record.resolve(|column| self.present_value(table, column))?;
            put.map(Change::Put)
        } else {
            Change::decode(header.kind, body)
        };
        let Some(change) = change else { return Ok(false) };
        self.record(table, &change, header.commit_ms)?;
        Ok(true)
    }

    fn record(&mut self, table: &str, change: &Change, commit_ms: i64) -> Result<(), OpenError> {
        let id = self.table(table)?;
        let commit_ms = commit_ms.max(self.floor_ms);
        self.last_commit_ms = self.last_commit_ms.max(commit_ms);
        let next_id = self.next_memtable_id;
        let pool = &self.target.state.buffer_pool;
        let memtable = self
            .memtable
            .get_or_insert_with(|| Memtable::new(next_id, commit_ms, Arc::clone(pool)));
        memtable.apply(id, change, commit_ms, 0);
        if let Some(new_rows) = self.target.state.tables.new_rows(id) {
            memtable.note_new_rows(id, &new_rows);
        }
        self.next_memtable_id = memtable.id() + 1;
        let is_full = memtable.bytes() >= self.memtable_limit;
        self.report.records += 1;
        self.report.cells += change.cell_count() as u64;
        if is_full && let Some(memtable) = self.memtable.take() {
            if self.policy.cell_precedence() == CellPrecedence::LogOrder {
                // A commit may be divided between two memtables, as after a rotation.
                self.floor_ms = self.last_commit_ms.saturating_add(MAX_ADDED_MS);
            }
            self.policy.replay_memtable(&mut self.target, memtable);
        }
        Ok(())
    }

    /// The present value of a column of an append. The memtables have it, unless its record is lost.
    fn present_value(&mut self, table: &str, column: &Column) -> Result<Option<Bytes>, OpenError> {
        let id = self.table(table)?;
        let Column { row, family, qualifier } = column;
        let full = self.target.memtables.iter().rev().map(|memtable| &**memtable);
        for memtable in self.memtable.iter().chain(full) {
            match memtable.column(id, row, *family, qualifier) {
                ColumnLookup::Value(value) => return Ok(Some(value)),
                ColumnLookup::Deleted => return Ok(None),
                ColumnLookup::Unknown => {}
            }
        }
        let get = Get::column(row.clone(), *family, qualifier.clone());
        let ReplayTarget { backend, executor, .. } = &self.target;
        let stored = executor.wait(backend.get(&Table::new(table), get));
        let Some(stored) = stored.map_err(OpenError::Backend)? else { return Ok(None) };
        let cells = stored.into_cells();
        let cells =
            cells.map_err(|e| OpenError::Backend(StorageError::Damaged(e.to_string().into())))?;
        let found = cells.into_iter().find(|c| c.family == *family && c.qualifier == *qualifier);
        Ok(found.map(|cell| cell.value))
    }

    fn table(&mut self, name: &str) -> Result<TableId, OpenError> {
        let table = Table::new(name);
        let tables = &self.target.state.tables;
        if let Some(id) = tables.id(&table) {
            return Ok(id);
        }
        self.policy.replay_table(&mut self.target, &table)?;
        Ok(tables.add(&table, NewRows::of(self.target.backend, &table)))
    }
}

/// Logs the result of a replay.
pub(crate) fn log_report(log: &str, report: &ReplayReport) {
    tracing::info!(
        log,
        segments = report.segments,
        records = report.records,
        cells = report.cells,
        bytes = report.bytes,
        millis = report.duration.as_millis() as u64,
        lost = report.lost.len(),
        "log replayed"
    );
}

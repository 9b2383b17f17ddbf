//! The policy that depends on who writes to the backend.
//!
//! [`WalStorage::open`](crate::WalStorage::open) chooses the policy. Apart from the [`CommitPolicy`] of the
//! committer, no other code distinguishes the two. The policy is called per request, batch or memtable, never per
//! cell.

use std::sync::{Arc, atomic::Ordering};

use tsd_storage::{
    FlushTarget, HealthImpact, HealthProblem, ReadVersion, Recovery, RowRewrite, StorageError,
    StoreComponent, Table, Write, WriteResult,
};

use crate::{
    BackendSharing, OpenError, WalConfig,
    active_memtable::RotationLimits,
    backend_policy::CommitPolicy,
    exclusive,
    executor::Executor,
    memtable::{CellPrecedence, Memtable},
    multi_writer::{self, FlushProgress},
    replay_target::ReplayTarget,
    state::WalState,
    table_writer::TableWriter,
};

/// Divisor of the memory at which the memtable for an exclusive backend is rotated. The rest is for memtables
/// that are being flushed.
const EXCLUSIVE_MEMTABLES: usize = 4;

/// How this layer uses a backend. The modules [`exclusive`] and [`multi_writer`] describe it.
#[derive(Clone, Debug)]
pub(crate) enum SharingPolicy {
    Exclusive,
    MultiWriter(Arc<FlushProgress>),
}

impl SharingPolicy {
    pub(crate) fn new(sharing: BackendSharing) -> Self {
        match sharing {
            BackendSharing::Exclusive => Self::Exclusive,
            BackendSharing::MultiWriter => Self::MultiWriter(Arc::default()),
        }
    }

    /// Accepts a table that the replay found in the log.
    pub(crate) fn replay_table<B: FlushTarget>(
        &self,
        target: &mut ReplayTarget<'_, B>,
        table: &Table,
    ) -> Result<(), OpenError> {
        match self {
            Self::Exclusive => {
                match target.executor.wait(target.backend.table_exists(table)) {
                    Ok(true) => {}
                    Ok(false) => return Err(OpenError::NoSuchTable(table.clone())),
                    // The flush of its rows will show.
                    Err(error) if error.recovery() == Recovery::RetryLater => {}
                    Err(error) => return Err(OpenError::Backend(error)),
                }
            }
            // The flush of its rows shows whether the table exists.
            Self::MultiWriter(_) => {}
        }
        if !target.state.config.logged.contains(table) {
            // Reads must consult the memtables as long as these have rows of the table.
            target.more_tables.push(table.clone());
        }
        Ok(())
    }

    /// Takes a memtable that the replay filled.
    pub(crate) fn replay_memtable<B: FlushTarget>(
        &self,
        target: &mut ReplayTarget<'_, B>,
        memtable: Memtable,
    ) {
        target.memtables.push_back(Arc::new(memtable));
        if matches!(self, Self::Exclusive) {
            exclusive::flush_beyond_memory(target);
        }
    }

    /// Limits at which the active memtable is rotated.
    pub(crate) fn rotation_limits(&self, config: &WalConfig) -> RotationLimits {
        match self {
            Self::Exclusive => RotationLimits {
                memtable_bytes: config.memtable_bytes / EXCLUSIVE_MEMTABLES,
                max_age: config.max_age,
                segment_bytes: Some(config.segment_bytes),
            },
            Self::MultiWriter(_) => RotationLimits {
                // Flushes are few and large: one memtable is filled while the previous one is flushed.
                memtable_bytes: config.memtable_bytes / 2,
                max_age: config.max_age * 3 / 4,
                segment_bytes: None,
            },
        }
    }

    /// The policy of the committer thread.
    pub(crate) fn commit_policy(&self) -> Box<dyn CommitPolicy> {
        match self {
            Self::Exclusive => exclusive::commit_policy(),
            Self::MultiWriter(progress) => multi_writer::commit_policy(Arc::clone(progress)),
        }
    }

    /// Runs the flusher thread. Returns once the flush queue is stopped.
    pub(crate) fn run_flusher<B: FlushTarget>(
        self,
        state: Arc<WalState>,
        backend: Arc<B>,
        executor: Executor,
    ) {
        match self {
            Self::Exclusive => exclusive::run_flusher(&state, &*backend, &executor),
            Self::MultiWriter(progress) => {
                multi_writer::PacedFlusher::new(state, backend, executor, progress).run();
            }
        }
    }

    /// True if memtables are flushed one after another, so that the backend can have exactly the rows up to one
    /// commit.
    pub(crate) const fn has_whole_flushes(&self) -> bool {
        matches!(self, Self::Exclusive)
    }

    /// Problems that occur only with this policy.
    pub(crate) fn health(&self, state: &WalState) -> Vec<HealthProblem> {
        let Self::MultiWriter(progress) = self else { return Vec::new() };
        let stuck = progress.stuck_texts(state).into_iter();
        let stuck = stuck
            .map(|text| HealthProblem::new(StoreComponent::Flush, HealthImpact::Degraded, text));
        let rows = progress.rejected_rows.load(Ordering::Relaxed);
        let reason = format!("the backend rejects {rows} rows; they stay in the log");
        let rejected = (rows > 0)
            .then(|| HealthProblem::new(StoreComponent::Flush, HealthImpact::Degraded, reason));
        let relocation = progress
            .relocation_problem()
            .map(|text| HealthProblem::new(StoreComponent::Disk, HealthImpact::Degraded, text));
        stuck.chain(rejected).chain(relocation).collect()
    }

    /// Gauges of this policy.
    pub(crate) fn gauges(&self, state: &WalState) -> Vec<(&'static str, f64)> {
        let Self::MultiWriter(progress) = self else { return Vec::new() };
        let is_unavailable = progress.is_backend_unavailable(state);
        let rejected_rows = progress.rejected_rows.load(Ordering::Relaxed);
        vec![
            ("tsd_wal_backend_unavailable", f64::from(u8::from(is_unavailable))),
            ("tsd_wal_rejected_rows", rejected_rows as f64),
            ("tsd_wal_stuck_tables", progress.stuck_count() as f64),
            ("tsd_wal_survivor_bytes", state.survivor_bytes.load(Ordering::Relaxed) as f64),
        ]
    }

    /// Which cell of a column readers see.
    pub(crate) const fn cell_precedence(&self) -> CellPrecedence {
        match self {
            Self::Exclusive => CellPrecedence::LogOrder,
            Self::MultiWriter(_) => CellPrecedence::CommitTime,
        }
    }

    /// Returns true if the first write to a table may proceed.
    pub(crate) async fn accepts_table<B: FlushTarget>(
        &self,
        backend: &B,
        table: &Table,
    ) -> Result<bool, StorageError> {
        match self {
            Self::Exclusive => backend.table_exists(table).await,
            Self::MultiWriter(_) => Ok(true),
        }
    }

    /// Executes a conditional write, which must have a cell.
    pub(crate) async fn execute<B: FlushTarget>(
        &self,
        writer: TableWriter<'_, B>,
        write: Write,
    ) -> Result<WriteResult, StorageError> {
        match self {
            Self::Exclusive => exclusive::execute(writer, write).await,
            Self::MultiWriter(_) => multi_writer::execute(writer, write).await,
        }
    }

    /// Version of a table for a row compaction that is planned from a later read.
    pub(crate) fn read_version<B: FlushTarget>(
        &self,
        state: &WalState,
        backend: &B,
        table: &Table,
    ) -> ReadVersion {
        match self {
            Self::Exclusive => ReadVersion(Some(state.commit_sequence.load(Ordering::Acquire))),
            Self::MultiWriter(_) => match backend.read_version(table) {
                ReadVersion(None) => ReadVersion(Some(state.memtables.view().read_version)),
                version => version,
            },
        }
    }

    /// Replaces the columns of a row by the compacted column.
    pub(crate) async fn rewrite_row<B: FlushTarget>(
        &self,
        writer: TableWriter<'_, B>,
        rewrite: RowRewrite,
    ) -> Result<WriteResult, StorageError> {
        match self {
            Self::Exclusive => exclusive::rewrite_row(writer, rewrite).await,
            Self::MultiWriter(_) => multi_writer::rewrite_row(writer, rewrite).await,
        }
    }
}

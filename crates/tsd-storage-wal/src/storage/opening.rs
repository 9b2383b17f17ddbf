//! Opens a store: opens its log, replays it and starts the threads. The parent module has the operations of an
//! open store.

use std::sync::{Arc, atomic::AtomicI64, mpsc};

use tsd_storage::{FlushTarget, StorageError};

use super::{
    WalStorage,
    threads::{in_thread, spawn_worker},
};
use crate::{
    FormerLogs, OpenError, ReplayReport, WalConfig,
    active_memtable::ActiveMemtable,
    commit_log::{CommitLog, LogRecoverer},
    commit_queue::CommitQueue,
    commit_time,
    committer::{CheckStore, Committer},
    executor::Executor,
    files::{self, LogDir},
    local_files::LocalFiles,
    log::{FileLog, SetMark},
    memtable::Memtable,
    memtable_list::MemtableList,
    metrics::Metrics,
    multi_writer::RecoveredLogs,
    replay::{ReplayedLog, log_report, replay, replay_former},
    sharing::SharingPolicy,
    state::WalState,
};

impl<B: FlushTarget> WalStorage<B> {
    /// Opens a log in front of `backend` and replays it. Replayed rows are readable at once and queued for their
    /// flush.
    ///
    /// In a multi-threaded tokio runtime, calls of the backend run there. Otherwise, they run in runtimes on the
    /// threads of this layer.
    ///
    /// # Errors
    ///
    /// If another process uses the directory, or the log cannot be read or is damaged. If a table of the log does
    /// not exist, or the backend fails during the replay.
    pub async fn open(
        config: WalConfig,
        backend: Arc<B>,
    ) -> Result<(Self, ReplayReport), OpenError> {
        let directory = config.directory.clone();
        let dir = in_thread("wal-lock", move || files::lock(&directory)).await??;
        Self::open_in(config, Arc::new(dir), backend).await
    }

    /// As [`Self::open`], but with the files of the log in `dir` instead of [`WalConfig::directory`]. The
    /// directory or a parent of it must be locked.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub async fn open_in(
        config: WalConfig,
        dir: Arc<dyn LogDir>,
        backend: Arc<B>,
    ) -> Result<(Self, ReplayReport), OpenError> {
        let executor = Executor::current();
        let policy = SharingPolicy::new(config.backend);
        let (files, metrics) = (LocalFiles::new(dir), Arc::new(Metrics::new()));
        let set_mark = mark_setter(&backend, executor.clone());
        let log = Arc::new(FileLog::new(files.clone(), &config, &metrics, set_mark));
        let commit_log: Arc<dyn CommitLog> = Arc::<FileLog>::clone(&log);
        let mut state = WalState::new(config, metrics, commit_log, Some(files.clone()));
        let (replay_backend, replay_policy) = (Arc::clone(&backend), policy.clone());
        let replaying = in_thread("wal-replay", move || {
            let mut replayed = replay(&state, &files, &*replay_backend, &executor, &replay_policy)?;
            let directory = files.dir.path().to_path_buf();
            let saved = commit_time::load(&*files.dir)
                .map_err(|source| OpenError::Io { directory, source })?;
            log.continue_at(replayed.end, std::mem::take(&mut replayed.segments));
            adopt_replayed(&mut state, &mut replayed, saved);
            Ok::<_, OpenError>((state, replayed))
        });
        let (state, replayed) = replaying.await??;
        Self::start(Arc::new(state), backend, policy, replayed)
    }

    /// Opens a store whose log is not in local files, and replays the logs that earlier owners left. Their rows
    /// are flushed separately from rows of later commits. There are no survivor files and no dead letters: the
    /// log keeps rows that cannot be flushed, within its limit. [`WalConfig::directory`] is ignored.
    ///
    /// # Errors
    ///
    /// If a former log cannot be read.
    pub async fn open_on(
        config: WalConfig,
        log: Arc<dyn CommitLog>,
        former: FormerLogs,
        backend: Arc<B>,
    ) -> Result<(Self, ReplayReport), OpenError> {
        let executor = Executor::current();
        let policy = SharingPolicy::new(config.backend);
        let mut state = WalState::new(config, Arc::new(Metrics::new()), log, None);
        let (replay_backend, replay_policy) = (Arc::clone(&backend), policy.clone());
        let replaying = in_thread("wal-replay", move || {
            let saved_ms = former.last_commit_ms;
            let mut replayed =
                replay_former(&state, former, &*replay_backend, &executor, &replay_policy)?;
            adopt_replayed(&mut state, &mut replayed, saved_ms);
            Ok::<_, OpenError>((state, replayed))
        });
        let (state, replayed) = replaying.await??;
        Self::start(Arc::new(state), backend, policy, replayed)
    }

    fn start(
        state: Arc<WalState>,
        backend: Arc<B>,
        policy: SharingPolicy,
        replayed: ReplayedLog,
    ) -> Result<(Self, ReplayReport), OpenError> {
        let ReplayedLog { jobs, next_memtable_id, report, .. } = replayed;
        log_report(&state.log.name(), &report);
        for job in jobs {
            state.queue_flush(job);
        }
        let (sender, messages) = mpsc::channel();
        let limits = policy.rotation_limits(&state.config);
        let active = ActiveMemtable::new(Arc::clone(&state), limits, next_memtable_id + 1);
        backend.set_held_rows(Arc::<WalState>::clone(&state));
        let committer =
            Committer::new(active, policy.commit_policy(), store_checker(&backend), messages);
        let committer = spawn_worker("wal-committer", || committer.run())?;
        let (flush_state, flush_backend) = (Arc::clone(&state), Arc::clone(&backend));
        let (flush_policy, executor) = (policy.clone(), Executor::current());
        let flusher = spawn_worker("wal-flusher", move || {
            flush_policy.run_flusher(flush_state, flush_backend, executor);
        })?;
        let queue = CommitQueue::new(Arc::clone(&state), sender);
        let threads = tokio::sync::Mutex::new(vec![committer, flusher]);
        let recoverer = attach_recoverer(&state, &backend, &policy);
        Ok((Self { state, backend, policy, queue, recoverer, threads }, report))
    }
}

/// Adopts the results of a replay before the threads start.
fn adopt_replayed(state: &mut WalState, replayed: &mut ReplayedLog, saved_ms: Option<i64>) {
    state.config.logged.extend(std::mem::take(&mut replayed.more_tables));
    let last_ms = commit_time::first(state, replayed.last_commit_ms, saved_ms);
    state.last_commit_ms = AtomicI64::new(last_ms);
    let now_ms = (state.config.clock)().max(last_ms);
    let pool = Arc::clone(&state.buffer_pool);
    let active = Arc::new(Memtable::new(replayed.next_memtable_id, now_ms, pool));
    let immutable = replayed.jobs.iter().map(|job| Arc::clone(&job.memtable));
    state.memtables = MemtableList::new(immutable.chain([active]).collect());
}

/// Records in the store how much of the log it contains. The log does not keep the store alive.
fn mark_setter<B: FlushTarget>(backend: &Arc<B>, executor: Executor) -> SetMark {
    let backend = Arc::downgrade(backend);
    Box::new(move |mark| {
        let backend = backend.upgrade().ok_or(StorageError::Closed)?;
        executor.wait(backend.set_log_mark(mark))
    })
}

/// Checks the files of the store while it is open. The committer does not keep the store alive.
fn store_checker<B: FlushTarget>(backend: &Arc<B>) -> CheckStore {
    let backend = Arc::downgrade(backend);
    Box::new(move || backend.upgrade().map_or(Ok(()), |backend| backend.check_files()))
}

/// Attaches to the log a recoverer, which stores the logs of other owners.
fn attach_recoverer<B: FlushTarget>(
    state: &Arc<WalState>,
    backend: &Arc<B>,
    policy: &SharingPolicy,
) -> Arc<dyn LogRecoverer> {
    let logs = RecoveredLogs::new(Arc::clone(state), Arc::clone(backend), policy.clone());
    let recoverer: Arc<dyn LogRecoverer> = Arc::new(logs);
    state.log.attach(Arc::downgrade(&recoverer));
    recoverer
}

//! The layer as a store.

mod direct;
mod reads;
mod rewrite;
mod writes;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot, watch};
use tsd_model::Row;
use tsd_storage::{
    BoxFuture, CellBatch, Column, Delete, FlushRows, FlushTarget, Get, ReadVersion, RowRewrite,
    RowScanner, Scan, Storage, StorageError, Table,
};

use self::writes::{ROOM_UNIT, check_column, check_columns, check_row, columns_of, room_of};
use crate::{
    OpenError, ReplayReport, WalConfig,
    change::Change,
    commit_time,
    committer::{Committer, Message},
    executor::Executor,
    files::{DiskDir, LockError, LogDir},
    flusher::Flusher,
    log::{LogWriter, segment_of_name},
    memtable::{Generation, Memtable, SpareBlocks, TableId},
    metrics::Metrics,
    replay::{Replayed, log_report, replay},
    request::{NewValue, Order, Outcome},
    scanner::MergedScanner,
    shared::{Flushing, Shared, Tables},
    spread::SpreadFlusher,
};

/// By how much the clock may be behind the log without a warning.
const CLOCK_SLACK: Duration = Duration::from_secs(5);

/// A write-ahead log and a memtable of rows in front of a backend.
///
/// A write returns when the log has it on disk; it reaches the backend later, a whole row at a time.
/// Reads see both. Close it: what is held then goes to the backend, and the log is empty. A store
/// that is dropped or killed loses nothing either, but has a log to replay.
pub struct WalStorage<B> {
    shared: Arc<Shared>,
    backend: Arc<B>,
    queue: mpsc::Sender<Message>,
    /// Answered as each of the threads ends.
    ended: tokio::sync::Mutex<Vec<oneshot::Receiver<()>>>,
}

impl<B> std::fmt::Debug for WalStorage<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WalStorage")
            .field("directory", &self.shared.dir.path())
            .finish_non_exhaustive()
    }
}

impl<B: FlushTarget> WalStorage<B> {
    /// Opens a log over `backend` and replays it. The rows that were replayed are readable at once,
    /// and on their way to the backend.
    ///
    /// Called in a multi-threaded tokio runtime, the backend is driven there; else on a runtime of
    /// the layer's own threads.
    pub async fn open(
        config: WalConfig,
        backend: Arc<B>,
    ) -> Result<(Self, ReplayReport), OpenError> {
        let directory = config.directory.clone();
        let dir = in_thread("wal-lock", move || lock(&directory)).await??;
        Self::open_in(config, Arc::new(dir), backend).await
    }

    pub(crate) async fn open_in(
        config: WalConfig,
        dir: Arc<dyn LogDir>,
        backend: Arc<B>,
    ) -> Result<(Self, ReplayReport), OpenError> {
        let metrics = Arc::new(Metrics::new());
        let executor = Executor::here();
        let mut shared = Shared {
            queue_bytes: Arc::new(Semaphore::new(room_of(config.queue_bytes) as usize)),
            queue_entries: Arc::new(Semaphore::new(config.queue_entries.max(1))),
            spare: Arc::new(SpareBlocks::new(config.memtable_bytes)),
            config,
            dir,
            metrics,
            memtable: Memtable::new(Vec::new()),
            tables: Tables::default(),
            flushing: Flushing::default(),
            closed: AtomicBool::new(false),
            segments: AtomicU64::new(0),
            segment_bytes: AtomicU64::new(0),
            frozen_bytes: AtomicU64::new(0),
            last_commit: AtomicI64::new(i64::MIN),
            away: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            refused_rows: AtomicU64::new(0),
            flush_failed: watch::Sender::new(None),
        };
        let below = Arc::clone(&backend);
        let replaying = in_thread("wal-replay", move || {
            let mut replayed = replay(&shared, &*below, &executor)?;
            shared.config.held.extend(std::mem::take(&mut replayed.more_tables));
            let last_ms = last_commit_ms(&shared, &replayed)?;
            shared.last_commit = AtomicI64::new(last_ms);
            let now_ms = (shared.config.clock)().max(last_ms);
            let spare = Arc::clone(&shared.spare);
            let active = Arc::new(Generation::new(replayed.next_generation, now_ms, spare));
            let frozen = replayed.frozen.iter().map(|frozen| Arc::clone(&frozen.generation));
            shared.memtable = Memtable::new(frozen.chain([active]).collect());
            Ok((shared, replayed))
        });
        let (shared, replayed) = replaying.await??;
        log_report(shared.dir.path(), &replayed.report);
        Self::start(Arc::new(shared), backend, replayed)
    }

    fn start(
        shared: Arc<Shared>,
        backend: Arc<B>,
        replayed: Replayed,
    ) -> Result<(Self, ReplayReport), OpenError> {
        let Replayed { frozen, position, next_generation, report, .. } = replayed;
        for frozen in frozen {
            shared.segments.fetch_add(frozen.segments.len() as u64, Ordering::Relaxed);
            shared.frozen_bytes.fetch_add(frozen.bytes, Ordering::Relaxed);
            shared.flushing.push(frozen);
        }
        let (queue, messages) = mpsc::channel();
        let log = LogWriter::new(
            Arc::clone(&shared.dir),
            Arc::clone(&shared.metrics),
            shared.config.clock,
            shared.config.segment_bytes,
            position,
        );
        let committer = Committer::new(Arc::clone(&shared), messages, log, next_generation + 1);
        let committer = spawn("wal-committer", || committer.run())?;
        let executor = Executor::here();
        let (for_flusher, below) = (Arc::clone(&shared), Arc::clone(&backend));
        let flusher = if shared.config.shared_backend {
            let flusher = SpreadFlusher::new(for_flusher, below, executor);
            spawn("wal-flusher", || flusher.run())?
        } else {
            let flusher = Flusher { shared: for_flusher, backend: below, executor };
            spawn("wal-flusher", || flusher.run())?
        };
        let ended = vec![committer, flusher];
        Ok((Self { shared, backend, queue, ended: tokio::sync::Mutex::new(ended) }, report))
    }

    /// Stops without a flush: what is held stays in the log, to be replayed when it is opened again.
    /// For when the backend is away and the process must end.
    pub async fn stop(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.queue_bytes.close();
        self.shared.queue_entries.close();
        self.shared.flushing.stop();
        let _ = self.queue.send(Message::Stop);
        let mut ended = self.ended.lock().await;
        // Each is taken off only when it has ended, for this may be dropped while it waits.
        while let Some(thread) = ended.last_mut() {
            let _ = thread.await;
            ended.pop();
        }
        self.shared.dir.release();
    }

    /// Where calls on a table go: to the backend (`None`), or through the log.
    async fn place(&self, table: &Table) -> Result<Option<TableId>, StorageError> {
        self.shared.check_open()?;
        if !self.shared.config.held.contains(table) {
            return Ok(None);
        }
        if let Some(id) = self.shared.tables.id(table) {
            return Ok(Some(id));
        }
        // A shared backend may be away; whether the table is there shows when its rows leave.
        if self.shared.config.shared_backend || self.backend.table_exists(table).await? {
            Ok(Some(self.shared.tables.add(table)))
        } else {
            Err(StorageError::NoSuchTable(table.clone()))
        }
    }

    /// Hands all that is held to the backend. Fails with the first flush that fails from now on;
    /// the flusher itself tries on.
    async fn drain(&self) -> Result<(), StorageError> {
        let mut failed = self.shared.flush_failed.subscribe();
        let (waiter, done) = oneshot::channel();
        self.queue.send(Message::Flush(waiter)).map_err(|_| StorageError::Closed)?;
        let failure = async {
            loop {
                failed.changed().await.map_err(|_| StorageError::Closed)?;
                if let Some(error) = failed.borrow_and_update().clone() {
                    return Err::<(), _>(error);
                }
            }
        };
        tokio::select! {
            done = done => done.map_err(|_| StorageError::Closed),
            failure = failure => failure,
        }
    }
}

/// The last commit time that is known. It matters to a backend that keeps versions by time.
fn last_commit_ms(shared: &Shared, replayed: &Replayed) -> Result<i64, OpenError> {
    if !shared.config.shared_backend {
        return Ok(replayed.last_commit_ms);
    }
    let dir = &*shared.dir;
    let noted = commit_time::load(dir)
        .map_err(|source| OpenError::Io { directory: dir.path().to_path_buf(), source })?;
    // One more, in case it was a delete.
    let last_ms = replayed.last_commit_ms.max(noted.unwrap_or(i64::MIN)).saturating_add(1);
    let ahead = Duration::from_millis(
        u64::try_from(last_ms.saturating_sub((shared.config.clock)())).unwrap_or(0),
    );
    if ahead > CLOCK_SLACK {
        tracing::warn!(
            ?ahead,
            "the clock was set back; commit times stand still until it is there"
        );
    }
    Ok(last_ms)
}

/// Whether a directory holds a log with anything in it. One that is not there holds none.
pub fn holds_log(directory: &Path) -> std::io::Result<bool> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        if entry?.file_name().to_str().and_then(segment_of_name).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn lock(directory: &Path) -> Result<DiskDir, OpenError> {
    DiskDir::lock(directory).map_err(|error| {
        let directory = directory.to_path_buf();
        match error {
            LockError::Taken(pid) => OpenError::InUse { directory, pid },
            LockError::Io(source) => OpenError::Io { directory, source },
        }
    })
}

/// Starts a thread of ours; the answer comes as it ends.
fn spawn(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<oneshot::Receiver<()>, OpenError> {
    let (end, ended) = oneshot::channel();
    let work = move || {
        // Dropped as the thread ends, however it ends.
        let _end = end;
        work();
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|_| OpenError::Thread(name))?;
    Ok(ended)
}

/// Runs blocking work beside the caller's runtime.
async fn in_thread<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OpenError> {
    let (answer, answered) = oneshot::channel();
    let work = move || {
        let _ = answer.send(work());
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|_| OpenError::Thread(name))?;
    answered.await.map_err(|_| OpenError::Thread(name))
}

impl<B> Drop for WalStorage<B> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.flushing.stop();
        let _ = self.queue.send(Message::Stop);
    }
}

impl<B: FlushTarget> Storage for WalStorage<B> {
    fn get<'a>(
        &'a self,
        table: &'a Table,
        get: Get,
    ) -> BoxFuture<'a, Result<Option<Row>, StorageError>> {
        Box::pin(async move {
            let Some(id) = self.place(table).await? else {
                return self.backend.get(table, get).await;
            };
            let rows = self.read(table, id, &[get]).await?;
            Ok(rows.into_iter().next().flatten())
        })
    }

    fn multi_get<'a>(
        &'a self,
        table: &'a Table,
        gets: Vec<Get>,
    ) -> BoxFuture<'a, Result<Vec<Option<Row>>, StorageError>> {
        Box::pin(async move {
            match self.place(table).await? {
                Some(id) => self.read(table, id, &gets).await,
                None => self.backend.multi_get(table, gets).await,
            }
        })
    }

    fn scan(&self, table: &Table, scan: Scan) -> Box<dyn RowScanner> {
        // The generations first: what leaves them after this is in the backend's answer as well.
        let view = self.shared.memtable.view();
        match self.shared.tables.id(table) {
            Some(id) if self.shared.config.held.contains(table) => {
                // Rows may fall away or come in, so the backend cannot know where the limit is.
                let below = self.backend.scan(table, Scan { limit: None, ..scan.clone() });
                Box::new(MergedScanner::new(Arc::clone(&self.shared), id, scan, &view, below))
            }
            // Not held, or nothing was ever held of it.
            _ => self.backend.scan(table, scan),
        }
    }

    fn put<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            match self.place(table).await? {
                None => self.backend.put(table, batch).await,
                Some(_) if batch.cell_count() == 0 => Ok(()),
                Some(id) => self.change(table, id, Change::Put(batch)).await,
            }
        })
    }

    fn append<'a>(
        &'a self,
        table: &'a Table,
        batch: CellBatch,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let Some(id) = self.place(table).await? else {
                return self.backend.append(table, batch).await;
            };
            if batch.cell_count() == 0 {
                return Ok(());
            }
            if self.shared.config.shared_backend {
                return self.append_shared(table, id, batch).await;
            }
            let columns = columns_of(&batch);
            let order = |base| Order::Append { batch: batch.clone(), base };
            self.conditional(table, id, &columns, order).await.map(|_| ())
        })
    }

    fn increment<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        amount: i64,
    ) -> BoxFuture<'a, Result<i64, StorageError>> {
        Box::pin(async move {
            let Some(id) = self.place(table).await? else {
                return self.backend.increment(table, column, amount).await;
            };
            check_column(&column)?;
            if self.shared.config.shared_backend {
                return self.increment_shared(table, id, column, amount).await;
            }
            let order = |base| Order::Increment { column: column.clone(), amount, base };
            match self.conditional(table, id, std::slice::from_ref(&column), order).await? {
                Outcome::Sum(sum) => Ok(sum),
                other => Err(StorageError::Backend(format!("{other:?} for a sum").into())),
            }
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let Some(id) = self.place(table).await? else {
                return self.backend.compare_and_set(table, column, expected, value).await;
            };
            let new = Some(NewValue { value, timestamp_ms: None });
            self.compare_and(table, id, column, expected, new).await
        })
    }

    fn compare_and_set_at<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
        timestamp_ms: i64,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let Some(id) = self.place(table).await? else {
                let backend = &self.backend;
                return backend
                    .compare_and_set_at(table, column, expected, value, timestamp_ms)
                    .await;
            };
            let new = Some(NewValue { value, timestamp_ms: Some(timestamp_ms) });
            self.compare_and(table, id, column, expected, new).await
        })
    }

    fn compare_and_delete<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Bytes,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let Some(id) = self.place(table).await? else {
                return self.backend.compare_and_delete(table, column, expected).await;
            };
            self.compare_and(table, id, column, Some(expected), None).await
        })
    }

    fn delete<'a>(
        &'a self,
        table: &'a Table,
        delete: Delete,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let Some(id) = self.place(table).await? else {
                return self.backend.delete(table, delete).await;
            };
            let change = match delete {
                Delete::Row(row) => {
                    check_row(&row)?;
                    Change::DeleteRow(row)
                }
                Delete::Columns { columns, .. } if columns.is_empty() => return Ok(()),
                Delete::Columns { row, columns } => {
                    check_row(&row)?;
                    check_columns(&columns)?;
                    Change::DeleteColumns { row, columns }
                }
            };
            self.change(table, id, change).await
        })
    }

    fn rewrite_row<'a>(
        &'a self,
        table: &'a Table,
        rewrite: RowRewrite,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let Some(id) = self.place(table).await? else {
                return self.backend.rewrite_row(table, rewrite).await;
            };
            if self.shared.config.shared_backend {
                return self.rewrite_shared(table, id, rewrite).await;
            }
            self.rewrite_held(table, id, rewrite).await
        })
    }

    fn read_version(&self) -> ReadVersion {
        ReadVersion(Some(self.shared.memtable.view().retired))
    }

    fn table_exists<'a>(&'a self, table: &'a Table) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            self.shared.check_open()?;
            self.backend.table_exists(table).await
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move {
            self.shared.check_open()?;
            self.drain().await?;
            self.backend.flush().await
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move {
            if self.shared.closed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
            self.shared.queue_bytes.close();
            self.shared.queue_entries.close();
            let drained = self.drain().await;
            self.stop().await;
            let closed = self.backend.close().await;
            drained.and(closed)
        })
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let shared = &self.shared;
        let view = shared.memtable.view();
        let waiting =
            shared.config.queue_entries.saturating_sub(shared.queue_entries.available_permits());
        let room = room_of(shared.config.queue_bytes) as usize;
        let waiting_units = room.saturating_sub(shared.queue_bytes.available_permits());
        let mut gauges = vec![
            ("tsd_wal_memtable_bytes", view.bytes() as f64),
            ("tsd_wal_memtable_limit_bytes", shared.config.memtable_bytes as f64),
            ("tsd_wal_memtable_spare_bytes", shared.spare.bytes() as f64),
            ("tsd_wal_memtable_rows", view.rows() as f64),
            ("tsd_wal_generations", view.generations.len() as f64),
            ("tsd_wal_queue_entries", waiting as f64),
            ("tsd_wal_queue_bytes", (waiting_units * ROOM_UNIT) as f64),
            ("tsd_wal_frozen_segments", shared.segments.load(Ordering::Relaxed) as f64),
            ("tsd_wal_open_segment_bytes", shared.segment_bytes.load(Ordering::Relaxed) as f64),
            ("tsd_wal_log_bytes", shared.log_bytes() as f64),
            ("tsd_wal_oldest_seconds", shared.oldest_seconds()),
        ];
        if let Some(most) = shared.config.max_log_bytes {
            gauges.push(("tsd_wal_log_limit_bytes", most as f64));
        }
        if shared.config.shared_backend {
            let refused = shared.refused_rows.load(Ordering::Relaxed);
            gauges.push(("tsd_wal_backend_away", f64::from(u8::from(shared.is_backend_away()))));
            gauges.push(("tsd_wal_refused_rows", refused as f64));
        }
        gauges.extend(self.backend.gauges());
        gauges
    }
}

/// Rows can be handed to the layer whole, as to any backend: they go through the log as puts.
impl<B: FlushTarget> FlushTarget for WalStorage<B> {
    fn flush_rows<'a>(
        &'a self,
        table: &'a Table,
        rows: Box<dyn FlushRows>,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(tsd_storage::flush_by_put(self, table, rows))
    }
}

//! Starts and stops the engine: its thread, the actors, and the query runtime.
//!
//! actix needs a system of its own. It runs on a dedicated thread, independent of the front end's runtime. Actors run
//! on a few further threads. Write actor `i` and compaction actor `i` share a thread, so their notifications stay on
//! it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize},
        mpsc,
    },
    thread,
    time::Instant,
};

use actix::ArbiterHandle;
use tsd_meta::{Annotations, MetaObjects, Trees};
use tsd_model::{FlushPace, NameRule, PerKind};
use tsd_storage::{BudgetAccess, Storage, StorageError, Table};

use crate::{
    actor::{self, ActorRef, ActorThreads},
    compaction::{
        CompactionMessage, CompactionPace, CompactionStats, CompactorSettings, QueueTotals,
        RowCompactor, RowRules,
    },
    config::{EngineConfig, MetaTracking, Rollups},
    engine_shared::{EngineShared, StopSignal},
    handle::EngineHandle,
    ingest::{IngestShared, NameRules, WriteTargets},
    meta_tracking::{MetaTracker, TrackerMessage, TrackerSettings},
    metrics::{WriteMetrics, describe_metrics},
    query::{
        DayCache, FilterCache, PointsPerRow, QueryEngine, QueryRunner, Scheduler, SharedExecutions,
    },
    series_cache::SeriesCache,
    snapshot::SnapshotSlot,
    tree_processor::{TreeMetrics, TreeProcessor, TreeQueue},
    uid::{
        AssignerSettings, AssignerStats, FilterError, LossCheck, NameFilter, Resolver, SeriesLimit,
        UidAdmin, UidAssigner, UidCaches, UidTable,
    },
    verification::VerificationSlot,
    write_filter::WriteFilterSlot,
    write_hold::WriteHold,
    writer::{DirectWrites, WriteShard, Writer, WriterSettings},
};

/// Default maximum of write actors. Further salt buckets share them.
const MAX_WRITE_ACTORS: usize = 64;
/// Default maximum of actor threads.
const MAX_ACTOR_THREADS: usize = 8;
/// Mailbox capacity of the UID actor: one message per chunk and kind.
const UID_MAILBOX: usize = 65_536;
/// Niceness of query threads, relative to the process.
const QUERY_NICE: i32 = 5;
/// Mailbox capacity of the meta tracker: one message per chunk.
const META_MAILBOX: usize = 4_096;
/// Mailbox capacity of the tree processor: one message per step of the meta tracker.
const TREE_MAILBOX: usize = 1_024;
/// Mailbox capacity of a compaction actor: one message per write batch.
const COMPACTION_MAILBOX: usize = 4_096;

/// The actors over one storage.
#[derive(Debug)]
pub struct Engine;

/// Cause why an engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A table does not exist.
    #[error("table {0} does not exist")]
    NoTable(Table),
    /// The storage failed.
    #[error("the storage cannot be reached")]
    Storage(#[from] StorageError),
    /// A white list contains an invalid pattern.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A thread could not be started.
    #[error("cannot start a thread of the engine")]
    Thread(#[source] std::io::Error),
    /// The engine's thread panicked during start-up.
    #[error("the engine's thread panicked during start-up")]
    Panicked,
}

impl Engine {
    /// Checks that the tables exist and starts the actors. Blocks until the storage responds.
    ///
    /// The engine runs until [`EngineHandle::shutdown`] or until the last handle is dropped.
    pub fn start(
        mut config: EngineConfig,
        storage: Arc<dyn Storage>,
    ) -> Result<EngineHandle, StartError> {
        // Only the row compactor can repair append columns.
        if storage.maintenance().compacts_rows(&config.tables.data) && !config.rows.repair_appends {
            config.compaction.enabled = false;
        }
        // Only reads of rows find rows that the row compactor must compact or repair.
        config.query.series_reads &= !(config.compaction.enabled && config.compaction.on_read);
        let filter = Arc::new(NameFilter::new(config.uids.filter.as_ref())?);
        let (started, outcome) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("tsd-engine".to_owned())
            .spawn(move || run(config, storage, filter, &started))
            .map_err(StartError::Thread)?;
        outcome.recv().unwrap_or(Err(StartError::Panicked))
    }
}

/// The engine's thread.
fn run(
    config: EngineConfig,
    storage: Arc<dyn Storage>,
    filter: Arc<NameFilter>,
    started: &mpsc::SyncSender<Result<EngineHandle, StartError>>,
) {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let query_threads = if config.query.threads == 0 { cores } else { config.query.threads };
    // Read the niceness on this thread, because a thread that a query thread starts inherits the query thread's
    // niceness. The process may have a niceness of its own.
    let nice = rustix::process::getpriority_process(None).unwrap_or(0) + QUERY_NICE;
    let query_runtime = tokio::runtime::Builder::new_multi_thread()
        // One per concurrent time slice, plus one for short steps between slices.
        .worker_threads(Scheduler::max_slices(query_threads) + 1)
        .thread_name("tsd-query")
        .on_thread_start(move || lower_priority(nice))
        .enable_time()
        .enable_io()
        .build();
    let query_runtime = match query_runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // A failed send means that the caller no longer waits.
            let _ = started.send(Err(StartError::Thread(error)));
            return;
        }
    };
    let runtime = query_runtime.handle().clone();
    actix::System::new().block_on(async move {
        if config.check_tables
            && let Err(error) = check_tables(&config, &*storage).await
        {
            // A failed send means that the caller no longer waits.
            let _ = started.send(Err(error));
            return;
        }
        let actor_threads = match config.actor_threads {
            0 => cores.min(MAX_ACTOR_THREADS),
            n => n,
        };
        let threads = ActorThreads::start(actor_threads);
        // A thread of its own, so that query actors reply at once whatever the other actors do.
        let coordinators = ActorThreads::start(1);
        let query_pool =
            QueryPool { runtime, threads: query_threads, coordinators: coordinators.get(0) };
        let (stop, mut stopped) = tokio::sync::mpsc::channel(1);
        let is_available = config.check_tables;
        let handle = build(config, storage, filter, &threads, &query_pool, StopSignal(stop));
        let finishing = finish_name_changes(handle.clone());
        if is_available {
            finishing.await;
        } else {
            actix::spawn(finishing);
        }
        let _ = started.send(Ok(handle));
        // Returns on shutdown or when the last handle is dropped.
        stopped.recv().await;
        coordinators.stop();
        threads.stop();
    });
    // Does not wait for scans, which may never complete.
    query_runtime.shutdown_background();
}

/// Finishes renames and deletes of names that a crash interrupted.
async fn finish_name_changes(handle: EngineHandle) {
    if let Err(error) = handle.finish_name_changes().await {
        tracing::warn!(
            %error,
            "interrupted changes of names are not finished; the next start, or change of a name, tries again"
        );
    }
}

/// Lowers the priority of a query thread, so that queries do not delay writes. If both are CPU-bound on one core, the
/// query thread gets about a quarter of it.
fn lower_priority(nice: i32) {
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::warn!(%error, "query threads keep the default priority");
    }
}

/// Threads that queries run on.
struct QueryPool {
    runtime: tokio::runtime::Handle,
    threads: usize,
    /// Thread of the query actors.
    coordinators: ArbiterHandle,
}

async fn check_tables(config: &EngineConfig, storage: &dyn Storage) -> Result<(), StartError> {
    let rollups = config.rollups.as_ref().map(Rollups::tables).unwrap_or_default();
    let meta = (config.meta_tracking != MetaTracking::Off).then_some(&config.tables.meta);
    let tree = config.tree_processing.then_some(&config.tables.tree);
    let needed = [&config.tables.data, &config.tables.uid].into_iter().chain(meta).chain(tree);
    for table in needed.chain(&rollups) {
        if !storage.table_exists(table).await? {
            return Err(StartError::NoTable(table.clone()));
        }
    }
    Ok(())
}

/// Starts actors of one configuration over one storage.
struct Builder<'a> {
    config: &'a EngineConfig,
    storage: &'a Arc<dyn Storage>,
    threads: &'a ActorThreads,
}

fn build(
    config: EngineConfig,
    storage: Arc<dyn Storage>,
    filter: Arc<NameFilter>,
    threads: &ActorThreads,
    query_pool: &QueryPool,
    stop: StopSignal,
) -> EngineHandle {
    describe_metrics();
    let builder = Builder { config: &config, storage: &storage, threads };
    let shards = builder.shard_count();
    let uid_stats = Arc::new(AssignerStats::default());
    let uids = builder.uids(filter, &uid_stats, shards);
    let compaction_stats = Arc::new(CompactionStats::default());
    let queue_totals = Arc::new(QueueTotals::default());
    let rounds: Vec<Arc<AtomicU32>> = (0..shards).map(|_| Arc::default()).collect();
    let compactors = builder.compactors(&rounds, &queue_totals, &compaction_stats);
    let targets = WriteTargets::new(
        &config.tables.data,
        config.ingest.enable_appends,
        config.rollups.as_ref(),
    );
    let hold = Arc::new(WriteHold::default());
    let shards = builder.shards(shards, &targets, &hold, &compactors, &compaction_stats);
    let annotations = Annotations {
        storage: Arc::clone(&storage),
        table: config.tables.data.clone(),
        schema: config.schema,
        use_otsdb_timestamp: config.rows.use_otsdb_timestamp,
        retention: config.retention.clone(),
        observer: Arc::new(config.plugins.clone()),
    };
    let meta = MetaObjects {
        names: Arc::new(uids.clone()),
        storage: Arc::clone(&storage),
        uid_table: config.tables.uid.clone(),
        table: config.tables.meta.clone(),
        schema: config.schema,
    };
    let trees = Trees::new(meta.clone(), config.tables.tree.clone());
    let tree_queue = builder.tree_queue(&trees);
    let queries = builder.queries(query_pool, &uids, &compactors, &compaction_stats, &annotations);
    let tracker = builder.tracker(tree_queue.clone());
    let ingest = Arc::new(builder.ingest(&uids, targets, (shards, hold, rounds), tracker));
    EngineHandle::new(EngineShared {
        config,
        storage,
        ingest,
        uids,
        annotations,
        meta,
        trees,
        tree_queue,
        uid_stats,
        shared_executions: queries.engine.config.share_executions.then(SharedExecutions::new),
        queries,
        compactors,
        compaction_stats,
        queue_totals,
        stop,
        verification: VerificationSlot::default(),
        snapshot: SnapshotSlot::default(),
    })
}

impl Builder<'_> {
    /// The state that sessions share: the write shards, with their hold and compaction rounds, and everything else.
    fn ingest(
        &self,
        uids: &UidAdmin,
        targets: WriteTargets,
        (shards, hold, rounds): (Vec<WriteShard>, Arc<WriteHold>, Vec<Arc<AtomicU32>>),
        tracker: Option<ActorRef<TrackerMessage>>,
    ) -> IngestShared {
        let config = self.config;
        IngestShared {
            schema: config.schema,
            names: uids.rules.clone(),
            max_tags: config.ingest.max_tags,
            retention: config.retention.clone(),
            write_filter: WriteFilterSlot::default(),
            plugins: config.plugins.clone(),
            appends: config.ingest.enable_appends,
            use_otsdb_timestamp: config.rows.use_otsdb_timestamp,
            // Append columns are never compacted.
            compaction: config.compaction.enabled && !config.ingest.enable_appends,
            queue_deadline: config.ingest.queue_deadline,
            chunks_in_flight: config.ingest.session_chunks_in_flight,
            clock: Arc::clone(&config.clock),
            series: SeriesCache::new(config.ingest.series_cache_entries),
            resolver: uids.resolver.clone(),
            targets,
            admission: BudgetAccess::new(config.ingest.budget.clone()),
            shards,
            hold,
            rounds,
            tracker,
            tracking_dropped: metrics::counter!("tsd_meta_tracking_dropped_total"),
            closed: AtomicBool::new(false),
            next_shard: AtomicUsize::new(0),
            received: AtomicU64::new(0),
            received_total: metrics::counter!("tsd_ingest_points_received_total"),
            cache_misses: metrics::counter!("tsd_series_cache_misses_total"),
        }
    }

    /// Number of write actors and of compaction actors.
    fn shard_count(&self) -> usize {
        match self.config.ingest.write_actors {
            0 => (self.config.schema.salt_buckets() as usize).min(MAX_WRITE_ACTORS),
            n => n,
        }
    }

    fn uids(&self, filter: Arc<NameFilter>, stats: &Arc<AssignerStats>, shards: usize) -> UidAdmin {
        let config = &self.config.uids;
        let table = UidTable {
            storage: Arc::clone(self.storage),
            table: self.config.tables.uid.clone(),
            schema: self.config.schema,
        };
        let caches = Arc::new(UidCaches::new(config.max_cached_names));
        let rollups = self.config.rollups.iter().flat_map(Rollups::tables);
        let mut series_tables = vec![self.config.tables.data.clone()];
        series_tables.extend(rollups.filter(|table| *table != self.config.tables.data));
        let settings = AssignerSettings {
            table: table.clone(),
            caches: Arc::clone(&caches),
            random_metrics: config.random_metrics,
            realtime_meta: config.realtime_meta.then(|| Arc::clone(&self.config.clock)),
            max_pending: config.max_pending,
            max_batch: config.max_batch,
            max_per_second: config.max_new_per_second,
            stats: Arc::clone(stats),
            loss_check: Arc::new(LossCheck::new(series_tables)),
            peers: self.config.name_peers.clone(),
        };
        let assigner = actor::spawn(&self.threads.get(0), "uid", UID_MAILBOX, move || {
            UidAssigner::new(settings.clone())
        });
        let auto_create = PerKind {
            metric: config.auto_create_metrics,
            tagk: config.auto_create_tagks,
            tagv: config.auto_create_tagvs,
        };
        let stats = Arc::clone(stats);
        let schema = self.config.schema;
        let limit = (config.max_series_per_metric > 0).then(|| SeriesLimit {
            storage: Arc::clone(self.storage),
            table: self.config.tables.data.clone(),
            most: config.max_series_per_metric,
            refused: metrics::counter!("tsd_limits_refused_series_points_total"),
        });
        let creations_forbidden = metrics::counter!("tsd_uid_creations_forbidden_total");
        let resolver = Resolver {
            schema,
            caches,
            assigner,
            filter,
            stats,
            auto_create,
            shards,
            limit,
            creations_forbidden,
        };
        let rules = NameRules {
            rule: NameRule::with_special_characters(&config.allow_specialchars),
            fold_unmappable_letters: config.fold_unmappable_letters,
        };
        let peers = self.config.name_peers.clone();
        UidAdmin { table, resolver, rules, changing: Arc::default(), peers }
    }

    /// The actor that places new series in trees, if that is enabled.
    fn tree_queue(&self, trees: &Trees) -> Option<TreeQueue> {
        self.config.tree_processing.then(|| {
            let metrics = TreeMetrics::new();
            let (trees, of_actor) = (trees.clone(), metrics.clone());
            let processor = actor::spawn(&self.threads.get(2), "trees", TREE_MAILBOX, move || {
                TreeProcessor::new(trees.clone(), of_actor.clone())
            });
            TreeQueue::new(processor, metrics)
        })
    }

    /// The actor that writes series meta data, if tracking is enabled.
    fn tracker(&self, trees: Option<TreeQueue>) -> Option<ActorRef<TrackerMessage>> {
        let settings = TrackerSettings {
            storage: Arc::clone(self.storage),
            table: self.config.tables.meta.clone(),
            tracking: self.config.meta_tracking,
            clock: Arc::clone(&self.config.clock),
            dropped: metrics::counter!("tsd_meta_tracking_dropped_total"),
            trees,
        };
        (settings.tracking != MetaTracking::Off).then(|| {
            actor::spawn(&self.threads.get(1), "meta", META_MAILBOX, move || {
                MetaTracker::new(settings.clone())
            })
        })
    }

    /// One compaction actor per shard; empty if compaction is disabled.
    fn compactors(
        &self,
        rounds: &[Arc<AtomicU32>],
        totals: &Arc<QueueTotals>,
        stats: &Arc<CompactionStats>,
    ) -> Vec<ActorRef<CompactionMessage>> {
        let config = &self.config.compaction;
        if !config.enabled {
            return Vec::new();
        }
        let interval_secs = u32::try_from(config.flush_interval.as_secs()).unwrap_or(u32::MAX);
        let allowance = FlushPace {
            interval_secs: interval_secs.max(1),
            min_rows: config.min_flush_threshold as u64,
            speed: config.flush_speed,
        };
        let start = |(i, round): (usize, &Arc<AtomicU32>)| {
            let settings = CompactorSettings {
                storage: Arc::clone(self.storage),
                table: self.config.tables.data.clone(),
                rules: RowRules {
                    schema: self.config.schema,
                    merge: self.config.rows.merge_rule(),
                    repair_appends: self.config.rows.repair_appends,
                },
                pace: CompactionPace { allowance },
                interval: config.flush_interval,
                max_in_flight: config.max_concurrent_flushes.div_ceil(rounds.len().max(1)),
                max_queue_bytes: config.max_queue_bytes,
                clock: Arc::clone(&self.config.clock),
                totals: Arc::clone(totals),
                stats: Arc::clone(stats),
                round: Arc::clone(round),
            };
            let thread = self.threads.get(i);
            actor::spawn(&thread, "row_compaction", COMPACTION_MAILBOX, move || {
                RowCompactor::new(settings.clone())
            })
        };
        rounds.iter().enumerate().map(start).collect()
    }

    fn shards(
        &self,
        count: usize,
        targets: &WriteTargets,
        hold: &Arc<WriteHold>,
        compactors: &[ActorRef<CompactionMessage>],
        compaction_stats: &Arc<CompactionStats>,
    ) -> Vec<WriteShard> {
        let config = &self.config.ingest;
        let metrics = WriteMetrics::new();
        let compactors: Arc<[_]> = compactors.into();
        let ticks_since = Instant::now();
        let start = |i| {
            let settings = Arc::new(WriterSettings {
                ticks_since,
                storage: Arc::clone(self.storage),
                targets: Arc::clone(&targets.list),
                max_write_bytes: config.max_write_bytes,
                compactors: Arc::clone(&compactors),
                compaction_stats: Arc::clone(compaction_stats),
                hold: Arc::clone(hold),
                metrics: metrics.clone(),
            });
            let direct = DirectWrites::new(Arc::clone(&settings));
            // The mailbox has space for every request that the budget admits, for the requests of a chunk larger than
            // the budget, and for drains.
            let mailbox = config.budget.max_requests() + targets.list.len() + 64;
            let writer = actor::spawn(&self.threads.get(i), "write", mailbox, move || {
                Writer::new(Arc::clone(&settings))
            });
            WriteShard { writer, direct }
        };
        (0..count).map(start).collect()
    }

    fn queries(
        &self,
        pool: &QueryPool,
        uids: &UidAdmin,
        compactors: &[ActorRef<CompactionMessage>],
        compaction_stats: &Arc<CompactionStats>,
        annotations: &Annotations,
    ) -> QueryRunner {
        let config = self.config;
        let query_engine = Arc::new(QueryEngine {
            storage: Arc::clone(self.storage),
            data_table: config.tables.data.clone(),
            schema: config.schema,
            config: config.query.clone(),
            rows: config.rows.clone(),
            merge: config.rows.merge_rule(),
            rollups: config.rollups.clone(),
            histograms: config.histograms.clone(),
            annotations: annotations.clone(),
            uids: uids.clone(),
            filters: FilterCache::default(),
            points_per_row: PointsPerRow::default(),
            days: DayCache::new(config.query.cache_bytes),
            clock: Arc::clone(&config.clock),
            memory: config.memory.clone(),
            compactors: if config.compaction.on_read { compactors.to_vec() } else { Vec::new() },
            compaction_stats: Arc::clone(compaction_stats),
            runtime: pool.runtime.clone(),
            threads: pool.threads,
        });
        QueryRunner::new(query_engine, pool.coordinators.clone())
    }
}

//! Starts and stops the engine: its thread, the actors, and the query runtime.
//!
//! Actors need a system of their own. It runs on a dedicated thread, independent of the front end's runtime. Actors run
//! on a few further threads. Write actor `i` and compaction actor `i` share a thread, so their notifications stay on
//! it. Each part of the engine starts itself, from an [`EngineStart`] and the parts that it needs.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use tsd_read::{FragmentedRows, QueryPool, ReadShared, Reads, Rollups};
use tsd_runtime::{ActorThread, ActorThreads, run_actors};
use tsd_storage::{Storage, StorageError, Table};

use crate::{
    compaction::RowCompactors,
    config::{EngineConfig, MetaTracking},
    engine_shared::{EngineShared, StopSignal, WholeStoreWork},
    engine_start::EngineStart,
    handle::EngineHandle,
    ingest::IngestShared,
    metrics::describe_metrics,
    series_objects::SeriesObjects,
    series_tracking::SeriesTracking,
    uid::{EngineNames, FilterError, NameFilter},
};

/// Default maximum of actor threads.
const MAX_ACTOR_THREADS: usize = 8;

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
    let query_pool = match QueryPool::start(config.query.threads) {
        Ok(pool) => pool,
        Err(error) => {
            // A failed send means that the caller no longer waits.
            let _ = started.send(Err(StartError::Thread(error)));
            return;
        }
    };
    let queries = &query_pool;
    run_actors(async move {
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
        let engine_threads =
            EngineThreads { actors: &threads, queries, coordinators: coordinators.get(0) };
        let (stop, mut stopped) = tokio::sync::mpsc::channel(1);
        let is_available = config.check_tables;
        let handle = build(config, storage, filter, &engine_threads, StopSignal(stop));
        let finishing = finish_name_changes(handle.clone());
        if is_available {
            finishing.await;
        } else {
            tokio::task::spawn_local(finishing);
        }
        let _ = started.send(Ok(handle));
        // Returns on shutdown or when the last handle is dropped.
        stopped.recv().await;
        coordinators.stop();
        threads.stop();
    });
    query_pool.shutdown();
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

/// The threads of an engine.
struct EngineThreads<'a> {
    actors: &'a ActorThreads,
    queries: &'a QueryPool,
    /// The thread of the query actors.
    coordinators: ActorThread,
}

impl EngineThreads<'_> {
    /// The threads of the actors, with the names of their kinds.
    fn named(&self) -> Vec<(&'static str, ActorThread)> {
        let actors = self.actors.all().map(|thread| ("actors", thread));
        actors.chain([("query actors", self.coordinators.clone())]).collect()
    }
}

/// Starts the parts of an engine, each with those that it needs.
fn build(
    config: EngineConfig,
    storage: Arc<dyn Storage>,
    filter: Arc<NameFilter>,
    threads: &EngineThreads<'_>,
    stop: StopSignal,
) -> EngineHandle {
    describe_metrics();
    let start = EngineStart { config: &config, storage: &storage, threads: threads.actors };
    let names = EngineNames::start(start, filter);
    let objects = SeriesObjects::new(start, &names);
    let compactors = RowCompactors::start(start);
    let tracking = SeriesTracking::start(start, &objects.trees);
    let ingest = Arc::new(IngestShared::start(start, &names, &compactors, &tracking));
    let fragmented = compactors.fragmented_rows(&config);
    let reads = start_reads(start, threads, fragmented, (&names, &objects));
    EngineHandle::new(EngineShared {
        config,
        storage,
        names,
        objects,
        compactors,
        tracking,
        ingest,
        reads,
        whole_store: WholeStoreWork::default(),
        stop,
        threads: threads.named(),
    })
}

fn start_reads(
    start: EngineStart<'_>,
    threads: &EngineThreads<'_>,
    fragmented: Option<Arc<dyn FragmentedRows>>,
    (names, objects): (&EngineNames, &SeriesObjects),
) -> Reads {
    let EngineStart { config, storage, .. } = start;
    let shared = ReadShared {
        storage: Arc::clone(storage),
        tables: config.tables.clone(),
        schema: config.schema,
        names: Arc::new(names.uids.clone()),
        config: config.query.clone(),
        rows: config.rows.clone(),
        rollups: config.rollups.clone(),
        histograms: config.histograms.clone(),
        annotations: objects.annotations.clone(),
        meta: objects.meta.clone(),
        meta_table_writer: config.meta_table_writer(),
        clock: Arc::clone(&config.clock),
        memory: config.memory.clone(),
        fragmented,
    };
    Reads::new(shared, threads.queries, threads.coordinators.clone())
}

//! Starts the write path: the write actors, and the state that sessions share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    time::Instant,
};

use tsd_storage::BudgetAccess;

use super::{extra_cell::WriteTargets, shared::IngestShared};
use crate::{
    compaction::RowCompactors,
    engine_start::EngineStart,
    metrics::WriteMetrics,
    series_cache::SeriesCache,
    series_tracking::SeriesTracking,
    uid::EngineNames,
    write_filter::WriteFilterSlot,
    write_hold::WriteHold,
    writer::{DirectWrites, WriteShard, Writer, WriterSettings},
};

impl IngestShared {
    /// Starts the write actors.
    pub(crate) fn start(
        start: EngineStart<'_>,
        names: &EngineNames,
        compactors: &RowCompactors,
        tracking: &SeriesTracking,
    ) -> Self {
        let config = start.config;
        let ingest = &config.ingest;
        let targets =
            WriteTargets::new(&config.tables.data, ingest.enable_appends, config.rollups.as_ref());
        let hold = Arc::new(WriteHold::default());
        Self {
            schema: config.schema,
            names: names.uids.rules.clone(),
            max_tags: ingest.max_tags,
            retention: config.retention.clone(),
            write_filter: WriteFilterSlot::default(),
            plugins: config.plugins.clone(),
            appends: ingest.enable_appends,
            use_otsdb_timestamp: config.rows.use_otsdb_timestamp,
            // Append columns are never compacted.
            compaction: config.compaction.enabled && !ingest.enable_appends,
            queue_deadline: ingest.queue_deadline,
            chunks_in_flight: ingest.session_chunks_in_flight,
            clock: Arc::clone(&config.clock),
            series: SeriesCache::new(ingest.series_cache_entries),
            resolver: names.uids.resolver.clone(),
            admission: BudgetAccess::new(ingest.budget.clone()),
            shards: start_shards(start, &targets, &hold, compactors),
            targets,
            hold,
            rounds: compactors.rounds.clone(),
            tracker: tracking.tracker.clone(),
            tracking_dropped: metrics::counter!("tsd_meta_tracking_dropped_total"),
            closed: AtomicBool::new(false),
            next_shard: AtomicUsize::new(0),
            received: AtomicU64::new(0),
            received_total: metrics::counter!("tsd_ingest_points_received_total"),
            cache_misses: metrics::counter!("tsd_series_cache_misses_total"),
        }
    }
}

/// Starts one write actor per shard.
fn start_shards(
    start: EngineStart<'_>,
    targets: &WriteTargets,
    hold: &Arc<WriteHold>,
    compactors: &RowCompactors,
) -> Vec<WriteShard> {
    let EngineStart { config, storage, threads } = start;
    let metrics = WriteMetrics::new();
    let actors: Arc<[_]> = compactors.actors.as_slice().into();
    let ticks_since = Instant::now();
    // The mailbox has space for every request that the budget admits, for the requests of a chunk larger than the
    // budget, and for drains.
    let mailbox = config.ingest.budget.max_requests() + targets.list.len() + 64;
    let start_shard = |shard| {
        let settings = Arc::new(WriterSettings {
            ticks_since,
            storage: Arc::clone(storage),
            targets: Arc::clone(&targets.list),
            max_write_bytes: config.ingest.max_write_bytes,
            compactors: Arc::clone(&actors),
            compaction_stats: Arc::clone(&compactors.stats),
            hold: Arc::clone(hold),
            metrics: metrics.clone(),
        });
        let direct = DirectWrites::new(Arc::clone(&settings));
        let make = move || Writer::new(Arc::clone(&settings));
        WriteShard { writer: threads.get(shard).spawn("write", mailbox, make), direct }
    };
    (0..start.shard_count()).map(start_shard).collect()
}

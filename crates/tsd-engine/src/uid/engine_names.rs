//! Starts what an engine knows of names: caches, the actor that assigns UIDs, and its limits.

use std::sync::Arc;

use tsd_model::{NameRule, PerKind};
use tsd_read::Rollups;
use tsd_runtime::ActorRef;

use super::{
    AssignerSettings, AssignerStats, KnownSeries, LossCheck, NameFilter, Resolver, SeriesLimit,
    UidAdmin, UidAssigner, UidCaches, UidMessage, UidTable,
};
use crate::{config::UidConfig, engine_start::EngineStart, ingest::NameRules};

/// Mailbox capacity of the UID actor: one message per chunk and kind.
const UID_MAILBOX: usize = 65_536;

/// Names and their UIDs.
#[derive(Debug)]
pub(crate) struct EngineNames {
    pub(crate) uids: UidAdmin,
    pub(crate) stats: Arc<AssignerStats>,
}

impl EngineNames {
    /// Starts the UID actor. `filter` decides which new names get a UID.
    pub(crate) fn start(start: EngineStart<'_>, filter: Arc<NameFilter>) -> Self {
        let config = start.config;
        let stats = Arc::<AssignerStats>::default();
        let caches = Arc::new(UidCaches::new(config.uids.max_cached_names));
        let table = UidTable {
            storage: Arc::clone(start.storage),
            table: config.tables.uid.clone(),
            schema: config.schema,
        };
        let resolver = Resolver {
            schema: config.schema,
            assigner: spawn_assigner(start, &table, &caches, &stats),
            caches,
            filter,
            stats: Arc::clone(&stats),
            auto_create: auto_create(&config.uids),
            shards: start.shard_count(),
            limit: series_limit(start),
            known: known_series(start),
            creations_forbidden: metrics::counter!("tsd_uid_creations_forbidden_total"),
        };
        let rules = NameRules {
            rule: NameRule::with_special_characters(&config.uids.allow_specialchars),
            fold_unmappable_letters: config.uids.fold_unmappable_letters,
        };
        let peers = config.name_peers.clone();
        let uids = UidAdmin { table, resolver, rules, changing: Arc::default(), peers };
        Self { uids, stats }
    }
}

fn spawn_assigner(
    start: EngineStart<'_>,
    table: &UidTable,
    caches: &Arc<UidCaches>,
    stats: &Arc<AssignerStats>,
) -> ActorRef<UidMessage> {
    let EngineStart { config, threads, .. } = start;
    let rollups = config.rollups.iter().flat_map(Rollups::tables);
    let mut series_tables = vec![config.tables.data.clone()];
    series_tables.extend(rollups.filter(|table| *table != config.tables.data));
    let settings = AssignerSettings {
        table: table.clone(),
        caches: Arc::clone(caches),
        random_metrics: config.uids.random_metrics,
        realtime_meta: config.uids.realtime_meta.then(|| Arc::clone(&config.clock)),
        max_pending: config.uids.max_pending,
        max_batch: config.uids.max_batch,
        max_per_second: config.uids.max_new_per_second,
        stats: Arc::clone(stats),
        loss_check: Arc::new(LossCheck::new(series_tables)),
        peers: config.name_peers.clone(),
    };
    threads.get(0).spawn("uid", UID_MAILBOX, move || UidAssigner::new(settings.clone()))
}

const fn auto_create(config: &UidConfig) -> PerKind<bool> {
    PerKind {
        metric: config.auto_create_metrics,
        tagk: config.auto_create_tagks,
        tagv: config.auto_create_tagvs,
    }
}

fn known_series(start: EngineStart<'_>) -> KnownSeries {
    let EngineStart { config, storage, .. } = start;
    KnownSeries { storage: Arc::clone(storage), table: config.tables.data.clone() }
}

/// The limit on the series of a metric, if there is one.
fn series_limit(start: EngineStart<'_>) -> Option<SeriesLimit> {
    let config = start.config;
    (config.uids.max_series_per_metric > 0).then(|| SeriesLimit {
        known: known_series(start),
        most: config.uids.max_series_per_metric,
        refused: metrics::counter!("tsd_limits_refused_series_points_total"),
    })
}

//! Statistics of the engine: OpenTSDB's `stats` lines, and gauges for `/metrics`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tsd_model::{Uid, UidKind};
use tsd_runtime::{ActorRef, MemoryConsumer, ProcessMemory};

use crate::{
    client_stats::{RegionClientStats, Stat},
    engine_shared::EngineShared,
};

fn stat(
    name: &'static str,
    value: u64,
    tags: impl Into<Vec<(&'static str, &'static str)>>,
) -> Stat {
    Stat { name, value: i64::try_from(value).unwrap_or(i64::MAX), tags: tags.into() }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn load_size(counter: &AtomicUsize) -> u64 {
    counter.load(Ordering::Relaxed) as u64
}

/// Lines of `stats`, in OpenTSDB's order, in which the lines of the process come between the two lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Names and their UIDs.
    pub names: Vec<Stat>,
    /// Points, storage and compactions.
    pub points: Vec<Stat>,
}

/// Collects all lines. Omits values that must be read from the storage if the read fails.
pub(crate) async fn collect(shared: &EngineShared) -> EngineStats {
    EngineStats { names: name_stats(shared).await, points: point_stats(shared) }
}

async fn name_stats(shared: &EngineShared) -> Vec<Stat> {
    let mut stats = Vec::new();
    for kind in UidKind::ALL {
        let tags = [("kind", kind.as_str())];
        let (hits, misses, size) = shared.names.uids.resolver.caches.counts(kind);
        stats.push(stat("uid.cache-hit", hits, tags));
        stats.push(stat("uid.cache-miss", misses, tags));
        stats.push(stat("uid.cache-size", size as u64, tags));
        let random = shared.config.uids.random_metrics && kind == UidKind::Metric;
        let collisions = if random { load(&shared.names.stats.random_collisions) } else { 0 };
        stats.push(stat("uid.random-collisions", collisions, tags));
        let rejected = load(&shared.names.stats.filtered[kind]);
        stats.push(stat("uid.rejected-assignments", rejected, tags));
        if random {
            stats.push(stat("uid.ids-used", 0, tags));
            stats.push(stat("uid.ids-available", 0, tags));
        } else if let Ok(used) = shared.names.uids.table.used(kind).await {
            shared.names.stats.saw(kind, used);
            let used = u64::try_from(used).unwrap_or(0);
            let all = Uid::max_number(kind.width(&shared.config.schema));
            stats.push(stat("uid.ids-used", used, tags));
            stats.push(stat("uid.ids-available", all.saturating_sub(used), tags));
        }
    }
    let [raw, aggregate] = shared.ingest.write_filter.refused();
    stats.push(stat("uid.filter.rejected", raw, [("kind", "raw")]));
    stats.push(stat("uid.filter.rejected", aggregate, [("kind", "aggregate")]));
    stats
}

fn point_stats(shared: &EngineShared) -> Vec<Stat> {
    let client = shared.config.client_stats.as_ref();
    let client_lines = client.map_or_else(no_client_lines, |client| (client.lines)());
    // OpenTSDB lists the latency of puts, then the points, then the other lines of its client.
    let is_of_puts = |stat: &Stat| stat.tags.contains(&("method", "put"));
    let (mut stats, client_lines): (Vec<_>, Vec<_>) =
        client_lines.into_iter().partition(is_of_puts);
    let of_puts = [("method", "put"), ("class", "IncomingDataPoints")];
    let uncreated = load(&shared.names.stats.uncreated_metrics);
    stats.push(stat("uid.autometric.rejections", uncreated, of_puts));
    let added = load(&shared.ingest.received);
    stats.push(stat("datapoints.added", added, [("type", "all"), ("class", "TSDB")]));
    stats.extend(client_lines);
    let compaction = &shared.compactors.stats;
    stats.push(stat("compaction.count", load(&compaction.rows), []));
    let duplicates = "compaction.duplicates";
    stats.push(stat(duplicates, load(&compaction.identical), [("type", "identical")]));
    stats.push(stat(duplicates, load(&compaction.variant), [("type", "variant")]));
    stats.push(stat("compaction.queue.size", load_size(&shared.compactors.totals.rows), []));
    let errors = "compaction.errors";
    stats.push(stat(errors, load(&compaction.read_errors), [("rpc", "read")]));
    stats.push(stat(errors, load(&compaction.write_errors), [("rpc", "put")]));
    // Put and delete are one storage call.
    stats.push(stat(errors, 0, [("rpc", "delete")]));
    stats.push(stat("compaction.writes", load(&compaction.writes), []));
    stats.push(stat("compaction.deletes", load(&compaction.deletes), []));
    stats.extend(plugin_stats(shared));
    stats
}

/// The statistics of the active plug-ins, in OpenTSDB's order, with its own lines for the white list.
fn plugin_stats(shared: &EngineShared) -> Vec<Stat> {
    let mut stats = Vec::new();
    for queue in shared.config.plugins.queues() {
        let tags = [("plugin", queue.plugin())];
        stats.push(stat("plugin.delivered", queue.delivered(), tags));
        stats.push(stat("plugin.dropped", queue.dropped(), tags));
        stats.push(stat("plugin.failures", queue.failures(), tags));
        stats.push(stat("plugin.queued_bytes", queue.queued_bytes() as u64, tags));
    }
    if shared.config.uids.filter.is_some() {
        let counts = &shared.names.stats;
        for (name, by_kind) in [
            ("uid.filter.whitelist.accepted", &counts.allowed),
            ("uid.filter.whitelist.rejected", &counts.filtered),
        ] {
            for (kind, count) in by_kind.iter() {
                let tags = [("type", kind.as_str()), ("plugin", "uidFilter")];
                stats.push(stat(name, load(count), tags));
            }
        }
    }
    stats
}

/// The lines of a storage client that makes no calls, so that dashboards find the names with every store.
fn no_client_lines() -> Vec<Stat> {
    let mut lines = Vec::new();
    for tags in [
        [("method", "put"), ("class", "IncomingDataPoints")],
        [("method", "scan"), ("class", "TsdbQuery")],
    ] {
        for name in [
            "hbase.latency_50pct",
            "hbase.latency_75pct",
            "hbase.latency_90pct",
            "hbase.latency_95pct",
        ] {
            lines.push(stat(name, 0, tags));
        }
    }
    let tagged = |name, kinds: &[&'static str]| {
        kinds.iter().map(|kind| stat(name, 0, [("type", *kind)])).collect::<Vec<_>>()
    };
    lines.push(stat("hbase.root_lookups", 0, []));
    lines.extend(tagged("hbase.meta_lookups", &["uncontended", "contended"]));
    let calls = ["increment", "delete", "get", "put", "append", "rowLock", "openScanner", "scan"];
    lines.extend(tagged("hbase.rpcs", &calls));
    for name in [
        "hbase.rpcs.batched",
        "hbase.flushes",
        "hbase.connections.created",
        "hbase.connections.idle_closed",
        "hbase.nsre",
        "hbase.nsre.rpcs_delayed",
        "hbase.region_clients.open",
        "hbase.region_clients.idle_closed",
    ] {
        lines.push(stat(name, 0, []));
    }
    lines
}

/// The servers of the storage; empty if it has no client.
pub(crate) fn region_clients(shared: &EngineShared) -> Vec<RegionClientStats> {
    shared.config.client_stats.as_ref().map_or_else(Vec::new, |client| (client.servers)())
}

/// Sets the gauges, and the counters that other modules keep. Called before a scrape.
pub(crate) fn set_gauges(shared: &EngineShared) {
    let set = |name: &'static str, value: u64| metrics::gauge!(name).set(value as f64);
    let ingest = &shared.ingest;
    set("tsd_series_cache_entries", ingest.series.len() as u64);
    let budget = ingest.admission.budget();
    set("tsd_write_queued_bytes", budget.acquired_bytes() as u64);
    set("tsd_write_held_points", ingest.hold.held_points());
    let totals = &shared.compactors.totals;
    set("tsd_compaction_queue_rows", load_size(&totals.rows));
    set("tsd_compaction_queue_bytes", load_size(&totals.bytes));
    let absolute = |name: &'static str, value: u64| metrics::counter!(name).absolute(value);
    absolute("tsd_write_queue_waits_total", budget.waits());
    absolute("tsd_compaction_queue_rejected_rows_total", load_size(&totals.rejected));
    let compaction = &shared.compactors.stats;
    for (name, counter) in [
        ("tsd_compaction_rows_total", &compaction.rows),
        ("tsd_compaction_writes_total", &compaction.writes),
        ("tsd_compaction_read_errors_total", &compaction.read_errors),
        ("tsd_compaction_write_errors_total", &compaction.write_errors),
        ("tsd_compaction_invalid_rows_total", &compaction.invalid),
        ("tsd_compaction_notifications_dropped_total", &compaction.notifications_dropped),
        ("tsd_uid_delayed_total", &shared.names.stats.delayed),
        ("tsd_uid_rejected_total", &shared.names.stats.rejected),
    ] {
        absolute(name, load(counter));
    }
    for space in crate::health::uid_space(shared) {
        let kind = space.kind.as_str();
        metrics::gauge!("tsd_uid_used", "kind" => kind).set(space.used as f64);
        metrics::gauge!("tsd_uid_left", "kind" => kind).set(space.left as f64);
    }
    for (kind, filtered) in shared.names.stats.filtered.iter() {
        metrics::counter!("tsd_uid_filtered_total", "kind" => kind.as_str())
            .absolute(load(filtered));
    }
    for (kind, allowed) in shared.names.stats.allowed.iter() {
        metrics::counter!("tsd_uid_allowed_total", "kind" => kind.as_str()).absolute(load(allowed));
    }
    set_plugin_gauges(shared);
    set("tsd_uid_pending_names", load_size(&shared.names.stats.pending));
    for (kind, assigned) in shared.names.stats.assigned.iter() {
        let (hits, misses, _) = shared.names.uids.resolver.caches.counts(kind);
        let kind = kind.as_str();
        for (name, value) in [
            ("tsd_uid_cache_hits_total", hits),
            ("tsd_uid_cache_misses_total", misses),
            ("tsd_uid_assigned_total", load(assigned)),
        ] {
            metrics::counter!(name, "kind" => kind).absolute(value);
        }
    }
    set_actor_gauges("write", ingest.shards.iter().map(|shard| &shard.writer));
    set_actor_gauges("row_compaction", &shared.compactors.actors);
    set_actor_gauges("uid", [&shared.names.uids.resolver.assigner]);
    shared.reads.set_gauges();
    set_memory_gauges(&shared.config.memory);
    for (name, value) in shared.storage.maintenance().gauges() {
        if name.ends_with("_total") {
            metrics::counter!(name).absolute(value as u64);
        } else {
            metrics::gauge!(name).set(value);
        }
    }
}

fn set_plugin_gauges(shared: &EngineShared) {
    for queue in shared.config.plugins.queues() {
        let plugin = queue.plugin();
        let queued = queue.queued_bytes() as f64;
        metrics::gauge!("tsd_plugin_queued_bytes", "plugin" => plugin).set(queued);
        for (name, value) in [
            ("tsd_plugin_delivered_total", queue.delivered()),
            ("tsd_plugin_dropped_total", queue.dropped()),
            ("tsd_plugin_failures_total", queue.failures()),
            ("tsd_plugin_waits_total", queue.waits()),
        ] {
            metrics::counter!(name, "plugin" => plugin).absolute(value);
        }
    }
}

/// Sets the memory gauges. An unlimited budget has no gauges.
fn set_memory_gauges(memory: &ProcessMemory) {
    if memory.is_unlimited() {
        return;
    }
    metrics::gauge!("tsd_memory_limit_bytes").set(memory.limit() as f64);
    let reserved =
        MemoryConsumer::ALL.map(|consumer| (consumer.as_str(), memory.reserved(consumer)));
    for (consumer, bytes) in memory.fixed().iter().copied().chain(reserved) {
        metrics::gauge!("tsd_memory_reserved_bytes", "part" => consumer).set(bytes as f64);
    }
    for consumer in MemoryConsumer::ALL {
        let (waits, refusals) = memory.waits_and_refusals(consumer);
        let consumer = consumer.as_str();
        metrics::counter!("tsd_memory_waits_total", "part" => consumer).absolute(waits);
        metrics::counter!("tsd_memory_refusals_total", "part" => consumer).absolute(refusals);
    }
}

fn set_actor_gauges<'a, M: Send + 'static>(
    name: &'static str,
    actors: impl IntoIterator<Item = &'a ActorRef<M>>,
) {
    let (mut queued, mut restarts, mut rejected) = (0, 0, 0);
    for actor in actors {
        queued += actor.mailbox_len();
        restarts += actor.restarts();
        rejected += actor.rejected();
    }
    metrics::gauge!("tsd_actor_mailbox_messages", "actor" => name).set(queued as f64);
    metrics::counter!("tsd_actor_restarts_total", "actor" => name).absolute(restarts);
    metrics::counter!("tsd_actor_mailbox_rejected_total", "actor" => name).absolute(rejected);
}

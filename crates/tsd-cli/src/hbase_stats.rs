//! The HBase client's counters as the `tsd.hbase.*` lines of OpenTSDB's `stats`.
//!
//! OpenTSDB's names count events of its own client; each name gets the closest counter of this client.

use hbase_rs::{
    Client,
    stats::{MethodStats, RetryReason},
};
use tsd_engine::{ClientStats, RegionClientStats, Stat};

/// The `tsd.hbase.*` lines of `stats`, and the region servers.
pub(crate) fn stats_of(client: Client) -> ClientStats {
    let of_servers = client.clone();
    ClientStats::new(move || lines(&client.stats()), move || servers(&of_servers.stats()))
}

fn servers(stats: &hbase_rs::stats::ClientStats) -> Vec<RegionClientStats> {
    let servers = stats.servers.iter().map(|of| RegionClientStats {
        endpoint: format!("{}:{}", of.server.host(), of.server.port()),
        connections: of.traffic.connections,
        calls: of.traffic.calls,
        calls_in_flight: of.traffic.calls_in_flight,
        admission_waits: of.traffic.admission_waits,
        failed: of.failed,
        latency_p50: of.latency.quantile(0.5),
        latency_p99: of.latency.quantile(0.99),
    });
    servers.collect()
}

fn lines(stats: &hbase_rs::stats::ClientStats) -> Vec<Stat> {
    let mut lines = Vec::new();
    let mut push = |name, value: u64, tags: &[(&'static str, &'static str)]| {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        lines.push(Stat { name, value, tags: tags.to_vec() });
    };
    let method = |name: &str| stats.methods.iter().find(|of| of.method == name);
    let responses = |name| method(name).map_or(0, |of: &MethodStats| of.latency.count);
    for (tags, of) in [
        ([("method", "put"), ("class", "IncomingDataPoints")], method("Multi")),
        ([("method", "scan"), ("class", "TsdbQuery")], method("Scan")),
    ] {
        for (name, share) in [
            ("hbase.latency_50pct", 0.50),
            ("hbase.latency_75pct", 0.75),
            ("hbase.latency_90pct", 0.90),
            ("hbase.latency_95pct", 0.95),
        ] {
            let millis = of.map_or(0, |of| of.latency.quantile(share).as_millis());
            push(name, u64::try_from(millis).unwrap_or(u64::MAX), &tags);
        }
    }
    // Retries of the discovery through ZooKeeper.
    push("hbase.root_lookups", retries(stats, |reason| reason == RetryReason::Discovery), &[]);
    push("hbase.meta_lookups", stats.lookups, &[("type", "uncontended")]);
    push("hbase.meta_lookups", stats.lookups_shared, &[("type", "contended")]);
    for (kind, value) in [
        // Increments, deletes, puts and appends of one row are all Mutate calls, and count as puts.
        ("increment", 0),
        ("delete", 0),
        ("get", responses("Get")),
        ("put", responses("Mutate") + stats.batch_actions),
        ("append", 0),
        ("rowLock", 0),
        ("openScanner", stats.scanners_opened),
        ("scan", responses("Scan")),
    ] {
        push("hbase.rpcs", value, &[("type", kind)]);
    }
    push("hbase.rpcs.batched", stats.batch_actions, &[]);
    push("hbase.flushes", stats.batches, &[]);
    push("hbase.connections.created", stats.total.connections_opened, &[]);
    push("hbase.connections.idle_closed", stats.total.connections_closed, &[]);
    push("hbase.nsre", retries(stats, is_region_failure), &[]);
    push("hbase.nsre.rpcs_delayed", stats.buffers.unavailable_bytes, &[]);
    push("hbase.region_clients.open", stats.servers.len() as u64, &[]);
    push("hbase.region_clients.idle_closed", stats.total.connections_closed, &[]);
    lines
}

fn retries(stats: &hbase_rs::stats::ClientStats, which: impl Fn(RetryReason) -> bool) -> u64 {
    stats.retries.iter().filter(|(reason, _)| which(*reason)).map(|(_, count)| count).sum()
}

/// True if the attempt found its region moved, closed or unlocated.
fn is_region_failure(reason: RetryReason) -> bool {
    match reason {
        RetryReason::Exception(class) => format!("{class:?}").contains("Region"),
        RetryReason::Unlocated => true,
        _ => false,
    }
}

//! What the client of HBase counts, as OpenTSDB's `stats` and as metrics.
//!
//! OpenTSDB's client counts by its own parts; the names are kept and filled with what comes closest.

use std::time::Duration;

use hbase_rs::{Client, Latency, MethodStats, RetryReason};
use metrics::{counter, gauge};
use tsd_engine::{ClientStats, Stat};

/// Time between two looks at the client's numbers.
const PERIOD: Duration = Duration::from_secs(5);

/// The `tsd.hbase.*` lines of `stats`.
pub(crate) fn stats_of(client: Client) -> ClientStats {
    ClientStats::new(move || lines(&client.stats()))
}

fn lines(stats: &hbase_rs::ClientStats) -> Vec<Stat> {
    let mut lines = Vec::new();
    let mut push = |name, value: u64, tags: &[(&'static str, &'static str)]| {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        lines.push(Stat { name, value, tags: tags.to_vec() });
    };
    let method = |name: &str| stats.methods.iter().find(|of| of.method == name);
    let answered = |name| method(name).map_or(0, |of: &MethodStats| of.latency.count);
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
    // What ZooKeeper is asked for.
    push("hbase.root_lookups", retries(stats, |why| why == RetryReason::Discovery), &[]);
    push("hbase.meta_lookups", stats.lookups, &[("type", "uncontended")]);
    push("hbase.meta_lookups", stats.lookups_shared, &[("type", "contended")]);
    for (kind, value) in [
        // Increments, deletes, puts and appends of one row are calls of one kind here.
        ("increment", 0),
        ("delete", 0),
        ("get", answered("Get")),
        ("put", answered("Mutate") + stats.batch_actions),
        ("append", 0),
        ("rowLock", 0),
        ("openScanner", stats.scanners_opened),
        ("scan", answered("Scan")),
    ] {
        push("hbase.rpcs", value, &[("type", kind)]);
    }
    push("hbase.rpcs.batched", stats.batch_actions, &[]);
    push("hbase.flushes", stats.batches, &[]);
    push("hbase.connections.created", stats.total.connections_opened, &[]);
    push("hbase.connections.idle_closed", stats.total.connections_closed, &[]);
    push("hbase.nsre", retries(stats, is_about_regions), &[]);
    push("hbase.nsre.rpcs_delayed", stats.buffers.parked_bytes, &[]);
    push("hbase.region_clients.open", stats.servers.len() as u64, &[]);
    push("hbase.region_clients.idle_closed", stats.total.connections_closed, &[]);
    lines
}

fn retries(stats: &hbase_rs::ClientStats, which: impl Fn(RetryReason) -> bool) -> u64 {
    stats.retries.iter().filter(|(why, _)| which(*why)).map(|(_, count)| count).sum()
}

/// Whether an attempt met a region that was not where it was thought to be, or not open.
fn is_about_regions(why: RetryReason) -> bool {
    match why {
        RetryReason::Exception(class) => format!("{class:?}").contains("Region"),
        RetryReason::Unlocated => true,
        _ => false,
    }
}

/// Keeps the metrics up to date that carry labels; those without are gauges of the store.
pub(crate) async fn publish(client: Client) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        set_metrics(&client.stats());
    }
}

fn set_metrics(stats: &hbase_rs::ClientStats) {
    for of in &stats.methods {
        let method = of.method;
        counter!("tsd_hbase_rpcs_total", "method" => method).absolute(of.latency.count);
        counter!("tsd_hbase_rpcs_failed_total", "method" => method).absolute(of.failed);
        for (quantile, share) in [("0.5", 0.5), ("0.95", 0.95), ("0.99", 0.99)] {
            gauge!("tsd_hbase_rpc_seconds", "method" => method, "quantile" => quantile)
                .set(of.latency.quantile(share).as_secs_f64());
        }
        counter!("tsd_hbase_rpc_milliseconds_total", "method" => method)
            .absolute(u64::try_from(sum(&of.latency).as_millis()).unwrap_or(u64::MAX));
    }
    for (why, count) in &stats.retries {
        counter!("tsd_hbase_retries_by_reason_total", "reason" => reason(*why)).absolute(*count);
    }
    for of in &stats.servers {
        let server = format!("{}:{}", of.server.host(), of.server.port());
        gauge!("tsd_hbase_server_calls_in_flight", "server" => server.clone())
            .set(of.traffic.calls_in_flight as f64);
        gauge!("tsd_hbase_server_connections", "server" => server)
            .set(of.traffic.connections as f64);
    }
}

const fn sum(latency: &Latency) -> Duration {
    latency.sum
}

fn reason(why: RetryReason) -> String {
    match why {
        RetryReason::Exception(class) => format!("{class:?}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

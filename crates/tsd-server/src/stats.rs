//! The daemon's own metrics under OpenTSDB's names, for `stats`.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use tsd_engine::{EngineStats, ProcessMemory, Stat};

use crate::{
    process::{self, ThreadCounts},
    server_state::ServerState,
};

/// A snapshot of all statistics, with their common tags.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    now_secs: i64,
    common: Vec<(&'static str, String)>,
    entries: Vec<Stat>,
}

impl Stats {
    /// Collects the statistics of `/api/stats`.
    pub(crate) async fn collect(state: &ServerState) -> Self {
        Self::collect_with(state, Vec::new()).await
    }

    /// Collects the statistics of telnet and `/stats`, which also count the threads.
    pub(crate) async fn collect_with_threads(state: &ServerState) -> Self {
        Self::collect_with(state, thread_stats(&process::thread_counts())).await
    }

    async fn collect_with(state: &ServerState, threads: Vec<Stat>) -> Self {
        let mut stats = server_stats(state);
        stats.extend(threads);
        let EngineStats { names, points } = state.engine.stats().await;
        stats.extend(names);
        stats.extend(memory_stats(process::resident_bytes(), state.memory()));
        stats.extend(points);
        let config = &state.config;
        let host = if config.stats_canonical { "fqdn" } else { "host" };
        let mut common = vec![(host, config.host_name.clone())];
        if config.stats_with_port {
            common.push(("port", state.address.port().to_string()));
        }
        Self { now_secs: state.engine.config().clock.now_secs(), common, entries: stats }
    }

    /// Returns the tags of a statistic, its own tag first.
    fn tags<'s>(&'s self, stat: &'s Stat) -> impl Iterator<Item = (&'static str, &'s str)> {
        let common = self.common.iter().map(|(key, value)| (*key, value.as_str()));
        stat.tags.iter().copied().chain(common)
    }

    /// Renders one line per statistic.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.entries.iter().map(|stat| {
            let mut line = format!("tsd.{} {} {}", stat.name, self.now_secs, stat.value);
            for (key, value) in self.tags(stat) {
                let _ = write!(line, " {key}={value}");
            }
            line
        })
    }

    /// Renders all lines as one text.
    pub(crate) fn text(&self) -> String {
        self.lines().fold(String::new(), |mut text, line| {
            text.push_str(&line);
            text.push('\n');
            text
        })
    }

    /// Renders the array of `/api/stats`.
    pub(crate) fn json(&self) -> Value {
        self.entries
            .iter()
            .map(|stat| {
                let tags: Map<String, Value> = self
                    .tags(stat)
                    .map(|(key, value)| (key.to_owned(), Value::from(value)))
                    .collect();
                json!({
                    "metric": format!("tsd.{}", stat.name),
                    "timestamp": self.now_secs,
                    "value": stat.value.to_string(),
                    "tags": tags,
                })
            })
            .collect()
    }
}

fn plain(name: &'static str, value: u64) -> Stat {
    Stat { name, value: i64::try_from(value).unwrap_or(i64::MAX), tags: Vec::new() }
}

fn tagged(name: &'static str, key: &'static str, tag: &'static str, value: u64) -> Stat {
    Stat { tags: vec![(key, tag)], ..plain(name, value) }
}

/// Returns the statistics of this crate, in OpenTSDB's order.
fn server_stats(state: &ServerState) -> Vec<Stat> {
    let metrics = &state.metrics;
    let mut stats = Vec::new();
    let open = state.connections.len() as u64;
    for (kind, value) in [
        ("open", open),
        ("rejected", metrics.connections_rejected.get()),
        ("total", metrics.connections_total.get()),
    ] {
        stats.push(tagged("connectionmgr.connections", "type", kind, value));
    }
    for (kind, counter) in [
        ("closed", &metrics.exceptions_closed),
        ("reset", &metrics.exceptions_reset),
        ("timeout", &metrics.exceptions_timeout),
        ("unknown", &metrics.exceptions_unknown),
    ] {
        stats.push(tagged("connectionmgr.exceptions", "type", kind, counter.get()));
    }
    for (kind, value) in [
        ("telnet", metrics.received_telnet.get()),
        ("http", metrics.received_http.get()),
        ("http_plugin", 0),
    ] {
        stats.push(tagged("rpc.received", "type", kind, value));
    }
    stats.push(plain("rpc.exceptions", metrics.rpc_exceptions.get()));
    // Gnuplot draws no graph here.
    for (kind, latency) in [
        ("all", Some(&metrics.http_latency)),
        ("graph", Some(&metrics.graph_latency)),
        ("gnuplot", None),
    ] {
        for (name, percent) in [
            ("http.latency_50pct", 50),
            ("http.latency_75pct", 75),
            ("http.latency_90pct", 90),
            ("http.latency_95pct", 95),
        ] {
            let value = latency.map_or(0, |latency| latency.percentile(percent));
            stats.push(tagged(name, "type", kind, value));
        }
    }
    stats.push(tagged("http.graph.requests", "cache", "disk", 0));
    stats.push(tagged("http.graph.requests", "cache", "miss", metrics.graphs.get()));
    for (name, telnet, http) in [
        ("rpc.forbidden", metrics.forbidden_telnet.get(), metrics.forbidden_http.get()),
        ("rpc.unauthorized", metrics.unauthorized_telnet.get(), metrics.unauthorized_http.get()),
    ] {
        stats.push(tagged(name, "type", "telnet", telnet));
        stats.push(tagged(name, "type", "http", http));
    }
    stats.push(tagged("rpc.received", "type", "put", metrics.received_put.get()));
    for kind in tsd_protocol::PutErrorKind::ALL {
        let value = metrics.put_errors(kind).get();
        stats.push(tagged("rpc.errors", "type", kind.as_str(), value));
    }
    let blocked = metrics.socket_writes_blocked.get();
    stats.push(tagged("rpc.errors", "type", "socket_writes_blocked", blocked));
    stats.push(plain("http.query.unauthorized", metrics.query_unauthorized.get()));
    stats.push(plain("http.query.forbidden", metrics.query_forbidden.get()));
    stats.push(plain("http.query.invalid_requests", metrics.query_invalid.get()));
    stats.push(plain("http.query.exceptions", metrics.query_exceptions.get()));
    stats.push(plain("http.query.success", metrics.query_success.get()));
    stats
}

/// Counts threads by state, under Java's names and in OpenTSDB's order. Linux does not distinguish waits
/// with a timeout.
fn thread_stats(counts: &ThreadCounts) -> Vec<Stat> {
    let ThreadCounts { running, blocked, waiting, ended } = *counts;
    let states = [
        ("new", 0),
        ("runnable", running),
        ("blocked", blocked),
        ("waiting", waiting),
        ("terminated", ended),
        ("timed_waiting", 0),
    ];
    let mut stats: Vec<Stat> = states
        .into_iter()
        .map(|(state, count)| tagged("jvm.thread.states", "state", state, count))
        .collect();
    stats.push(plain("jvm.thread.count", running + blocked + waiting + ended));
    stats
}

/// Returns the memory of the process, and the rest of its limit.
fn memory_stats(resident: u64, memory: &ProcessMemory) -> [Stat; 2] {
    let limit = if memory.is_unlimited() { 0 } else { memory.limit() };
    [plain("jvm.ramfree", limit.saturating_sub(resident)), plain("jvm.ramused", resident)]
}

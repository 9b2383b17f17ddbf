//! The daemon's own metrics under OpenTSDB's names, for `stats`.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use tsd_engine::Stat;

use crate::server_state::ServerState;

/// A snapshot of all statistics, with their common tags.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    now_secs: i64,
    common: Vec<(&'static str, String)>,
    entries: Vec<Stat>,
}

impl Stats {
    /// Collects the statistics.
    pub(crate) async fn collect(state: &ServerState) -> Self {
        let mut stats = server_stats(state);
        stats.extend(state.engine.stats().await);
        let config = &state.config;
        let host = if config.stats_canonical { "fqdn" } else { "host" };
        let mut common = vec![(host, config.host_name.clone())];
        if config.stats_with_port {
            common.push(("port", state.address.port().to_string()));
        }
        Self { now_secs: state.engine.config().clock.now_secs(), common, entries: stats }
    }

    /// Tags of a statistic: its own first.
    fn tags<'s>(&'s self, stat: &'s Stat) -> impl Iterator<Item = (&'static str, &'s str)> {
        let common = self.common.iter().map(|(key, value)| (*key, value.as_str()));
        stat.tags.iter().copied().chain(common)
    }

    /// One line per statistic.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.entries.iter().map(|stat| {
            let mut line = format!("tsd.{} {} {}", stat.name, self.now_secs, stat.value);
            for (key, value) in self.tags(stat) {
                let _ = write!(line, " {key}={value}");
            }
            line
        })
    }

    /// All lines as one text.
    pub(crate) fn text(&self) -> String {
        self.lines().fold(String::new(), |mut text, line| {
            text.push_str(&line);
            text.push('\n');
            text
        })
    }

    /// The array of `/api/stats`.
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

/// Statistics of this crate, in OpenTSDB's order.
fn server_stats(state: &ServerState) -> Vec<Stat> {
    let metrics = &state.metrics;
    let mut stats = Vec::new();
    let open = state.open_connections.load(std::sync::atomic::Ordering::Relaxed) as u64;
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
    for (kind, latency) in [("all", &metrics.http_latency), ("graph", &metrics.graph_latency)] {
        for (name, percent) in [
            ("http.latency_50pct", 50),
            ("http.latency_75pct", 75),
            ("http.latency_90pct", 90),
            ("http.latency_95pct", 95),
        ] {
            stats.push(tagged(name, "type", kind, latency.percentile(percent)));
        }
    }
    stats.push(tagged("http.graph.requests", "cache", "miss", metrics.graphs.get()));
    for (name, telnet, http) in [
        ("rpc.forbidden", metrics.forbidden_telnet.get(), metrics.forbidden_http.get()),
        ("rpc.unauthorized", 0, 0),
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
    stats.push(plain("http.query.unauthorized", 0));
    stats.push(plain("http.query.forbidden", 0));
    stats.push(plain("http.query.invalid_requests", metrics.query_invalid.get()));
    stats.push(plain("http.query.exceptions", metrics.query_exceptions.get()));
    stats.push(plain("http.query.success", metrics.query_success.get()));
    stats
}

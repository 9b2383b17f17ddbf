//! The daemon's own metrics under OpenTSDB's names, as `stats` tells them.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::shared::Shared;

/// One number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Name without the leading `tsd.`.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: i64,
    /// Tags of its own.
    pub(crate) tags: Vec<(&'static str, String)>,
}

impl Stat {
    fn new(name: &'static str, value: u64) -> Self {
        Self { name, value: i64::try_from(value).unwrap_or(i64::MAX), tags: Vec::new() }
    }

    fn tagged(name: &'static str, key: &'static str, tag: &str, value: u64) -> Self {
        Self { tags: vec![(key, tag.to_owned())], ..Self::new(name, value) }
    }
}

/// All numbers, with the tags that every one of them carries.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    now_secs: i64,
    common: Vec<(&'static str, String)>,
    numbers: Vec<Stat>,
}

impl Stats {
    /// Collects them.
    pub(crate) async fn collect(shared: &Shared) -> Self {
        let numbers = listener(shared);
        let config = &shared.config;
        let host = if config.stats_canonical { "fqdn" } else { "host" };
        let mut common = vec![(host, config.host_name.clone())];
        if config.stats_with_port {
            common.push(("port", shared.address.port().to_string()));
        }
        Self { now_secs: shared.engine.config().clock.now_secs(), common, numbers }
    }

    /// A line each.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.numbers.iter().map(|stat| {
            let mut line = format!("tsd.{} {} {}", stat.name, self.now_secs, stat.value);
            for (key, value) in stat.tags.iter().chain(&self.common) {
                let _ = write!(line, " {key}={value}");
            }
            line
        })
    }

    /// The lines as one text.
    pub(crate) fn text(&self) -> String {
        self.lines().fold(String::new(), |mut text, line| {
            text.push_str(&line);
            text.push('\n');
            text
        })
    }

    /// The array of `/api/stats`.
    pub(crate) fn json(&self) -> Value {
        self.numbers
            .iter()
            .map(|stat| {
                let tags: Map<String, Value> = stat
                    .tags
                    .iter()
                    .chain(&self.common)
                    .map(|(key, value)| ((*key).to_owned(), Value::from(value.as_str())))
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

/// What this crate counts, in OpenTSDB's order.
fn listener(shared: &Shared) -> Vec<Stat> {
    let counters = &shared.counters;
    let mut stats = Vec::new();
    let open = shared.open_connections.load(std::sync::atomic::Ordering::Relaxed) as u64;
    for (kind, value) in [
        ("open", open),
        ("rejected", counters.connections_rejected.get()),
        ("total", counters.connections_total.get()),
    ] {
        stats.push(Stat::tagged("connectionmgr.connections", "type", kind, value));
    }
    for (kind, tally) in [
        ("closed", &counters.exceptions_closed),
        ("reset", &counters.exceptions_reset),
        ("timeout", &counters.exceptions_timeout),
        ("unknown", &counters.exceptions_unknown),
    ] {
        stats.push(Stat::tagged("connectionmgr.exceptions", "type", kind, tally.get()));
    }
    for (kind, value) in [
        ("telnet", counters.received_telnet.get()),
        ("http", counters.received_http.get()),
        ("http_plugin", 0),
    ] {
        stats.push(Stat::tagged("rpc.received", "type", kind, value));
    }
    stats.push(Stat::new("rpc.exceptions", counters.rpc_exceptions.get()));
    for (name, percent) in [
        ("http.latency_50pct", 50),
        ("http.latency_75pct", 75),
        ("http.latency_90pct", 90),
        ("http.latency_95pct", 95),
    ] {
        let value = counters.http_latency.percentile(percent);
        stats.push(Stat::tagged(name, "type", "all", value));
    }
    for name in ["rpc.forbidden", "rpc.unauthorized"] {
        for kind in ["telnet", "http"] {
            stats.push(Stat::tagged(name, "type", kind, 0));
        }
    }
    stats.push(Stat::tagged("rpc.received", "type", "put", counters.received_put.get()));
    for kind in tsd_protocol::PutErrorKind::ALL {
        let value = counters.put_errors(kind).get();
        stats.push(Stat::tagged("rpc.errors", "type", kind.as_str(), value));
    }
    let blocked = counters.socket_writes_blocked.get();
    stats.push(Stat::tagged("rpc.errors", "type", "socket_writes_blocked", blocked));
    stats.push(Stat::new("http.query.unauthorized", 0));
    stats.push(Stat::new("http.query.forbidden", 0));
    stats.push(Stat::new("http.query.invalid_requests", counters.query_invalid.get()));
    stats.push(Stat::new("http.query.exceptions", counters.query_exceptions.get()));
    stats.push(Stat::new("http.query.success", counters.query_success.get()));
    stats
}

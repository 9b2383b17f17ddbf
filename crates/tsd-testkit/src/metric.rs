//! Reads the metrics page and the statistics of a daemon.

use std::net::SocketAddr;

use serde_json::Value;

use crate::http::try_http;

/// Reads a metric from `/metrics` and sums its labels; `None` without such a metric or without a response.
#[must_use]
pub fn metric(address: SocketAddr, name: &str) -> Option<f64> {
    let page = try_http(address, "GET", "/metrics", None).ok()?.body;
    let samples = page.lines().filter_map(|line| line.rsplit_once(' '));
    let is_requested = |(sample, _): &(&str, &str)| {
        sample.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
    };
    let values = samples.filter(is_requested).filter_map(|(_, value)| value.parse::<f64>().ok());
    values.reduce(|sum, value| sum + value)
}

/// Number of used UIDs of a kind, from `/api/stats`; `None` without a response.
#[must_use]
pub fn used_uids(address: SocketAddr, kind: &str) -> Option<u64> {
    let page = try_http(address, "GET", "/api/stats", None).ok()?.body;
    let stats: Vec<Value> = serde_json::from_str(&page).ok()?;
    let is_used = |stat: &&Value| {
        stat.get("metric").is_some_and(|name| name == "tsd.uid.ids-used")
            && stat.pointer("/tags/kind").is_some_and(|of| of == kind)
    };
    stats.iter().find(is_used)?.get("value")?.as_str()?.parse().ok()
}

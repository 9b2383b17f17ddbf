//! The metrics page of a daemon.

use std::net::SocketAddr;

use crate::http::try_http;

/// The value of a metric, or the sum of all with this name and any labels; `None` if there is none, or no answer.
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

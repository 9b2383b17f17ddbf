//! Asks for the count and the sum of every metric.

use std::net::SocketAddr;

use serde_json::Value;

use crate::{
    load::{FIRST_SECOND, Load},
    socket,
};

/// Stops the bench where a point is missing or wrong.
pub(crate) fn verify(address: SocketAddr, load: &Load) {
    for total in &load.totals {
        let metric = &total.metric;
        let count = ask(address, load, &format!("sum:1h-count:{metric}"));
        assert!(count as u64 == total.count, "{metric}: {count} of {} points", total.count);
        let sum = ask(address, load, &format!("sum:1h-sum:{metric}"));
        let difference = (sum - total.sum).abs();
        assert!(difference <= total.sum.abs() * 1e-9, "{metric}: sum {sum}, not {}", total.sum);
    }
}

/// Sum over the answer's points.
fn ask(address: SocketAddr, load: &Load, query: &str) -> f64 {
    let end = load.end_second();
    let uri = format!("/api/query?start={FIRST_SECOND}&end={end}&m={query}");
    let answer = socket::http(address, "GET", &uri, None);
    assert_eq!(answer.status, 200, "{uri}: {}", answer.body);
    let series: Value = serde_json::from_str(&answer.body).expect("JSON");
    let points = series[0]["dps"].as_object().map(|dps| dps.values().filter_map(Value::as_f64));
    points.map_or(0.0, Iterator::sum)
}

//! Points of the test: a small installation of some hosts, and a metric of many points.

use std::{
    f64::consts::TAU,
    fmt::Write as _,
    io::Write as _,
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::json;
use tsd_testkit::{SplitMix64, close_and_drain, connect, http};

/// Series of the metric `many`, and points of each.
pub(crate) const MANY_SERIES: u64 = 50;
pub(crate) const MANY_POINTS: u64 = 10_000;

/// Host whose tag value would be markup.
pub(crate) const HOSTILE: &str = "<img/src=x/onerror=window.hostile=1>";

/// Metric that a spreadsheet would take for a formula.
pub(crate) const FORMULA: &str = "=cmd";

/// Metric that counts ten in ten seconds, and begins anew after a thousand.
pub(crate) const COUNTER: &str = "app.counter";

/// Metric of histograms.
pub(crate) const HISTOGRAM: &str = "app.latency";

/// Metric with a rollup of a thousand for eleven minutes, and points of one a minute.
pub(crate) const ROLLUP: &str = "app.rolled";

/// Interval of the rollups. It does not divide the intervals of other checks, so that those do not read rollups.
const ROLLUP_SECS: u64 = 660;

/// Settings for rollups and histograms, one line each.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("tsd.core.histograms.config", r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#),
    ("tsd.rollups.enable", "true"),
    (
        "tsd.rollups.config",
        r#"{"aggregationIds":{"sum":0,"count":1,"min":2,"max":3},"intervals":[{"table":"tsdb","preAggregationTable":"tsdb-agg","interval":"1m","rowSpan":"1h","defaultInterval":true},{"table":"tsdb-11m","preAggregationTable":"tsdb-agg-11m","interval":"11m","rowSpan":"1d"}]}"#,
    ),
];

/// Characters that the hostile names need.
pub(crate) const SPECIAL_CHARACTERS: &str = "<>=";

pub(crate) fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs()
}

/// Puts the points of an installation: the last six hours of some metrics, with a gap and an outlier.
pub(crate) fn put_installation(address: SocketAddr) {
    let now = now_secs();
    let mut random = SplitMix64::new(7);
    let mut noise = move || random.below(1_000_000) as f64 / 1e6 - 0.5;
    let mut lines = String::new();
    for host in 0..8_u32 {
        let name = format!("web{:02}", host + 1);
        let centre = if host < 5 { "fra" } else { "lga" };
        let mut requests = 0.0;
        for ts in (now - 6 * 3600..=now).step_by(20) {
            // One host was down for a while.
            if host == 3 && (now - 3 * 3600..now - 9_000).contains(&ts) {
                continue;
            }
            let day = (ts as f64 / 5_400.0 * TAU + f64::from(host)).sin();
            let load = 38.0 + 16.0 * day + 6.0 * noise() + f64::from(host);
            let tags = format!("host={name} dc={centre}");
            let _ = writeln!(lines, "put sys.cpu.user {ts} {load:.2} {tags}");
            requests += (40.0 + 30.0 * (day + 1.0) + 12.0 * noise()) * 20.0;
            let _ = writeln!(lines, "put http.requests {ts} {requests:.0} {tags}");
            if ts % 60 < 20 {
                let used = 52.0 + f64::from(host) * 4.0 + 3.0 * day;
                let _ = writeln!(lines, "put sys.mem.used {ts} {used:.1} {tags}");
            }
        }
    }
    send(address, &lines);
    put_other_kinds(address);
    let at = now - 600;
    for body in [
        json!({ "metric": "app.users", "timestamp": at, "value": 3, "tags": { "host": HOSTILE } }),
        json!({ "metric": "app.users", "timestamp": at + 60, "value": 5, "tags": { "host": HOSTILE } }),
        json!({ "metric": FORMULA, "timestamp": at, "value": -4, "tags": { "host": "web01" } }),
    ] {
        let stored = http(address, "POST", "/api/put", Some(&body.to_string()));
        assert_eq!(stored.status, 204, "{}", stored.body);
    }
}

/// Begin of the rollups: a day, since their rows are days.
pub(crate) fn rollup_start() -> u64 {
    now_secs() / 86_400 * 86_400 - 86_400
}

/// Puts a counter, histograms and rollups.
fn put_other_kinds(address: SocketAddr) {
    let now = now_secs() / 10 * 10;
    let mut lines = String::new();
    for (n, ts) in (now - 1_790..=now).step_by(10).enumerate() {
        let _ = writeln!(lines, "put {COUNTER} {ts} {} host=web01", n % 101 * 10);
    }
    let start = rollup_start();
    for ts in (start..start + 3_600).step_by(60) {
        let _ = writeln!(lines, "put {ROLLUP} {ts} 1 host=web01");
    }
    send(address, &lines);
    let tags = json!({ "host": "web01" });
    let histograms: Vec<_> = (1..20)
        .map(|n| {
            let buckets = json!({ "0,10": 50, "10,20": 30, "20,50": 15, "50,100": 4, "100,1000": n });
            json!({ "metric": HISTOGRAM, "timestamp": now - n * 60, "id": 42, "buckets": buckets, "tags": tags })
        })
        .collect();
    let rollups: Vec<_> = (0..5)
        .map(|n| {
            json!({
                "metric": ROLLUP, "timestamp": start + n * ROLLUP_SECS, "value": 1_000, "interval": "11m",
                "aggregator": "sum", "tags": tags,
            })
        })
        .collect();
    for (path, points) in [("/api/histogram", histograms), ("/api/rollup", rollups)] {
        let stored = http(address, "POST", path, Some(&json!(points).to_string()));
        assert_eq!(stored.status, 204, "{path}: {}", stored.body);
    }
}

/// Puts `MANY_SERIES` series of `MANY_POINTS` points each, a second apart, until now.
pub(crate) fn put_many(address: SocketAddr) {
    let first = now_secs() - MANY_POINTS;
    let mut random = SplitMix64::new(11);
    for series in 0..MANY_SERIES {
        let mut value = 100.0 * series as f64;
        let mut lines = String::new();
        for ts in first..first + MANY_POINTS {
            value += random.below(1_000_000) as f64 / 1e5 - 5.0;
            let _ = writeln!(lines, "put many {ts} {value:.2} series=s{series:02}");
        }
        send(address, &lines);
    }
}

/// Sends telnet lines and waits until they are stored.
fn send(address: SocketAddr, lines: &str) {
    let mut stream = connect(address);
    stream.write_all(lines.as_bytes()).expect("send");
    close_and_drain(stream);
}

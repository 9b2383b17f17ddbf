//! Checks that every combination of interval and aggregators of a rollup is stored and then read by a query,
//! or refused with the reason (issue 37, C11).

use serde_json::{Map, Value, json};
use tsd_testkit::{Daemon, exchange, http};

use crate::tsdb;

const TIME: i64 = 1_546_534_800;
/// Intervals, one of them twice under two names; queries read the first.
const INTERVALS: [(&str, bool); 4] = [("1m", true), ("10m", false), ("1h", false), ("60m", false)];
/// All aggregators that a configuration may give an id.
const AGGREGATORS: [&str; 34] = [
    "sum", "count", "min", "max", "avg", "dev", "zimsum", "mimmin", "mimmax", "none", "mult",
    "diff", "first", "last", "median", "pfsum", "p50", "p75", "p90", "p95", "p99", "p999",
    "ep50r3", "ep50r7", "ep75r3", "ep75r7", "ep90r3", "ep90r7", "ep95r3", "ep95r7", "ep99r3",
    "ep99r7", "ep999r3", "ep999r7",
];
/// Aggregators over time that are refused, because no query reads them.
const UNREAD: [&str; 6] = ["avg", "dev", "zimsum", "mimmin", "mimmax", "none"];
/// Aggregators over series, including an unknown aggregator.
const GROUP_BY: [Option<&str>; 5] = [None, Some("sum"), Some("avg"), Some("none"), Some("nope")];

fn configuration() -> String {
    let ids: Map<String, Value> =
        AGGREGATORS.iter().zip(0..).map(|(name, id)| ((*name).to_owned(), json!(id))).collect();
    let intervals: Vec<Value> = INTERVALS
        .iter()
        .map(|(interval, is_default)| {
            json!({"table": format!("t{interval}"), "preAggregationTable": format!("p{interval}"),
                "interval": interval, "rowSpan": if *is_default { "1h" } else { "1d" },
                "defaultInterval": is_default})
        })
        .collect();
    json!({ "aggregationIds": ids, "intervals": intervals }).to_string()
}

fn daemon(directory: &std::path::Path, block_derived: &str) -> Daemon {
    tsdb(directory)
        .env("TSD_ROLLUPS_ENABLE", "true")
        .env("TSD_ROLLUPS_CONFIG", &configuration())
        .env("TSD_ROLLUPS_BLOCK_DERIVED", block_derived)
        .start()
}

/// A combination; its metric is its own.
struct Combination {
    interval: Option<&'static str>,
    aggregator: &'static str,
    group_by: Option<&'static str>,
}

impl Combination {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for group_by in GROUP_BY {
            for (interval, _) in INTERVALS {
                all.extend(AGGREGATORS.iter().map(|aggregator| Self {
                    interval: Some(interval),
                    aggregator,
                    group_by,
                }));
            }
            all.push(Self { interval: None, aggregator: "sum", group_by });
        }
        all.push(Self { interval: Some("7m"), aggregator: "sum", group_by: None });
        all.push(Self { interval: Some("1h"), aggregator: "nope", group_by: None });
        all
    }

    fn http_body(&self, metric: &str) -> Value {
        let mut body = json!({"metric": metric, "timestamp": TIME, "value": 2, "tags": {"host": "a"},
            "aggregator": self.aggregator});
        for (name, value) in [("interval", self.interval), ("groupByAggregator", self.group_by)] {
            if let Some(value) = value {
                body[name] = json!(value);
            }
        }
        body
    }

    fn telnet_line(&self, metric: &str) -> String {
        let spec = match (self.interval, self.group_by) {
            (Some(interval), Some(group_by)) => {
                format!("{interval}-{}:{group_by}", self.aggregator)
            }
            (Some(interval), None) => format!("{interval}-{}", self.aggregator),
            (None, group_by) => group_by.unwrap_or("nope").to_owned(),
        };
        format!("rollup {spec} {metric} {TIME} 2 host=a\n")
    }

    /// True if the point must be stored.
    fn is_stored(&self, block_derived: bool) -> bool {
        let is_read = match self.interval {
            None => self.group_by.is_some(),
            Some("10m" | "1h") => {
                AGGREGATORS.contains(&self.aggregator) && !UNREAD.contains(&self.aggregator)
            }
            Some(_) => false,
        };
        is_read && self.group_by != Some("nope") && !(block_derived && self.group_by == Some("avg"))
    }

    /// A query that reads the point.
    fn query(&self, metric: &str) -> Value {
        let mut sub =
            json!({"metric": metric, "aggregator": "sum", "preAggregate": self.group_by.is_some()});
        if let Some(interval) = self.interval {
            sub["downsample"] = json!(format!("{interval}-{}", self.aggregator));
        }
        json!({"start": TIME - 100, "end": TIME + 7_200, "queries": [sub]})
    }
}

/// Points that are read back.
fn points(daemon: &Daemon, query: &Value) -> usize {
    let answer = http(daemon.address(), "POST", "/api/query", Some(&query.to_string()));
    assert_eq!(answer.status, 200, "{query}: {}", answer.body);
    let series: Value = serde_json::from_str(&answer.body).expect("JSON");
    series[0]["dps"].as_object().map_or(0, Map::len)
}

fn check_all(block_derived: bool) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = daemon(dir.path(), if block_derived { "true" } else { "false" });
    let mut stored = 0;
    for (number, combination) in Combination::all().iter().enumerate() {
        let (by_http, by_telnet) = (format!("http.{number}"), format!("telnet.{number}"));
        let body = combination.http_body(&by_http);
        let answer =
            http(daemon.address(), "POST", "/api/rollup?details", Some(&body.to_string())).body;
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let line = combination.telnet_line(&by_telnet);
        let reply = exchange(daemon.address(), line.as_bytes());
        let reply = String::from_utf8(reply).expect("UTF-8");
        let is_stored = combination.is_stored(block_derived);
        assert_eq!(answer["success"], json!(u64::from(is_stored)), "{body}: {answer}");
        assert_eq!(reply.is_empty(), is_stored, "{line}: {reply}");
        for metric in [by_http, by_telnet].iter().filter(|_| is_stored) {
            let query = combination.query(metric);
            assert_eq!(points(&daemon, &query), 1, "{query} of {line}");
            stored += 1;
        }
        if !is_stored {
            let error = answer["errors"][0]["error"].as_str().expect("an error");
            assert!(!error.is_empty() && reply.starts_with("rollup: "), "{error} {reply}");
        }
    }
    assert!(stored > 300, "{stored}");
}

#[test]
fn every_combination_is_read_by_a_query_or_refused() {
    check_all(true);
}

#[test]
fn every_combination_is_read_or_refused_where_derived_aggregators_are_allowed() {
    check_all(false);
}

#[test]
fn a_rollup_of_the_default_interval_is_refused_with_what_to_send_instead() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = daemon(dir.path(), "true");
    for (group_by, instead) in [
        (None, "send its points by put"),
        (Some("sum"), "send its pre-aggregates without an interval"),
    ] {
        let combination = Combination { interval: Some("1m"), aggregator: "SUM", group_by };
        let body = combination.http_body("m").to_string();
        let answer = http(daemon.address(), "POST", "/api/rollup?details", Some(&body));
        assert_eq!(answer.status, 400);
        let text = format!(
            "no query reads rollups of the interval 1m: it is the default interval; {instead}"
        );
        assert!(answer.body.contains(&text), "{}", answer.body);
    }
}

#[test]
fn pre_aggregates_without_rollups_are_asked_for_in_vain_by_the_setting() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).start();
    assert_eq!(exchange(daemon.address(), format!("put m {TIME} 1 host=a\n").as_bytes()), b"");
    let answer = http(daemon.address(), "GET", "/api/query?start=1543500000&m=sum:pre-agg:m", None);
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("none are configured (tsd.rollups.enable)"), "{}", answer.body);
}

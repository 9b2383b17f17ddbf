//! Random points and queries, and the bodies that write the points.

use std::{collections::BTreeMap, fmt::Write};

use proptest::{prelude::*, sample::select};

/// Epoch seconds of the first hour.
pub(crate) const START: i64 = 1_356_998_400;
const HOURS: i64 = 3;

/// A point of one of the series.
#[derive(Clone, Debug)]
pub(crate) struct SamplePoint {
    pub(crate) metric: String,
    pub(crate) time_ms: i64,
    /// Its text in a request.
    pub(crate) value: String,
    pub(crate) host: String,
    pub(crate) dc: String,
}

impl SamplePoint {
    /// Whole seconds are written in seconds, other times in milliseconds.
    fn time(&self) -> i64 {
        if self.time_ms % 1_000 == 0 { self.time_ms / 1_000 } else { self.time_ms }
    }
}

/// Points of a few series over three hours, at most one per time and series, in time order.
pub(crate) fn points(integers_only: bool) -> impl Strategy<Value = Vec<SamplePoint>> {
    let series = (select(vec!["a", "b", "c"]), select(vec!["x", "y"]));
    let point = (series, time_ms(), if integers_only { integer().boxed() } else { value() });
    prop::collection::vec(point, 1..80).prop_map(|drawn| {
        let points: BTreeMap<_, _> = drawn
            .into_iter()
            .map(|((host, dc), time_ms, value)| {
                let (host, dc) = (host.to_owned(), dc.to_owned());
                let key = (time_ms, host.clone(), dc.clone());
                (key, SamplePoint { metric: "m".to_owned(), time_ms, value, host, dc })
            })
            .collect();
        points.into_values().collect()
    })
}

/// Mostly multiples of ten seconds, which series share; some arbitrary, some at the edges of rows.
fn time_ms() -> impl Strategy<Value = i64> {
    let start = START * 1_000;
    prop_oneof![
        4 => (0..HOURS * 360).prop_map(|step| step * 10_000),
        2 => 0..HOURS * 3_600_000 - 1_000,
        1 => (1..HOURS, -1..=1_i64).prop_map(|(hour, by)| hour * 3_600_000 + by),
        1 => (0..HOURS, 80..96_i64).prop_map(|(hour, secs)| hour * 3_600_000 + secs * 1_000),
    ]
    .prop_map(move |offset| start + offset)
}

fn integer() -> impl Strategy<Value = String> {
    prop_oneof![-100..100_i64, -1_000_000_000..1_000_000_000_i64].prop_map(|v| v.to_string())
}

fn value() -> BoxedStrategy<String> {
    prop_oneof![
        2 => integer(),
        1 => (-2_000..2_000_i32).prop_map(|v| format!("{:?}", f64::from(v) / 4.0)),
        1 => (-1e9..1e9_f64).prop_map(|v| format!("{v:?}")),
        1 => (-1e-9..1e-9_f64).prop_map(|v| format!("{v:e}")),
    ]
    .boxed()
}

/// A body of `/api/put`.
pub(crate) fn put_body(points: &[SamplePoint]) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|point| {
            let SamplePoint { metric, value, host, dc, .. } = point;
            let tags = format!(r#"{{"host":"{host}","dc":"{dc}"}}"#);
            let time = point.time();
            format!(r#"{{"metric":"{metric}","timestamp":{time},"value":{value},"tags":{tags}}}"#)
        })
        .collect();
    format!("[{}]", points.join(","))
}

/// A body of `/api/rollup`.
pub(crate) fn rollup_body(points: &[SamplePoint], interval: &str, aggregator: &str) -> String {
    let prefix = format!(r#"{{"interval":"{interval}","aggregator":"{aggregator}","metric""#);
    put_body(points).replace(r#"{"metric""#, &prefix)
}

/// `put` lines.
pub(crate) fn telnet_lines(points: &[SamplePoint]) -> String {
    points.iter().fold(String::new(), |mut lines, point| {
        let SamplePoint { metric, value, host, dc, .. } = point;
        let _ = writeln!(lines, "put {metric} {} {value} dc={dc} host={host}", point.time());
        lines
    })
}

/// A random value of `m=`.
pub(crate) fn metric_query() -> impl Strategy<Value = String> {
    let aggregator = select(vec![
        "sum",
        "avg",
        "min",
        "max",
        "dev",
        "count",
        "mult",
        "none",
        "zimsum",
        "mimmin",
        "mimmax",
        "pfsum",
        "squareSum",
        "diff",
        "first",
        "last",
        "median",
        "p50",
        "p99",
        "p999",
        "ep75r3",
        "ep90r7",
    ]);
    let reduce = select(vec![
        "sum", "avg", "min", "max", "count", "dev", "first", "last", "median", "p95", "mult",
        "diff", "zimsum", "ep50r7",
    ]);
    let interval = select(vec![
        "1s", "10s", "90s", "1m", "7m", "1h", "2h", "1d", "0all", "1hc", "1dc", "1wc", "90mc",
    ]);
    let fill = select(vec!["", "-none", "-nan", "-null", "-zero"]);
    let downsample = (interval, reduce, fill).prop_map(|(i, r, f)| format!("{i}-{r}{f}:"));
    let rate = select(vec![
        "",
        "",
        "rate:",
        "rate{counter}:",
        "rate{counter,1000,50}:",
        "rate{dropcounter}:",
    ]);
    let filter = select(vec![
        "",
        "{host=a}",
        "{host=*}",
        "{host=a|c,dc=*}",
        "{dc=y}",
        "{}{host=wildcard(*)}",
        "{}{host=not_literal_or(a)}",
        "{host=regexp([ab])}{dc=iliteral_or(X)}",
        "{host=*}{value=gt(0)}",
    ]);
    let downsample = prop_oneof![2 => downsample.boxed(), 1 => Just(String::new()).boxed()];
    (aggregator, downsample, rate, filter, any::<bool>()).prop_map(
        |(aggregator, downsample, rate, filter, rate_first)| {
            let steps = if rate_first {
                format!("{rate}{downsample}")
            } else {
                format!("{downsample}{rate}")
            };
            format!("{aggregator}:{steps}m{filter}")
        },
    )
}

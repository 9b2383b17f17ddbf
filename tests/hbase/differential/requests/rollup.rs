//! Rollups, pre-aggregates and histograms: queries and puts.

use serde_json::{Map, Value, json};

use super::query::{aggregator, flags, range, time_text};
use crate::differential::{
    data::{BASE, Data},
    random::Random,
    request::Request,
};

const USAGES: &[&str] = &[
    "ROLLUP_RAW",
    "ROLLUP_NOFALLBACK",
    "ROLLUP_FALLBACK",
    "ROLLUP_FALLBACK_RAW",
    "rollup_fallback",
    "nope",
];

fn downsample(random: &mut Random) -> String {
    let interval = random.pick(&["11m", "11m", "22m", "44m", "66m", "33m", "1h", "660s", "0all"]);
    let function = random.pick(&[
        "sum", "sum", "count", "min", "max", "avg", "avg", "zimsum", "mimmax", "mimmin", "dev",
        "p50", "first", "median", "last",
    ]);
    let fill =
        if random.chance(30) { random.pick(&["-none", "-nan", "-zero", "-null"]) } else { "" };
    format!("{interval}-{function}{fill}")
}

pub(super) fn query(data: &Data, random: &mut Random) -> Request {
    let metric = match random.below(20) {
        // Only rollups of raw points, and the reverse.
        0..3 => data.metric(random).to_owned(),
        3 => format!("s{}.hist", data.seed),
        _ => format!("s{}.rollup", data.seed),
    };
    let (start, end) = match random.below(3) {
        0 => (BASE - 3_600, BASE + 9 * 86_400),
        1 => (BASE + random.between(0, 100_000), BASE + random.between(100_001, 500_000)),
        _ => range(random),
    };
    if random.chance(50) {
        let mut parts = vec![aggregator(random).to_owned()];
        if random.chance(90) {
            parts.push(downsample(random));
        }
        if random.chance(30) {
            parts.push(random.pick(USAGES).to_owned());
        }
        if random.chance(15) {
            parts.push("rate".to_owned());
        }
        if random.chance(25) {
            parts.push("pre-agg".to_owned());
        }
        let filters = random.pick(&[
            "",
            "",
            "{host=*}",
            "{_aggregate=SUM}",
            "{_aggregate=RAW}",
            "{_aggregate=*}",
            "{host=*}{_aggregate=literal_or(MAX)}",
            "{_aggregate=SUM|MAX}",
        ]);
        parts.push(format!("{metric}{filters}"));
        let request = Request::get("/api/query")
            .parameter("start", time_text(start, random))
            .parameter("end", time_text(end, random))
            .parameter("m", parts.join(":"));
        return flags(request, random);
    }
    let mut sub = json!({"aggregator": aggregator(random), "metric": metric});
    if random.chance(90) {
        sub["downsample"] = json!(downsample(random));
    }
    if random.chance(40) {
        sub["rollupUsage"] = json!(random.pick(USAGES));
    }
    if random.chance(25) {
        sub["preAggregate"] = json!(true);
    }
    if random.chance(15) {
        sub["rate"] = json!(true);
    }
    if random.chance(50) {
        sub["filters"] = random
            .pick(&[
                &[("host", "wildcard", "*", true)][..],
                &[("_aggregate", "literal_or", "SUM", false)],
                &[("_aggregate", "literal_or", "RAW", true)],
                &[("host", "wildcard", "web*", true), ("_aggregate", "literal_or", "MAX", true)],
                &[("_aggregate", "wildcard", "*", true)],
            ])
            .iter()
            .map(|(tagk, kind, filter, group)| {
                json!({"tagk": tagk, "type": kind, "filter": filter, "groupBy": group})
            })
            .collect();
    }
    let mut body = json!({"start": start, "end": end, "queries": [sub]});
    for (name, percent) in [("showQuery", 15), ("showTSUIDs", 15), ("msResolution", 15)] {
        if random.chance(percent) {
            body[name] = json!(true);
        }
    }
    Request::post("/api/query", body)
}

pub(super) fn histogram_query(data: &Data, random: &mut Random) -> Request {
    let metric =
        if random.chance(5) { data.metric(random) } else { &format!("s{}.hist", data.seed) };
    let (start, end) = range(random);
    let aggregator =
        random.pick(&["sum", "sum", "sum", "none", "none", "avg", "max", "count", "zimsum", "p99"]);
    let downsample = random.pick(&[
        "1m-sum",
        "1h-sum",
        "10m-sum",
        "0all-sum",
        "1m-avg",
        "1h-sum-nan",
        "1dc-sum",
        "x",
    ]);
    let percentiles: &[f64] =
        random.pick(&[&[50.0][..], &[99.9, 50.0], &[0.5, 100.0], &[75.0, 75.0], &[33.3], &[]]);
    if random.chance(50) {
        let mut parts = vec![aggregator.to_owned()];
        if random.chance(40) {
            parts.push(downsample.to_owned());
        }
        if random.chance(80) {
            let list: Vec<_> = percentiles.iter().map(ToString::to_string).collect();
            parts.push(format!("percentiles[{}]", list.join(",")));
        }
        if random.chance(40) {
            parts.push("show-histogram-buckets".to_owned());
        }
        if random.chance(10) {
            parts.push("rate".to_owned());
        }
        parts.push(format!(
            "{metric}{}",
            random.pick(&["", "{host=*}", "{host=web01}", "{}{host=*}"])
        ));
        let request = Request::get("/api/query")
            .parameter("start", start.to_string())
            .parameter("end", end.to_string())
            .parameter("m", parts.join(":"));
        return flags(request, random);
    }
    let mut sub = Map::new();
    sub.insert("aggregator".to_owned(), json!(aggregator));
    sub.insert("metric".to_owned(), json!(metric));
    if random.chance(80) {
        sub.insert("percentiles".to_owned(), json!(percentiles));
    }
    if random.chance(40) {
        sub.insert("showHistogramBuckets".to_owned(), json!(true));
    }
    if random.chance(40) {
        sub.insert("downsample".to_owned(), json!(downsample));
    }
    if random.chance(50) {
        let filter = json!({
            "tagk": "host", "type": "wildcard", "filter": "*", "groupBy": random.chance(60)
        });
        sub.insert("filters".to_owned(), json!([filter]));
    }
    let mut body = json!({"start": start, "end": end, "queries": [Value::Object(sub)]});
    for (name, percent) in [("showQuery", 10), ("showTSUIDs", 15), ("msResolution", 15)] {
        if random.chance(percent) {
            body[name] = json!(true);
        }
    }
    Request::post("/api/query", body)
}

const BAD_ROLLUPS: &[&str] = &[
    r#"{"metric":"M","timestamp":1356998400,"value":1,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"interval":"11m","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"aggregator":"sum","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"interval":"9m","aggregator":"sum","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"interval":"11m","aggregator":"nope","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"interval":"11m","aggregator":"avg","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400000,"value":1,"interval":"11m","aggregator":"sum","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"groupByAggregator":"SUM","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"groupByAggregator":"nope","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"groupByAggregator":"avg","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"groupByAggregator":"SUM","tags":{"host":"web01","_aggregate":"MAX"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"x","interval":"11m","aggregator":"sum","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"1e999","interval":"11m","aggregator":"sum","tags":{"host":"web01"}}"#,
    r#"{"metric":"","timestamp":1356998400,"value":1,"interval":"11m","aggregator":"sum","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":0,"value":1,"interval":"11m","aggregator":"sum","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"interval":"11m","aggregator":"sum","tags":{}}"#,
    r#"{"metric":"M$","timestamp":1356998400,"value":1,"interval":"11m","aggregator":"sum","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":1,"interval":"","aggregator":"","tags":{"host":"web01"}}"#,
    "null",
];

const BAD_HISTOGRAMS: &[&str] = &[
    r#"{"metric":"M","timestamp":1356998400,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"buckets":{},"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"buckets":{"1":2},"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"buckets":{"a,b":2},"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"zzz","tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"AAAA","id":42,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"AAAA","id":7,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"value":"AAAA","id":300,"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"buckets":{"0,1":1},"id":-1,"tags":{"host":"web01"}}"#,
    r#"{"metric":"","timestamp":1356998400,"buckets":{"0,1":1},"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":0,"buckets":{"0,1":1},"tags":{"host":"web01"}}"#,
    r#"{"metric":"M","timestamp":1356998400,"buckets":{"0,1":1}}"#,
    r#"{"metric":"M$","timestamp":1356998400,"buckets":{"0,1":1},"tags":{"host":"web01"}}"#,
    "null",
];

/// A put of rollups or of histograms.
pub(super) fn put(data: &Data, number: u64, random: &mut Random) -> Request {
    let time = BASE + 86_400 * 30 + number as i64 * 660;
    let is_rollup = random.chance(50);
    let (path, metric, bad) = if is_rollup {
        ("/api/rollup", format!("s{}.rput", data.seed), BAD_ROLLUPS)
    } else {
        ("/api/histogram", format!("s{}.hput", data.seed), BAD_HISTOGRAMS)
    };
    let good = if is_rollup {
        json!({
            "metric": metric, "timestamp": time, "value": random.between(-9, 9), "interval": "11m",
            "aggregator": random.pick(&["sum", "count", "SUM"]), "tags": {"host": "web01"},
        })
    } else {
        json!({
            "metric": metric, "timestamp": time, "id": 42,
            "buckets": {"0,1": random.between(0, 9), "1,2.5": 4}, "tags": {"host": "web01"},
        })
    };
    let mut points = Vec::new();
    for _ in 0..random.between(0, 2) {
        points.push(if random.chance(30) {
            good.to_string()
        } else {
            random.pick(bad).replace("\"M", &format!("\"{metric}"))
        });
    }
    let text = match random.below(12) {
        0 => random.pick(&["{", "[]", "{}", "\"x\"", "[1]"]).to_owned(),
        _ if points.len() == 1 && random.chance(50) => points.remove(0),
        _ => format!("[{}]", points.join(",")),
    };
    let mut request = Request::get(path).method("POST").text(&text).write();
    for (flag, percent) in [("details", 60), ("summary", 30), ("sync", 50)] {
        if random.chance(percent) {
            request = request.flag(flag);
        }
    }
    request
}

//! Requests about series and names: last points, lookup, suggest.

use serde_json::{Value, json};

use crate::differential::{data::Data, random::Random, request::Request};

fn tags(data: &Data, random: &mut Random) -> (String, Vec<(&'static str, &'static str)>) {
    let series = data.any_series(random);
    (series.metric.clone(), series.tags.clone())
}

fn selector(metric: &str, tags: &[(&str, &str)]) -> String {
    if tags.is_empty() {
        return metric.to_owned();
    }
    let tags: Vec<_> = tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{metric}{{{}}}", tags.join(","))
}

pub(super) fn last(data: &Data, random: &mut Random) -> Request {
    let series = data.recent_series(random);
    let (metric, mut tags) = (series.metric.clone(), series.tags.clone());
    if random.chance(15) {
        tags.pop();
    }
    let back_scan = random.pick(&["0", "-1", "1", "2", "24", "24"]);
    let mut request = if random.chance(50) {
        let mut request = Request::get("/api/query/last");
        request = match random.below(12) {
            0 => request.parameter("timeseries", "no.such{host=web01}"),
            1 => request.parameter("timeseries", format!("{metric}{{host=nope}}")),
            2 => request
                .parameter("tsuids", random.pick(&["zz", "000001", "000001000001000001", ""])),
            _ => request.parameter("timeseries", selector(&metric, &tags)),
        };
        if random.chance(10) {
            return request.parameter("back_scan", random.pick(&["x", "", "99999999999"]));
        }
        request.parameter("back_scan", back_scan)
    } else {
        let tags: serde_json::Map<String, Value> =
            tags.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
        let back_scan: i64 = back_scan.parse().unwrap_or(0);
        let query = match random.below(10) {
            0 => json!({"metric": metric}),
            1 => json!({"tsuids": []}),
            2 => json!({}),
            _ => json!({"metric": metric, "tags": tags}),
        };
        let mut body = json!({"queries": [query], "backScan": back_scan});
        if random.chance(50) {
            body["resolveNames"] = json!(true);
        }
        Request::post("/api/query/last", body)
    };
    if request.method == "GET" && random.chance(50) {
        request = request.flag("resolve");
    }
    request
}

pub(super) fn lookup(data: &Data, random: &mut Random) -> Request {
    let (metric, tags) = tags(data, random);
    let pair = |random: &mut Random| {
        let (key, value) = tags[random.index(tags.len())];
        match random.below(6) {
            0 => (key, "*"),
            1 => ("*", value),
            2 => ("host", "nope"),
            _ => (key, value),
        }
    };
    let mut pairs = Vec::new();
    for _ in 0..random.between(0, 2) {
        pairs.push(pair(random));
    }
    if random.chance(50) {
        let text = match random.below(10) {
            0 => "{".to_owned(),
            1 => format!("{metric}{{host}}"),
            2 => "no.such".to_owned(),
            _ => selector(&metric, &pairs),
        };
        let mut request = Request::get("/api/search/lookup").parameter("m", text);
        if random.chance(30) {
            request = request.parameter("limit", random.pick(&["1", "0", "2", "x"]));
        }
        if random.chance(10) {
            request = request.parameter("start_index", "1");
        }
        request
    } else {
        let tags: Vec<_> =
            pairs.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
        let mut body = json!({"metric": metric, "tags": tags});
        if random.chance(30) {
            body["limit"] = json!(random.between(0, 3));
        }
        if random.chance(10) {
            body["startIndex"] = json!(2);
        }
        Request::post("/api/search/lookup", body)
    }
}

pub(super) fn suggest(data: &Data, random: &mut Random) -> Request {
    let kind = random.pick(&["metrics", "tagk", "tagv", "metric", "nope"]);
    let prefix = match random.below(5) {
        0 => format!("s{}.", data.seed),
        1 => "web".to_owned(),
        2 => "h".to_owned(),
        3 => "zzz".to_owned(),
        _ => format!("s{}.m", data.seed),
    };
    let max = random.pick(&["", "1", "3", "0", "-5", "x"]);
    if random.chance(60) {
        let mut request =
            Request::get("/api/suggest").parameter("type", kind).parameter("q", prefix);
        if !max.is_empty() {
            request = request.parameter("max", max);
        }
        request
    } else {
        let mut body = json!({"type": kind, "q": prefix});
        if !max.is_empty() {
            body["max"] = json!(max);
        }
        Request::post("/api/suggest", body)
    }
}

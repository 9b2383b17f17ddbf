//! Points, annotations and names of one seed.

use std::{
    collections::BTreeSet,
    fmt::Write,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tsd_testkit::wait_for;

use crate::differential::{
    random::Random,
    request::Request,
    servers::{Servers, send},
};

/// Start of all data: an hour, a day and a year begin here.
pub(crate) const BASE: i64 = 1_356_998_400;

const HOSTS: &[&str] = &["web01", "web02", "db01", "DB02"];
const CENTERS: &[&str] = &["lga", "ams", "sfo"];
/// Group-by aggregators of pre-aggregates, which are values of the tag `_aggregate`.
const GROUP_BYS: &[&str] = &["SUM", "MAX"];

/// One series and its points: times as they are put (milliseconds or seconds), and the JSON of the value.
pub(crate) struct Series {
    pub(crate) metric: String,
    pub(crate) tags: Vec<(&'static str, &'static str)>,
    pub(crate) points: Vec<(i64, Value)>,
    /// Known once the points are stored.
    pub(crate) tsuid: String,
}

/// All data of one seed.
pub(crate) struct Data {
    pub(crate) seed: u64,
    pub(crate) series: Vec<Series>,
    annotations: Vec<Value>,
    rollups: Vec<Value>,
    histograms: Vec<Value>,
}

/// Shape of the values of a metric.
#[derive(Clone, Copy)]
enum Shape {
    Integers,
    Floats,
    Mixed,
    Milliseconds,
    Counter,
    Days,
    Extreme,
    /// In the last hours before the run, for last points.
    Recent,
}

const SHAPES: &[(&str, Shape)] = &[
    ("int", Shape::Integers),
    ("float", Shape::Floats),
    ("mixed", Shape::Mixed),
    ("ms", Shape::Milliseconds),
    ("counter", Shape::Counter),
    ("days", Shape::Days),
    ("extreme", Shape::Extreme),
    ("recent", Shape::Recent),
];

impl Data {
    pub(crate) fn new(seed: u64, random: &mut Random) -> Self {
        let mut series = Vec::new();
        for (name, shape) in SHAPES {
            let metric = format!("s{seed}.{name}");
            let mut used = Vec::new();
            for _ in 0..random.between(1, 4) {
                let mut tags = vec![("host", random.pick(HOSTS))];
                if random.chance(60) {
                    tags.push(("dc", random.pick(CENTERS)));
                }
                if random.chance(15) {
                    tags.push(("cpu", random.pick(&["0", "1"])));
                }
                if used.contains(&tags) {
                    continue;
                }
                used.push(tags.clone());
                let points = points(*shape, random);
                series.push(Series { metric: metric.clone(), tags, points, tsuid: String::new() });
            }
        }
        let annotations = (0..random.between(0, 4))
            .map(|at| {
                let start = BASE + random.between(0, 7_200);
                let mut annotation = json!({
                    "startTime": start,
                    "description": format!("note {at} of {seed}"),
                });
                if random.chance(50) {
                    annotation["endTime"] = (start + random.between(1, 5_000)).into();
                }
                if random.chance(30) {
                    annotation["custom"] = json!({"owner": "ops", "ticket": "7"});
                }
                // Filled in once the TSUID is known.
                if random.chance(80) {
                    annotation["tsuid"] = random.below(series.len() as u64).into();
                }
                annotation
            })
            .collect();
        let rollups = rollups(&format!("s{seed}.rollup"), random);
        let histograms = histograms(&format!("s{seed}.hist"), random);
        Self { seed, series, annotations, rollups, histograms }
    }

    pub(crate) fn metrics(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.series.iter().map(|series| series.metric.as_str()).collect();
        names.dedup();
        names
    }

    pub(crate) fn metric(&self, random: &mut Random) -> &str {
        let names = self.metrics();
        names[random.index(names.len())]
    }

    /// A series with points in the last hours.
    pub(crate) fn recent_series(&self, random: &mut Random) -> &Series {
        let recent: Vec<_> = self.series.iter().filter(|s| s.metric.ends_with(".recent")).collect();
        recent[random.index(recent.len())]
    }

    pub(crate) fn any_series(&self, random: &mut Random) -> &Series {
        &self.series[random.index(self.series.len())]
    }

    /// Puts everything to all; names get the same UIDs because they are assigned one by one. With `plant` one
    /// point of ours gets another value.
    pub(crate) fn store(&mut self, servers: &Servers, plant: bool) -> Result<(), String> {
        let assign = |kind: &str, name: &str| {
            let request = Request::get("/api/uid/assign").parameter(kind, name);
            let theirs = send(servers.theirs, &request);
            for ours in &servers.ours {
                let ours = send(ours.address, &request);
                if theirs != ours && !theirs.body.contains("already exists") {
                    return Err(format!("{request}: theirs {theirs:?} ours {ours:?}"));
                }
            }
            Ok(())
        };
        let others = [format!("s{}.rollup", self.seed), format!("s{}.hist", self.seed)];
        let mut metrics = self.metrics();
        metrics.extend(others.iter().map(String::as_str));
        for (kind, names) in [
            ("tagk", &["host", "dc", "cpu", "_aggregate"][..]),
            ("tagv", HOSTS),
            ("tagv", CENTERS),
            ("tagv", &["0", "1"]),
            ("tagv", GROUP_BYS),
            ("metric", &metrics),
        ] {
            for name in names {
                assign(kind, name)?;
            }
        }
        let points: Vec<Value> = self
            .series
            .iter()
            .flat_map(|series| {
                let tags: serde_json::Map<_, _> =
                    series.tags.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect();
                series.points.iter().map(move |(time, value)| {
                    json!({"metric": series.metric, "timestamp": time, "value": value, "tags": tags})
                })
            })
            .collect();
        for (path, points) in [
            ("/api/put", &points),
            ("/api/rollup", &self.rollups),
            ("/api/histogram", &self.histograms),
        ] {
            put(servers, path, points)?;
        }
        if plant {
            let mut planted = points.first().ok_or("no points")?.clone();
            planted["value"] = json!(planted["value"].as_i64().unwrap_or_default() + 1);
            for ours in &servers.ours {
                let request = Request::post("/api/put", planted.clone()).flag("details");
                let response = send(ours.address, &request);
                println!("differential: planted {planted} in {}: {}", ours.name, response.body);
            }
        }
        for at in 0..self.series.len() {
            self.series[at].tsuid = tsuid(servers, &self.series[at])?;
        }
        for annotation in &self.annotations {
            let mut annotation = annotation.clone();
            if let Some(at) = annotation["tsuid"].as_u64() {
                annotation["tsuid"] = self.series[at as usize].tsuid.clone().into();
            }
            let request = Request::post("/api/annotation", annotation);
            for address in servers.addresses() {
                let response = send(address, &request);
                if !matches!(response.status, 200 | 304) {
                    return Err(format!("{request}: {} {}", response.status, response.body));
                }
            }
        }
        Ok(())
    }

    /// The points of the metrics that a request names.
    pub(crate) fn points_of(&self, request: &Request) -> String {
        let text = request.to_string();
        let mut out = String::new();
        for series in &self.series {
            let name = text.match_indices(&series.metric).any(|(at, name)| {
                !text[at + name.len()..].starts_with(|c: char| c.is_alphanumeric())
            });
            if name {
                let _ = write!(out, "points  {} {:?}", series.metric, series.tags);
                for (time, value) in series.points.iter().take(30) {
                    let seconds = if *time > 1 << 32 { time / 1_000 } else { *time };
                    let ms = if *time > 1 << 32 {
                        format!(".{:03}", time % 1_000)
                    } else {
                        String::new()
                    };
                    let _ = write!(out, " +{}{ms}={value}", seconds - BASE);
                }
                out.push('\n');
            }
        }
        out
    }
}

/// Puts points, rollups or histograms to all.
fn put(servers: &Servers, path: &str, points: &[Value]) -> Result<(), String> {
    for points in points.chunks(200) {
        let request = Request::post(path, Value::Array(points.to_vec()));
        let request = request.flag("sync").flag("details");
        for address in servers.addresses() {
            let response = send(address, &request);
            if response.status != 200 {
                return Err(format!("{path} to {address}: {} {}", response.status, response.body));
            }
        }
    }
    Ok(())
}

/// Rollups and pre-aggregates over some days.
fn rollups(metric: &str, random: &mut Random) -> Vec<Value> {
    let mut cells = Vec::new();
    for (at, host) in HOSTS.iter().take(random.between(1, 3) as usize).enumerate() {
        for (interval, minutes) in [("11m", 11), ("22m", 22)] {
            let is_grouped = random.chance(30);
            let mut time = BASE + random.between(0, 200) * minutes * 60;
            for _ in 0..random.between(1, 12) {
                // The last interval of a day is incomplete, and does not fit the row.
                let is_last = (time - BASE) % 86_400 / (minutes * 60) >= 1_440 / minutes;
                for aggregator in ["sum", "count", "min", "max"] {
                    if is_last || random.chance(15) {
                        continue;
                    }
                    let value = match aggregator {
                        "count" => json!(random.between(0, 20)),
                        _ if random.chance(50) => json!(random.between(-500, 500)),
                        _ => json!(random.between(-5_000, 5_000) as f64 / 8.0),
                    };
                    let mut cell = json!({
                        "metric": metric, "timestamp": time, "value": value, "interval": interval,
                        "aggregator": aggregator, "tags": {"host": host, "dc": CENTERS[at % 3]},
                    });
                    if is_grouped {
                        cell["groupByAggregator"] = json!(GROUP_BYS[at % 2]);
                    }
                    cells.push(cell);
                }
                time += minutes * 60 * random.between(1, 20);
            }
        }
    }
    cells
}

fn histograms(metric: &str, random: &mut Random) -> Vec<Value> {
    let mut histograms = Vec::new();
    for host in HOSTS.iter().take(random.between(1, 3) as usize) {
        let mut time = BASE + random.between(0, 3_000);
        for _ in 0..random.between(1, 12) {
            let mut buckets = serde_json::Map::new();
            for (low, high) in [("0", "1.75"), ("1.75", "3.5"), ("3.5", "7"), ("10", "12.5")] {
                if random.chance(70) {
                    buckets.insert(format!("{low},{high}"), json!(random.between(0, 30)));
                }
            }
            if buckets.is_empty() {
                buckets.insert("0,1".to_owned(), json!(1));
            }
            let mut histogram = json!({
                "metric": metric, "timestamp": time, "id": 42, "buckets": buckets,
                "tags": {"host": host},
            });
            if random.chance(40) {
                histogram["underflow"] = json!(random.between(0, 9));
            }
            if random.chance(40) {
                histogram["overflow"] = json!(random.between(0, 9));
            }
            histograms.push(histogram);
            time += random.pick(&[&60_i64, &60, &300, &3_600]);
        }
    }
    histograms
}

fn points(shape: Shape, random: &mut Random) -> Vec<(i64, Value)> {
    let count = match shape {
        Shape::Recent => random.between(1, 10),
        _ => random.between(1, 30),
    };
    let mut time_ms = (BASE + random.between(0, 3_000)) * 1_000;
    if matches!(shape, Shape::Recent) {
        let hour = now_hour() - 3_600 * random.between(0, 4);
        time_ms = (hour + random.between(-3_000, 0)) * 1_000;
    }
    let mut points = Vec::new();
    let mut counter = random.between(0, 200);
    let step = random.pick(&[&1_i64, &10, &60, &97, &600]);
    for _ in 0..count {
        let integer = random.between(-1_000, 1_000);
        let float = random.between(-1_000_000, 1_000_000) as f64 / 1_000.0;
        let seconds = json!(time_ms / 1_000);
        let (time, value) = match shape {
            Shape::Floats => (seconds, json!(float)),
            Shape::Mixed if random.chance(50) => (seconds, json!(float)),
            Shape::Mixed | Shape::Integers | Shape::Days | Shape::Recent => {
                (seconds, json!(integer))
            }
            Shape::Milliseconds if random.chance(30) => (seconds, json!(integer)),
            Shape::Milliseconds => (json!(time_ms), json!(float)),
            Shape::Counter => {
                counter += random.between(0, 50);
                if random.chance(10) {
                    counter = random.between(0, 5);
                }
                (seconds, json!(counter))
            }
            Shape::Extreme => (seconds, extreme(random)),
        };
        if let Some(time) = time.as_i64() {
            points.push((time, value));
        }
        time_ms += match shape {
            Shape::Days => random.between(1, 40) * 21_600_000,
            Shape::Milliseconds => random.between(1, 2_500),
            Shape::Recent => random.between(1, 300) * 1_000,
            _ if random.chance(70) => *step * 1_000,
            _ => random.between(1, 900) * 1_000,
        };
    }
    // The same second twice, once with milliseconds, is a duplicate.
    let key = |point: &(i64, Value)| if point.0 > 1 << 32 { point.0 } else { point.0 * 1_000 };
    let mut instants = BTreeSet::new();
    points.retain(|point| instants.insert(key(point)));
    points
}

/// Start of the current hour, in seconds.
fn now_hour() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    now.as_secs() as i64 / 3_600 * 3_600
}

fn extreme(random: &mut Random) -> Value {
    match random.below(9) {
        0 => json!(i64::MAX - random.between(0, 3)),
        1 => json!(i64::MIN + random.between(0, 3)),
        2 => json!(random.between(-9, 9) as f64 * 1e290),
        3 => json!(random.between(1, 999) as f64 * 1e-300),
        4 => json!(random.between(-1_000_000, 1_000_000) << 33),
        5 => json!(0.0),
        6 => json!(f64::from(random.between(1, 99) as f32 * 0.1)),
        7 => json!((random.between(1, 1 << 53) as f64) * 1_024.0),
        _ => json!(2_f64.powi(random.between(-60, 70) as i32)),
    }
}

/// Waits for the TSUID of a series in both meta tables.
fn tsuid(servers: &Servers, series: &Series) -> Result<String, String> {
    let tags: Vec<_> = series.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let request = Request::get("/api/search/lookup")
        .parameter("m", format!("{}{{{}}}", series.metric, tags.join(",")));
    let found = |address| {
        wait_for(|| {
            let response = send(address, &request);
            let body: Value = serde_json::from_str(&response.body).ok()?;
            let same = body["results"].as_array()?.iter().find(|one| {
                one["tags"].as_object().is_some_and(|found| found.len() == series.tags.len())
            });
            same?["tsuid"].as_str().map(str::to_owned)
        })
        .ok_or_else(|| format!("{request}: not found on {address}"))
    };
    let theirs = found(servers.theirs)?;
    for ours in &servers.ours {
        let ours = found(ours.address)?;
        if theirs != ours {
            return Err(format!("{request}: theirs {theirs} ours {ours}"));
        }
    }
    Ok(theirs)
}

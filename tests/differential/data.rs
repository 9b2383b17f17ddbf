//! Points, annotations and names of one seed.

use std::{
    fmt::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tsd_testkit::wait_for;

use crate::{
    random::Random,
    request::Request,
    servers::{Servers, send},
};

/// Start of all data: an hour, a day and a year begin here.
pub(crate) const BASE: i64 = 1_356_998_400;

/// Longest wait until a series that was put is in the meta table.
const TRACKING_TIMEOUT: Duration = Duration::from_secs(10);

const HOSTS: &[&str] = &["web01", "web02", "db01", "DB02"];
const CENTERS: &[&str] = &["lga", "ams", "sfo"];

/// One series and its points: milliseconds or seconds as they are put, and the JSON of the value.
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
}

/// How the values of a metric look.
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
        Self { seed, series, annotations }
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

    /// Puts everything to both; names get the same UIDs because they are assigned one by one.
    pub(crate) fn store(&mut self, servers: &Servers) -> Result<(), String> {
        let assign = |kind: &str, name: &str| {
            let request = Request::get("/api/uid/assign").parameter(kind, name);
            let (theirs, ours) = (send(servers.theirs, &request), send(servers.ours, &request));
            if theirs == ours || theirs.body.contains("already exists") {
                return Ok(());
            }
            Err(format!("{request}: theirs {theirs:?} ours {ours:?}"))
        };
        for (kind, names) in [
            ("tagk", &["host", "dc", "cpu"][..]),
            ("tagv", HOSTS),
            ("tagv", CENTERS),
            ("tagv", &["0", "1"]),
            ("metric", &self.metrics()),
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
        for points in points.chunks(200) {
            let request = Request::post("/api/put", Value::Array(points.to_vec()));
            let request = request.flag("sync").flag("details");
            for address in [servers.theirs, servers.ours] {
                let response = send(address, &request);
                if response.status != 200 {
                    return Err(format!("put to {address}: {} {}", response.status, response.body));
                }
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
            for address in [servers.theirs, servers.ours] {
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
    points.dedup_by_key(|point| key(point));
    points
}

/// The hour that has begun last, in seconds.
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

/// The TSUID of a series, once both have it in their meta tables.
fn tsuid(servers: &Servers, series: &Series) -> Result<String, String> {
    let tags: Vec<_> = series.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let request = Request::get("/api/search/lookup")
        .parameter("m", format!("{}{{{}}}", series.metric, tags.join(",")));
    let found = |address| {
        wait_for(TRACKING_TIMEOUT, || {
            let response = send(address, &request);
            let body: Value = serde_json::from_str(&response.body).ok()?;
            let same = body["results"].as_array()?.iter().find(|one| {
                one["tags"].as_object().is_some_and(|found| found.len() == series.tags.len())
            });
            same?["tsuid"].as_str().map(str::to_owned)
        })
        .ok_or_else(|| format!("{request}: not found on {address}"))
    };
    let (theirs, ours) = (found(servers.theirs)?, found(servers.ours)?);
    if theirs == ours { Ok(ours) } else { Err(format!("{request}: theirs {theirs} ours {ours}")) }
}

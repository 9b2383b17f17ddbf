//! Runs queries during the load and compares their results with the written points.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Map, Value};
use tsd_testkit::{SplitMix64, try_http};

use crate::load::{CENTRES, DAY, HOUR, Load, METRICS, STEP, metric};

/// Pause of a reader between two queries.
const PAUSE: Duration = Duration::from_millis(200);
const TEN_MINUTES: u64 = 600;

/// Results of the readers since the figures were last taken.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Time of each query, by the name of its shape.
    pub(crate) times: BTreeMap<&'static str, Vec<Duration>>,
    pub(crate) errors: Vec<String>,
}

/// Parameters of the readers.
pub(crate) struct Readers<'a> {
    pub(crate) load: Load,
    pub(crate) address: SocketAddr,
    /// The time before which all points are stored.
    pub(crate) complete: &'a (dyn Fn() -> u64 + Sync),
    /// Seconds before `complete` that all metrics keep.
    pub(crate) kept_secs: u64,
    pub(crate) found: &'a Mutex<Found>,
    pub(crate) queries: &'a AtomicU64,
    pub(crate) stop: &'a AtomicBool,
}

/// Series by a tag's value, and their points by epoch seconds.
type Answer = BTreeMap<String, BTreeMap<u64, f64>>;

impl Readers<'_> {
    /// Queries until the run stops.
    pub(crate) fn run(&self, seed: u64) {
        let mut random = SplitMix64::new(seed);
        while !self.stop.load(SeqCst) {
            thread::sleep(PAUSE);
            // Whole hours before the last stored point, the first of which may be cut.
            let end = (self.complete)() / HOUR * HOUR;
            let first = self.load.first.max(end.saturating_sub(self.kept_secs) + HOUR);
            if first + HOUR > end {
                continue;
            }
            let hours = (end - first) / HOUR;
            let number = random.below(METRICS);
            let hour = end - HOUR * (1 + random.below(hours.min(6)));
            let host = random.below(self.load.hosts());
            let started = Instant::now();
            let (shape, result) = match random.below(6) {
                0 => ("a host, an hour", self.points_of_host(number, host, hour)),
                1 => ("a host by hours", self.hours_of_host(number, host, first, end)),
                2 => ("maximum of a data centre", self.maximum_of_centre(number, host, hour)),
                3 => ("count of a metric", self.counts(number, hour, end)),
                4 => ("count by data centre", self.counts_by_centre(number, hour)),
                _ => ("look-up of a host", self.lookup(number, host)),
            };
            self.queries.fetch_add(1, SeqCst);
            let mut found = self.found.lock();
            found.times.entry(shape).or_default().push(started.elapsed());
            if let Err(error) = result {
                found.errors.push(format!("{shape}, before {end}: {error}"));
            }
        }
    }

    fn get(&self, uri: &str) -> Result<Value, String> {
        let response =
            try_http(self.address, "GET", uri, None).map_err(|e| format!("{uri}: {e}"))?;
        if response.status != 200 {
            return Err(format!("{uri}: {} {}", response.status, response.body));
        }
        serde_json::from_str(&response.body).map_err(|error| format!("{uri}: {error}"))
    }

    /// Compares the series of an answer, by the value of a tag.
    fn query(
        &self,
        (from, to): (u64, u64),
        m: &str,
        tag: &str,
        expected: Answer,
    ) -> Result<(), String> {
        let uri = format!("/api/query?start={from}&end={}&m={m}", to - 1);
        let body = self.get(&uri)?;
        let series = body.as_array().ok_or_else(|| format!("{uri}: no list"))?;
        let mut answer = Answer::new();
        for one in series {
            let points = one["dps"].as_object().into_iter().flatten();
            let points = points
                .map(|(at, value)| (at.parse().unwrap_or(0), value.as_f64().unwrap_or(f64::NAN)));
            let name = one["tags"][tag].as_str().unwrap_or_default().to_owned();
            answer.insert(name, points.collect());
        }
        if answer.keys().ne(expected.keys()) {
            let names: Vec<_> = answer.keys().collect();
            return Err(format!("{uri}: series {names:?}"));
        }
        for (name, points) in expected {
            let found = &answer[&name];
            let lacks = points.keys().filter(|at| !found.contains_key(at)).count();
            let wrong = points.iter().find(|&(at, value)| {
                !found.get(at).is_some_and(|found| (found - value).abs() <= value.abs() * 1e-9)
            });
            if let Some((at, value)) = wrong {
                let got = found.get(at);
                return Err(format!("{uri}: {name} at {at} {got:?}, not {value}; {lacks} lacking"));
            }
            if found.len() != points.len() {
                return Err(format!(
                    "{uri}: {name} has {} points, not {}",
                    found.len(),
                    points.len()
                ));
            }
        }
        Ok(())
    }

    fn points_of_host(&self, number: u64, host: u64, hour: u64) -> Result<(), String> {
        let value = |at| Load::hundredths(number, host, at) as f64 / 100.0;
        let points = (hour..hour + HOUR).step_by(STEP as usize).map(|at| (at, value(at)));
        let name = format!("h{host:05}");
        let m = format!("sum:{}{{host={name}}}", metric(number));
        self.query((hour, hour + HOUR), &m, "host", [(name, points.collect())].into())
    }

    fn hours_of_host(&self, number: u64, host: u64, from: u64, to: u64) -> Result<(), String> {
        let average = |hour: u64| {
            let points = (hour..hour + HOUR).step_by(STEP as usize);
            let sum: i64 = points.map(|at| Load::hundredths(number, host, at)).sum();
            sum as f64 / 100.0 / (HOUR / STEP) as f64
        };
        let hours = (from..to).step_by(HOUR as usize).map(|hour| (hour, average(hour)));
        let name = format!("h{host:05}");
        let m = format!("sum:1h-avg:{}{{host={name}}}", metric(number));
        self.query((from, to), &m, "host", [(name, hours.collect())].into())
    }

    fn maximum_of_centre(&self, number: u64, host: u64, hour: u64) -> Result<(), String> {
        let centre = host % CENTRES;
        let mut expected = BTreeMap::new();
        for at in (hour..hour + HOUR).step_by(STEP as usize) {
            let hosts = (centre..self.load.hosts()).step_by(CENTRES as usize);
            let most = hosts.map(|host| Load::hundredths(number, host, at)).max();
            let most = most.unwrap_or_default() as f64 / 100.0;
            let slot = expected.entry(at / TEN_MINUTES * TEN_MINUTES).or_insert(most);
            *slot = most.max(*slot);
        }
        let name = format!("d{centre}");
        let m = format!("max:10m-max:{}{{dc={name}}}", metric(number));
        self.query((hour, hour + HOUR), &m, "dc", [(name, expected)].into())
    }

    fn counts(&self, number: u64, from: u64, to: u64) -> Result<(), String> {
        let count = (self.load.hosts() * (HOUR / STEP)) as f64;
        let hours = (from..to).step_by(HOUR as usize).map(|hour| (hour, count)).collect();
        let m = format!("sum:1h-count:{}", metric(number));
        self.query((from, to), &m, "", [(String::new(), hours)].into())
    }

    fn counts_by_centre(&self, number: u64, hour: u64) -> Result<(), String> {
        let mut expected = Answer::new();
        for centre in 0..CENTRES {
            let hosts = (centre..self.load.hosts()).step_by(CENTRES as usize).count() as u64;
            let count = (hosts * (TEN_MINUTES / STEP)) as f64;
            let slots = (hour..hour + HOUR).step_by(TEN_MINUTES as usize);
            expected.insert(format!("d{centre}"), slots.map(|at| (at, count)).collect());
        }
        let m = format!("sum:10m-count:{}{{dc=*}}", metric(number));
        self.query((hour, hour + HOUR), &m, "dc", expected)
    }

    fn lookup(&self, number: u64, host: u64) -> Result<(), String> {
        let name = format!("h{host:05}");
        let uri = format!("/api/search/lookup?m={}{{host={name}}}", metric(number));
        let body = self.get(&uri)?;
        let results = body["results"].as_array().map_or(0, Vec::len);
        if results == 1 && body["results"][0]["tags"]["host"] == *name {
            return Ok(());
        }
        Err(format!("{uri}: {body}"))
    }

    /// Compares the counts of all points that every metric keeps, at the end.
    pub(crate) fn check_all(&self) -> Result<u64, String> {
        let end = self.load.end / HOUR * HOUR;
        let first = self.load.first.max(end.saturating_sub(self.kept_secs) + HOUR);
        for number in 0..METRICS {
            self.counts(number, first, end)?;
        }
        Ok((end - first) / STEP * self.load.series)
    }

    /// True if a metric has no points before a time that its retention has passed.
    pub(crate) fn is_expired(&self, number: u64, before: u64) -> Result<bool, String> {
        let from = self.load.first.saturating_sub(DAY);
        let m = metric(number);
        let body =
            self.get(&format!("/api/query?start={from}&end={}&m=sum:1h-count:{m}", before - 1))?;
        // As in OpenTSDB, a series whose row begins at the end of the range is listed without
        // points.
        let has_none = |series: &Value| series["dps"].as_object().is_none_or(Map::is_empty);
        Ok(body.as_array().is_none_or(|all| all.iter().all(has_none)))
    }
}

//! A load in which several daemons write the same rows at the same time, with the expected reads. It has new
//! points, corrections of points, and values of one instant by all daemons.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tsd_testkit::{http, try_http};

use crate::regions::ScenarioResult;

/// Start of the first hour, which is long over, so that its rows are compacted.
const FIRST_HOUR: u64 = 1_500_001_200;
const HOSTS: u64 = 5;
/// Pause between two queries of a reader.
const QUERY_PAUSE: Duration = Duration::from_millis(300);
/// Milliseconds between two instants of a row: every second one is a whole second.
const STEP_MS: u64 = 500;
const HOUR_MS: u64 = 3_600_000;

/// A daemon that writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowWriter {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// False for OpenTSDB.
    pub(crate) is_ours: bool,
}

impl RowWriter {
    const fn uri(&self) -> &'static str {
        if self.is_ours { "/api/put" } else { "/api/put?sync" }
    }
}

/// Rows of a load, and the rate of their writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadShape {
    /// Rows of each series.
    pub(crate) hours: u64,
    /// Pause between two rounds, in which rows are compacted.
    pub(crate) pause: Duration,
    pub(crate) time: Duration,
}

/// Host and milliseconds since the epoch.
type Instants<T> = BTreeMap<(u64, u64), T>;

/// Acknowledged writes of one instant.
#[derive(Clone, Debug, Default)]
struct Acknowledged {
    /// The writer, as an index; `None` if all have written it.
    writer: Option<usize>,
    /// Writes in the order of their acknowledgement; unordered if all writers wrote the instant.
    writes: Vec<AcknowledgedWrite>,
}

/// A value, and when it was sent and acknowledged, epoch milliseconds.
#[derive(Clone, Copy, Debug)]
struct AcknowledgedWrite {
    value: f64,
    sent_ms: u128,
    acknowledged_ms: u128,
}

/// Counts of reads that differ from the acknowledged writes of one writer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LossCounts {
    /// Instants that have no point.
    pub(crate) missing: u64,
    /// Corrected instants that have the former value.
    pub(crate) stale: u64,
    /// Instants with a value that was never written.
    pub(crate) wrong: u64,
    /// One of these instants, preferably with a wrong value.
    pub(crate) first: Option<Loss>,
}

/// An instant with a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Loss {
    pub(crate) host: u64,
    pub(crate) at_ms: u64,
    reader: SocketAddr,
    found: Option<f64>,
    is_wrong: bool,
}

impl LossCounts {
    /// The larger of each.
    pub(crate) fn max(self, other: Self) -> Self {
        let is_wrong = |loss: &Loss| loss.is_wrong;
        let (first, second) = (self.first, other.first);
        Self {
            missing: self.missing.max(other.missing),
            stale: self.stale.max(other.stale),
            wrong: self.wrong.max(other.wrong),
            first: first.filter(is_wrong).or(second.filter(is_wrong)).or(first).or(second),
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// A load with its acknowledged writes.
pub(crate) struct RowLoad {
    metric: String,
    writers: Vec<RowWriter>,
    acknowledged: Mutex<Instants<Acknowledged>>,
    failures: Mutex<Vec<String>>,
    shape: LoadShape,
    rounds: u64,
}

impl RowLoad {
    /// Writes for a while through all writers, while queries make the `readers` compact rows.
    pub(crate) fn run(
        metric: &str,
        writers: &[RowWriter],
        readers: &[SocketAddr],
        shape: LoadShape,
    ) -> Self {
        // UIDs are assigned before several daemons need them.
        for writer in writers {
            let body = json!([{"metric": metric, "timestamp": FIRST_HOUR - 10, "value": 0,
                               "tags": {"host": "h0"}}]);
            let _ = http(writer.address, "POST", writer.uri(), Some(&body.to_string()));
        }
        let mut load = Self {
            metric: metric.to_owned(),
            writers: writers.to_vec(),
            acknowledged: Mutex::default(),
            failures: Mutex::default(),
            shape,
            rounds: 0,
        };
        let deadline = Instant::now() + shape.time;
        let stopped = AtomicBool::new(false);
        let (barrier, is_last) = (Barrier::new(writers.len()), AtomicBool::new(false));
        let write = |writer| load.write(writer, &barrier, &is_last, deadline);
        thread::scope(|scope| {
            for reader in readers {
                scope.spawn(|| load.query_until(*reader, &stopped));
            }
            let write = &write;
            let threads: Vec<_> =
                (0..writers.len()).map(|writer| scope.spawn(move || write(writer))).collect();
            let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
            let ended: Result<Vec<()>, _> = ended.collect();
            stopped.store(true, SeqCst);
            ended.expect("no panic");
        });
        load.rounds = load.count_rounds();
        load
    }

    fn query_until(&self, reader: SocketAddr, stopped: &AtomicBool) {
        while !stopped.load(SeqCst) {
            // Neither results nor errors matter now.
            let _ = try_http(reader, "GET", &self.query_uri(), None);
            thread::sleep(QUERY_PAUSE);
        }
    }

    /// Writes rounds of points through one writer, in step with the others, until the time or the instants of
    /// an hour are used up.
    fn write(&self, writer: usize, barrier: &Barrier, is_last: &AtomicBool, deadline: Instant) {
        let max_rounds = HOUR_MS / STEP_MS / (self.writers.len() as u64 + 1);
        let mut round = 0;
        loop {
            if writer == 0 && (Instant::now() > deadline || round + 1 == max_rounds) {
                is_last.store(true, SeqCst);
            }
            for hour in 0..self.shape.hours {
                barrier.wait();
                self.put(writer, round, hour);
            }
            // All writers have seen the mark of the first writer, which stores it before the barriers of a
            // round.
            if is_last.load(SeqCst) {
                return;
            }
            barrier.wait();
            round += 1;
            thread::sleep(self.shape.pause);
        }
    }

    /// Puts the points of a round and an hour: a new instant of this writer alone, a correction of its instant
    /// of the last round, and an instant of all writers.
    fn put(&self, writer: usize, round: u64, hour: u64) {
        let (own, common) = (writer as u64, self.writers.len() as u64);
        let at_ms = |round: u64, place: u64| {
            (FIRST_HOUR + hour * 3_600) * 1_000 + (round * (common + 1) + place) * STEP_MS
        };
        // Unique numbers; a correction may have another width or type than the corrected value.
        let value = |kind: u64| {
            let number = (round * 1_000 + own * 10 + kind) as f64;
            if (round + kind).is_multiple_of(3) { number + 0.5 } else { number }
        };
        let mut points =
            vec![(at_ms(round, own), value(1), true), (at_ms(round, common), value(2), false)];
        if round > 0 {
            points.push((at_ms(round - 1, own), value(3), true));
        }
        let mut body = Vec::new();
        for host in 0..HOSTS {
            body.extend(points.iter().map(|(at_ms, value, _)| {
                // A correction may also be in the other unit.
                let is_seconds = at_ms.is_multiple_of(1_000) && round.is_multiple_of(2);
                let time = if is_seconds { at_ms / 1_000 } else { *at_ms };
                let value = if value.fract() == 0.0 { json!(*value as i64) } else { json!(value) };
                json!({"metric": self.metric, "timestamp": time, "value": value,
                       "tags": {"host": format!("h{host}")}})
            }));
        }
        let RowWriter { address, name, .. } = self.writers[writer];
        let body = Value::Array(body).to_string();
        let sent_ms = epoch_ms();
        let response = try_http(address, "POST", self.writers[writer].uri(), Some(&body));
        let is_stored = response.as_ref().is_ok_and(|put| matches!(put.status, 200 | 204));
        if !is_stored {
            let mut failures = self.failures.lock();
            failures.push(format!("{name}: {response:?}"));
        }
        let acknowledged_ms = epoch_ms();
        let mut acknowledged = self.acknowledged.lock();
        for host in 0..HOSTS {
            for (at_ms, value, is_own) in &points {
                let instant = acknowledged.entry((host, *at_ms)).or_default();
                instant.writer = is_own.then_some(writer);
                let value = *value;
                instant.writes.push(AcknowledgedWrite { value, sent_ms, acknowledged_ms });
            }
        }
    }

    fn count_rounds(&self) -> u64 {
        let acknowledged = self.acknowledged.lock();
        let common =
            acknowledged.values().filter(|instant| instant.writer.is_none()).count() as u64;
        common / (self.shape.hours * HOSTS)
    }

    /// Puts that were not acknowledged.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().clone()
    }

    /// Points of one writer alone.
    pub(crate) const fn points(&self) -> u64 {
        self.rounds * self.shape.hours * HOSTS
    }

    /// Corrections by one writer.
    pub(crate) const fn corrections(&self) -> u64 {
        (self.rounds - 1) * self.shape.hours * HOSTS
    }

    /// Losses of a reader for each writer, and last for the common instants.
    pub(crate) fn compare(&self, reader: SocketAddr) -> ScenarioResult<Vec<LossCounts>> {
        let found = self.read(reader)?;
        let acknowledged = self.acknowledged.lock();
        let mut counts = vec![LossCounts::default(); self.writers.len() + 1];
        for ((host, at_ms), instant) in &*acknowledged {
            let counts = &mut counts[instant.writer.unwrap_or(self.writers.len())];
            let found = found.get(&(*host, *at_ms)).copied();
            let written: Vec<f64> = instant.writes.iter().map(|write| write.value).collect();
            let is_wrong = found.is_some_and(|value| !written.contains(&value));
            if found.is_none() {
                counts.missing += 1;
            } else if is_wrong {
                counts.wrong += 1;
            } else if instant.writer.is_some() && found.as_ref() != written.last() {
                counts.stale += 1;
            } else {
                continue;
            }
            if is_wrong || counts.first.is_none() {
                let (host, at_ms) = (*host, *at_ms);
                counts.first = Some(Loss { host, at_ms, reader, found, is_wrong });
            }
        }
        Ok(counts)
    }

    /// Acknowledged and read values of an instant.
    pub(crate) fn evidence(&self, loss: Loss) -> Vec<String> {
        let acknowledged = self.acknowledged.lock();
        let Loss { host, at_ms, reader, found, .. } = loss;
        let reader = self.writers.iter().find(|writer| writer.address == reader);
        let reader = reader.map_or("another", |writer| writer.name);
        let writes = acknowledged.get(&(host, at_ms)).map(|instant| &instant.writes);
        let lines = writes.into_iter().flatten().map(|write| {
            let AcknowledgedWrite { value, sent_ms, acknowledged_ms } = write;
            format!("{value} sent at {sent_ms}, acknowledged at {acknowledged_ms}")
        });
        let read = format!("h{host} at {at_ms} is read through {reader} as {found:?}");
        [read].into_iter().chain(lines).collect()
    }

    /// Name of the metric.
    pub(crate) fn metric(&self) -> &str {
        &self.metric
    }

    fn read(&self, reader: SocketAddr) -> ScenarioResult<Instants<f64>> {
        let response = try_http(reader, "GET", &self.query_uri(), None)?;
        if response.status != 200 {
            return Err(format!("query of {reader}: {} {}", response.status, response.body).into());
        }
        let series: Vec<Value> = serde_json::from_str(&response.body)?;
        let mut found = Instants::new();
        for one in &series {
            let host = one["tags"]["host"].as_str().and_then(|host| host.strip_prefix('h'));
            let host: u64 = host.ok_or("no host")?.parse()?;
            for (time, value) in one["dps"].as_object().ok_or("no points")? {
                let value = value.as_f64().ok_or("no number")?;
                found.insert((host, time.parse()?), value);
            }
        }
        Ok(found)
    }

    fn query_uri(&self) -> String {
        let end = FIRST_HOUR + self.shape.hours * 3_600 - 1;
        let metric = &self.metric;
        format!("/api/query?start={FIRST_HOUR}&end={end}&ms=true&m=none:{metric}%7Bhost=*%7D")
    }
}

fn epoch_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis())
}

//! Shared state of all threads of a run: the daemon's address, the model, the current conditions,
//! and figures.

use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::Value;
use tsd_testkit::{HttpResponse, try_http};

use crate::model::SeriesModel;

/// State of a run.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// `None` while the daemon is down.
    address: RwLock<Option<SocketAddr>>,
    /// Counts ends of the daemon. It is increased before the daemon is sent a signal, so a reply that
    /// came before an increase was sent by a living daemon.
    ends: AtomicU64,
    /// Points may be refused: the disk is full.
    pub(crate) disk_is_full: AtomicBool,
    /// Connections may be refused.
    pub(crate) connections_are_taken: AtomicBool,
    /// Files with a flipped byte, as errors name them.
    pub(crate) damaged: Mutex<Vec<String>>,
    pub(crate) stop: AtomicBool,
    /// Held for reading around each write and read, for writing while the model must not change.
    pub(crate) pause: RwLock<()>,
    pub(crate) series: RwLock<Vec<Arc<SeriesModel>>>,
    /// Acknowledged annotations by second.
    pub(crate) annotations: Mutex<BTreeMap<u64, String>>,
    pub(crate) figures: Figures,
    failures: Mutex<Vec<String>>,
}

/// Counters of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) sent: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
    /// Refused with a reason.
    pub(crate) refused: AtomicU64,
    /// Neither acknowledged nor refused: the daemon was killed.
    pub(crate) in_doubt: AtomicU64,
    /// Points of telnet connections that were held up for more than a second.
    pub(crate) held: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) queries: AtomicU64,
    /// Queries that failed and named a damaged file.
    pub(crate) named_errors: AtomicU64,
    /// Points that queries and checks had to return, and returned.
    pub(crate) verified: AtomicU64,
    /// Points in the damaged part of a file.
    pub(crate) lost_to_damage: AtomicU64,
    pub(crate) stages: AtomicU64,
}

impl Figures {
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, SeqCst);
    }

    /// The counts of a row of figures, in the order of its heading.
    pub(crate) fn row(&self) -> [u64; 11] {
        [
            &self.sent,
            &self.acknowledged,
            &self.refused,
            &self.in_doubt,
            &self.held,
            &self.deleted,
            &self.lost_to_damage,
            &self.queries,
            &self.named_errors,
            &self.verified,
            &self.stages,
        ]
        .map(|count| count.load(SeqCst))
    }
}

/// Conditions when a request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    ends: u64,
    disk_is_full: bool,
    connections_are_taken: bool,
}

/// Reason why a read returned nothing.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// No response.
    Gone(String),
    /// A response other than 200.
    Refused(u16, String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(error) => write!(f, "no response: {error}"),
            Self::Refused(status, body) => write!(f, "{status} {body}"),
        }
    }
}

impl Run {
    /// The conditions, and the address of the daemon while it serves. An end of it after this call
    /// changes the conditions before it breaks connections.
    pub(crate) fn service(&self) -> Option<(Conditions, SocketAddr)> {
        let conditions = self.conditions();
        let address = *self.address.read();
        address.map(|address| (conditions, address))
    }

    /// The daemon serves at this address.
    pub(crate) fn serve(&self, address: SocketAddr) {
        *self.address.write() = Some(address);
    }

    /// The daemon will be ended.
    pub(crate) fn end(&self) {
        *self.address.write() = None;
        self.ends.fetch_add(1, SeqCst);
    }

    pub(crate) fn conditions(&self) -> Conditions {
        Conditions {
            ends: self.ends.load(SeqCst),
            disk_is_full: self.disk_is_full.load(SeqCst),
            connections_are_taken: self.connections_are_taken.load(SeqCst),
        }
    }

    /// True if the daemon served from `before` until now.
    pub(crate) fn served_since(&self, before: Conditions) -> bool {
        self.conditions().ends == before.ends
    }

    /// True if a point sent under the conditions `before` may have been refused.
    pub(crate) fn may_refuse(&self, before: Conditions) -> bool {
        let now = self.conditions();
        before.disk_is_full || now.disk_is_full || self.may_disconnect(before)
    }

    /// True if a connection may have been refused or broken.
    pub(crate) fn may_disconnect(&self, before: Conditions) -> bool {
        let now = self.conditions();
        before.connections_are_taken || now.connections_are_taken || before.ends != now.ends
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// Records a failure, and ends the run.
    pub(crate) fn fail(&self, what: String) {
        if self.is_stopped() {
            // A consequence of the first failure.
            return;
        }
        println!("FAILED: {what}");
        self.failures.lock().push(what);
        self.stop.store(true, SeqCst);
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().clone()
    }

    /// Sleeps in parts, so that the end of the run is not delayed.
    pub(crate) fn sleep(&self, time: Duration) {
        let end = std::time::Instant::now() + time;
        while !self.is_stopped() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20).min(time));
        }
    }

    /// True if an error names a file that was damaged by this run, or says that such a file was replaced
    /// while it was read.
    pub(crate) fn names_damage(&self, text: &str) -> bool {
        let damaged = self.damaged.lock();
        damaged.iter().any(|file| text.contains(file.as_str()))
            || (!damaged.is_empty() && text.contains("was repaired during the read"))
    }

    pub(crate) fn new_series(&self, metric: &str, host: &str) -> Arc<SeriesModel> {
        let series = Arc::new(SeriesModel::new(metric, host));
        self.series.write().push(Arc::clone(&series));
        series
    }

    pub(crate) fn all_series(&self) -> Vec<Arc<SeriesModel>> {
        self.series.read().clone()
    }
}

/// `/api/query` for the points of one series.
pub(crate) fn series_uri(series: &SeriesModel, range: &RangeInclusive<i64>) -> String {
    format!(
        "/api/query?ms=true&start={}&end={}&m=none:{}%7Bhost={}%7D",
        range.start(),
        range.end(),
        series.metric,
        series.host
    )
}

/// Reads the points of one series.
pub(crate) fn read_series(
    address: SocketAddr,
    series: &SeriesModel,
    range: &RangeInclusive<i64>,
) -> Result<Vec<(i64, f64)>, ReadError> {
    let HttpResponse { status, body } = try_http(address, "GET", &series_uri(series, range), None)
        .map_err(|error| ReadError::Gone(error.to_string()))?;
    if status == 400 && body.contains("No such name for") {
        return Ok(Vec::new());
    }
    if status != 200 {
        return Err(ReadError::Refused(status, body));
    }
    parse_points(&body).ok_or(ReadError::Refused(status, body))
}

fn parse_points(body: &str) -> Option<Vec<(i64, f64)>> {
    let results: Value = serde_json::from_str(body).ok()?;
    let results = results.as_array()?;
    if results.len() > 1 {
        return None;
    }
    let Some(result) = results.first() else { return Some(Vec::new()) };
    let points = result["dps"].as_object()?;
    points.iter().map(|(at, value)| Some((at.parse().ok()?, value.as_f64()?))).collect()
}

//! Writers and readers, which send each request to any live node.
//!
//! A rejected or broken request is repeated until it is acknowledged. Possibly stored points are repeated before
//! their next write, so that their expected value is known.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::task::{JoinHandle, spawn_blocking};
use tsd_testkit::{SplitMix64, try_http};

use super::{
    history::{History, POINTS, Round, WriteRequest, WrongPoint},
    probe::Probes,
    report::Report,
};

const WRITERS: u64 = 6;
const READERS: u64 = 3;
/// Rounds of a page before the next page begins.
const PAGE_ROUNDS: usize = 12;
/// Number of latest pages, which get most corrections of earlier pages.
const RECENT_PAGES: usize = 12;
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(50);
const ROUND_PAUSE: Duration = Duration::from_millis(180);
/// Longest pause of a reader.
const READ_PAUSE_MS: u64 = 300;

/// Addresses of the nodes that clients use, by their numbers.
#[derive(Debug, Default)]
pub(super) struct LiveNodes(Mutex<BTreeMap<usize, SocketAddr>>);

impl LiveNodes {
    pub(super) fn add(&self, number: usize, address: SocketAddr) {
        self.0.lock().insert(number, address);
    }

    pub(super) fn remove(&self, number: usize) {
        self.0.lock().remove(&number);
    }

    pub(super) fn any(&self, random: &mut SplitMix64) -> Option<SocketAddr> {
        let nodes = self.0.lock();
        if nodes.is_empty() {
            return None;
        }
        nodes.values().nth(random.below(nodes.len() as u64) as usize).copied()
    }
}

/// Shared state of writers, readers and probes.
#[derive(Debug)]
pub(super) struct KillLoad {
    pub(super) live: LiveNodes,
    pub(super) report: Report,
    /// True if no new round may begin.
    pub(super) is_over: AtomicBool,
    /// True after a failure of the run, which ends all repetitions.
    pub(super) is_abandoned: Arc<AtomicBool>,
    /// True if the logs of the nodes must be kept.
    pub(super) keeps_logs: AtomicBool,
    pub(super) probes: Probes,
    histories: Vec<History>,
    seed: u64,
}

impl KillLoad {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            live: LiveNodes::default(),
            report: Report::new(),
            is_over: AtomicBool::new(false),
            is_abandoned: Arc::default(),
            keeps_logs: AtomicBool::new(false),
            probes: Probes::default(),
            histories: (0..WRITERS).map(History::new).collect(),
            seed,
        }
    }

    /// Starts writers and readers.
    pub(super) fn start_clients(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let start = |number: u64, client: fn(&Self, u64)| {
            let load = Arc::clone(self);
            spawn_blocking(move || client(&load, number))
        };
        let writers = (0..WRITERS).map(|writer| start(writer, Self::write));
        let readers = (0..READERS).map(|reader| start(reader, Self::read));
        writers.chain(readers).collect()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst) || self.is_abandoned()
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::SeqCst)
    }

    /// Random numbers of a client.
    pub(super) fn random(&self, client: u64) -> SplitMix64 {
        SplitMix64::new(self.seed.wrapping_mul(1_000).wrapping_add(client))
    }

    fn write(&self, writer: u64) {
        let mut random = self.random(writer);
        let history = &self.histories[writer as usize];
        while !self.is_over() {
            let round = next_round(history, &mut random);
            let request = history.begin(round);
            if !self.send(&mut random, &request, || history.record_failure()) {
                return;
            }
            history.acknowledge();
            self.report.record_acknowledgement(if round.is_delete { 0 } else { POINTS });
            thread::sleep(ROUND_PAUSE);
        }
    }

    /// Sends a request to one node after the other until it is acknowledged. Returns false if the run is abandoned.
    pub(super) fn send(
        &self,
        random: &mut SplitMix64,
        request: &WriteRequest,
        on_failure: impl Fn(),
    ) -> bool {
        let WriteRequest { method, uri, body } = request;
        while !self.is_abandoned() {
            if let Some(address) = self.live.any(random) {
                match try_http(address, method, uri, body.as_deref()) {
                    Ok(response) if matches!(response.status, 200 | 204) => return true,
                    Ok(response) => {
                        self.report.record_refusal(method, response.status, &response.body);
                    }
                    Err(error) => self.report.record_broken_write(&error),
                }
                on_failure();
            }
            thread::sleep(RETRY_PAUSE);
        }
        false
    }

    /// Reads through any node until it is over.
    fn read(&self, reader: u64) {
        let mut random = self.random(100 + reader);
        while !self.is_over() {
            thread::sleep(Duration::from_millis(random.below(READ_PAUSE_MS)));
            let history = &self.histories[random.below(WRITERS) as usize];
            let Some(address) = self.live.any(&mut random) else { continue };
            if history.acknowledged() > 0 {
                self.read_pages(address, history, &pages_to_read(history, &mut random));
            }
        }
    }

    /// Number of parts into which all points are divided.
    pub(super) fn parts(&self) -> usize {
        self.histories.len() + 1
    }

    /// Reads a part of all points through a node. Returns the number of points; `None` if the query fails.
    pub(super) fn read_part(&self, address: SocketAddr, part: usize) -> Option<u64> {
        match self.histories.get(part) {
            Some(history) if history.pages() == 0 => Some(0),
            Some(history) => self.read_pages(address, history, &(0..=history.pages() - 1)),
            None => self.probes.read_all(self, address),
        }
    }

    fn read_pages(
        &self,
        address: SocketAddr,
        history: &History,
        pages: &RangeInclusive<usize>,
    ) -> Option<u64> {
        let (asked, acknowledged) = (Instant::now(), history.acknowledged());
        let series = self.query(address, &history.uri(pages))?;
        let (points, wrong) = history.check(pages, acknowledged, &series);
        self.report.record_wrong(address, asked, &wrong);
        Some(points)
    }

    /// The series of an answer; `None` if the query fails, which is counted.
    pub(super) fn query(&self, address: SocketAddr, uri: &str) -> Option<Vec<Value>> {
        match try_http(address, "GET", uri, None) {
            Ok(response) if response.status == 200 => {
                self.report.record_query();
                match serde_json::from_str(&response.body) {
                    Ok(series) => return Some(series),
                    // The whole result is missing.
                    Err(error) => {
                        let wrong =
                            WrongPoint { has_value: false, second: None, text: error.to_string() };
                        self.report.record_wrong(address, Instant::now(), &[wrong]);
                    }
                }
            }
            Ok(response) => self.report.record_failed_query(response.status, &response.body),
            Err(error) => self.report.record_broken_query(&error),
        }
        None
    }
}

/// Writes the last page, corrects it and earlier ones, and deletes some.
fn next_round(history: &History, random: &mut SplitMix64) -> Round {
    let pages = history.pages();
    let Some(last) = pages.checked_sub(1) else { return Round { page: 0, is_delete: false } };
    let choice = random.below(100);
    let page = match choice {
        0..75 if history.rounds_of(last) >= PAGE_ROUNDS => pages,
        0..75 => last,
        75..90 => last - random.below(pages.min(RECENT_PAGES) as u64) as usize,
        _ => random.below(pages as u64) as usize,
    };
    // A page begins with points.
    let is_delete = page < pages && matches!(choice, 0..3 | 75..77 | 97..100);
    Round { page, is_delete }
}

/// Some pages of a writer: mostly the last one, seldom all.
fn pages_to_read(history: &History, random: &mut SplitMix64) -> RangeInclusive<usize> {
    let pages = history.pages();
    let any = random.below(pages as u64) as usize;
    match random.below(100) {
        0..45 => pages - 1..=pages - 1,
        45..75 => any..=any,
        75..96 => pages - pages.min(RECENT_PAGES)..=pages - 1,
        _ => 0..=pages - 1,
    }
}

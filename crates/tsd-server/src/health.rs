//! The state of the daemon, for status pages, probes and alerts.
//!
//! A thread of its own asks the engine, every second and for each request, so that neither a busy
//! runtime nor a store that does not respond delays an answer. It keeps the gauges and logs when a
//! problem begins and ends.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use metrics::{Gauge, gauge};
use tokio::{sync::oneshot, time::timeout};
use tracing::{error, info, warn};
use tsd_engine::{EngineHandle, HealthImpact, HealthPart, LogLimit, Problem};
use tsd_protocol::Health;

/// Interval of the checks without a request.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a request waits for a check; then it is answered with the last one.
const WAIT: Duration = Duration::from_millis(500);
/// Age of the last check at which the store counts as unresponsive.
const UNRESPONSIVE: Duration = Duration::from_secs(10);
/// Requests that wait for a check at most.
const MAX_WAITING: usize = 1_024;
/// Interval of log messages about a problem whose reason changes.
const REASON_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A check of the health.
#[derive(Clone, Debug)]
struct Check {
    at: Instant,
    problems: Vec<Problem>,
}

/// Problems as a client sees them.
#[derive(Clone, Debug)]
pub(crate) struct HealthReport {
    /// What is wrong; the part is a text since the check itself is one.
    pub(crate) problems: Vec<(&'static str, HealthImpact, Arc<str>)>,
    stopping: bool,
}

impl HealthReport {
    /// OpenTSDB's state. Background work that is behind does not change it.
    pub(crate) fn state(&self) -> Health {
        match self.impact() {
            _ if self.stopping => Health::ShuttingDown,
            Some(HealthImpact::Unavailable) => Health::Error,
            Some(HealthImpact::WritesRejected | HealthImpact::SomeReadsFail) => Health::Partial,
            Some(HealthImpact::Degraded) | None => Health::Ok,
        }
    }

    /// True if clients should be sent to this daemon, which `writes` points or only reads them.
    /// With data that cannot be read it stays ready: another daemon could not read it either, and
    /// the rest is served.
    pub(crate) fn is_ready(&self, writes: bool) -> bool {
        !self.stopping
            && match self.impact() {
                Some(HealthImpact::Unavailable) => false,
                Some(HealthImpact::WritesRejected) => !writes,
                _ => true,
            }
    }

    fn impact(&self) -> Option<HealthImpact> {
        self.problems.iter().map(|(_, impact, _)| *impact).max()
    }
}

/// The thread that checks the health.
#[derive(Debug)]
pub(crate) struct HealthMonitor {
    requests: mpsc::SyncSender<oneshot::Sender<Arc<Check>>>,
    latest: Arc<Mutex<Arc<Check>>>,
}

impl HealthMonitor {
    /// Starts the thread, which ends when the monitor is dropped.
    pub(crate) fn start(engine: EngineHandle) -> io::Result<Self> {
        Self::start_with(move || engine.health())
    }

    fn start_with(check: impl Fn() -> Vec<Problem> + Send + 'static) -> io::Result<Self> {
        let (requests, received) = mpsc::sync_channel(MAX_WAITING);
        let latest = Arc::new(Mutex::new(Arc::new(Check { at: Instant::now(), problems: vec![] })));
        let shared = Arc::clone(&latest);
        let run = move || run(&check, &received, &shared);
        thread::Builder::new().name("tsd-health".to_owned()).spawn(run)?;
        Ok(Self { requests, latest })
    }

    /// Returns the problems now, or those of the last check if a new one takes too long.
    pub(crate) async fn report(&self, stopping: bool) -> HealthReport {
        let (reply, checked) = oneshot::channel();
        let current = match self.requests.try_send(reply) {
            Ok(()) => timeout(WAIT, checked).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        let check = current.unwrap_or_else(|| {
            Arc::clone(&self.latest.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let mut problems: Vec<_> = check
            .problems
            .iter()
            .map(|problem| (problem.part.as_str(), problem.impact, Arc::clone(&problem.reason)))
            .collect();
        let age = check.at.elapsed();
        if age >= UNRESPONSIVE {
            let reason = format!("the store has not reported its state for {} s", age.as_secs());
            problems.push(("health", HealthImpact::Unavailable, reason.into()));
        }
        HealthReport { problems, stopping }
    }
}

/// Checks every [`INTERVAL`] and on request, until the monitor is dropped.
fn run(
    check: &dyn Fn() -> Vec<Problem>,
    requests: &mpsc::Receiver<oneshot::Sender<Arc<Check>>>,
    latest: &Mutex<Arc<Check>>,
) {
    let mut watch = PublishedProblems::new();
    let mut waiting: Vec<oneshot::Sender<Arc<Check>>> = Vec::new();
    loop {
        let checked = Arc::new(Check { at: Instant::now(), problems: check() });
        watch.update(&checked.problems);
        for request in waiting.drain(..) {
            // A failed send means that the client no longer waits.
            let _ = request.send(Arc::clone(&checked));
        }
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = checked;
        match requests.recv_timeout(INTERVAL) {
            Ok(request) => waiting.push(request),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        // One check serves all requests before it.
        waiting.extend(requests.try_iter().take(MAX_WAITING));
    }
}

/// Publishes the problems of successive checks as gauges and log messages.
struct PublishedProblems {
    parts: BTreeMap<HealthPart, PartWatch>,
}

struct PartWatch {
    gauge: Gauge,
    current: Option<(HealthImpact, Arc<str>)>,
    reason_log: LogLimit,
}

impl PublishedProblems {
    fn new() -> Self {
        let watch = |part: HealthPart| {
            let gauge = gauge!("tsd_health_problem", "part" => part.as_str());
            gauge.set(0.0);
            let reason_log = LogLimit::new(REASON_LOG_INTERVAL);
            (part, PartWatch { gauge, current: None, reason_log })
        };
        Self { parts: HealthPart::all().map(watch).collect() }
    }

    fn update(&mut self, problems: &[Problem]) {
        for (part, watch) in &mut self.parts {
            let of_part = problems.iter().filter(|problem| problem.part == *part);
            // Of several problems of a part, the first of the worst ones.
            let worst = of_part.rev().max_by_key(|problem| problem.impact);
            watch.update(*part, worst);
        }
    }
}

impl PartWatch {
    fn update(&mut self, part: HealthPart, problem: Option<&Problem>) {
        let part = part.as_str();
        let next = problem.map(|problem| (problem.impact, Arc::clone(&problem.reason)));
        if self.current == next {
            return;
        }
        let impact = next.as_ref().map(|(impact, _)| *impact);
        let began = self.current.as_ref().map(|(impact, _)| *impact) != impact;
        if let Some((problem, reason)) = &next {
            if let Some(suppressed) = self.reason_log.admit().or(began.then_some(0)) {
                let impact = problem.as_str();
                if *problem > HealthImpact::Degraded {
                    error!(part, impact, reason = %reason, suppressed, "health problem");
                } else {
                    warn!(part, impact, reason = %reason, suppressed, "health problem");
                }
            }
        } else {
            info!(part, "health problem ended");
        }
        self.gauge.set(match impact {
            None => 0.0,
            Some(HealthImpact::Degraded) => 1.0,
            Some(HealthImpact::SomeReadsFail) => 2.0,
            Some(HealthImpact::WritesRejected) => 3.0,
            Some(HealthImpact::Unavailable) => 4.0,
        });
        self.current = next;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_engine::StorePart;

    use super::*;

    fn problem(part: StorePart, impact: HealthImpact) -> Problem {
        Problem { part: HealthPart::Store(part), impact, reason: "r".into() }
    }

    fn report(impacts: &[HealthImpact], stopping: bool) -> HealthReport {
        let problems = impacts.iter().map(|impact| ("data", *impact, "r".into())).collect();
        HealthReport { problems, stopping }
    }

    #[test]
    fn the_worst_impact_decides() {
        use HealthImpact::{Degraded, SomeReadsFail, Unavailable, WritesRejected};
        for (impacts, state, reader, writer) in [
            (&[][..], Health::Ok, true, true),
            (&[Degraded], Health::Ok, true, true),
            (&[Degraded, SomeReadsFail], Health::Partial, true, true),
            (&[WritesRejected, SomeReadsFail], Health::Partial, true, false),
            (&[Unavailable, Degraded], Health::Error, false, false),
        ] {
            let report = report(impacts, false);
            assert_eq!(report.state(), state);
            assert_eq!((report.is_ready(false), report.is_ready(true)), (reader, writer));
        }
        assert_eq!(report(&[], true).state(), Health::ShuttingDown);
        assert!(!report(&[], true).is_ready(false));
    }

    #[tokio::test]
    async fn a_request_gets_a_check_that_begins_after_it() {
        let problems = Arc::new(Mutex::new(Vec::new()));
        let source = Arc::clone(&problems);
        let monitor = HealthMonitor::start_with(move || source.lock().unwrap().clone()).unwrap();
        assert!(monitor.report(false).await.problems.is_empty());
        problems.lock().unwrap().push(problem(StorePart::Disk, HealthImpact::WritesRejected));
        let seen = monitor.report(false).await;
        assert_eq!(seen.problems, [("disk", HealthImpact::WritesRejected, "r".into())]);
        problems.lock().unwrap().clear();
        assert!(monitor.report(false).await.problems.is_empty());
    }

    #[tokio::test]
    async fn a_store_that_does_not_respond_delays_no_answer() {
        let (release, held) = mpsc::channel::<()>();
        // The first check of the thread and that of the first request wait until the test ends.
        let monitor = HealthMonitor::start_with(move || {
            let _ = held.recv();
            Vec::new()
        })
        .unwrap();
        assert!(monitor.report(false).await.problems.is_empty(), "the store has some time left");
        let long_ago = Instant::now().checked_sub(UNRESPONSIVE).unwrap();
        *monitor.latest.lock().unwrap() = Arc::new(Check { at: long_ago, problems: vec![] });
        let report = monitor.report(false).await;
        assert_eq!(report.state(), Health::Error);
        let (part, _, reason) = report.problems.first().unwrap();
        assert_eq!(*part, "health");
        assert!(reason.starts_with("the store has not reported its state for 1"), "{reason}");
        drop(release);
    }

    #[test]
    fn a_part_has_the_impact_of_its_worst_problem() {
        let mut watch = PublishedProblems::new();
        let current = |watch: &PublishedProblems, part| {
            let watch = watch.parts.get(&HealthPart::Store(part)).unwrap();
            watch.current.as_ref().map(|(impact, _)| *impact)
        };
        watch.update(&[
            problem(StorePart::Data, HealthImpact::Degraded),
            problem(StorePart::Data, HealthImpact::SomeReadsFail),
        ]);
        assert_eq!(current(&watch, StorePart::Data), Some(HealthImpact::SomeReadsFail));
        assert_eq!(current(&watch, StorePart::Disk), None);
        watch.update(&[]);
        assert_eq!(current(&watch, StorePart::Data), None);
    }
}

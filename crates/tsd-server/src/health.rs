//! The state of the daemon, for status pages, probes and alerts.
//!
//! A separate thread checks the engine, every second and for each request, so that neither a busy
//! runtime nor an unresponsive store delays a response. It updates the gauges and logs when a problem
//! begins and ends.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use metrics::{Gauge, gauge};
use tokio::{sync::oneshot, time::timeout};
use tracing::{error, info, warn};
use tsd_engine::{EngineHandle, HealthComponent, HealthImpact, LogLimit, Problem};
use tsd_protocol::Health;

/// Interval of checks without a request.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a request waits for a check before it gets the result of the last check.
const WAIT: Duration = Duration::from_millis(500);
/// Age of the last check at which the store counts as unresponsive.
const UNRESPONSIVE: Duration = Duration::from_secs(10);
/// Maximum requests that wait for a check.
const MAX_WAITING: usize = 1_024;
/// Interval of log messages about a problem whose reason changes.
const REASON_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Result of a check.
#[derive(Clone, Debug)]
struct Check {
    at: Instant,
    problems: Vec<Problem>,
}

/// Problems as a client sees them.
#[derive(Clone, Debug)]
pub(crate) struct HealthReport {
    /// The problems. The subsystem is a text, since it can also be the check itself.
    pub(crate) problems: Vec<(&'static str, HealthImpact, Arc<str>)>,
    /// The worst impact of the problems that other daemons need not have.
    own_impact: Option<HealthImpact>,
    stopping: bool,
}

impl HealthReport {
    /// Returns OpenTSDB's state. A backlog of background work does not change it.
    pub(crate) fn state(&self) -> Health {
        match self.impact() {
            _ if self.stopping => Health::ShuttingDown,
            Some(HealthImpact::Unavailable) => Health::Error,
            Some(HealthImpact::WritesRejected | HealthImpact::SomeReadsFail) => Health::Partial,
            Some(HealthImpact::Degraded) | None => Health::Ok,
        }
    }

    /// Returns true if a load balancer should send clients to this daemon. `writes` is true for a daemon
    /// that also writes points. Problems that other daemons have too do not change readiness, since a balancer
    /// without any server helps no client. Neither does unreadable data.
    pub(crate) fn is_ready(&self, writes: bool) -> bool {
        !self.stopping
            && match self.own_impact {
                Some(HealthImpact::Unavailable) => false,
                Some(HealthImpact::WritesRejected) => !writes,
                _ => true,
            }
    }

    fn impact(&self) -> Option<HealthImpact> {
        self.problems.iter().map(|(_, impact, _)| *impact).max()
    }
}

/// Checks the health on a thread.
#[derive(Debug)]
pub(crate) struct HealthMonitor {
    requests: mpsc::SyncSender<oneshot::Sender<Arc<Check>>>,
    latest: Arc<Mutex<Arc<Check>>>,
}

impl HealthMonitor {
    /// Starts the thread. It ends when the monitor is dropped.
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

    /// Returns the age of the last check, as it changes.
    pub(crate) fn age(&self) -> HealthAge {
        HealthAge(Arc::clone(&self.latest))
    }

    /// Returns the current problems, or the result of the last check if a new check takes too long.
    pub(crate) async fn report(&self, stopping: bool) -> HealthReport {
        let (reply, checked) = oneshot::channel();
        let current = match self.requests.try_send(reply) {
            Ok(()) => timeout(WAIT, checked).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        let check = current.unwrap_or_else(|| Arc::clone(&self.latest.lock()));
        let mut problems: Vec<_> = check
            .problems
            .iter()
            .map(|problem| {
                (problem.component.as_str(), problem.impact, Arc::clone(&problem.reason))
            })
            .collect();
        let own = check.problems.iter().filter(|problem| !problem.is_common);
        let mut own_impact = own.map(|problem| problem.impact).max();
        let age = check.at.elapsed();
        if age >= UNRESPONSIVE {
            own_impact = Some(HealthImpact::Unavailable);
            let reason = format!("the store has not reported its state for {} s", age.as_secs());
            problems.push(("health", HealthImpact::Unavailable, reason.into()));
        }
        HealthReport { problems, own_impact, stopping }
    }
}

/// How long ago the last check of the health began, for a watchdog.
#[derive(Clone, Debug)]
pub struct HealthAge(Arc<Mutex<Arc<Check>>>);

impl HealthAge {
    /// The age of the last completed check.
    #[must_use]
    pub fn get(&self) -> Duration {
        self.0.lock().at.elapsed()
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
        *latest.lock() = checked;
        match requests.recv_timeout(INTERVAL) {
            Ok(request) => waiting.push(request),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        // One check answers all requests before it.
        waiting.extend(requests.try_iter().take(MAX_WAITING));
    }
}

/// Publishes the problems of successive checks as gauges and log messages.
struct PublishedProblems {
    components: BTreeMap<HealthComponent, ComponentWatch>,
}

struct ComponentWatch {
    gauge: Gauge,
    current: Option<(HealthImpact, Arc<str>)>,
    reason_log: LogLimit,
}

impl PublishedProblems {
    fn new() -> Self {
        let watch = |component: HealthComponent| {
            let gauge = gauge!("tsd_health_problem", "part" => component.as_str());
            gauge.set(0.0);
            let reason_log = LogLimit::new(REASON_LOG_INTERVAL);
            (component, ComponentWatch { gauge, current: None, reason_log })
        };
        Self { components: HealthComponent::all().map(watch).collect() }
    }

    fn update(&mut self, problems: &[Problem]) {
        for (component, watch) in &mut self.components {
            let of_component = problems.iter().filter(|problem| problem.component == *component);
            // Of several problems of a component, publishes the first of the worst.
            let worst = of_component.rev().max_by_key(|problem| problem.impact);
            watch.update(*component, worst);
        }
    }
}

impl ComponentWatch {
    fn update(&mut self, component: HealthComponent, problem: Option<&Problem>) {
        let component = component.as_str();
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
                    error!(part = component, impact, reason = %reason, suppressed, "health problem");
                } else {
                    warn!(part = component, impact, reason = %reason, suppressed, "health problem");
                }
            }
        } else {
            info!(part = component, "health problem ended");
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

    use tsd_engine::StoreComponent;

    use super::*;

    fn problem(component: StoreComponent, impact: HealthImpact) -> Problem {
        let component = HealthComponent::Store(component);
        Problem { component, impact, reason: "r".into(), is_common: false }
    }

    fn report(impacts: &[HealthImpact], stopping: bool) -> HealthReport {
        let problems = impacts.iter().map(|impact| ("data", *impact, "r".into())).collect();
        HealthReport { problems, own_impact: impacts.iter().copied().max(), stopping }
    }

    #[test]
    fn a_problem_of_all_daemons_does_not_change_readiness() {
        let all = report(&[HealthImpact::WritesRejected, HealthImpact::Unavailable], false);
        let common = HealthReport { own_impact: None, ..all.clone() };
        assert_eq!((common.state(), common.is_ready(true)), (Health::Error, true));
        let stopping = HealthReport { stopping: true, ..common };
        assert!(!stopping.is_ready(true) && !all.is_ready(true));
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
        let monitor = HealthMonitor::start_with(move || source.lock().clone()).unwrap();
        assert!(monitor.report(false).await.problems.is_empty());
        problems.lock().push(problem(StoreComponent::Disk, HealthImpact::WritesRejected));
        let seen = monitor.report(false).await;
        assert_eq!(seen.problems, [("disk", HealthImpact::WritesRejected, "r".into())]);
        problems.lock().clear();
        assert!(monitor.report(false).await.problems.is_empty());
    }

    #[tokio::test]
    async fn a_store_that_does_not_respond_delays_no_answer() {
        let (release, held) = mpsc::channel::<()>();
        // The first check of the thread and the check of the first request block until the test ends.
        let monitor = HealthMonitor::start_with(move || {
            let _ = held.recv();
            Vec::new()
        })
        .unwrap();
        assert!(monitor.report(false).await.problems.is_empty(), "the store has some time left");
        let long_ago = Instant::now().checked_sub(UNRESPONSIVE).unwrap();
        *monitor.latest.lock() = Arc::new(Check { at: long_ago, problems: vec![] });
        let report = monitor.report(false).await;
        assert!(monitor.age().get() >= UNRESPONSIVE);
        assert_eq!(report.state(), Health::Error);
        let (component, _, reason) = report.problems.first().unwrap();
        assert_eq!(*component, "health");
        assert!(reason.starts_with("the store has not reported its state for 1"), "{reason}");
        drop(release);
    }

    #[test]
    fn a_component_has_the_impact_of_its_worst_problem() {
        let mut watch = PublishedProblems::new();
        let current = |watch: &PublishedProblems, component| {
            let watch = watch.components.get(&HealthComponent::Store(component)).unwrap();
            watch.current.as_ref().map(|(impact, _)| *impact)
        };
        watch.update(&[
            problem(StoreComponent::Data, HealthImpact::Degraded),
            problem(StoreComponent::Data, HealthImpact::SomeReadsFail),
        ]);
        assert_eq!(current(&watch, StoreComponent::Data), Some(HealthImpact::SomeReadsFail));
        assert_eq!(current(&watch, StoreComponent::Disk), None);
        watch.update(&[]);
        assert_eq!(current(&watch, StoreComponent::Data), None);
    }
}

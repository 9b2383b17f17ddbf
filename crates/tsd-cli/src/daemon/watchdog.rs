//! Reports to the service manager that the daemon is alive, as long as its threads run.
//!
//! A thread of its own gives each kind of thread a task, and looks when the health was last checked. If a thread does
//! not run its task, or the check hangs, it reports nothing, and the manager restarts the daemon. A slow or
//! unavailable store is no reason: its state is in the health.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::runtime;
use tracing::error;
use tsd_engine::ThreadProbe;

use super::service_manager::ServiceManager;
use crate::node::WatchedNode;

/// Part of the manager's limit between two reports, and for the threads to answer, given as a divisor.
const PARTS: u32 = 4;
/// Age of the last check of the health that is never too old: checks begin every second.
const FRESH: Duration = Duration::from_secs(10);

/// The thread that reports; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    node: Arc<Mutex<Option<WatchedNode>>>,
    _stop: mpsc::SyncSender<()>,
}

impl Watchdog {
    /// Starts the thread. `None` if the manager has no watchdog.
    pub(super) fn start(
        manager: &Arc<ServiceManager>,
        runtime: runtime::Handle,
    ) -> io::Result<Option<Self>> {
        let Some(limit) = manager.watchdog else { return Ok(None) };
        let (manager, node) = (Arc::clone(manager), Arc::<Mutex<Option<WatchedNode>>>::default());
        let (stop, stopped) = mpsc::sync_channel(0);
        let watched = Arc::clone(&node);
        let run = move || {
            loop {
                let silent = silent_parts(&runtime, &watched, limit);
                if silent.is_empty() {
                    manager.alive();
                } else {
                    let silent = silent.join(", ");
                    error!(
                        silent,
                        "the watchdog gets no report, since parts of the daemon stand still"
                    );
                }
                if stopped.recv_timeout(limit / PARTS) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        thread::Builder::new().name("tsd-watchdog".to_owned()).spawn(run)?;
        Ok(Some(Self { node, _stop: stop }))
    }

    /// Watches the threads of a node from now on, or only those of the sockets.
    pub(super) fn watch(&self, node: Option<WatchedNode>) {
        *self.node.lock() = node;
    }
}

/// The parts of the daemon that stand still.
fn silent_parts(
    runtime: &runtime::Handle,
    node: &Mutex<Option<WatchedNode>>,
    limit: Duration,
) -> Vec<&'static str> {
    let sockets = ThreadProbe::send("sockets", |task| {
        runtime.spawn(async { task() });
    });
    let (threads, health) = match &*node.lock() {
        None => (Vec::new(), None),
        Some(watched) => {
            let engine = watched.engine.upgrade();
            let threads = engine.map(|engine| engine.probe_threads()).unwrap_or_default();
            (threads, Some(watched.health.clone()))
        }
    };
    let deadline = Instant::now() + limit / PARTS;
    let probes = [sockets].into_iter().chain(threads);
    let mut silent: Vec<&str> =
        probes.filter(|probe| !probe.answers_by(deadline)).map(|probe| probe.threads()).collect();
    silent.dedup();
    silent.extend(health.filter(|health| health.get() > limit.max(FRESH)).map(|_| "health"));
    silent
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_runtime_whose_thread_is_blocked_is_silent() {
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let node = Mutex::new(None);
        let minute = Duration::from_mins(1);
        assert!(silent_parts(runtime.handle(), &node, minute).is_empty());
        let (release, held) = mpsc::channel::<()>();
        runtime.spawn(async move { held.recv() });
        assert_eq!(silent_parts(runtime.handle(), &node, Duration::from_millis(1)), ["sockets"]);
        drop(release);
        assert!(silent_parts(runtime.handle(), &node, minute).is_empty());
    }

    #[test]
    fn without_a_limit_of_the_manager_there_is_no_thread() {
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let manager = Arc::new(ServiceManager::from_environment());
        assert_eq!(manager.watchdog, None);
        let watchdog = Watchdog::start(&manager, runtime.handle().clone()).unwrap();
        assert!(watchdog.is_none());
    }
}

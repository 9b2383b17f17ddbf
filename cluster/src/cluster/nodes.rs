//! Single processes: killed, paused, started again.

use std::{path::Path, time::Duration};

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{Cluster, PATIENCE};
use crate::{
    error::ClusterError,
    node::Node,
    process::{Identity, Process, tail},
};

impl Cluster {
    /// Ends a process at once (`SIGKILL`) and waits until it is gone.
    ///
    /// # Errors
    ///
    /// When there is no such process, or it cannot be signalled.
    pub fn kill(&mut self, node: Node) -> Result<(), ClusterError> {
        self.end(node, Process::kill)
    }

    /// Asks a process to end (`SIGTERM`), as an operator would, and waits until it is gone: a region
    /// server hands its regions over before.
    ///
    /// # Errors
    ///
    /// When there is no such process, it cannot be signalled, or does not end within a minute.
    pub fn terminate(&mut self, node: Node) -> Result<(), ClusterError> {
        let process = self.running(node)?;
        process
            .identity()
            .signal(Signal::TERM)
            .map_err(|source| ClusterError::Signal { node, source })?;
        let process = self.member_mut(node)?.process.as_mut();
        if !process.is_none_or(|process| process.wait(PATIENCE)) {
            return Err(ClusterError::Lingers { node });
        }
        self.end(node, |_| Ok(()))
    }

    /// Holds a process (`SIGSTOP`) and waits until it stands still: its sockets stay open and nobody
    /// answers.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn pause(&self, node: Node) -> Result<(), ClusterError> {
        self.signal(node, Signal::STOP)?;
        let end = std::time::Instant::now() + PATIENCE;
        while !self.is_paused(node) {
            self.running(node)?;
            if std::time::Instant::now() >= end {
                return Err(ClusterError::State { node, state: "does not stand still" });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets a process that was held go on.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn resume(&self, node: Node) -> Result<(), ClusterError> {
        self.signal(node, Signal::CONT)
    }

    /// Starts a process again that was killed or terminated, on its port and its data, and waits until
    /// it serves. One that ended by itself counts as killed.
    ///
    /// # Errors
    ///
    /// When there is no such process, it runs, or it does not come up in time.
    pub async fn restart(&mut self, node: Node) -> Result<(), ClusterError> {
        if self.is_running(node)? {
            return Err(ClusterError::State { node, state: "runs already" });
        }
        self.member_mut(node)?.process = None;
        self.launch(node)?;
        self.await_serving(&[node]).await?;
        self.write_state()
    }

    /// Whether a process runs; one that is paused does.
    ///
    /// # Errors
    ///
    /// When the cluster has no such process.
    pub fn is_running(&self, node: Node) -> Result<bool, ClusterError> {
        Ok(self.member(node)?.process.as_ref().is_some_and(Process::is_alive))
    }

    /// Whether a process is held.
    #[must_use]
    pub fn is_paused(&self, node: Node) -> bool {
        let process = self.members.get(&node).and_then(|member| member.process.as_ref());
        process.is_some_and(|process| process.identity().is_paused())
    }

    /// User and system time of a process since it was started; zero once it ended.
    #[must_use]
    pub fn cpu_time(&self, node: Node) -> Duration {
        let process = self.members.get(&node).and_then(|member| member.process.as_ref());
        process.and_then(|process| process.identity().cpu_time()).unwrap_or_default()
    }

    /// Number of a process, if it runs.
    #[must_use]
    pub fn pid(&self, node: Node) -> Option<u32> {
        let process = self.members.get(&node)?.process.as_ref()?;
        process.is_alive().then(|| process.identity().pid)
    }

    /// Where a process writes its log.
    #[must_use]
    pub fn log(&self, node: Node) -> std::path::PathBuf {
        self.layout.log(node)
    }

    /// Stops all: those that need others before those.
    pub(super) async fn stop(&mut self) -> Result<(), ClusterError> {
        let mut stages: [Vec<Node>; 3] = Default::default();
        for node in self.members.keys().copied() {
            let stage = match node {
                Node::OpenTsdb | Node::Tsd(_) => 0,
                Node::RegionServer(_) | Node::Master => 1,
                Node::ZooKeeper => 2,
            };
            if let Some(nodes) = stages.get_mut(stage) {
                nodes.push(node);
            }
        }
        for nodes in &stages {
            self.stop_together(nodes).await?;
        }
        Ok(())
    }

    /// Asks all of them to end, then ends those that did not.
    async fn stop_together(&mut self, nodes: &[Node]) -> Result<(), ClusterError> {
        for node in nodes {
            // One that is paused must go on to hear it; one that is gone need not.
            let _ = self.signal(*node, Signal::TERM);
            let _ = self.signal(*node, Signal::CONT);
        }
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            let mut running = nodes.iter().map(|node| self.is_running(*node).unwrap_or(false));
            if !running.any(|running| running) {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        nodes.iter().try_for_each(|node| self.end(*node, Process::kill))
    }

    fn signal(&self, node: Node, signal: Signal) -> Result<(), ClusterError> {
        let process = self.running(node)?;
        process.identity().signal(signal).map_err(|source| ClusterError::Signal { node, source })
    }

    fn running(&self, node: Node) -> Result<&Process, ClusterError> {
        let process = self.member(node)?.process.as_ref().filter(|process| process.is_alive());
        process.ok_or(ClusterError::State { node, state: "does not run" })
    }

    /// Sees a process out, and makes a note of it.
    fn end(
        &mut self,
        node: Node,
        how: impl FnOnce(&mut Process) -> std::io::Result<()>,
    ) -> Result<(), ClusterError> {
        let Some(process) = &mut self.member_mut(node)?.process else { return Ok(()) };
        how(process).map_err(|source| ClusterError::Signal { node, source })?;
        let identity = process.identity();
        self.member_mut(node)?.process = None;
        self.forget(identity);
        self.write_state()
    }

    /// Lets the watchdog forget a process.
    pub(super) fn forget(&self, process: Identity) {
        // A watchdog that is gone need not be told.
        let _ = self.watchdog.remove(process);
    }

    /// An error if a process that was started ended since.
    pub(super) fn check_running(&self, node: Node) -> Result<(), ClusterError> {
        if self.is_running(node)? {
            return Ok(());
        }
        let log = self.layout.log(node);
        Err(died(node, &log))
    }
}

/// The error for a process that ended by itself.
fn died(node: Node, log: &Path) -> ClusterError {
    ClusterError::Died { node, log: log.to_path_buf(), tail: tail(log) }
}

//! Kills, pauses, restarts and stops single processes.

use std::{path::Path, time::Duration};

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{Cluster, TERMINATE_TIMEOUT};
use crate::{
    error::ClusterError,
    node::Node,
    process::{Process, ProcessIdentity, tail},
};

impl Cluster {
    /// Kills a process (`SIGKILL`) and waits until it is gone.
    ///
    /// # Errors
    ///
    /// If there is no such process, or it cannot be signalled.
    pub fn kill(&mut self, node: Node) -> Result<(), ClusterError> {
        self.end(node, Process::kill)
    }

    /// Terminates a process (`SIGTERM`) and waits until it is gone; a region server first closes its
    /// regions.
    ///
    /// # Errors
    ///
    /// If there is no such process, it cannot be signalled, or does not exit within a minute.
    pub fn terminate(&mut self, node: Node) -> Result<(), ClusterError> {
        let process = self.running(node)?;
        process
            .identity()
            .signal(Signal::TERM)
            .map_err(|source| ClusterError::Signal { node, source })?;
        let process = self.member_mut(node)?.process.as_mut();
        if !process.is_none_or(|process| process.wait(TERMINATE_TIMEOUT)) {
            return Err(ClusterError::StillRunning { node });
        }
        self.end(node, |_| Ok(()))
    }

    /// Pauses a process (`SIGSTOP`) and waits until it is stopped; its sockets stay open.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn pause(&self, node: Node) -> Result<(), ClusterError> {
        self.signal(node, Signal::STOP)?;
        let end = std::time::Instant::now() + TERMINATE_TIMEOUT;
        while !self.is_paused(node) {
            self.running(node)?;
            if std::time::Instant::now() >= end {
                return Err(ClusterError::WrongState {
                    node,
                    state: "is not paused after a minute",
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Resumes a paused process (`SIGCONT`).
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub fn resume(&self, node: Node) -> Result<(), ClusterError> {
        self.signal(node, Signal::CONT)
    }

    /// Restarts a stopped process on its port and data, and waits until it serves.
    ///
    /// # Errors
    ///
    /// If there is no such process, it runs, or it does not serve in time.
    pub async fn restart(&mut self, node: Node) -> Result<(), ClusterError> {
        if self.is_running(node)? {
            return Err(ClusterError::WrongState { node, state: "is running" });
        }
        self.member_mut(node)?.process = None;
        self.launch(node)?;
        self.await_serving(&[node]).await?;
        self.write_state()
    }

    /// True if a process runs, paused or not.
    ///
    /// # Errors
    ///
    /// If the cluster has no such process.
    pub fn is_running(&self, node: Node) -> Result<bool, ClusterError> {
        Ok(self.member(node)?.process.as_ref().is_some_and(Process::is_alive))
    }

    /// True if a process is paused.
    #[must_use]
    pub fn is_paused(&self, node: Node) -> bool {
        let process = self.members.get(&node).and_then(|member| member.process.as_ref());
        process.is_some_and(|process| process.identity().is_paused())
    }

    /// User and system CPU time of a process since its start; zero after its exit.
    #[must_use]
    pub fn cpu_time(&self, node: Node) -> Duration {
        let process = self.members.get(&node).and_then(|member| member.process.as_ref());
        process.and_then(|process| process.identity().cpu_time()).unwrap_or_default()
    }

    /// Id of a process, if it runs.
    #[must_use]
    pub fn pid(&self, node: Node) -> Option<u32> {
        let process = self.members.get(&node)?.process.as_ref()?;
        process.is_alive().then(|| process.identity().pid)
    }

    /// Log file of a process.
    #[must_use]
    pub fn log(&self, node: Node) -> std::path::PathBuf {
        self.layout.log(node)
    }

    /// Stops all processes, each before the processes that it depends on.
    pub(super) async fn stop(&mut self) -> Result<(), ClusterError> {
        let mut stages: [Vec<Node>; 4] = Default::default();
        for node in self.members.keys().copied() {
            let stage = match node {
                Node::OpenTsdb | Node::SecondOpenTsdb | Node::Tsd(_) => 0,
                Node::RegionServer(_) | Node::Master | Node::OtherMaster(_) => 1,
                Node::ZooKeeper => 2,
                Node::Kdc => 3,
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

    /// Terminates these processes, then kills any that did not exit in time.
    async fn stop_together(&mut self, nodes: &[Node]) -> Result<(), ClusterError> {
        for node in nodes {
            // A paused process must be resumed to handle SIGTERM; errors mean that it is gone.
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
        process.ok_or(ClusterError::WrongState { node, state: "does not run" })
    }

    /// Stops a process with `how`, and records that it is stopped.
    fn end(
        &mut self,
        node: Node,
        how: impl FnOnce(&mut Process) -> std::io::Result<()>,
    ) -> Result<(), ClusterError> {
        let Some(process) = &mut self.member_mut(node)?.process else { return Ok(()) };
        how(process).map_err(|source| ClusterError::Signal { node, source })?;
        let identity = process.identity();
        self.member_mut(node)?.process = None;
        self.unwatch(identity);
        self.write_state()
    }

    /// Removes a process from the watchdog.
    pub(super) fn unwatch(&self, process: ProcessIdentity) {
        // Fails only if the watchdog is gone.
        let _ = self.watchdog.remove(process);
    }

    /// Fails if a started process has exited.
    pub(super) fn check_running(&self, node: Node) -> Result<(), ClusterError> {
        if self.is_running(node)? {
            return Ok(());
        }
        let log = self.layout.log(node);
        Err(exited(node, &log))
    }
}

/// The error for a process that exited by itself.
fn exited(node: Node, log: &Path) -> ClusterError {
    ClusterError::Exited { node, log: log.to_path_buf(), tail: tail(log) }
}

//! Injects the faults of a plan. Each fault waits until its nodes and servers serve, and one more node. A fault that waits
//! too long is skipped, so that other faults occur during a long outage.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

use super::{
    fleet::Fleet,
    load::KillLoad,
    plan::{FaultKind, PlannedFault},
    probe,
    servers::ServerKiller,
};
use crate::regions::ScenarioResult;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait of a fault for its nodes and servers.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Injects faults into nodes and servers.
#[derive(Debug)]
pub(super) struct FaultDriver<'a> {
    fleet: &'a mut Fleet,
    servers: ServerKiller,
    load: Arc<KillLoad>,
}

impl<'a> FaultDriver<'a> {
    pub(super) const fn new(
        fleet: &'a mut Fleet,
        servers: ServerKiller,
        load: Arc<KillLoad>,
    ) -> Self {
        Self { fleet, servers, load }
    }

    /// Injects faults until `end` or until a failure, and waits until everything serves again. Returns the probes of the
    /// faults.
    pub(super) async fn drive(
        mut self,
        plan: impl Iterator<Item = PlannedFault>,
        end: Instant,
    ) -> ScenarioResult<Vec<JoinHandle<()>>> {
        let mut probes = Vec::new();
        for fault in plan {
            sleep_until(end.min(Instant::now() + fault.pause)).await;
            let is_possible = self.wait_until_possible(&fault).await?;
            if Instant::now() >= end || self.load.report.wrong() > 0 {
                break;
            }
            if is_possible {
                self.make(&fault).await?;
                probes.push(probe::start(&self.load, fault.kind));
            } else {
                self.load.report.record_incident(format!("left out: {}", fault.kind.name()));
            }
        }
        self.fleet.settle().await?;
        self.servers.wait_until_all_serve().await?;
        Ok(probes)
    }

    /// Waits until the nodes and servers of a fault serve; returns false if that takes too long.
    async fn wait_until_possible(&mut self, fault: &PlannedFault) -> ScenarioResult<bool> {
        let deadline = Instant::now() + LONGEST_WAIT;
        let nodes = &fault.nodes[..fault.kind.nodes()];
        loop {
            self.fleet.look().await?;
            let has_servers = !fault.kind.takes_server() || self.servers.all_serve();
            let has_network = !fault.kind.needs_network() || self.fleet.has_network();
            if has_servers && has_network && self.fleet.can_take(nodes) {
                return Ok(true);
            }
            if Instant::now() > deadline || !has_network {
                return Ok(false);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    fn record(&self, fault: &PlannedFault, detail: &str) {
        self.load.report.record_fault(fault.kind, detail);
    }

    async fn make(&mut self, fault: &PlannedFault) -> ScenarioResult<()> {
        let [first, second] = fault.nodes;
        let [first_down, second_down] = fault.nodes_down;
        match fault.kind {
            FaultKind::Node => {
                self.record(fault, &format!("{first}, down for {first_down:?}"));
                self.fleet.kill(first, first_down)
            }
            FaultKind::Server => {
                self.record(
                    fault,
                    &format!("rs{}, down for {:?}", fault.server, fault.server_down),
                );
                self.servers.kill(fault.server, fault.server_down).await
            }
            FaultKind::NodeAndServer => self.kill_with_server(fault).await,
            FaultKind::TwoNodes => {
                self.record(
                    fault,
                    &format!("{first} and {second}, down for {first_down:?} and {second_down:?}"),
                );
                self.fleet.kill(first, first_down)?;
                self.fleet.kill(second, second_down)
            }
            FaultKind::NodeInRecovery => self.kill_in_recovery(fault).await,
            FaultKind::Pause => {
                self.record(fault, &format!("{first} for {:?}", fault.stopped));
                self.fleet.pause(first, fault.stopped)
            }
            FaultKind::Isolation => {
                self.record(fault, &format!("{first} for {:?}", fault.stopped));
                self.fleet.cut(first, None, fault.stopped)
            }
            FaultKind::Link => {
                self.record(fault, &format!("{first} and {second} for {:?}", fault.stopped));
                self.fleet.cut(first, Some(second), fault.stopped)
            }
            FaultKind::Drain => {
                self.record(fault, &format!("{first}, down for {first_down:?}"));
                self.fleet.drain(first, first_down)
            }
        }
    }

    async fn kill_with_server(&mut self, fault: &PlannedFault) -> ScenarioResult<()> {
        let (node, down) = (fault.nodes[0], fault.nodes_down[0]);
        let order = if fault.server_first { "before" } else { "after" };
        self.record(
            fault,
            &format!(
                "{node}, down for {down:?}; rs{} {order} it by {:?}, down for {:?}",
                fault.server, fault.gap, fault.server_down
            ),
        );
        if fault.server_first {
            self.servers.kill(fault.server, fault.server_down).await?;
            sleep(fault.gap).await;
            self.fleet.kill(node, down)
        } else {
            self.fleet.kill(node, down)?;
            sleep(fault.gap).await;
            self.servers.kill(fault.server, fault.server_down).await
        }
    }

    /// The second node may be the one that recovers the first, which is down meanwhile.
    async fn kill_in_recovery(&mut self, fault: &PlannedFault) -> ScenarioResult<()> {
        let [first, second] = fault.nodes;
        let [first_down, second_down] = fault.nodes_down;
        self.record(
            fault,
            &format!(
                "{first}, then {second} after {:?}, down for {first_down:?} more and {second_down:?}",
                fault.recovery_gap
            ),
        );
        self.fleet.kill(first, fault.recovery_gap + first_down)?;
        sleep(fault.recovery_gap).await;
        self.fleet.look().await?;
        if self.fleet.can_take(&[second]) {
            return self.fleet.kill(second, second_down);
        }
        self.load
            .report
            .record_incident(format!("node {second} does not serve, and is not killed"));
        Ok(())
    }
}

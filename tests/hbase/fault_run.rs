//! Runs the steps of `fault_steps` under workloads and records their effect on each.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::{Cluster, Node};
use hbase_rs::{Client, ServerName, Table, TableName};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    fault_checks::{Discoverer, TableCreation},
    fault_report::{FaultLine, render},
    fault_steps::{FaultAction, FaultDuration, FaultStep, FaultTarget, NAMED_STEPS, STEPS},
    regions::{
        ScenarioResult, TIMEOUT, distribute, merge, split, wait_for_regions, wait_for_servers,
    },
    workload::Workload,
};

/// Pause between two faults.
const STEP_PAUSE: Duration = Duration::from_secs(1);

/// Workloads under faults.
pub(crate) struct FaultRun<'a> {
    cluster: &'a mut Cluster,
    /// Administers the cluster; the workloads have separate clients.
    client: Client,
    /// Tables whose regions move, split and merge.
    tables: Vec<Table>,
    workloads: Vec<Arc<dyn Workload>>,
    lines: Vec<FaultLine>,
    discoverer: Discoverer,
    creation: Option<TableCreation>,
}

/// Region servers of a step's targets, by index.
#[derive(Clone, Copy, Debug)]
struct TargetServers {
    meta: usize,
    other: usize,
}

impl TargetServers {
    fn nodes(self, target: FaultTarget) -> Vec<Node> {
        match target {
            FaultTarget::Meta => vec![Node::RegionServer(self.meta)],
            FaultTarget::Other => vec![Node::RegionServer(self.other)],
            FaultTarget::Servers => {
                vec![Node::RegionServer(self.meta), Node::RegionServer(self.other)]
            }
            FaultTarget::Master => vec![Node::Master],
            FaultTarget::SecondMaster => vec![Node::OtherMaster(1)],
            FaultTarget::ZooKeeper => vec![Node::ZooKeeper],
        }
    }
}

impl<'a> FaultRun<'a> {
    /// A run on a cluster of two region servers; the regions of `tables` move, split and merge.
    pub(crate) fn new(
        cluster: &'a mut Cluster,
        client: Client,
        tables: Vec<Table>,
        workloads: Vec<Arc<dyn Workload>>,
    ) -> Self {
        let discoverer = Discoverer::new(&cluster.client_quorum());
        let lines = Vec::new();
        Self { cluster, client, tables, workloads, lines, discoverer, creation: None }
    }

    /// Runs the requested steps in order, `rounds` times.
    pub(crate) async fn run(
        &mut self,
        rounds: usize,
        is_wanted: impl Fn(&FaultStep) -> bool,
    ) -> ScenarioResult<()> {
        for round in 0..rounds {
            for step in STEPS.iter().filter(|step| is_wanted(step)) {
                self.settle(round).await?;
                self.step(step, round).await?;
            }
        }
        Ok(())
    }

    /// As [`Self::run`], for the steps whose names contain one of these texts, with `|` between them. Runs
    /// [`NAMED_STEPS`] too.
    pub(crate) async fn run_named(&mut self, rounds: usize, texts: &str) -> ScenarioResult<()> {
        let is_named = |step: &&FaultStep| texts.split('|').any(|text| step.name.contains(text));
        for round in 0..rounds {
            for step in STEPS.iter().chain(NAMED_STEPS).filter(is_named) {
                self.settle(round).await?;
                self.step(step, round).await?;
            }
        }
        Ok(())
    }

    /// Stops the workloads, reads everything back, and prints the fault table.
    pub(crate) async fn finish(self) -> ScenarioResult<()> {
        let mut wrong = Vec::new();
        for workload in &self.workloads {
            let name = workload.name();
            let counts = workload.counts();
            for problem in workload.problems() {
                println!("{name}: {problem}");
            }
            let errors = workload.finish().await?;
            println!("{name}: {} acknowledged in all, read back: {errors:?}", counts.acknowledged);
            wrong.extend(errors);
        }
        let text = render(&self.lines);
        print!("{text}");
        if let Ok(path) = std::env::var("HBASE_TABLE") {
            fs::write(path, &text)?;
        }
        let failed = self.lines.iter().filter(|line| !line.is_correct()).count();
        if failed > 0 || !wrong.is_empty() {
            return Err(
                format!("{failed} faults lost or corrupted data; {}", wrong.join("; ")).into()
            );
        }
        Ok(())
    }

    async fn step(&mut self, step: &FaultStep, round: usize) -> ScenarioResult<()> {
        let servers = self.target_servers().await?;
        let before: Vec<_> = self.workloads.iter().map(|workload| workload.counts()).collect();
        for workload in &self.workloads {
            workload.take_longest_wait();
        }
        println!("{} ...", step.name);
        let start = Instant::now();
        for action in step.actions {
            self.apply(*action, servers, round).await?;
        }
        let (checked, mut all_checked) = watch::channel(0);
        let checks: Vec<_> = self
            .workloads
            .iter()
            .map(|workload| {
                let (workload, checked) = (Arc::clone(workload), checked.clone());
                tokio::spawn(async move {
                    workload.wait_for_recovery().await?;
                    let recovery = start.elapsed();
                    let lost = workload.count_lost().await?;
                    checked.send_modify(|count| *count += 1);
                    Ok::<_, String>((lost, recovery))
                })
            })
            .collect();
        match step.duration {
            FaultDuration::For(time) => sleep(time).await,
            FaultDuration::UntilRecovered(least) => {
                // A failed check is reported below.
                let workloads = self.workloads.len();
                let _ = timeout(TIMEOUT, all_checked.wait_for(|count| *count == workloads)).await;
                sleep(least.saturating_sub(start.elapsed())).await;
            }
        }
        for action in step.repairs {
            self.apply(*action, servers, round).await?;
        }
        let mut recoveries = Vec::new();
        for (workload, check) in self.workloads.iter().zip(checks) {
            let check =
                check.await?.map_err(|error: String| self.failure(step, &**workload, &error))?;
            recoveries.push(check);
        }
        for workload in &self.workloads {
            workload
                .wait_for_progress()
                .await
                .map_err(|error| self.failure(step, &**workload, &error))?;
        }
        sleep(STEP_PAUSE).await;
        let from = self.lines.len();
        for ((workload, before), (lost, recovery)) in
            self.workloads.iter().zip(before).zip(recoveries)
        {
            self.lines.push(FaultLine {
                fault: step.name.to_owned(),
                workload: workload.name(),
                before,
                after: workload.counts(),
                lost,
                longest_wait: workload.take_longest_wait(),
                recovery,
            });
        }
        print!("{}", render(&self.lines[from..]));
        Ok(())
    }

    fn failure(&self, step: &FaultStep, workload: &dyn Workload, error: &str) -> String {
        let (name, problems) = (workload.name(), workload.problems().join("\n  "));
        format!("{}: {name}: {error}\n  {problems}\n{}", step.name, render(&self.lines))
    }

    async fn apply(
        &mut self,
        action: FaultAction,
        servers: TargetServers,
        round: usize,
    ) -> ScenarioResult<()> {
        let nodes = match action {
            FaultAction::Move => {
                return distribute(&self.client, &self.tables, &self.servers(), round + 1).await;
            }
            FaultAction::Split => return split(&self.client, &self.tables).await,
            FaultAction::Merge => return merge(&self.client, &self.tables).await,
            FaultAction::Wait(time) => {
                sleep(time).await;
                return Ok(());
            }
            FaultAction::AddMaster => {
                if self.cluster.nodes().any(|node| node == Node::OtherMaster(1)) {
                    self.cluster.restart(Node::OtherMaster(1)).await?;
                } else {
                    self.cluster.add_master().await?;
                }
                return Ok(());
            }
            FaultAction::CreateTables => {
                self.creation = Some(TableCreation::start(self.client.clone(), round));
                return Ok(());
            }
            FaultAction::AwaitTables => {
                let creation = self.creation.take().ok_or("no tables are created")?;
                return creation.finish().await;
            }
            FaultAction::Discover => return self.discoverer.succeed().await,
            FaultAction::FailToDiscover => return self.discoverer.fail(self.cluster).await,
            FaultAction::Terminate(target)
            | FaultAction::Kill(target)
            | FaultAction::Pause(target)
            | FaultAction::Resume(target)
            | FaultAction::Restart(target)
            | FaultAction::Cut(target)
            | FaultAction::Delay(target, _)
            | FaultAction::Break(target)
            | FaultAction::Restore(target) => servers.nodes(target),
        };
        for node in nodes {
            match action {
                FaultAction::Terminate(_) | FaultAction::Kill(_)
                    if !self.cluster.is_running(node)? =>
                {
                    println!("{node:?} has ended by itself");
                }
                FaultAction::Terminate(_) => self.cluster.terminate(node)?,
                FaultAction::Kill(_) => self.cluster.kill(node)?,
                FaultAction::Pause(_) => self.cluster.pause(node)?,
                FaultAction::Resume(_) => self.cluster.resume(node)?,
                FaultAction::Restart(_) => {
                    if self.cluster.is_running(node)? {
                        self.cluster.kill(node)?;
                    }
                    self.cluster.restart(node).await?;
                }
                FaultAction::Cut(_) => self.cluster.links().cut(node),
                FaultAction::Delay(_, delay) => self.cluster.links().delay(node, delay),
                FaultAction::Break(_) => self.cluster.links().break_connections(node),
                FaultAction::Restore(_) => self.cluster.links().restore(node),
                FaultAction::Move
                | FaultAction::Split
                | FaultAction::Merge
                | FaultAction::Wait(_)
                | FaultAction::AddMaster
                | FaultAction::CreateTables
                | FaultAction::AwaitTables
                | FaultAction::Discover
                | FaultAction::FailToDiscover => {}
            }
        }
        Ok(())
    }

    /// Finds the server of hbase:meta.
    async fn target_servers(&self) -> ScenarioResult<TargetServers> {
        let location = self.client.table(TableName::meta()).locate("x".into()).await?;
        let meta = usize::from(self.cluster.server_name(1) == location.server);
        Ok(TargetServers { meta, other: 1 - meta })
    }

    /// Waits until both servers serve, and distributes the regions of every table.
    async fn settle(&mut self, round: usize) -> ScenarioResult<()> {
        // On a busy machine a server may lose its session with ZooKeeper and abort.
        for node in [Node::Master, Node::RegionServer(0), Node::RegionServer(1)] {
            if !self.cluster.is_running(node)? {
                println!("{node:?} has ended by itself, and is restarted");
                self.cluster.restart(node).await?;
            }
        }
        let servers = self.servers();
        wait_for_servers(&self.client, &servers).await?;
        wait_for_regions(&self.tables, &servers).await?;
        distribute(&self.client, &self.tables, &servers, round).await
    }

    fn servers(&self) -> [ServerName; 2] {
        [0, 1].map(|at| self.cluster.server_name(at))
    }
}

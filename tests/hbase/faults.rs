//! Carries the script out, and writes down how the workloads met it.

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
    load::Load,
    points::Points,
    regions::{Outcome, PATIENCE, merge, split, spread, wait_for_regions, wait_for_servers},
    script::{Act, Hold, STEPS, Step, Who},
    table::{Line, render},
    tsd,
    workload::Workload,
};

/// Between the writes of one writer.
const PAUSE: Duration = Duration::from_millis(40);
/// Tables of the daemons, split by their salt.
const TABLES: [(&str, &str); 6] = [
    ("tsd.storage.hbase.data_table", "faults-tsdb"),
    ("tsd.storage.hbase.uid_table", "faults-tsdb-uid"),
    ("tsd.storage.hbase.tree_table", "faults-tsdb-tree"),
    ("tsd.storage.hbase.meta_table", "faults-tsdb-meta"),
    ("tsd.storage.salt.width", "1"),
    ("tsd.storage.salt.buckets", "6"),
];
/// Settings of the daemon that acknowledges when its log has the points.
const LOG: [(&str, &str); 2] = [("tsd.storage.ack", "log"), ("tsd.storage.hold_seconds", "2")];
/// What is let pass after a fault before the next one.
const REST: Duration = Duration::from_secs(1);

/// Loads under faults.
pub(crate) struct Faults<'a> {
    pub(crate) cluster: &'a mut Cluster,
    /// Gives orders and looks at the cluster; the loads have clients of their own.
    pub(crate) client: Client,
    /// Tables whose regions move, split and merge.
    pub(crate) tables: Vec<Table>,
    pub(crate) loads: Vec<Arc<dyn Load>>,
    pub(crate) lines: Vec<Line>,
}

/// Servers as a step means them.
#[derive(Clone, Copy, Debug)]
struct Cast {
    meta: usize,
    other: usize,
}

impl Cast {
    fn nodes(self, who: Who) -> Vec<Node> {
        match who {
            Who::Meta => vec![Node::RegionServer(self.meta)],
            Who::Other => vec![Node::RegionServer(self.other)],
            Who::Servers => vec![Node::RegionServer(self.meta), Node::RegionServer(self.other)],
            Who::Master => vec![Node::Master],
            Who::ZooKeeper => vec![Node::ZooKeeper],
        }
    }
}

impl Faults<'_> {
    /// All steps whose names contain the text, so many times.
    pub(crate) async fn run(&mut self, rounds: usize, only: &str) -> Outcome<()> {
        for round in 0..rounds {
            for step in STEPS.iter().filter(|step| step.name.contains(only)) {
                self.settle(round).await?;
                self.step(step, round).await?;
            }
        }
        Ok(())
    }

    /// Ends the loads, reads everything back, and judges.
    async fn end(self) -> Outcome<()> {
        let mut wrong = Vec::new();
        for load in &self.loads {
            let name = load.name();
            let counts = load.counts();
            for complaint in load.complaints() {
                println!("{name}: {complaint}");
            }
            let flaws = load.finish().await?;
            println!("{name}: {} acknowledged in all, read back: {flaws:?}", counts.acknowledged);
            wrong.extend(flaws);
        }
        let text = render(&self.lines);
        print!("{text}");
        if let Ok(path) = std::env::var("HBASE_TABLE") {
            fs::write(path, &text)?;
        }
        let bad = self.lines.iter().filter(|line| !line.is_good()).count();
        if bad > 0 || !wrong.is_empty() {
            return Err(format!("{bad} lines of the table are bad; {}", wrong.join("; ")).into());
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step, round: usize) -> Outcome<()> {
        let cast = self.cast().await?;
        let before: Vec<_> = self.loads.iter().map(|load| load.counts()).collect();
        for load in &self.loads {
            load.take_longest();
        }
        println!("{} ...", step.name);
        let begun = Instant::now();
        for act in step.acts {
            self.act(*act, cast, round).await?;
        }
        let (proven, mut proofs) = watch::channel(0);
        let proving: Vec<_> = self
            .loads
            .iter()
            .map(|load| {
                let (load, proven) = (Arc::clone(load), proven.clone());
                tokio::spawn(async move {
                    load.recover().await?;
                    let recovery = begun.elapsed();
                    let lost = load.prove().await?;
                    proven.send_modify(|count| *count += 1);
                    Ok::<_, String>((lost, recovery))
                })
            })
            .collect();
        match step.hold {
            Hold::For(time) => sleep(time).await,
            Hold::UntilRecovered(least) => {
                // Where a proof fails, that is told below.
                let all = self.loads.len();
                let _ = timeout(PATIENCE, proofs.wait_for(|count| *count == all)).await;
                sleep(least.saturating_sub(begun.elapsed())).await;
            }
        }
        for act in step.mends {
            self.act(*act, cast, round).await?;
        }
        let mut recoveries = Vec::new();
        for (load, proof) in self.loads.iter().zip(proving) {
            let proof = proof.await?.map_err(|error| self.failure(step, &**load, &error))?;
            recoveries.push(proof);
        }
        for load in &self.loads {
            load.progress().await.map_err(|error| self.failure(step, &**load, &error))?;
        }
        sleep(REST).await;
        let from = self.lines.len();
        for ((load, before), (lost, recovery)) in self.loads.iter().zip(before).zip(recoveries) {
            self.lines.push(Line {
                fault: step.name.to_owned(),
                load: load.name(),
                before,
                after: load.counts(),
                lost,
                longest: load.take_longest(),
                recovery,
            });
        }
        print!("{}", render(&self.lines[from..]));
        Ok(())
    }

    fn failure(&self, step: &Step, load: &dyn Load, error: &str) -> String {
        let (name, complaints) = (load.name(), load.complaints().join("\n  "));
        format!("{}: {name}: {error}\n  {complaints}\n{}", step.name, render(&self.lines))
    }

    async fn act(&mut self, act: Act, cast: Cast, round: usize) -> Outcome<()> {
        let nodes = match act {
            Act::Move => {
                return spread(&self.client, &self.tables, &self.servers(), round + 1).await;
            }
            Act::Split => return split(&self.client, &self.tables).await,
            Act::Merge => return merge(&self.client, &self.tables).await,
            Act::Wait(time) => {
                sleep(time).await;
                return Ok(());
            }
            Act::Terminate(who)
            | Act::Kill(who)
            | Act::Pause(who)
            | Act::Resume(who)
            | Act::Restart(who)
            | Act::Cut(who)
            | Act::Delay(who, _)
            | Act::Break(who)
            | Act::Mend(who) => cast.nodes(who),
        };
        for node in nodes {
            match act {
                Act::Terminate(_) => self.cluster.terminate(node)?,
                Act::Kill(_) => self.cluster.kill(node)?,
                Act::Pause(_) => self.cluster.pause(node)?,
                Act::Resume(_) => self.cluster.resume(node)?,
                Act::Restart(_) => {
                    if self.cluster.is_running(node)? {
                        self.cluster.kill(node)?;
                    }
                    self.cluster.restart(node).await?;
                }
                Act::Cut(_) => self.cluster.links().cut(node),
                Act::Delay(_, delay) => self.cluster.links().delay(node, delay),
                Act::Break(_) => self.cluster.links().break_connections(node),
                Act::Mend(_) => self.cluster.links().mend(node),
                Act::Move | Act::Split | Act::Merge | Act::Wait(_) => {}
            }
        }
        Ok(())
    }

    /// Which server has hbase:meta.
    async fn cast(&self) -> Outcome<Cast> {
        let location = self.client.table(TableName::meta()).locate("x".into()).await?;
        let meta = usize::from(self.cluster.server_name(1) == location.server);
        Ok(Cast { meta, other: 1 - meta })
    }

    /// Both servers serve and have regions of every table.
    async fn settle(&self, round: usize) -> Outcome<()> {
        let servers = self.servers();
        wait_for_servers(&self.client, &servers).await?;
        wait_for_regions(&self.tables, &servers).await?;
        spread(&self.client, &self.tables, &servers, round).await
    }

    fn servers(&self) -> [ServerName; 2] {
        [0, 1].map(|at| self.cluster.server_name(at))
    }
}

/// All faults under all loads.
pub(crate) async fn run(cluster: &mut Cluster) -> Outcome<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let rounds = variable("HBASE_ROUNDS").parse().unwrap_or(1);
    let only = variable("HBASE_FAULTS");
    let client = cluster.client();
    let name: TableName = "faults".parse()?;
    Workload::create_table(&client, &name).await?;
    let table = cluster.client().table(name.clone());
    let mut loads: Vec<Arc<dyn Load>> = vec![Arc::new(Workload::start(&table, PAUSE))];
    let directory = tempfile::tempdir()?;
    tsd::create_tables(cluster, &TABLES)?;
    let ways = [("tsdb, ack = storage", "storage", &[][..]), ("tsdb, ack = log", "log", &LOG)];
    let mut daemons = Vec::new();
    for (name, way, settings) in ways {
        let settings = [&TABLES[..], settings].concat();
        let daemon = tsd::start(cluster, &directory.path().join(way), &settings);
        let load = Points::start(name, &format!("faults.{way}"), daemon.address(), 3 * PAUSE);
        loads.push(Arc::new(load));
        daemons.push(daemon);
    }
    let tables = vec![client.table(name), client.table("faults-tsdb".parse()?)];
    let mut faults = Faults { cluster, client, tables, loads, lines: Vec::new() };
    faults.run(rounds, &only).await?;
    faults.end().await
}

//! Runs the parts on the HBase they share.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use cluster::{Cluster, ClusterConfig};
use futures_util::future::LocalBoxFuture;
use tempfile::TempDir;
use tsd_testkit::{Daemon, hbase_workload::error_chain};

use crate::interop::{
    Options, answers, both_write, cells, fault_load, half_compacted, names,
    report::{PartReport, Report},
};
use crate::{
    regions::ScenarioResult,
    tsd::{self, Settings},
};

/// Shared state of all parts.
pub(crate) struct Context<'a> {
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) options: &'a Options,
    /// Number of the round, from 0.
    pub(crate) round: u64,
    directory: TempDir,
    directories: u32,
}

impl Context<'_> {
    /// A data directory that no daemon has used.
    pub(crate) fn data_directory(&mut self) -> PathBuf {
        self.directories += 1;
        self.directory.path().join(self.directories.to_string())
    }

    /// Starts a daemon of ours.
    pub(crate) fn start_ours(&mut self, settings: &Settings<'_>) -> Daemon {
        let data = self.data_directory();
        tsd::start(self.cluster, &data, settings)
    }

    /// Seed of the points of this round.
    pub(crate) const fn seed(&self) -> u64 {
        self.options.seed + self.round
    }

    pub(crate) const fn load_time(&self) -> Duration {
        Duration::from_secs(self.options.seconds)
    }
}

type Part = for<'a> fn(&'a mut Context<'_>) -> LocalBoxFuture<'a, ScenarioResult<PartReport>>;

/// All parts, in their order; the faults are last because they disturb the cluster most.
const PARTS: &[(&str, Part)] = &[
    ("cells equal, then compacted; fsck of each other's", |context| Box::pin(cells::run(context))),
    ("one writes, the other answers", |context| Box::pin(answers::run(context))),
    ("new names at once", |context| Box::pin(names::run(context))),
    ("half compacted rows", |context| Box::pin(half_compacted::run(context))),
    ("both write the same rows", |context| Box::pin(both_write::run(context))),
    ("faults while both write", |context| Box::pin(fault_load::run(context))),
];

/// Runs all parts, or those that the options name; fails if there is a difference.
pub(crate) async fn run(cluster: &mut Cluster, options: &Options) -> ScenarioResult<()> {
    let start = Instant::now();
    let directory = tempfile::tempdir()?;
    let mut context = Context { cluster, options, round: 0, directory, directories: 0 };
    let mut report = Report::default();
    for round in 0..options.rounds {
        context.round = round;
        for (name, part) in PARTS {
            let is_wanted = |only: &String| name.contains(only.as_str());
            if !options.only.is_empty() && !options.only.iter().any(is_wanted) {
                continue;
            }
            println!("interop: {name}");
            let start = Instant::now();
            let part = part(&mut context).await.unwrap_or_else(|error| {
                let mut failed = PartReport::default();
                failed.difference(format!("the part ended early: {}", error_chain(&*error)));
                failed
            });
            report.add((*name).to_owned(), part, start.elapsed());
        }
    }
    if !report.print() {
        return Err("FAILED".into());
    }
    println!("interop: no difference, {:.0?}", start.elapsed());
    Ok(())
}

/// As [`run`], on a new cluster.
pub(crate) async fn run_on_cluster(options: &Options) -> ScenarioResult<()> {
    let start = Instant::now();
    let mut cluster = Cluster::start(config()).await?;
    println!("interop: HBase and OpenTSDB serve after {:.0?}", start.elapsed());
    let result = run(&mut cluster, options).await;
    cluster.shut_down().await?;
    result
}

fn config() -> ClusterConfig {
    let mut config = ClusterConfig::new(2);
    config.proxied = true;
    config.opentsdb = true;
    config.second_opentsdb = true;
    config.region_server_heap_mb = 512;
    config.properties = vec![
        // The checksummed local file system buffers up to a checksum block in memory; a server's log
        // must survive SIGKILL.
        ("fs.file.impl".to_owned(), "org.apache.hadoop.fs.RawLocalFileSystem".to_owned()),
    ];
    config
}

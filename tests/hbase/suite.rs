//! The scenarios and the cluster they share.

use std::{process::ExitCode, time::Instant};

use cluster::{Cluster, ClusterConfig};
use futures_util::future::LocalBoxFuture;

use crate::{
    away, conformance, faults, live, opentsdb, regions::Outcome, several, workload::chain,
};

type Scenario = for<'a> fn(&'a mut Cluster) -> LocalBoxFuture<'a, Outcome<()>>;

/// All scenarios, in their order: the faults leave servers that have been through much.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("live", |cluster| Box::pin(async { live::run(cluster) })),
    ("conformance", |cluster| Box::pin(conformance::run(cluster))),
    ("several", |cluster| Box::pin(several::run(cluster))),
    ("opentsdb", |cluster| Box::pin(opentsdb::run(cluster))),
    ("away", |cluster| Box::pin(away::run(cluster))),
    ("faults", |cluster| Box::pin(faults::run(cluster))),
];

/// Runs the scenarios with these names, or all.
pub(crate) async fn run(names: &[String]) -> ExitCode {
    let unknown = |name: &&String| !SCENARIOS.iter().any(|(known, _)| known == name);
    if let Some(name) = names.iter().find(unknown) {
        let known: Vec<_> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        eprintln!("hbase: no scenario {name}, there are {}", known.join(", "));
        return ExitCode::FAILURE;
    }
    let begun = Instant::now();
    let mut cluster = match Cluster::start(config()).await {
        Ok(cluster) => cluster,
        Err(error) => {
            eprintln!("hbase: {}", chain(&error));
            return ExitCode::FAILURE;
        }
    };
    println!("hbase: serves after {:.1?}", begun.elapsed());
    let mut failed = Vec::new();
    for (name, scenario) in SCENARIOS {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let begun = Instant::now();
        match scenario(&mut cluster).await {
            Ok(()) => println!("hbase: {name}: passed in {:.1?}", begun.elapsed()),
            Err(error) => {
                println!("hbase: {name}: FAILED after {:.1?}", begun.elapsed());
                failed.push(format!("{name}: {}", chain(&*error)));
            }
        }
    }
    if let Err(error) = cluster.shut_down().await {
        failed.push(format!("the end of the cluster: {}", chain(&error)));
    }
    if failed.is_empty() {
        println!("hbase: all passed in {:.1?}", begun.elapsed());
        return ExitCode::SUCCESS;
    }
    // Last, where whoever sees the end of a long report finds them.
    for failure in failed {
        println!("hbase: failed: {failure}");
    }
    ExitCode::FAILURE
}

fn config() -> ClusterConfig {
    let mut config = ClusterConfig::new(2);
    config.proxied = true;
    config.opentsdb = true;
    config.properties = vec![
        // The local file system that writes what it is given, instead of the one that keeps up to a
        // checksum's worth in memory: a server's log must survive its death.
        ("fs.file.impl".to_owned(), "org.apache.hadoop.fs.RawLocalFileSystem".to_owned()),
    ];
    config
}

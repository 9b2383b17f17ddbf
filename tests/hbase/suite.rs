//! Runs the scenarios on the cluster they share.

use std::{
    panic::AssertUnwindSafe,
    process::ExitCode,
    time::{Duration, Instant},
};

use cluster::{Cluster, ClusterConfig};
use futures_util::{FutureExt, future::LocalBoxFuture};
use tsd_testkit::hbase_workload::error_chain;

use crate::{
    cluster_forward, cluster_kills, cluster_log, cluster_nodes, conformance, copy, corrections,
    differential, fault_limits, fault_restore, faults, interop, live, opentsdb, outage,
    regions::ScenarioResult, series_index, tables, two_daemons,
};

type Scenario = for<'a> fn(&'a mut Cluster) -> LocalBoxFuture<'a, ScenarioResult<()>>;

/// The scenario that sets quotas.
const LIMITS: &str = "limits";

/// All scenarios, in their order; the faults are last because they disturb the cluster most.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("live", |cluster| Box::pin(async { live::run(cluster) })),
    ("conformance", |cluster| Box::pin(conformance::run(cluster))),
    ("two-daemons", |cluster| Box::pin(two_daemons::run(cluster))),
    ("series-index", |cluster| Box::pin(async { series_index::run(cluster) })),
    ("copy", |cluster| Box::pin(async { copy::run(cluster) })),
    ("opentsdb", |cluster| Box::pin(opentsdb::run(cluster))),
    ("corrections", |cluster| Box::pin(corrections::run(cluster))),
    ("outage", |cluster| Box::pin(outage::run(cluster))),
    ("tables", |cluster| Box::pin(tables::run(cluster))),
    ("cluster_log", |cluster| Box::pin(cluster_log::run(cluster))),
    ("cluster_nodes", |cluster| Box::pin(cluster_nodes::run(cluster))),
    ("cluster_forward", |cluster| Box::pin(cluster_forward::run(cluster))),
    ("differential", |cluster| Box::pin(differential::scenario(cluster))),
    ("interop", |cluster| Box::pin(interop::scenario(cluster))),
    ("restore", |cluster| Box::pin(fault_restore::run(cluster))),
    ("faults", |cluster| Box::pin(faults::run(cluster))),
];

/// Scenarios that run only if they are named, since they take minutes.
const NAMED: &[(&str, Scenario)] = &[
    (CLUSTER_KILLS, |cluster| Box::pin(cluster_kills::run(cluster))),
    (LIMITS, |cluster| Box::pin(fault_limits::run(cluster))),
];

/// The scenario that needs no OpenTSDB.
const CLUSTER_KILLS: &str = "cluster_kills";

/// Prefix of the name of a scenario to leave out.
const WITHOUT: &str = "no-";

/// Scenarios with these names. Without a name, all of [`SCENARIOS`] except the ones to leave out.
fn requested(names: &[String]) -> impl Iterator<Item = (&'static str, Scenario)> {
    let is_named = move |(known, _): &(&str, Scenario)| names.iter().any(|name| name == known);
    let is_left_out = move |(known, _): &(&str, Scenario)| {
        names.iter().any(|name| name.strip_prefix(WITHOUT) == Some(known))
    };
    let names_one = names.iter().any(|name| !name.starts_with(WITHOUT));
    let usual = SCENARIOS.iter().copied().filter(move |one| !names_one || is_named(one));
    let named = NAMED.iter().copied().filter(is_named);
    usual.chain(named).filter(move |one| !is_left_out(one))
}

/// Runs the scenarios that are [`requested`].
pub(crate) async fn run(names: &[String]) -> ExitCode {
    let known: Vec<_> = SCENARIOS.iter().chain(NAMED).map(|(name, _)| *name).collect();
    if let Some(name) = names
        .iter()
        .find(|name| !known.contains(&name.strip_prefix(WITHOUT).unwrap_or(name.as_str())))
    {
        eprintln!("hbase: no scenario {name}, there are {}", known.join(", "));
        return ExitCode::FAILURE;
    }
    let start = Instant::now();
    let mut cluster = match Cluster::start(config(names)).await {
        Ok(cluster) => cluster,
        Err(error) => {
            eprintln!("hbase: {}", error_chain(&error));
            return ExitCode::FAILURE;
        }
    };
    println!("hbase: serves after {:.1?}", start.elapsed());
    let mut failed = Vec::new();
    for (name, scenario) in requested(names) {
        let start = Instant::now();
        match AssertUnwindSafe(scenario(&mut cluster)).catch_unwind().await {
            Ok(Ok(())) => println!("hbase: {name}: passed in {:.1?}", start.elapsed()),
            Ok(Err(error)) => {
                println!("hbase: {name}: FAILED after {:.1?}", start.elapsed());
                failed.push(format!("{name}: {}", error_chain(&*error)));
            }
            Err(_) => {
                println!("hbase: {name}: PANICKED after {:.1?}", start.elapsed());
                failed.push(format!("{name}: panicked, so that no other was run"));
                break;
            }
        }
    }
    if let Err(error) = cluster.shut_down().await {
        failed.push(format!("shutdown of the cluster: {}", error_chain(&error)));
    }
    if failed.is_empty() {
        println!("hbase: all passed in {:.1?}", start.elapsed());
        return ExitCode::SUCCESS;
    }
    // Last, so that they end a long report.
    for failure in failed {
        println!("hbase: failed: {failure}");
    }
    ExitCode::FAILURE
}

fn config(names: &[String]) -> ClusterConfig {
    let mut config = ClusterConfig::new(2);
    config.proxied = true;
    // For a machine that other work keeps busy.
    config.start_timeout = Duration::from_mins(10);
    config.opentsdb = requested(names).any(|(name, _)| name != CLUSTER_KILLS);
    config.properties = vec![
        // The checksummed local file system buffers up to a checksum block in memory; a server's log
        // must survive SIGKILL.
        ("fs.file.impl".to_owned(), "org.apache.hadoop.fs.RawLocalFileSystem".to_owned()),
    ];
    if requested(names).any(|(name, _)| name == LIMITS) {
        config.properties.extend([
            ("hbase.quota.enabled".to_owned(), "true".to_owned()),
            // The servers read quotas every second, instead of twice a day.
            ("hbase.quota.refresh.period".to_owned(), "1000".to_owned()),
        ]);
    }
    config
}

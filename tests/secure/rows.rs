//! What each client does: tables, points, queries and checks; and two daemons that form a cluster.

use std::path::Path;

use cluster::Cluster;
use tokio::task::block_in_place;
use tsd_testkit::{Daemon, DaemonBuilder};

use crate::{
    TSDB, TestResult,
    client::{ClientSettings, SecureClient},
    load::{check_points, put_points},
    programs::{command, one_line},
};

/// Points that are put.
const POINTS: u64 = 300;
const METRIC: &str = "secure.points";

/// The settings of `tsd.storage.ack`; each row takes the next one.
const ACKS: [&str; 3] = ["storage", "log", "cluster"];

/// Creates tables, puts points, reads them through another daemon, and checks the tables.
pub(crate) async fn run(cluster: &Cluster, client: SecureClient, at: usize) -> TestResult<String> {
    let directory = tempfile::tempdir()?;
    let mut settings = client.settings(cluster, directory.path()).await?;
    settings.set_tables(&format!("secure{at}"));
    let ack = ACKS[at % ACKS.len()];
    settings.set("tsd.storage.ack", ack);
    let file = directory.path().join("opentsdb.conf");
    settings.write(&file)?;
    block_in_place(|| {
        tool(&settings, &file, &["table", "create"])?;
        let daemon = start(&settings, &file, &directory.path().join("data"))?;
        put_points(daemon.address(), METRIC, POINTS)?;
        check_points(daemon.address(), METRIC, POINTS)?;
        stop(daemon)?;
        // What the log held is stored now.
        let daemon = start(&settings, &file, &directory.path().join("data"))?;
        check_points(daemon.address(), METRIC, POINTS)?;
        stop(daemon)?;
        tool(&settings, &file, &["fsck", "--full-scan"])
    })?;
    Ok(format!("ack = {ack}"))
}

/// Starts two daemons of a cluster. Points put to one are read from the other, also after the first was killed.
pub(crate) async fn run_nodes(cluster: &Cluster, client: SecureClient) -> TestResult<String> {
    let directory = tempfile::tempdir()?;
    let mut settings = client.settings(cluster, directory.path()).await?;
    settings.set_tables("nodes");
    settings.set("tsd.storage.ack", "cluster");
    let node = |name: &str| -> TestResult<Daemon> {
        let mut settings = settings.clone();
        settings.set("tsd.cluster.name", name);
        let file = directory.path().join(format!("{name}.conf"));
        settings.write(&file)?;
        start(&settings, &file, &directory.path().join(name))
    };
    let file = directory.path().join("opentsdb.conf");
    settings.write(&file)?;
    block_in_place(|| {
        tool(&settings, &file, &["table", "create"])?;
        let (first, second) = (node("first")?, node("second")?);
        put_points(first.address(), METRIC, POINTS)?;
        check_points(second.address(), METRIC, POINTS)?;
        first.kill();
        check_points(second.address(), METRIC, POINTS)?;
        put_points(second.address(), "secure.more", POINTS)?;
        let first = node("first")?;
        check_points(first.address(), METRIC, POINTS)?;
        check_points(first.address(), "secure.more", POINTS)?;
        stop(first)?;
        stop(second)
    })?;
    Ok("two nodes, one killed".to_owned())
}

/// Runs a command, which must succeed.
pub(crate) fn tool(settings: &ClientSettings, file: &Path, arguments: &[&str]) -> TestResult<()> {
    let output = command(settings, file, arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("tsdb {}: {}: {}", arguments.join(" "), output.status, one_line(&stderr)).into())
}

/// Starts a daemon and waits until it serves.
pub(crate) fn start(settings: &ClientSettings, file: &Path, data: &Path) -> TestResult<Daemon> {
    let file = file.display().to_string();
    let daemon = DaemonBuilder::of_bench(TSDB, data).args(&["--config", &file]);
    let environment = settings.environment.iter();
    let daemon = environment.fold(daemon, |daemon, (name, value)| daemon.env(name, value));
    let (log, started) = daemon.try_start();
    started.map_err(|status| format!("the daemon: {status}: {}", one_line(&log)).into())
}

/// Stops a daemon, which must succeed.
pub(crate) fn stop(daemon: Daemon) -> TestResult<()> {
    let status = daemon.terminate();
    if status.success() { Ok(()) } else { Err(format!("the stop: {status}").into()) }
}

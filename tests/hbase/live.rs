//! Runs the tests of single client operations, `crates/hbase-rs/tests/live`, on the shared cluster.

use std::process::Command;

use cluster::Cluster;
use tokio::task::block_in_place;

use crate::regions::ScenarioResult;

/// Builds and runs them with cargo.
pub(crate) fn run(cluster: &Cluster) -> ScenarioResult<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["test", "--locked", "-p", "hbase-rs", "--features", "live", "--test", "live"])
        .env("HBASE_QUORUM", cluster.quorum());
    let ended = block_in_place(|| cargo.status())?;
    if ended.success() { Ok(()) } else { Err(format!("cargo test: {ended}").into()) }
}

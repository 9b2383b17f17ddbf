//! The client's own tests of single operations, `crates/hbase-rs/tests/live`.

use std::process::Command;

use cluster::Cluster;
use tokio::task::block_in_place;

use crate::regions::Outcome;

/// Lets cargo build and run them.
pub(crate) fn run(cluster: &Cluster) -> Outcome<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["test", "--locked", "-p", "hbase-rs", "--features", "live", "--test", "live"])
        .env("HBASE_QUORUM", cluster.quorum());
    let ended = block_in_place(|| cargo.status())?;
    if ended.success() { Ok(()) } else { Err(format!("cargo test: {ended}").into()) }
}

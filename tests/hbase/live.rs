//! Runs the tests of the client and of the store that need a running HBase on the shared cluster.

use std::process::Command;

use cluster::Cluster;
use tokio::task::block_in_place;

use crate::regions::ScenarioResult;

/// Names of their programs, and of the tests in them.
const PROGRAMS: [[&str; 2]; 2] = [["hbase-rs/live", ""], ["tsd-storage-hbase/store", "live::"]];

/// Runs the programs that are built with this one.
pub(crate) fn run(cluster: &Cluster) -> ScenarioResult<()> {
    for [program, tests] in PROGRAMS {
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs.sh"));
        // Secured clusters are others.
        command.args(["run", program, "--ignored", "--skip", "secured::", tests]);
        command
            .env("HBASE_QUORUM", cluster.quorum())
            .env("HBASE_MASTERS", cluster.masters().join(","));
        let ended = block_in_place(|| command.status())?;
        if !ended.success() {
            return Err(format!("{program}: {ended}").into());
        }
    }
    Ok(())
}

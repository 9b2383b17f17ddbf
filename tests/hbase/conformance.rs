//! Runs the conformance suite of the `Storage` trait on HBase.

use std::panic::AssertUnwindSafe;

use cluster::Cluster;
use futures_util::FutureExt;
use tsd_storage_hbase::{HBaseConfig, conformance};

use crate::regions::ScenarioResult;

/// Runs each case on its own tables, through the links.
pub(crate) async fn run(cluster: &Cluster) -> ScenarioResult<()> {
    let mut config = HBaseConfig::new(cluster.client_quorum());
    config.hosts = cluster.links().hosts();
    "conformance-".clone_into(&mut config.table_prefix);
    // A failed case panics with its reason.
    let suite = AssertUnwindSafe(conformance::run(config)).catch_unwind().await;
    suite.map_err(|_| "a case failed".into())
}

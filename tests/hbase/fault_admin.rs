//! Quotas and snapshots, which HBase's own client administers.

use std::path::Path;

use cluster::{Cluster, JavaClient};

use crate::regions::ScenarioResult;

/// Runs commands of `java/FaultAdmin.java` one after the other.
pub(crate) async fn administer(cluster: &Cluster, commands: &[&str]) -> ScenarioResult<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hbase/java/FaultAdmin.java");
    JavaClient { source: &source, args: commands, flags: &[] }.run(cluster).await?;
    Ok(())
}

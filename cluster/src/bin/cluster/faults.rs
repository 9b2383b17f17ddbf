//! Faults, one a command.

use anyhow::bail;
use cluster::{Cluster, Node};

use crate::{args::Fault, say};

/// Does it, and says how things stand then.
pub(crate) async fn apply(cluster: &mut Cluster, fault: Fault) -> anyhow::Result<()> {
    match fault {
        Fault::Kill { node } => {
            cluster.kill(node)?;
            say(format!("{node} is gone"));
        }
        Fault::Terminate { node } => {
            cluster.terminate(node)?;
            say(format!("{node} ended"));
        }
        Fault::Pause { node } => {
            cluster.pause(node)?;
            say(format!("{node} is held"));
        }
        Fault::Resume { node } => {
            cluster.resume(node)?;
            say(format!("{node} goes on"));
        }
        Fault::Restart { node } => {
            cluster.restart(node).await?;
            say(format!("{node} serves"));
        }
        Fault::Move { table, row, node } => {
            let Node::RegionServer(to) = node else { bail!("{node} is no region server") };
            cluster.move_region(&table, &row.0, to).await?;
            say(format!("the region is at {node}"));
        }
        Fault::Split { table, row } => {
            cluster.split_region(&table, &row.0).await?;
            say("both halves serve");
        }
        Fault::Merge { table, row } => {
            cluster.merge_regions(&table, &row.0).await?;
            say("the merged region serves");
        }
    }
    Ok(())
}

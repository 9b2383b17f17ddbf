//! Faults, one a command.

use anyhow::bail;
use cluster::{Cluster, Node};

use crate::args::Fault;

/// Does it, and says how things stand then.
pub(crate) async fn apply(cluster: &mut Cluster, fault: Fault) -> anyhow::Result<()> {
    match fault {
        Fault::Kill { node } => {
            cluster.kill(node)?;
            println!("{node} is gone");
        }
        Fault::Terminate { node } => {
            cluster.terminate(node)?;
            println!("{node} ended");
        }
        Fault::Pause { node } => {
            cluster.pause(node)?;
            println!("{node} is held");
        }
        Fault::Resume { node } => {
            cluster.resume(node)?;
            println!("{node} goes on");
        }
        Fault::Restart { node } => {
            cluster.restart(node).await?;
            println!("{node} serves");
        }
        Fault::Move { table, row, node } => {
            let Node::RegionServer(to) = node else { bail!("{node} is no region server") };
            cluster.move_region(&table, &row.0, to).await?;
            println!("the region is at {node}");
        }
        Fault::Split { table, row } => {
            cluster.split_region(&table, &row.0).await?;
            println!("both halves serve");
        }
        Fault::Merge { table, row } => {
            cluster.merge_regions(&table, &row.0).await?;
            println!("the merged region serves");
        }
    }
    Ok(())
}

//! Commands that inject faults.

use anyhow::bail;
use cluster::{Cluster, Node};

use crate::{args::FaultCommand, print_line};

/// Runs a command and prints its result.
pub(crate) async fn apply(cluster: &mut Cluster, fault: FaultCommand) -> anyhow::Result<()> {
    match fault {
        FaultCommand::Kill { node } => {
            cluster.kill(node)?;
            print_line(format!("{node} was killed"));
        }
        FaultCommand::Terminate { node } => {
            cluster.terminate(node)?;
            print_line(format!("{node} exited"));
        }
        FaultCommand::Pause { node } => {
            cluster.pause(node)?;
            print_line(format!("{node} is paused"));
        }
        FaultCommand::Resume { node } => {
            cluster.resume(node)?;
            print_line(format!("{node} was resumed"));
        }
        FaultCommand::Restart { node } => {
            cluster.restart(node).await?;
            print_line(format!("{node} serves"));
        }
        FaultCommand::Move { table, row, node } => {
            let Node::RegionServer(to) = node else { bail!("{node} is not a region server") };
            cluster.move_region(&table, &row.0, to).await?;
            print_line(format!("the region is open on {node}"));
        }
        FaultCommand::Split { table, row } => {
            cluster.split_region(&table, &row.0).await?;
            print_line("both halves are open");
        }
        FaultCommand::Merge { table, row } => {
            cluster.merge_regions(&table, &row.0).await?;
            print_line("the merged region is open");
        }
    }
    Ok(())
}

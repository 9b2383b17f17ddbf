//! Arguments of `tsdb cluster`.

use clap::{Args, Subcommand};

/// Arguments of `tsdb cluster`.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// The sub-command.
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

/// Sub-commands of `tsdb cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes: state, log, held rows, version, clock
    Status(ClusterPlace),
    /// Flush all held rows of all nodes to HBase, and wait
    Flush(ClusterPlace),
    /// Give all slots of the daemon at the URL to other nodes, before it is stopped for good
    Drain(ClusterPlace),
}

/// Which daemon is asked, and how its answer is printed.
#[derive(Debug, Args)]
pub(crate) struct ClusterPlace {
    /// URL of any daemon of the cluster
    #[arg(
        long,
        visible_alias = "host",
        value_name = "URL",
        default_value = "http://localhost:4242"
    )]
    pub(crate) url: String,
    /// Print JSON, as /api/cluster does
    #[arg(long)]
    pub(crate) json: bool,
}

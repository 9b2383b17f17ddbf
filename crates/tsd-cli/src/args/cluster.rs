//! Arguments of `tsdb cluster`.

use clap::{Args, Subcommand};

use super::overrides::Overrides;

/// Sub-commands of `tsdb cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes: state, log, held rows, version, clock
    Status(ClusterPlace),
    /// Flush all held rows of all nodes to HBase, and wait
    Flush(ClusterPlace),
    /// List the queries that run on all nodes, or cancel one of them
    Queries(ClusterQueriesArgs),
    /// Give all slots of the daemon at the URL to other nodes, before it is stopped for good
    Drain(ClusterPlace),
    /// Show the settings that all nodes have alike, and change some of them; fails if they differ from those here
    Settings(ClusterSettingsArgs),
}

/// Arguments of `tsdb cluster settings`.
#[derive(Debug, Args)]
pub(crate) struct ClusterSettingsArgs {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Give the cluster tsd.cluster.forward as it is set here, while all nodes are stopped, and the versions of messages
    /// that this release speaks, if all nodes that run speak one of them
    #[arg(long)]
    pub(crate) adopt: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tsdb cluster queries`.
#[derive(Debug, Args)]
pub(crate) struct ClusterQueriesArgs {
    /// Cancel the query with this id, on whatever node it runs
    #[arg(long, value_name = "ID")]
    pub(crate) cancel: Option<String>,
    /// The daemon.
    #[command(flatten)]
    pub(crate) place: ClusterPlace,
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

//! Arguments of `tsdb cluster`.

use clap::{Args, Subcommand};

use super::overrides::Overrides;

/// Sub-commands of `tsdb cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes: state, log, held rows, version, clock
    Status(ClusterLocation),
    /// Flush all held rows of all nodes to HBase, and wait
    Flush(ClusterLocation),
    /// List the queries that run on all nodes, or cancel one of them
    Queries(ClusterQueriesArgs),
    /// Give all slots of the daemon to other nodes, before you stop it permanently
    Drain(ClusterLocation),
    /// List the nodes in the log table, without a daemon: state, address, heartbeat, log
    Members(ClusterMembersArgs),
    /// Show the settings that all nodes share, or change some; fails if the configuration here differs
    Settings(ClusterSettingsArgs),
}

/// Arguments of `tsdb cluster members`.
#[derive(Debug, Args)]
pub(crate) struct ClusterMembersArgs {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tsdb cluster settings`.
#[derive(Debug, Args)]
pub(crate) struct ClusterSettingsArgs {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Give the cluster the values of this configuration, where they may change: tsd.cluster.slot_tags while all
    /// nodes are stopped, others before the nodes are restarted with them, if every running node speaks a message version
    /// of this release
    #[arg(long)]
    pub(crate) adopt: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tsdb cluster queries`.
#[derive(Debug, Args)]
pub(crate) struct ClusterQueriesArgs {
    /// Cancel the query with this id, on any node
    #[arg(long, value_name = "ID")]
    pub(crate) cancel: Option<String>,
    /// The daemon.
    #[command(flatten)]
    pub(crate) location: ClusterLocation,
}

/// The daemon to ask, and the format of its response.
#[derive(Debug, Args)]
pub(crate) struct ClusterLocation {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// URL of any daemon of the cluster; the default is the daemon of the data directory
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Print JSON, as /api/cluster does
    #[arg(long)]
    pub(crate) json: bool,
}

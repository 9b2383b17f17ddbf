//! Test clusters on this machine, with fault injection: HBase with ZooKeeper, OpenTSDB and TSDs, each as
//! a separate process.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use cluster::{Cluster, ClusterConfig, Node};
//!
//! let mut config = ClusterConfig::new(2);
//! config.proxied = true;
//! let mut cluster = Cluster::start(config).await?;
//! let table = cluster.client().table("t".parse()?);
//! cluster.move_region(table.name(), b"row", 1).await?;
//! cluster.links().cut(Node::RegionServer(1));
//! cluster.links().restore(Node::RegionServer(1));
//! cluster.kill(Node::RegionServer(0))?;
//! cluster.restart(Node::RegionServer(0)).await?;
//! cluster.shut_down().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Jars are pinned by checksum and downloaded once. All processes end when the [`Cluster`] is dropped or
//! its process is killed, unless the cluster was detached.

mod artifacts;
mod cluster;
mod config;
mod error;
mod files;
mod java;
mod links;
mod node;
mod ports;
mod process;
mod programs;
mod state;

pub use self::{
    artifacts::{ArtifactError, LockError},
    cluster::{Cluster, default_directory},
    config::ClusterConfig,
    error::ClusterError,
    links::Links,
    node::{Node, NodeError},
    programs::{JavaRun, ToolRun, run_java, run_opentsdb_tool},
};

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
mod certificates;
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
mod realm;
mod security;
mod state;
mod tools;
mod version;

pub use self::{
    artifacts::{ArtifactError, LockError},
    certificates::{Certificate, Certificates},
    cluster::{Cluster, default_directory},
    config::ClusterConfig,
    error::ClusterError,
    files::ClientFiles,
    links::Links,
    node::{Node, NodeError},
    programs::{JavaClient, JavaRun, ToolRun, run_java, run_opentsdb_tool},
    realm::Realm,
    security::{Kerberos, Protection, Security, SecurityError, Tls, ZooKeeperSasl},
    version::{HBaseVersion, VersionError},
};

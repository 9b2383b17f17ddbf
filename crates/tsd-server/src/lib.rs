//! Telnet and HTTP listeners on one port.
//!
//! A [`Server`] accepts connections, limits their resources, and serves OpenTSDB's two protocols on
//! top of an engine. Parsing and error texts are in `tsd-protocol`; rows and storage backends are
//! not known here.

mod admin_peers;
mod auth;
mod cluster_nodes;
mod config;
mod connection;
mod connection_memory;
mod cors;
mod health;
mod http;
mod latency;
mod metrics;
mod plugins;
mod process;
mod put_error_mapping;
mod query_failure_mapping;
mod recent_logs;
mod refused_connection;
mod refused_points;
mod rollups;
mod server;
mod server_state;
mod stats;
mod telnet;
mod timeout_io;

pub use admin_peers::{AdminPeers, AdminPeersError};
pub use auth::{
    AllowAll, AuthError, AuthenticationConfig, Authenticator, Credentials, HashError, Identity,
    OpenPaths, OpenPathsError, Permission, Permissions, Secret, UnknownPermission,
    UserFileAuthenticator, Users, UsersError, hash_password, hash_token, new_token,
};
pub use cluster_nodes::{
    CancelQueryError, ClusterFuture, ClusterNode, ClusterNodes, ClusterQueryId, ClusterStatus,
    DrainedNode, FlushedNode, NodeDetails, NodeQueries, NodeSlots, SlotSummary,
};
pub use config::{Limits, ServerConfig, ServerMode};
pub use cors::{Cors, CorsError};
pub use http::{quarantine_json, running_queries, snapshot_json, verification_json};
pub use metrics::{describe_metrics, install_metrics};
pub use plugins::{
    PluginTask, PublisherConfig, PublisherUrl, PublisherUrlError, SpoolConfig, start_publisher,
    start_spool,
};
pub use recent_logs::{LogControl, LogEvent, LogLevelError, RecentLogs};
pub use rollups::rollup_rules;
pub use server::{BindError, Server, ShutdownReport};

#[cfg(test)]
mod tests;

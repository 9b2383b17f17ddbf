//! Telnet and HTTP listeners on one port.
//!
//! A [`Server`] accepts connections, limits their resources, and serves OpenTSDB's two protocols on
//! top of an engine. `tsd-protocol` has the parsers and error texts. This crate knows neither rows nor
//! storage backends.

mod admin_peers;
mod audit;
mod audit_upkeep;
mod auth;
mod body_memory;
mod client;
mod client_stream;
mod cluster_nodes;
mod config;
mod connection;
mod connection_epoch;
mod connection_memory;
mod cors;
mod failure_mapping;
mod gentle_close;
mod health;
mod host_names;
mod http;
mod identity_limits;
mod latency;
mod metrics;
mod open_connections;
mod plugins;
mod port_tls;
mod process;
mod put_error_mapping;
mod query_failure_mapping;
mod reader_pace;
mod recent_logs;
mod redaction;
mod refused_connection;
mod refused_points;
mod request_id;
mod rollups;
mod rotated_file;
mod route;
mod self_stats;
mod server;
mod server_state;
mod stats;
mod telnet;
mod timeout_io;
mod tls_failure;
mod tls_handshake;

pub use admin_peers::{AdminPeers, PeersError, TrustedProxies};
pub use audit::{AuditConfig, AuditLog};
pub use auth::{
    AllowAll, AuthError, AuthenticationConfig, Authenticator, ExpiryError, HashError, Identity,
    KeySet, KeySetError, OpenPaths, OpenPathsError, Permission, Permissions, TokenError,
    TokenRules, UnknownPermission, UserFileAuthenticator, UserLimitError, UserLimits, UserLine,
    UserLineError, Users, UsersChange, UsersError, hash_password, hash_token, new_token,
    parse_expiry,
};
pub use cluster_nodes::{
    CancelQueryError, ClusterFuture, ClusterNode, ClusterNodes, ClusterQueryId, ClusterStatus,
    DrainedNode, FlushedNode, HotSlotDetails, NodeDetails, NodeQueries, NodeSlots, SilentNodeError,
    SlotSummary,
};
pub use config::{Limits, PropertyMeaning, ServerConfig, ServerMode};
pub use cors::{Cors, CorsError};
pub use health::HealthAge;
pub use host_names::{HostNames, HostNamesError};
pub use http::{quarantine_json, running_queries, snapshot_json, verification_json};
pub use identity_limits::IdentityLimits;
pub use metrics::{describe_metrics, install_metrics};
pub use plugins::{
    PluginTask, PublisherConfig, PublisherUrl, PublisherUrlError, SpoolConfig, start_publisher,
    start_spool,
};
pub use port_tls::PortTls;
pub use recent_logs::{LogControl, LogEvent, LogLevelError, RecentLogs};
pub use redaction::redacted;
pub use rollups::rollup_rules;
pub use server::{BindError, Server, ShutdownReport};

#[cfg(test)]
mod tests;

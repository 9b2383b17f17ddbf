//! Settings of the server, typed and validated before the port opens.
//!
//! The configuration loader maps each key of `opentsdb.conf` to a setting, so the server knows no keys.
//! Limits that OpenTSDB lacks have defaults that no well-behaved collector reaches.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusHandle;
use tsd_engine::Standstills;
use tsd_protocol::BuildInfo;

use crate::{
    AdminPeers, AuditLog, AuthenticationConfig, ClusterNodes, Cors, HostNames, IdentityLimits,
    LogControl, PortTls, TrustedProxies,
};

/// Which commands and routes a daemon serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerMode {
    /// Reads and writes.
    #[default]
    ReadWrite,
    /// Reads only.
    ReadOnly,
    /// Writes only.
    WriteOnly,
}

impl ServerMode {
    /// Returns true if points may be written.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::ReadOnly)
    }

    /// Returns true if points may be read.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::WriteOnly)
    }
}

/// Resource limits and timeouts of clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of open connections (`tsd.core.connections.limit`); `None` is unlimited. The
    /// server accepts and closes further connections, so that a load balancer notices. A client that
    /// speaks first gets the reason.
    pub connections: Option<NonZeroUsize>,
    /// Closes a connection that neither reads nor writes for this long (`tsd.core.socket.timeout`). A
    /// connection with a request in progress is not idle.
    pub idle_timeout: Option<Duration>,
    /// Minimum idle time of a connection that the server may close to make room for a new connection.
    pub evict_idle_after: Duration,
    /// Maximum time from the first byte of a request to the end of its headers.
    pub header_timeout: Duration,
    /// Maximum time of a TLS handshake.
    pub tls_handshake_timeout: Duration,
    /// Maximum time between two reads of a request body.
    pub body_timeout: Duration,
    /// A body stalls if hardly any bytes arrive in this time. While other requests wait for memory, a stalled body is
    /// aborted.
    pub body_stall: Duration,
    /// A response stalls if its client reads hardly any bytes in this time. While other requests wait for memory, a
    /// stalled response is aborted.
    pub response_stall: Duration,
    /// Maximum time without write progress before the connection is closed.
    pub write_timeout: Duration,
    /// How long a client that closed its sending side may still wait for a response. After that it counts
    /// as disconnected and its query is cancelled, since TCP cannot tell the two apart.
    pub half_close_grace: Duration,
    /// Maximum length of the request line.
    pub request_line_bytes: usize,
    /// Maximum total length of the request headers.
    pub header_bytes: usize,
    /// Maximum size of a request body as sent (`tsd.http.request.max_chunk`).
    pub body_bytes: usize,
    /// Maximum size of a request body after decompression (`tsd.http.request.max_inflated`); at
    /// least [`Self::body_bytes`].
    pub inflated_bytes: usize,
    /// Maximum memory of all request bodies together. A request that would exceed it waits, then gets 503.
    pub all_bodies_bytes: usize,
    /// How long a request body waits for memory before the request gets 503.
    pub memory_wait: Duration,
    /// Maximum length of a telnet line (`tsd.network.max_line_length`). A longer line is skipped with an error reply.
    pub telnet_line_bytes: usize,
    /// Maximum size of the error lines queued for a telnet client. Further lines are dropped and
    /// counted.
    pub telnet_reply_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: None,
            idle_timeout: None,
            evict_idle_after: Duration::from_secs(5),
            header_timeout: Duration::from_secs(30),
            tls_handshake_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_mins(1),
            body_stall: Duration::from_secs(2),
            response_stall: Duration::from_secs(5),
            write_timeout: Duration::from_mins(1),
            half_close_grace: Duration::from_secs(5),
            request_line_bytes: 4_096,
            header_bytes: 8_192,
            body_bytes: 16 << 20,
            inflated_bytes: 64 << 20,
            all_bodies_bytes: 256 << 20,
            memory_wait: Duration::from_secs(5),
            telnet_line_bytes: 16 << 10,
            telnet_reply_bytes: 64 << 10,
        }
    }
}

/// Settings of a [`crate::Server`].
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the configuration")]
pub struct ServerConfig {
    /// Addresses to listen on (`tsd.network.bind`), at least one. `::` also accepts IPv4, unless the list
    /// has `0.0.0.0`. On a host without IPv6, `::` means `0.0.0.0`.
    pub bind: Vec<IpAddr>,
    /// Port to listen on (`tsd.network.port`); 0 selects a free port, the same for all addresses.
    pub port: u16,
    /// Length of the kernel's queue of connections not yet accepted (`tsd.network.backlog`).
    pub backlog: u32,
    /// `tsd.network.tcp_no_delay`.
    pub tcp_no_delay: bool,
    /// `tsd.network.keep_alive`.
    pub tcp_keep_alive: bool,
    /// `tsd.network.reuse_address`.
    pub reuse_address: bool,
    /// `tsd.mode`.
    pub mode: ServerMode,
    /// Serves `/api/…` (`tsd.core.enable_api`).
    pub api_enabled: bool,
    /// Serves the pages outside `/api` (`tsd.core.enable_ui`).
    pub ui_enabled: bool,
    /// Disables the `diediedie` commands (`tsd.no_diediedie`).
    pub no_diediedie: bool,
    /// Reports telnet points that could not be stored to the client
    /// (`tsd.rpc.telnet.return_errors`).
    pub telnet_return_errors: bool,
    /// While the store does not accept telnet points, holds them and stops reading
    /// (`tsd.rpc.telnet.on_storage_error = hold`). Otherwise the connection is closed with the reason.
    pub telnet_holds_points: bool,
    /// Adds a `trace` to error objects (`tsd.http.show_stack_trace`).
    pub show_stack_trace: bool,
    /// Answers searches of meta objects and annotations (`tsd.search.enable`).
    pub search_enabled: bool,
    /// Accepts bodies that are chunked, longer than 8192 bytes or announced by `Expect:
    /// 100-continue` (`tsd.http.request.enable_chunked`). OpenTSDB rejects them by default.
    pub chunked_requests: bool,
    /// Header whose `k=v` value is added to the tags of every point of a request
    /// (`tsd.http.header_tag`).
    pub header_tag: Option<String>,
    /// Allows `DELETE /api/query` (`tsd.http.query.allow_delete`).
    pub allow_delete: bool,
    /// Rejects queries with options that OpenTSDB ignores
    /// (`tsd.http.query.reject_unknown_options`).
    pub reject_unknown_options: bool,
    /// Peers that may stop the daemon, drop its caches, change UIDs, delete data and cancel queries
    /// (`tsd.core.admin.peers`).
    pub admin_peers: AdminPeers,
    /// Authentication of clients (`tsd.core.authentication.*`). With `None`, nobody is authenticated, and
    /// everybody may put and query.
    pub authentication: Option<AuthenticationConfig>,
    /// The audit log (`tsd.audit.*`); `None` without one.
    pub audit: Option<Arc<AuditLog>>,
    /// TLS of the port (`tsd.tls.*`); with `None`, handshakes are refused.
    pub tls: Option<Arc<PortTls>>,
    /// Host names that browsers may use for this daemon (`tsd.http.hosts`).
    pub hosts: HostNames,
    /// Proxies that are trusted to name their clients (`tsd.http.trusted_proxies`).
    pub trusted_proxies: TrustedProxies,
    /// Cross-origin rules (`tsd.http.request.cors_*`).
    pub cors: Cors,
    /// Directory of the files below `/s/` (`tsd.http.staticroot`). They hide the files of the program.
    pub static_root: Option<PathBuf>,
    /// The log of the process, for `/logs`. With `None`, `/logs` is an error.
    pub log: Option<LogControl>,
    /// The cluster of this daemon, for `/api/cluster`; `None` without a cluster.
    pub cluster: Option<Arc<dyn ClusterNodes>>,
    /// Closes the connections that were open while the process stood still; `None` outside of a cluster.
    pub standstills: Option<Arc<Standstills>>,
    /// Time zone of queries without a time zone (`tsd.core.timezone`).
    pub time_zone: String,
    /// Host name in statistics.
    pub host_name: String,
    /// Names the host tag of statistics `fqdn` (`tsd.stats.canonical`).
    pub stats_canonical: bool,
    /// Time between two writes of the daemon's own statistics as points (`tsd.stats.self`); `None` writes none.
    pub self_stats: Option<Duration>,
    /// Adds a `port` tag to statistics (`tsd.core.stats_with_port`).
    pub stats_with_port: bool,
    /// Limits and timeouts.
    pub limits: Limits,
    /// Limits of each identity (`tsd.limits.*`).
    pub identity_limits: IdentityLimits,
    /// Every effective property, for `/api/config`, which hides credentials.
    pub properties: BTreeMap<String, String>,
    /// Where the value of each property comes from, for `/api/config/sources`.
    pub property_sources: BTreeMap<String, String>,
    /// What each known key sets, for `/api/config/keys`.
    pub property_meanings: BTreeMap<String, PropertyMeaning>,
    /// Build information shown by `version`.
    pub build: BuildInfo,
    /// Renders `/metrics`; see [`crate::install_metrics`]. Without it the route is unknown.
    pub metrics: Option<PrometheusHandle>,
}

/// What a key of the configuration sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyMeaning {
    /// The key, in one line.
    pub meaning: &'static str,
    /// The allowed values with their unit, in words.
    pub values: String,
    /// The value without a configuration; `None` if there is no such value, or if it depends on other keys.
    pub default: Option<&'static str>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            bind: vec![IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
            port: 4242,
            backlog: 3_072,
            tcp_no_delay: true,
            tcp_keep_alive: true,
            reuse_address: true,
            mode: ServerMode::default(),
            api_enabled: true,
            ui_enabled: true,
            no_diediedie: false,
            telnet_return_errors: true,
            telnet_holds_points: true,
            show_stack_trace: true,
            search_enabled: true,
            chunked_requests: true,
            header_tag: None,
            allow_delete: false,
            reject_unknown_options: false,
            admin_peers: AdminPeers::default(),
            hosts: HostNames::default(),
            trusted_proxies: TrustedProxies::default(),
            authentication: None,
            audit: None,
            tls: None,
            cors: Cors::default(),
            static_root: None,
            log: None,
            cluster: None,
            standstills: None,
            time_zone: "UTC".to_owned(),
            host_name: "(unknown)".to_owned(),
            stats_canonical: false,
            self_stats: None,
            stats_with_port: false,
            limits: Limits::default(),
            identity_limits: IdentityLimits::default(),
            properties: BTreeMap::new(),
            property_sources: BTreeMap::new(),
            property_meanings: BTreeMap::new(),
            build: BuildInfo::default(),
            metrics: None,
        }
    }
}

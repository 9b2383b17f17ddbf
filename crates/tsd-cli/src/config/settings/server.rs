//! Settings of the server.

use std::{
    net::{IpAddr, ToSocketAddrs},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use tsd_server::{AdminPeers, Cors, Limits, ServerConfig, ServerMode};

use crate::config::{Config, ConfigError};

/// Settings of the server.
pub(super) fn server(config: &Config) -> Result<ServerConfig, ConfigError> {
    Ok(ServerConfig {
        bind: bind(config)?,
        port: config.int("tsd.network.port"),
        backlog: config.int("tsd.network.backlog"),
        tcp_no_delay: config.bool("tsd.network.tcp_no_delay"),
        tcp_keep_alive: config.bool("tsd.network.keep_alive"),
        reuse_address: config.bool("tsd.network.reuse_address"),
        mode: match config.text("tsd.mode") {
            Some("ro") => ServerMode::ReadOnly,
            Some("wo") => ServerMode::WriteOnly,
            _ => ServerMode::ReadWrite,
        },
        api_enabled: config.text("tsd.core.enable_api") == Some("true"),
        ui_enabled: config.text("tsd.core.enable_ui") == Some("true"),
        no_diediedie: config.text("tsd.no_diediedie") != Some("false"),
        telnet_return_errors: config.bool("tsd.rpc.telnet.return_errors"),
        telnet_holds_points: config.text("tsd.rpc.telnet.on_storage_error") != Some("close"),
        show_stack_trace: config.bool("tsd.http.show_stack_trace"),
        search_enabled: config.bool("tsd.search.enable"),
        chunked_requests: config.bool("tsd.http.request.enable_chunked"),
        header_tag: config.non_empty("tsd.http.header_tag").map(str::to_owned),
        allow_delete: config.bool("tsd.http.query.allow_delete"),
        admin_peers: admin_peers(config)?,
        authentication: None,
        cors: cors(config)?,
        static_root: config.non_empty("tsd.http.staticroot").map(PathBuf::from),
        log: None,
        cluster: None,
        time_zone: zone_name(config)?,
        host_name: host_name(),
        stats_canonical: config.bool("tsd.stats.canonical"),
        stats_with_port: config.bool("tsd.core.stats_with_port"),
        limits: limits(config),
        properties: config.effective(),
        property_sources: config.sources(),
        build: crate::version::build_facts(),
        metrics: None,
    })
}

fn limits(config: &Config) -> Limits {
    let defaults = Limits::default();
    let request_timeout = Duration::from_secs(config.int("tsd.http.request.timeout"));
    Limits {
        connections: NonZeroUsize::new(config.int("tsd.core.connections.limit")),
        idle_timeout: match config.int("tsd.core.socket.timeout") {
            0 => None,
            secs => Some(Duration::from_secs(secs)),
        },
        header_timeout: defaults.header_timeout.min(request_timeout),
        body_timeout: request_timeout,
        write_timeout: Duration::from_secs(config.int("tsd.network.write_timeout")),
        body_bytes: config.int("tsd.http.request.max_chunk"),
        inflated_bytes: config.int("tsd.http.request.max_inflated"),
        telnet_line_bytes: config.int("tsd.network.max_line_length"),
        ..defaults
    }
}

fn admin_peers(config: &Config) -> Result<AdminPeers, ConfigError> {
    const KEY: &str = "tsd.core.admin.peers";
    AdminPeers::try_new(&config.string(KEY)).map_err(|error| config.bad_value(KEY, error))
}

fn cors(config: &Config) -> Result<Cors, ConfigError> {
    let domains = config.string("tsd.http.request.cors_domains");
    let headers = config.string("tsd.http.request.cors_headers");
    Cors::try_new(&domains, &headers).map_err(|error| {
        let key = match error {
            tsd_server::CorsError::BadHeaders { .. } => "tsd.http.request.cors_headers",
            _ => "tsd.http.request.cors_domains",
        };
        config.bad_value(key, error)
    })
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The addresses of `tsd.network.bind`: a list separated by commas, IPv6 with or without brackets.
fn bind(config: &Config) -> Result<Vec<IpAddr>, ConfigError> {
    const KEY: &str = "tsd.network.bind";
    let mut addresses = Vec::new();
    for word in config.string(KEY).split(',').map(str::trim) {
        let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
        let found = match bare.parse() {
            Ok(ip) => vec![ip],
            // The name of a host; the port has no effect.
            Err(_) => (bare, 0)
                .to_socket_addrs()
                .map_or_else(|_| Vec::new(), |found| found.map(|address| address.ip()).collect()),
        };
        if found.is_empty() {
            let expected = format!(
                "expected addresses of this host without port, such as 127.0.0.1 or ::1, \
                 separated by commas; {word:?} is none"
            );
            return Err(config.bad_value(KEY, expected));
        }
        for ip in found {
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
    }
    Ok(addresses)
}

pub(super) fn zone_name(config: &Config) -> Result<String, ConfigError> {
    const KEY: &str = "tsd.core.timezone";
    let name = config.non_empty(KEY).unwrap_or("UTC");
    if tsd_query::find_zone(name).is_none() {
        return Err(config.bad_value(KEY, "expected the name of a time zone"));
    }
    Ok(name.to_owned())
}

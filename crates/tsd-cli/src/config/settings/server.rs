//! Settings of the server.

use std::{
    net::{IpAddr, ToSocketAddrs},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use tsd_server::{
    AdminPeers, Cors, HostNames, IdentityLimits, Limits, PropertyMeaning, ServerConfig, ServerMode,
    TrustedProxies,
};

use crate::config::{Config, ConfigError, Key, keys};

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
        reject_unknown_options: config.bool("tsd.http.query.reject_unknown_options"),
        admin_peers: admin_peers(config)?,
        hosts: hosts(config)?,
        trusted_proxies: trusted_proxies(config)?,
        authentication: None,
        audit: None,
        tls: None,
        cors: cors(config)?,
        static_root: config.non_empty("tsd.http.staticroot").map(PathBuf::from),
        log: None,
        cluster: None,
        standstills: None,
        time_zone: zone_name(config)?,
        host_name: host_name(),
        stats_canonical: config.bool("tsd.stats.canonical"),
        self_stats: match config.int("tsd.stats.self") {
            0 => None,
            secs => Some(Duration::from_secs(secs)),
        },
        stats_with_port: config.bool("tsd.core.stats_with_port"),
        limits: limits(config),
        identity_limits: identity_limits(config),
        properties: config.effective(),
        property_sources: config.sources(),
        property_meanings: keys::KEYS.iter().map(meaning).collect(),
        build: crate::version::build_facts(),
        metrics: None,
    })
}

fn meaning(key: &Key) -> (String, PropertyMeaning) {
    let meaning = key.meaning;
    (key.name.to_owned(), PropertyMeaning { meaning, values: key.values(), default: key.default })
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

fn identity_limits(config: &Config) -> IdentityLimits {
    IdentityLimits {
        points_per_second: config.int("tsd.limits.points_per_second"),
        points_burst: Duration::from_secs(config.int("tsd.limits.points_burst")),
        new_series_per_hour: config.int("tsd.limits.new_series_per_hour"),
        concurrent_queries: config.int("tsd.limits.concurrent_queries"),
        query_bytes: config.int("tsd.limits.query_bytes"),
        query_memory: config.int("tsd.limits.query_memory"),
        measure: config.bool("tsd.limits.measure"),
    }
}

fn admin_peers(config: &Config) -> Result<AdminPeers, ConfigError> {
    const KEY: &str = "tsd.core.admin.peers";
    AdminPeers::try_new(&config.string(KEY)).map_err(|error| config.bad_value(KEY, error))
}

fn trusted_proxies(config: &Config) -> Result<TrustedProxies, ConfigError> {
    const KEY: &str = "tsd.http.trusted_proxies";
    TrustedProxies::try_new(&config.string(KEY)).map_err(|error| config.bad_value(KEY, error))
}

/// The names in `tsd.http.hosts`, and the names of the machine.
fn hosts(config: &Config) -> Result<HostNames, ConfigError> {
    const KEY: &str = "tsd.http.hosts";
    let hosts = HostNames::try_new(&config.string(KEY));
    let mut hosts = hosts.map_err(|error| config.bad_value(KEY, error))?;
    let known = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    for name in machine_names(&host_name(), &known) {
        hosts.add(name);
    }
    Ok(hosts)
}

/// The names of a machine: its host name with and without domain, and the names on the same lines of its hosts file.
fn machine_names<'t>(own: &'t str, hosts_file: &'t str) -> Vec<&'t str> {
    let mut names = vec![own];
    names.extend(own.split('.').next().filter(|short| !short.is_empty()));
    for line in hosts_file.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let listed: Vec<&str> = line.split_whitespace().skip(1).collect();
        if listed.iter().any(|name| name.eq_ignore_ascii_case(own)) {
            names.extend(listed);
        }
    }
    names
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
            // A host name. The port has no effect.
            Err(_) => (bare, 0)
                .to_socket_addrs()
                .map_or_else(|_| Vec::new(), |found| found.map(|address| address.ip()).collect()),
        };
        if found.is_empty() {
            let expected = format!(
                "expected addresses of this host without port, such as 127.0.0.1 or ::1, \
                 separated by commas; {word:?} is not such an address"
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn hosts_and_proxies_are_lists() {
        for (key, value, expected) in [
            ("tsd.http.hosts", "tsd:4242", "without ports"),
            ("tsd.http.trusted_proxies", "*", "such as 10.0.0.0/8"),
            ("tsd.http.trusted_proxies", "proxy.example", "such as 10.0.0.0/8"),
        ] {
            let mut config = Config::default();
            config.set_flag("test", key, value);
            let error = server(&config).unwrap_err().to_string();
            assert!(error.starts_with(key) && error.contains(expected), "{error}");
        }
        let mut config = Config::default();
        config.set_flag("test", "tsd.http.hosts", "tsd.example");
        let hosts = server(&config).unwrap().hosts;
        assert!(hosts.contain("tsd.example:4242") && hosts.contain(&host_name()));
        assert!(!hosts.contain("evil.example"));
    }

    #[test]
    fn a_machine_has_its_name_with_and_without_domain() {
        let file = "127.0.0.1 localhost\n127.0.1.1 web01.corp.example web01 # Debian\n10.0.0.9 db";
        let names = machine_names("web01", file);
        assert_eq!(names, ["web01", "web01", "web01.corp.example", "web01"]);
        assert_eq!(machine_names("web01.corp.example", ""), ["web01.corp.example", "web01"]);
    }
}

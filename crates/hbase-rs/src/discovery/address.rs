//! Addresses of clusters: URIs and servers.

use std::{fmt, str::FromStr};

use crate::transport::Role;

/// Schemes of the URIs, as in HBase 3.0.
const ZOOKEEPER: &str = "hbase+zk://";
const REGISTRY: &str = "hbase+rpc://";

/// Default port of a master.
const MASTER_PORT: u16 = 16_000;

/// How the servers of a cluster are found. Parses `hbase+zk://host[:port],…/znode` and `hbase+rpc://host:port,…`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterAddress {
    /// By [`ZooKeeperDiscovery`](crate::discovery::ZooKeeperDiscovery).
    ZooKeeper {
        /// `host[:port],…`
        quorum: String,
        /// Parent znode of HBase; `None`: `/hbase`.
        root: Option<String>,
    },
    /// By [`RegistryDiscovery`](crate::discovery::RegistryDiscovery).
    Registry {
        /// Servers to ask first.
        servers: Vec<RegistryServer>,
    },
}

/// A server that tells where the others are. Parses `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegistryServer {
    /// Host name or address; an address of IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Role, which selects the principal of the server. `None` for an unknown one: the principals of region servers and
    /// of masters are tried.
    pub role: Option<Role>,
}

/// A text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the address of a {what}; expected {expected}")]
pub struct AddressError {
    text: String,
    what: &'static str,
    expected: &'static str,
}

impl RegistryServer {
    /// Parses the address of a master, `host[:port]`; the default port is 16000.
    ///
    /// # Errors
    ///
    /// If the text is not an address.
    pub fn master(text: &str) -> Result<Self, AddressError> {
        let (host, port) = split(text).ok_or_else(|| Self::error(text))?;
        let port = port.unwrap_or(MASTER_PORT);
        Ok(Self { host, port, role: Some(Role::Master) })
    }

    fn error(text: &str) -> AddressError {
        AddressError { text: text.to_owned(), what: "server", expected: "host:port" }
    }
}

impl FromStr for RegistryServer {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match split(text) {
            Some((host, Some(port))) => Ok(Self { host, port, role: None }),
            _ => Err(Self::error(text)),
        }
    }
}

impl fmt::Display for RegistryServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            write!(out, "[{host}]:{port}")
        } else {
            write!(out, "{host}:{port}")
        }
    }
}

impl FromStr for ClusterAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError {
            text: text.to_owned(),
            what: "cluster",
            expected: "hbase+zk://host:port,.../znode or hbase+rpc://host:port,...",
        };
        if text.contains(['?', '#', '@', ' ']) {
            return Err(wrong());
        }
        if let Some(servers) = text.strip_prefix(REGISTRY) {
            let servers = servers.trim_end_matches('/').split(',').map(str::parse);
            let servers = servers.collect::<Result<_, _>>().map_err(|_| wrong())?;
            return Ok(Self::Registry { servers });
        }
        let rest = text.strip_prefix(ZOOKEEPER).ok_or_else(wrong)?;
        let (quorum, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !quorum.split(',').all(|host| split(host).is_some()) {
            return Err(wrong());
        }
        let root = match path.trim_matches('/') {
            "" => None,
            path => Some(format!("/{path}")),
        };
        Ok(Self::ZooKeeper { quorum: quorum.to_owned(), root })
    }
}

impl fmt::Display for ClusterAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZooKeeper { quorum, root } => {
                write!(out, "{ZOOKEEPER}{quorum}{}", root.as_deref().unwrap_or_default())
            }
            Self::Registry { servers } => {
                let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
                write!(out, "{REGISTRY}{}", servers.join(","))
            }
        }
    }
}

/// Splits `host[:port]` or `[address][:port]`.
fn split(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/@,[".contains(c)) {
        return None;
    }
    let port = match port {
        Some(port) => Some(port.parse().ok().filter(|port| *port != 0)?),
        None => None,
    };
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_parsed_and_shown() {
        for (uri, shown) in [
            ("hbase+zk://zk1,zk2:2182/hbase-secure", "hbase+zk://zk1,zk2:2182/hbase-secure"),
            ("hbase+zk://zk1:2181/", "hbase+zk://zk1:2181"),
            ("hbase+zk://[::1]:2181/a/b/", "hbase+zk://[::1]:2181/a/b"),
            ("hbase+rpc://m1:16000,rs1:16020", "hbase+rpc://m1:16000,rs1:16020"),
            ("hbase+rpc://[fe80::1]:16000/", "hbase+rpc://[fe80::1]:16000"),
        ] {
            let address: ClusterAddress = uri.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse::<ClusterAddress>().unwrap(), address);
        }
        for bad in [
            "zk1:2181",
            "hbase+zk://",
            "hbase+zk:///hbase",
            "hbase+zk://zk1,,zk2/hbase",
            "hbase+rpc://",
            "hbase+rpc://m1",
            "hbase+rpc://m1:16000/x",
            "hbase+rpc://m1:16000?a=b",
            "hbase+rpc://me@m1:16000",
            "hbase+http://m1:1",
        ] {
            let error = bad.parse::<ClusterAddress>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("hbase+rpc"), "{error}");
        }
    }

    #[test]
    fn servers_have_a_port_and_masters_a_default() {
        let server = |text: &str| text.parse::<RegistryServer>().map(|one| one.to_string());
        assert_eq!(server("rs1:16020").unwrap(), "rs1:16020");
        for bad in
            ["rs1", "rs1:", ":1", "rs1:x", "rs1:70000", "rs1:0", "[::1]", "[::1", "::1", "a b:1"]
        {
            assert!(server(bad).is_err(), "{bad}");
        }
        let master = RegistryServer::master("m1").unwrap();
        assert_eq!((&master.to_string()[..], master.role), ("m1:16000", Some(Role::Master)));
        assert_eq!(RegistryServer::master("[::1]:21300").unwrap().to_string(), "[::1]:21300");
        assert!(RegistryServer::master("").is_err());
    }
}

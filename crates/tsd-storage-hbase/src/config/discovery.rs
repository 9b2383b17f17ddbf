//! How a client finds the servers of a cluster: through ZooKeeper, or through servers of HBase.

use std::fmt;

use hbase_rs::{discovery::RegistryServer, security::ZooKeeperSecurity};

/// How a client finds the servers of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a process has few of them")]
pub enum HBaseDiscovery {
    /// HBase's znodes in ZooKeeper.
    ZooKeeper {
        /// Ensemble: `host[:port],…[/chroot]`.
        quorum: String,
        /// Root znode of HBase.
        root: String,
        /// Encryption and authentication of the session.
        security: ZooKeeperSecurity,
    },
    /// Masters or region servers, which also answer lookups. ZooKeeper is not needed.
    Registry {
        /// The servers to ask first; they name further ones.
        servers: Vec<RegistryServer>,
    },
}

impl HBaseDiscovery {
    /// Discovery through a ZooKeeper ensemble without security, with the root znode `/hbase`.
    pub fn zookeeper(quorum: impl Into<String>) -> Self {
        Self::ZooKeeper {
            quorum: quorum.into(),
            root: "/hbase".to_owned(),
            security: ZooKeeperSecurity::default(),
        }
    }

    /// Quorum and root znode as configured, which identify the cluster. Without ZooKeeper, the URI of the servers and
    /// no znode.
    #[must_use]
    pub fn identity(&self) -> (String, &str) {
        match self {
            Self::ZooKeeper { quorum, root, .. } => (quorum.clone(), root),
            Self::Registry { .. } => (self.to_string(), ""),
        }
    }

    /// True if no server is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::ZooKeeper { quorum, .. } => quorum.trim().is_empty(),
            Self::Registry { servers } => servers.is_empty(),
        }
    }
}

/// Quorum and root znode, or a URI of the servers.
impl fmt::Display for HBaseDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZooKeeper { quorum, root, .. } => write!(f, "{quorum} {root}"),
            Self::Registry { servers } => {
                let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
                write!(f, "hbase+rpc://{}", servers.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_place_is_shown_in_one_text() {
        assert_eq!(HBaseDiscovery::zookeeper("zk1,zk2").to_string(), "zk1,zk2 /hbase");
        let servers = vec![RegistryServer::master("m1").unwrap(), "r1:1".parse().unwrap()];
        let registry = HBaseDiscovery::Registry { servers };
        assert_eq!(registry.to_string(), "hbase+rpc://m1:16000,r1:1");
        assert!(!registry.is_empty() && HBaseDiscovery::zookeeper(" ").is_empty());
    }
}

//! Quorum strings of ZooKeeper.

use std::fmt;

/// Port of hosts without one.
const DEFAULT_PORT: u16 = 2181;

/// The servers of an ensemble, and the znode below which its clients work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quorum {
    /// `host:port` of each server.
    pub(super) servers: Vec<String>,
    /// Empty, or a path that begins with a slash and does not end with one.
    pub(super) chroot: String,
}

impl Quorum {
    /// Parses `host[:port],…[/chroot]`.
    pub(super) fn parse(quorum: &str) -> Self {
        let (hosts, chroot) = quorum.find('/').map_or((quorum, ""), |at| quorum.split_at(at));
        let hosts = hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
        let servers = hosts.map(with_port).collect();
        Self { servers, chroot: chroot.trim_end_matches('/').to_owned() }
    }

    /// True if the servers look like those of a product that speaks its own protocol instead of ZooKeeper's.
    pub(super) fn is_lindorm(&self) -> bool {
        let is_proxy = |server: &String| {
            server.contains("lindorm")
                || server.contains("-proxy-") && server.contains(".aliyuncs.com:")
        };
        self.servers.iter().any(is_proxy)
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.servers.join(","), self.chroot)
    }
}

fn with_port(host: &str) -> String {
    if host.rsplit(']').next().is_some_and(|tail| tail.contains(':')) {
        host.to_owned()
    } else {
        format!("{host}:{DEFAULT_PORT}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_a_port_get_the_default_port() {
        for (quorum, expected) in [
            ("a", "a:2181"),
            ("a:1,b", "a:1,b:2181"),
            ("a, b:3/root/x", "a:2181,b:3/root/x"),
            ("a,,b/", "a:2181,b:2181"),
            ("[::1]", "[::1]:2181"),
            ("[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(Quorum::parse(quorum).to_string(), expected);
        }
    }

    #[test]
    fn proxies_of_other_products_are_known_by_their_names() {
        for (quorum, expected) in [
            ("ld-bp1-proxy-hbaseue.hbaseue.rds.aliyuncs.com:30020", true),
            ("ld-bp1-proxy-lindorm.lindorm.rds.aliyuncs.com:30020", true),
            ("hb-proxy-pub-x-001.hbase.rds.aliyuncs.com:2181", true),
            ("hb-bp1-master1-001.hbase.rds.aliyuncs.com:2181", false),
            ("zk1,zk2", false),
        ] {
            assert_eq!(Quorum::parse(quorum).is_lindorm(), expected, "{quorum}");
        }
    }
}

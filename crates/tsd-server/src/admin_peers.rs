//! Lists of peers: addresses that may administer a daemon without authentication, and proxies that are
//! trusted to name their clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An entry of the list is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected addresses or networks such as 10.0.0.0/8, separated by commas{}: {entry:?}",
    if *takes_all { ", or *" } else { "" }
)]
pub struct PeersError {
    entry: String,
    /// True if the list may be `*`.
    takes_all: bool,
}

/// Addresses that may stop the daemon, drop its caches, change UIDs, delete data and cancel queries
/// (`tsd.core.admin.peers`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPeers(Peers);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Peers {
    All,
    Networks(Vec<Network>),
}

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    /// Length of the prefix, in bits.
    prefix: u32,
}

impl Default for AdminPeers {
    /// Loopback addresses.
    fn default() -> Self {
        Self(Peers::Networks(vec![
            Network { address: IpAddr::V4(Ipv4Addr::LOCALHOST), prefix: 8 },
            Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
        ]))
    }
}

impl AdminPeers {
    /// Parses a list of addresses and networks. `*` allows every peer, an empty text allows no peer.
    pub fn try_new(list: &str) -> Result<Self, PeersError> {
        if list.trim() == "*" {
            return Ok(Self(Peers::All));
        }
        networks(list, true).map(|networks| Self(Peers::Networks(networks)))
    }

    /// Returns true if the peer may administer the daemon.
    #[must_use]
    pub fn allows(&self, peer: IpAddr) -> bool {
        match &self.0 {
            Peers::All => true,
            Peers::Networks(networks) => networks.iter().any(|network| network.contains(peer)),
        }
    }

    /// Returns true if a peer with an unknown address may administer the daemon.
    pub(crate) const fn allow_unknown(&self) -> bool {
        matches!(self.0, Peers::All)
    }
}

/// Addresses of proxies that name their clients (`tsd.http.trusted_proxies`). `*` is an error, since
/// any client could then claim any address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// Parses a list of addresses and networks. An empty text trusts no proxy.
    pub fn try_new(list: &str) -> Result<Self, PeersError> {
        networks(list, false).map(Self)
    }

    /// Returns true if this is the address of a trusted proxy.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

fn networks(list: &str, takes_all: bool) -> Result<Vec<Network>, PeersError> {
    let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let parse = |entry: &str| {
        Network::parse(entry).ok_or_else(|| PeersError { entry: entry.to_owned(), takes_all })
    };
    entries.map(parse).collect()
}

impl Network {
    fn parse(entry: &str) -> Option<Self> {
        let (address, prefix) = match entry.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (entry, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok())?;
        (prefix <= bits).then_some(Self { address, prefix })
    }

    fn contains(&self, peer: IpAddr) -> bool {
        // A socket that accepts both families reports IPv4 peers as ::ffff:a.b.c.d.
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(address), IpAddr::V4(peer)) => {
                let different = address.to_bits() ^ peer.to_bits();
                different.leading_zeros() >= self.prefix
            }
            (IpAddr::V6(address), IpAddr::V6(peer)) => {
                let different = address.to_bits() ^ peer.to_bits();
                different.leading_zeros() >= self.prefix
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(list: &str, allowed: &[&str], refused: &[&str]) {
        let peers = AdminPeers::try_new(list).unwrap();
        for (addresses, expected) in [(allowed, true), (refused, false)] {
            for address in addresses {
                assert_eq!(
                    peers.allows(address.parse().unwrap()),
                    expected,
                    "{address} in {list:?}"
                );
            }
        }
    }

    #[test]
    fn networks_are_compared_by_their_prefix() {
        let loopback = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"];
        let others = ["10.0.0.1", "0.0.0.0", "::2", "::ffff:10.0.0.1", "2001:db8::1"];
        check("127.0.0.0/8,::1", &loopback, &others);
        assert_eq!(AdminPeers::try_new("127.0.0.1/8, ::1").unwrap(), AdminPeers::default());
        check("10.0.0.0/9", &["10.127.0.1"], &["10.128.0.1", "::1"]);
        check("10.0.0.1", &["10.0.0.1"], &["10.0.0.2"]);
        check("2001:db8::/32,0.0.0.0/0", &["2001:db8:1::", "9.9.9.9"], &["2001:db9::"]);
        check("*", &others, &[]);
        check("", &[], &loopback);
    }

    #[test]
    fn other_entries_are_errors() {
        for entry in ["localhost", "10.0.0.0/33", "10.0.0/8", "::1/129", "1.2.3.4/", "*,::1", "/8"]
        {
            assert!(AdminPeers::try_new(entry).is_err(), "{entry}");
            assert!(TrustedProxies::try_new(entry).is_err(), "{entry}");
        }
        let error = TrustedProxies::try_new("*").unwrap_err().to_string();
        assert!(!error.contains("or *"), "{error}");
    }
}

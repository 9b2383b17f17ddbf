//! Host names of this daemon.
//!
//! A malicious page can make its own host name resolve to the address of a daemon (DNS rebinding). The
//! browser then treats the daemon as the same site, but sends the page's host name in `Host`.

use std::net::IpAddr;

/// An entry of the list is not a host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected host names without ports, separated by commas, or *: {entry:?}")]
pub struct HostNamesError {
    entry: String,
}

/// Names of this daemon (`tsd.http.hosts`), in addition to addresses and localhost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    are_all: bool,
    names: Vec<String>,
}

impl HostNames {
    /// Parses a list of host names; `*` allows every name.
    pub fn try_new(list: &str) -> Result<Self, HostNamesError> {
        if list.trim() == "*" {
            return Ok(Self { are_all: true, names: Vec::new() });
        }
        let mut hosts = Self::default();
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let is_part = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if !entry.bytes().all(is_part) {
                return Err(HostNamesError { entry: entry.to_owned() });
            }
            hosts.add(entry);
        }
        Ok(hosts)
    }

    /// Adds a name of this machine.
    pub fn add(&mut self, name: &str) {
        self.names.push(name.trim_end_matches('.').to_ascii_lowercase());
    }

    /// Returns true if a `Host` header names this daemon: an address, localhost or one of the names, with any port.
    #[must_use]
    pub fn contain(&self, host: &str) -> bool {
        if self.are_all {
            return true;
        }
        if let Some(rest) = host.strip_prefix('[') {
            let address = rest.split(']').next().unwrap_or_default();
            return address.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
        }
        let name = host.split(':').next().unwrap_or_default();
        if name.parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name == "localhost" || name.ends_with(".localhost") || self.names.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn addresses_localhost_and_listed_names_are_this_daemon() {
        let mut hosts = HostNames::try_new("tsd.example, TSD").unwrap();
        hosts.add("web01");
        for host in [
            "127.0.0.1",
            "127.0.0.1:4242",
            "192.0.2.7:80",
            "[::1]:4242",
            "[2001:db8::1]",
            "localhost:4242",
            "LOCALHOST.",
            "a.localhost",
            "tsd",
            "Tsd.Example:1",
            "web01:4242",
        ] {
            assert!(hosts.contain(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:4242",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "web01.evil.example",
            "evillocalhost",
            "[evil]",
            "[127.0.0.1]",
            "0x7f.1",
        ] {
            assert!(!hosts.contain(host), "{host}");
            assert!(HostNames::try_new("*").unwrap().contain(host), "{host}");
        }
        assert!(!HostNames::try_new("").unwrap().contain("tsd"));
    }

    #[test]
    fn other_entries_are_errors() {
        for entry in ["tsd:4242", "http://tsd", "*.example", "a b", "tsd,*", "[::1]"] {
            assert!(HostNames::try_new(entry).is_err(), "{entry}");
        }
    }
}

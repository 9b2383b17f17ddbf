//! Hosts of their own on this machine (network namespaces behind a bridge), whose connections a test can cut.
//!
//! Packets between two cut hosts are lost without a trace, as behind a broken switch. Needs root and `ip` of
//! iproute2.

use std::{
    collections::BTreeSet,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicU16, Ordering},
    thread,
};

/// Subnet that this process tries next; none is used twice by one process, whose listeners outlive their networks.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// Hosts behind a bridge; removed when dropped.
#[derive(Debug)]
pub struct Network {
    bridge: String,
    octets: (u8, u8),
    hosts: u8,
}

impl Network {
    /// Starts a network of hosts, which are numbered from 0. `None` if this process may not.
    #[must_use]
    pub fn start(hosts: u8) -> Option<Self> {
        let (bridge, octets) = claim_subnet()?;
        let network = Self { bridge, octets, hosts };
        let (address, bridge) = (format!("{}/24", network.gateway()), &network.bridge);
        let is_up = ip(&["addr", "add", &address, "dev", bridge])
            && ip(&["link", "set", bridge, "up"])
            && (0..hosts).all(|host| network.add(host));
        is_up.then_some(network)
    }

    /// Adds a host; false if this process may not.
    fn add(&self, host: u8) -> bool {
        let (namespace, outside) = (&*self.namespace(host), &*format!("{}h{host}", self.bridge));
        let address = &*format!("{}/24", self.host(host));
        let pair = ["link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns"];
        ip(&["netns", "add", namespace])
            && ip(&[&pair[..], &[namespace]].concat())
            && ip(&["link", "set", outside, "master", &self.bridge, "up"])
            && ip(&["-n", namespace, "addr", "add", address, "dev", "eth0"])
            && ip(&["-n", namespace, "link", "set", "eth0", "up"])
            && ip(&["-n", namespace, "link", "set", "lo", "up"])
    }

    /// Name of the namespace of a host.
    #[must_use]
    pub fn namespace(&self, host: u8) -> String {
        format!("{}n{host}", self.bridge)
    }

    /// Address of a host.
    #[must_use]
    pub fn host(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.octets.0, self.octets.1, host + 1)
    }

    /// Address of the test process.
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.octets.0, self.octets.1, 254)
    }

    /// Loses all packets between two hosts.
    pub fn cut(&self, one: u8, other: u8) {
        for (from, to) in [(one, other), (other, one)] {
            let (namespace, to) = (self.namespace(from), self.host(to).to_string());
            // An address that no host has.
            must(&[
                "-n",
                &namespace,
                "neigh",
                "replace",
                &to,
                "lladdr",
                "02:00:00:00:00:99",
                "dev",
                "eth0",
                "nud",
                "permanent",
            ]);
        }
    }

    /// Cuts a host from all others, but not from the test process.
    pub fn isolate(&self, host: u8) {
        (0..self.hosts).filter(|other| *other != host).for_each(|other| self.cut(host, other));
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        for host in 0..self.hosts {
            must(&[
                "-n",
                &self.namespace(host),
                "neigh",
                "flush",
                "dev",
                "eth0",
                "nud",
                "permanent",
            ]);
        }
    }

    /// Makes all ports of this process that the values of an environment name reachable, and returns the environment of
    /// the hosts.
    #[must_use]
    pub fn exposed(&self, environment: Vec<(String, String)>) -> Vec<(String, String)> {
        const LOCAL: &str = "127.0.0.1:";
        let mut ports = BTreeSet::new();
        let mut to_hosts = |(name, value): (String, String)| {
            let after = value.split(LOCAL).skip(1);
            let digits = after.map(|text| text.split(|c: char| !c.is_ascii_digit()).next());
            ports.extend(digits.flatten().filter_map(|port| port.parse::<u16>().ok()));
            (name, value.replace(LOCAL, &format!("{}:", self.gateway())))
        };
        let environment = environment.into_iter().map(&mut to_hosts).collect();
        for port in ports {
            self.expose(port);
        }
        environment
    }

    /// Makes a port of this process reachable for the hosts, at the same port of [`Self::gateway`].
    pub fn expose(&self, port: u16) {
        let listener = TcpListener::bind((self.gateway(), port)).expect("a port of the bridge");
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                if let Ok(to) = TcpStream::connect(to) {
                    relay(&stream, &to);
                }
            }
        });
    }
}

/// Copies both directions on threads, until both ends are closed.
fn relay(one: &TcpStream, other: &TcpStream) {
    for (from, to) in [(one, other), (other, one)] {
        let (mut from, mut to) =
            (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
        let _ = from.set_nodelay(true);
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..self.hosts {
            // Deleting only the namespace leaves its link for a while.
            ip(&["link", "del", &format!("{}h{host}", self.bridge)]);
            ip(&["netns", "del", &self.namespace(host)]);
        }
        ip(&["link", "del", &self.bridge]);
    }
}

/// Creates a bridge that is named after its subnet, so that no two networks of this machine have the same addresses;
/// `None` if this process may not.
fn claim_subnet() -> Option<(String, (u8, u8))> {
    const SUBNETS: u16 = 190 * 256;
    for _ in 0..SUBNETS {
        let [high, low] = (NEXT.fetch_add(1, Ordering::Relaxed) % SUBNETS).to_be_bytes();
        let octets = (64 + high, low);
        let bridge = format!("tsd{}x{}", octets.0, octets.1);
        let create = ["link", "add", &bridge, "type", "bridge"];
        let created = Command::new("ip").args(create).output().ok()?;
        if created.status.success() {
            return Some((bridge, octets));
        }
        let is_taken = String::from_utf8_lossy(&created.stderr).contains("File exists");
        is_taken.then_some(())?;
    }
    None
}

/// Runs `ip`; true if it succeeds.
fn ip(arguments: &[&str]) -> bool {
    let ran = Command::new("ip").args(arguments).output();
    ran.is_ok_and(|output| output.status.success())
}

#[track_caller]
fn must(arguments: &[&str]) {
    assert!(ip(arguments), "ip {}", arguments.join(" "));
}

//! Links to the servers that can be cut, slowed and mended.
//!
//! A link is a port of this process in front of a server's. Clients that are given the links
//! ([`crate::Cluster::client`]) reach the servers by nothing else; the servers among themselves do not
//! use them, so to the rest of the cluster a server behind a cut link is well.
//!
//! The links have a thread and a runtime of their own: they outlast the runtime that started the
//! cluster, and a busy test does not slow them down.

mod relay;

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    runtime,
    sync::{oneshot, watch},
};

use crate::node::Node;

/// How a link carries bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mode {
    /// Nothing passes.
    cut: bool,
    /// New connections are reset.
    refuse: bool,
    /// Each way.
    delay: Duration,
    /// Connections of an earlier age are reset.
    age: u64,
}

#[derive(Debug)]
struct Link {
    /// Where clients connect.
    port: u16,
    /// Where the server is.
    server: u16,
    mode: watch::Sender<Mode>,
}

/// The links of a cluster; none, unless it was started [`proxied`](crate::ClusterConfig::proxied).
#[derive(Debug, Default)]
pub struct Links {
    links: BTreeMap<Node, Link>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Links {
    /// Sets up a link to each of these ports.
    pub(crate) fn start(servers: impl IntoIterator<Item = (Node, u16)>) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let mut links = BTreeMap::new();
        for (node, server) in servers {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            let port = listener.local_addr()?.port();
            let entered = runtime.enter();
            let listener = TcpListener::from_std(listener)?;
            drop(entered);
            let (mode, watched) = watch::channel(Mode::default());
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
            runtime.spawn(relay::serve(listener, to, watched));
            links.insert(node, Link { port, server, mode });
        }
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("links".to_owned()).spawn(move || {
            // An error is the sender's end, which means the same.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { links, thread: Some((stop, thread)) })
    }

    /// Lets nothing pass in either direction, as a network that lost its way: connections stay open
    /// and silent, new ones are taken and stay silent too. What is on its way arrives after
    /// [`Self::mend`].
    pub fn cut(&self, node: Node) {
        self.change(node, |mode| mode.cut = true);
    }

    /// Resets connections and refuses new ones until [`Self::mend`].
    pub fn refuse(&self, node: Node) {
        self.change(node, |mode| {
            mode.refuse = true;
            mode.age += 1;
        });
    }

    /// Resets the connections there are, and their bytes on the way; new ones are taken.
    pub fn break_connections(&self, node: Node) {
        self.change(node, |mode| mode.age += 1);
    }

    /// Holds each byte up by this time, in each direction.
    pub fn delay(&self, node: Node, delay: Duration) {
        self.change(node, |mode| mode.delay = delay);
    }

    /// Makes it a link without faults again.
    pub fn mend(&self, node: Node) {
        self.change(node, |mode| *mode = Mode { age: mode.age, ..Mode::default() });
    }

    /// Makes all links such.
    pub fn mend_all(&self) {
        for node in self.links.keys() {
            self.mend(*node);
        }
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Whether there is one to this process.
    #[must_use]
    pub fn has(&self, node: Node) -> bool {
        self.links.contains_key(&node)
    }

    /// Where the link to a process is, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self, node: Node) -> Option<String> {
        self.links.get(&node).map(|link| address(link.port))
    }

    /// Each server's own address with that of its link, for a client in another process: the value of
    /// `tsd.storage.hbase.hosts`.
    #[must_use]
    pub fn hosts(&self) -> Vec<(String, String)> {
        let hosts = self.links.values();
        hosts.map(|link| (format!("localhost:{}", link.server), address(link.port))).collect()
    }

    /// [`Self::hosts`] as the text of the setting `tsd.storage.hbase.hosts`.
    #[must_use]
    pub fn hosts_setting(&self) -> String {
        let pairs: Vec<_> =
            self.hosts().iter().map(|(server, link)| format!("{server}={link}")).collect();
        pairs.join(",")
    }

    /// Tells the address to connect to for a server of this port.
    pub(crate) fn by_port(&self) -> impl Fn(u16) -> String + Send + Sync + 'static {
        let ports: Arc<BTreeMap<u16, u16>> =
            Arc::new(self.links.values().map(|link| (link.server, link.port)).collect());
        move |port| address(ports.get(&port).copied().unwrap_or(port))
    }

    fn change(&self, node: Node, change: impl FnOnce(&mut Mode)) {
        debug_assert!(self.has(node), "{node} has no link");
        if let Some(link) = self.links.get(&node) {
            link.mode.send_modify(change);
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

#[cfg(test)]
mod tests;

//! TCP proxies in front of the servers, with network faults.
//!
//! A link is a port of this process that forwards to a server. Clients of the cluster
//! ([`crate::Cluster::client`]) connect through links only; servers connect to each other directly, so a
//! cut link does not disturb the cluster itself.
//!
//! The links have their own thread and runtime. So they survive the runtime that started the cluster,
//! and a busy test does not slow them down.

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

/// Faults of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkState {
    /// True if no bytes are forwarded.
    cut: bool,
    /// True if new connections are reset.
    refuse: bool,
    /// Delay in each direction.
    delay: Duration,
    /// Connections of an earlier epoch are reset.
    epoch: u64,
}

#[derive(Debug)]
struct Link {
    /// Port of the link.
    port: u16,
    /// Port of the server.
    server: u16,
    state: watch::Sender<LinkState>,
}

/// The links of a cluster; empty unless it was started [`proxied`](crate::ClusterConfig::proxied).
#[derive(Debug, Default)]
pub struct Links {
    links: BTreeMap<Node, Link>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Links {
    /// Starts a link to each of these ports.
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
            let (state, watched) = watch::channel(LinkState::default());
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
            runtime.spawn(relay::serve(listener, to, watched));
            links.insert(node, Link { port, server, state });
        }
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("links".to_owned()).spawn(move || {
            // An error means that the sender was dropped, which stops the links too.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { links, thread: Some((stop, thread)) })
    }

    /// Stops forwarding in both directions: connections stay open, new ones are accepted, and no bytes
    /// are lost. Forwarding continues after [`Self::restore`].
    pub fn cut(&self, node: Node) {
        self.change(node, |state| state.cut = true);
    }

    /// Resets connections and refuses new ones until [`Self::restore`].
    pub fn refuse(&self, node: Node) {
        self.change(node, |state| {
            state.refuse = true;
            state.epoch += 1;
        });
    }

    /// Resets all connections and drops their buffered bytes; new ones are accepted.
    pub fn break_connections(&self, node: Node) {
        self.change(node, |state| state.epoch += 1);
    }

    /// Delays all bytes by this time, in each direction.
    pub fn delay(&self, node: Node, delay: Duration) {
        self.change(node, |state| state.delay = delay);
    }

    /// Removes all faults of a link.
    pub fn restore(&self, node: Node) {
        self.change(node, |state| {
            *state = LinkState { epoch: state.epoch, ..LinkState::default() }
        });
    }

    /// True if there are no links.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// True if there is a link to this process.
    #[must_use]
    pub fn has(&self, node: Node) -> bool {
        self.links.contains_key(&node)
    }

    /// Address of the link to a process, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self, node: Node) -> Option<String> {
        self.port(node).map(address)
    }

    /// Port of the link to a process.
    pub(crate) fn port(&self, node: Node) -> Option<u16> {
        self.links.get(&node).map(|link| link.port)
    }

    /// Returns the address of each server with the address of its link, for clients in other processes.
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

    /// Maps the port of a server to the address of its link.
    pub(crate) fn by_port(&self) -> impl Fn(u16) -> String + Send + Sync + 'static {
        let ports: Arc<BTreeMap<u16, u16>> =
            Arc::new(self.links.values().map(|link| (link.server, link.port)).collect());
        move |port| address(ports.get(&port).copied().unwrap_or(port))
    }

    fn change(&self, node: Node, change: impl FnOnce(&mut LinkState)) {
        debug_assert!(self.has(node), "{node} has no link");
        if let Some(link) = self.links.get(&node) {
            link.state.send_modify(change);
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

//! Discovery through the znodes that HBase writes to ZooKeeper.
//!
//! One session is opened on first use and kept. An expired session fails all later requests, so the
//! client drops a session at its first failure. A request during a disconnect blocks, so the caller
//! bounds its time. A session that does not respond in that time is dropped as well; the next session
//! may connect to another server of the ensemble. Addresses are as the servers report them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{net::TcpStream, sync::Mutex, time::timeout};
use zookeeper_client::{Client, Error};

use super::{
    Discovery, DiscoveryError, DiscoveryFuture,
    znode::{MASTER, META_SERVER, read_master_znode, read_meta_server_znode},
};
use crate::server_name::ServerName;

/// Maximum number of znodes in an error.
const MAX_LISTED: usize = 20;

/// How long a server of the ensemble may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Port of hosts without one.
const DEFAULT_PORT: u16 = 2181;

/// Discovery through ZooKeeper.
#[derive(Debug)]
pub struct ZooKeeperDiscovery {
    /// `host:port,host:port/chroot`
    quorum: String,
    /// Parent znode of HBase's znodes.
    root: String,
    session_timeout: Duration,
    session: Mutex<Option<Client>>,
}

impl ZooKeeperDiscovery {
    /// Uses the ensemble `quorum`, written as `host[:port],…[/chroot]`, and HBase's parent znode `root`
    /// (`zookeeper.znode.parent`, `/hbase` by default).
    #[must_use]
    pub fn new(quorum: &str, root: &str) -> Self {
        Self {
            quorum: with_ports(quorum),
            root: root.trim_end_matches('/').to_owned(),
            session_timeout: Duration::from_secs(30),
            session: Mutex::new(None),
        }
    }

    /// Sets the requested session timeout; the ensemble may grant another.
    #[must_use]
    pub const fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    async fn read(&self, node: &str, what: &'static str) -> Result<Bytes, DiscoveryError> {
        // One request at a time is enough: there are few znodes, and callers cache the results.
        let mut session = self.session.lock().await;
        // Put back only after a response, since the caller may drop this future while it waits.
        let client = match session.take() {
            Some(client) => client,
            None => self.connect(what).await?,
        };
        let data = match client.get_data(&format!("{}/{node}", self.root)).await {
            Ok((data, _)) => Some(data),
            Err(Error::NoNode) => None,
            Err(error) => return Err(self.failed(what, error)),
        };
        let client = session.insert(client);
        if let Some(data) = data {
            return Ok(data.into());
        }
        let missing = self.missing_root(client).await;
        Err(missing.unwrap_or(DiscoveryError::Unknown { what }))
    }

    /// Returns an error if the root znode does not exist: HBase creates it at its first start, and
    /// never removes it.
    async fn missing_root(&self, client: &Client) -> Option<DiscoveryError> {
        let root = if self.root.is_empty() { "/" } else { &self.root };
        if !matches!(client.list_children(root).await, Err(Error::NoNode)) {
            return None;
        }
        // The first directory of the path that exists.
        let mut parent = root;
        let children = loop {
            parent = match parent.rfind('/') {
                None | Some(0) => "/",
                Some(end) => parent.get(..end).unwrap_or("/"),
            };
            match client.list_children(parent).await {
                Ok(children) => break children,
                Err(Error::NoNode) if parent != "/" => {}
                Err(_) => break Vec::new(),
            }
        };
        let mut existing: Vec<_> = children
            .iter()
            .map(|child| format!("{}/{child}", parent.trim_end_matches('/')))
            .collect();
        existing.sort_by_key(|path| (!path.contains("hbase"), path.clone()));
        existing.truncate(MAX_LISTED);
        let (root, quorum) = (root.to_owned(), self.quorum.clone());
        Some(DiscoveryError::NoRoot { root, quorum, existing })
    }

    /// Fails if no server of the ensemble accepts connections. The ZooKeeper client tries them until
    /// its session timeout, and does not report why none accepts.
    async fn check_reachable(&self) -> Result<(), DiscoveryError> {
        let hosts = self.quorum.split('/').next().unwrap_or_default();
        let mut connects: FuturesUnordered<_> = hosts
            .split(',')
            .map(|host| async move {
                let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(host)).await;
                connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map(drop)
            })
            .collect();
        let mut last = None;
        while let Some(connected) = connects.next().await {
            match connected {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        let source = Arc::new(last.unwrap_or_else(|| std::io::ErrorKind::InvalidInput.into()));
        Err(DiscoveryError::Unreachable { quorum: self.quorum.clone(), source })
    }

    async fn connect(&self, what: &'static str) -> Result<Client, DiscoveryError> {
        self.check_reachable().await?;
        Client::connector()
            .with_session_timeout(self.session_timeout)
            .connect(&self.quorum)
            .await
            .map_err(|error| self.failed(what, error))
    }

    fn failed(&self, what: &'static str, error: Error) -> DiscoveryError {
        DiscoveryError::ZooKeeper { what, quorum: self.quorum.clone(), source: Arc::new(error) }
    }
}

impl Discovery for ZooKeeperDiscovery {
    fn meta_server(&self) -> DiscoveryFuture<'_, ServerName> {
        Box::pin(async {
            read_meta_server_znode(&self.read("meta-region-server", META_SERVER).await?)
        })
    }

    fn master(&self) -> DiscoveryFuture<'_, ServerName> {
        Box::pin(async { read_master_znode(&self.read("master", MASTER).await?) })
    }
}

/// Adds ZooKeeper's default port to hosts without a port.
fn with_ports(quorum: &str) -> String {
    let (hosts, chroot) = quorum.find('/').map_or((quorum, ""), |at| quorum.split_at(at));
    let host = |host: &str| {
        let host = host.trim();
        if host.rsplit(']').next().is_some_and(|tail| tail.contains(':')) {
            host.to_owned()
        } else {
            format!("{host}:{DEFAULT_PORT}")
        }
    };
    let hosts: Vec<_> = hosts.split(',').filter(|host| !host.trim().is_empty()).map(host).collect();
    format!("{}{chroot}", hosts.join(","))
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
            ("[::1]", "[::1]:2181"),
            ("[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(with_ports(quorum), expected);
        }
    }
}

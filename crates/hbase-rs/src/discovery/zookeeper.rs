//! Discovery through the znodes that HBase writes to ZooKeeper.
//!
//! One session is opened on first use and kept. An expired session fails all later requests, so a
//! session is dropped at its first failure. A request during a disconnect blocks, so the caller bounds
//! its time; a session that did not respond in that time is dropped as well, and the next one may
//! connect to another server of the ensemble. Addresses are those that the servers report.

use std::{sync::Arc, time::Duration};

use bytes::{Buf, Bytes};
use futures_util::{StreamExt, stream::FuturesUnordered};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::{net::TcpStream, sync::Mutex, time::timeout};
use zookeeper_client::{Client, Error};

use super::{Discovery, DiscoveryError, DiscoveryFuture};
use crate::server_name::ServerName;

/// Maximum length of the writer's metadata before a value.
const MAX_METADATA: usize = 65_000;

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

    async fn read<M: Message + Default>(
        &self,
        node: &str,
        what: &'static str,
    ) -> Result<M, DiscoveryError> {
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
            return decode(&data.into(), what);
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
        const WHAT: &str = "the server of hbase:meta";
        Box::pin(async {
            let node: pb::MetaRegionServer = self.read("meta-region-server", WHAT).await?;
            ServerName::from_message(&node.server).ok_or(DiscoveryError::Damaged { what: WHAT })
        })
    }

    fn master(&self) -> DiscoveryFuture<'_, ServerName> {
        const WHAT: &str = "the active master";
        Box::pin(async {
            let node: pb::Master = self.read("master", WHAT).await?;
            ServerName::from_message(&node.master).ok_or(DiscoveryError::Damaged { what: WHAT })
        })
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

/// Decodes a znode's value: optional metadata of its writer, `PBUF`, the message. An empty value is not
/// written yet.
fn decode<M: Message + Default>(data: &Bytes, what: &'static str) -> Result<M, DiscoveryError> {
    let mut data = data.clone();
    let Some(first) = data.first() else { return Err(DiscoveryError::Unknown { what }) };
    let damaged = || DiscoveryError::Damaged { what };
    if *first == 0xff {
        data.advance(1);
        let metadata = data.try_get_u32().map_err(|_| damaged())? as usize;
        if metadata > MAX_METADATA || metadata > data.len() {
            return Err(damaged());
        }
        data.advance(metadata);
    }
    let message = data.strip_prefix(b"PBUF").ok_or_else(damaged)?;
    M::decode(message).map_err(|_| damaged())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::recorded;

    #[test]
    fn recorded_znodes_are_decoded() {
        for vector in ["znode-meta-region-server", "znode-without-metadata"] {
            let node: pb::MetaRegionServer = decode(&recorded::vector(vector), "x").unwrap();
            assert_eq!(node.server.host_name, "rs1.example.org");
        }
        let master: pb::Master = decode(&recorded::vector("znode-master"), "x").unwrap();
        assert_eq!(ServerName::from_message(&master.master).unwrap().host(), "m1.example.org");
        let id: pb::ClusterId = decode(&recorded::vector("znode-hbaseid"), "x").unwrap();
        assert_eq!(id.cluster_id.len(), 36);
    }

    #[test]
    fn empty_value_is_unknown_and_junk_is_damaged() {
        let empty = decode::<pb::Master>(&Bytes::new(), "x");
        assert!(matches!(empty, Err(DiscoveryError::Unknown { .. })), "{empty:?}");
        for bytes in [&b"junk"[..], b"\xff\xff\xff\xff\xffPBUF", b"\xff\0\0", b"PBUF\xff"] {
            let junk = decode::<pb::Master>(&Bytes::from_static(bytes), "x");
            assert!(matches!(junk, Err(DiscoveryError::Damaged { .. })), "{junk:?}");
        }
    }

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

    proptest! {
        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..40)) {
            let _ = decode::<pb::Master>(&bytes.into(), "x");
        }
    }
}

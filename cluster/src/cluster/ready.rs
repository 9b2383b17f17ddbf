//! Waits until processes serve.

use std::{io, time::Duration};

use hbase_rs::{
    Client, ClientConfig, ServerName, admin::ClusterStatus, discovery::ZooKeeperDiscovery,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::{Cluster, ROOT};
use crate::{error::ClusterError, node::Node, process::tail};

/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

impl Cluster {
    /// Waits until all these processes serve. Fails at once if a process exits.
    pub(super) async fn await_serving(&mut self, nodes: &[Node]) -> Result<(), ClusterError> {
        let client = self.polling_client();
        let end = Instant::now() + self.config.start_timeout;
        for node in nodes {
            while let Err(last) = self.serves(*node, &client).await {
                nodes.iter().try_for_each(|node| self.check_running(*node))?;
                if Instant::now() >= end {
                    let log = self.layout.log(*node);
                    return Err(ClusterError::StartTimeout {
                        what: node.to_string(),
                        limit: self.config.start_timeout,
                        last,
                        tail: tail(&log),
                        log,
                    });
                }
                sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Succeeds if the process serves; the error says why not.
    async fn serves(&mut self, node: Node, client: &Client) -> Result<(), String> {
        let port = self.port(node).unwrap_or_default();
        match node {
            Node::ZooKeeper => {
                let response = request(port, b"srvr").await.map_err(|error| error.to_string())?;
                if response.contains("Mode:") {
                    Ok(())
                } else {
                    Err(format!("response {response:?}"))
                }
            }
            Node::Kdc => {
                let connected = TcpStream::connect(("127.0.0.1", port)).await;
                connected.map(|_| ()).map_err(|error| error.to_string())
            }
            Node::Master | Node::OtherMaster(_) => self.master_serves(node, client).await,
            Node::RegionServer(_) => {
                let name = self.registered(node, client).await?;
                if let Ok(member) = self.member_mut(node) {
                    member.server = Some(name);
                }
                Ok(())
            }
            Node::OpenTsdb | Node::SecondOpenTsdb | Node::Tsd(_) => {
                let head = b"GET /api/version HTTP/1.0\r\nHost: localhost\r\n\r\n";
                let response = request(port, head).await.map_err(|error| error.to_string())?;
                let line = response.lines().next().unwrap_or_default();
                if line.contains(" 200 ") { Ok(()) } else { Err(format!("response {line:?}")) }
            }
        }
    }

    async fn master_serves(&self, node: Node, client: &Client) -> Result<(), String> {
        if self.config.security.admits_plain_clients() {
            // The active master lists tables only once it is initialized, which needs an open hbase:meta.
            client.admin().tables().await.map_err(error_chain)?;
            if self.config.masters == 1 {
                return Ok(());
            }
        }
        self.logged_master(node)
    }

    /// Name of a region server that is registered at the master.
    async fn registered(&self, node: Node, client: &Client) -> Result<ServerName, String> {
        if !self.config.security.admits_plain_clients() {
            return self.logged_region_server(node);
        }
        let status = client.admin().cluster_status().await.map_err(error_chain)?;
        let member = self.members.get(&node);
        let (port, since) = member.map_or((0, 0), |member| (member.port, member.started_ms));
        live(&status, port, since).ok_or_else(|| "not registered at the master".to_owned())
    }

    /// A client for single requests, never through links.
    fn polling_client(&self) -> Client {
        let mut config = ClientConfig::new("cluster");
        config.connect_timeout = REQUEST_TIMEOUT;
        config.admin_timeout = REQUEST_TIMEOUT;
        config.procedure_timeout = REQUEST_TIMEOUT;
        config.operation_timeout = REQUEST_TIMEOUT;
        config.failed_server_pause = POLL_INTERVAL;
        Client::new(config, ZooKeeperDiscovery::new(&self.quorum(), ROOT))
    }

    /// Status of the cluster as the master reports it, not through links.
    ///
    /// # Errors
    ///
    /// If the master does not respond within seconds.
    pub async fn status(&self) -> Result<ClusterStatus, ClusterError> {
        let status = self.polling_client().admin().cluster_status().await;
        status.map_err(|source| ClusterError::HBase { what: "return its status".into(), source })
    }
}

/// The region server of a port whose process started at `since_ms` or later.
fn live(status: &ClusterStatus, port: u16, since_ms: u64) -> Option<ServerName> {
    let mut servers = status.servers.iter();
    servers.find(|server| server.port() == port && server.start_code() >= since_ms).cloned()
}

/// An error followed by its sources.
fn error_chain(error: impl std::error::Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    texts.join(": ")
}

/// Sends a request and reads until the connection is closed.
async fn request(port: u16, bytes: &[u8]) -> io::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(bytes).await?;
        let mut response = Vec::new();
        stream.take(1 << 16).read_to_end(&mut response).await?;
        io::Result::Ok(String::from_utf8_lossy(&response).into_owned())
    };
    timeout(REQUEST_TIMEOUT, exchange).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

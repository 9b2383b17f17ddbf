//! Waiting until processes serve.

use std::{io, time::Duration};

use hbase_rs::{Client, ClientConfig, ClusterStatus, ServerName, ZooKeeperDiscovery};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::{Cluster, ROOT};
use crate::{error::ClusterError, node::Node, process::tail};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// For one question.
const ANSWER: Duration = Duration::from_secs(5);

impl Cluster {
    /// Waits until all of these serve. One that ends meanwhile is an error at once.
    pub(super) async fn await_serving(&mut self, nodes: &[Node]) -> Result<(), ClusterError> {
        let client = self.patient_client();
        let end = Instant::now() + self.config.start_timeout;
        for node in nodes {
            while let Err(last) = self.serves(*node, &client).await {
                nodes.iter().try_for_each(|node| self.check_running(*node))?;
                if Instant::now() >= end {
                    let log = self.layout.log(*node);
                    return Err(ClusterError::Slow {
                        what: node.to_string(),
                        limit: self.config.start_timeout,
                        last,
                        tail: tail(&log),
                        log,
                    });
                }
                sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// Whether one serves; else what is still amiss.
    async fn serves(&mut self, node: Node, client: &Client) -> Result<(), String> {
        let port = self.port(node).unwrap_or_default();
        match node {
            Node::ZooKeeper => {
                let answer = ask(port, b"srvr").await.map_err(|error| error.to_string())?;
                if answer.contains("Mode:") { Ok(()) } else { Err(format!("it says {answer:?}")) }
            }
            Node::Master => {
                // Tables can be asked for when the master is done with its own start, and it is not
                // before meta serves.
                client.admin().tables().await.map(|_| ()).map_err(said)
            }
            Node::RegionServer(_) => {
                let status = client.admin().cluster_status().await.map_err(said)?;
                let since = self.members.get(&node).map_or(0, |member| member.started_ms);
                let name = live(&status, port, since).ok_or("the master does not know it")?;
                if let Ok(member) = self.member_mut(node) {
                    member.server = Some(name);
                }
                Ok(())
            }
            Node::OpenTsdb | Node::Tsd(_) => {
                let request = b"GET /api/version HTTP/1.0\r\nHost: localhost\r\n\r\n";
                let answer = ask(port, request).await.map_err(|error| error.to_string())?;
                let line = answer.lines().next().unwrap_or_default();
                if line.contains(" 200 ") { Ok(()) } else { Err(format!("it says {line:?}")) }
            }
        }
    }

    /// A client for single questions, never through links.
    fn patient_client(&self) -> Client {
        let mut config = ClientConfig::new("cluster");
        config.connect_timeout = ANSWER;
        config.admin_timeout = ANSWER;
        config.procedure_timeout = ANSWER;
        config.operation_timeout = ANSWER;
        config.failed_server_pause = LOOK;
        Client::new(config, ZooKeeperDiscovery::new(&self.quorum(), ROOT))
    }

    /// What the master says of the cluster, not through links.
    ///
    /// # Errors
    ///
    /// When it does not answer within seconds.
    pub async fn status(&self) -> Result<ClusterStatus, ClusterError> {
        let status = self.patient_client().admin().cluster_status().await;
        status.map_err(|source| ClusterError::HBase { what: "tell its status".into(), source })
    }
}

/// The region server of a port in a life that began then or later.
fn live(status: &ClusterStatus, port: u16, since_ms: u64) -> Option<ServerName> {
    let mut servers = status.servers.iter();
    servers.find(|server| server.port() == port && server.start_code() >= since_ms).cloned()
}

/// An error with all its causes.
fn said(error: impl std::error::Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    texts.join(": ")
}

/// Sends a request and reads what comes until the connection ends.
async fn ask(port: u16, request: &[u8]) -> io::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(request).await?;
        let mut answer = Vec::new();
        stream.take(1 << 16).read_to_end(&mut answer).await?;
        io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(ANSWER, exchange).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

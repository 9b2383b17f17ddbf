//! A master that joins a running cluster.

use super::{Cluster, Member};
use crate::{error::ClusterError, node::Node, ports::Port};

impl Cluster {
    /// Starts another master and waits until it can take over. Clients reach it without a link.
    ///
    /// # Errors
    ///
    /// If there is no free port, or it does not serve in time.
    pub async fn add_master(&mut self) -> Result<Node, ClusterError> {
        let node = Node::OtherMaster(self.config.masters);
        let port = Port::reserve().map_err(|source| ClusterError::NoPort { source })?;
        let member = Member {
            port: port.number(),
            secure_port: None,
            process: None,
            reserved_ports: vec![port],
            started_ms: 0,
            log_start: 0,
            server: None,
        };
        self.members.insert(node, member);
        self.config.masters += 1;
        self.restart(node).await?;
        Ok(node)
    }
}

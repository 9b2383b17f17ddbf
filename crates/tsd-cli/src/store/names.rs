//! The other nodes of a cluster, which also cache names and UIDs, for the engine of a node or a tool. The messages to
//! them are in `tsd-cluster-net`.

use std::sync::Arc;

use bytes::Bytes;
use hbase_rs::Client;
use tsd_cluster::Membership;
use tsd_cluster_log::{ClusterLogConfig, ListedMembers};
use tsd_cluster_net::{ForgottenNames, NodeIdentity, Peers};
use tsd_engine::{NamePeers, UidKind, UnconfirmedRemovalError};
use tsd_model::Uid;
use tsd_storage::BoxFuture;

use super::{cluster::net_config, on_hbase::OnHBase, open_store::Purpose};
use crate::config::{ClusterNetSettings, Settings};

/// Name of this tool for the nodes.
const TOOL: &str = "tsdb uid";

/// The other nodes of the cluster; `None` if there is certainly no cluster.
pub(crate) fn name_peers(
    hbase: &OnHBase,
    settings: &Settings,
    purpose: Purpose,
) -> Option<Arc<dyn NamePeers>> {
    if let Some(node) = &hbase.cluster_node {
        return Some(node.names());
    }
    // A daemon that is not a cluster node does not start while cluster nodes run.
    (purpose != Purpose::Daemon).then(|| {
        let settings = &settings.storage.hbase;
        let tool = ToolNames {
            client: hbase.client.clone(),
            log: settings.cluster_log.clone(),
            net: settings.cluster_net.clone(),
        };
        Arc::new(tool) as Arc<dyn NamePeers>
    })
}

/// Tells the nodes of an existing cluster to forget names that a tool has changed.
#[derive(Debug)]
struct ToolNames {
    client: Client,
    log: ClusterLogConfig,
    net: ClusterNetSettings,
}

impl ToolNames {
    async fn forget(&self, names: ForgottenNames) -> Result<(), UnconfirmedRemovalError> {
        let found = Box::pin(ListedMembers::find(&self.client, &self.log)).await;
        let unknown = |error| {
            UnconfirmedRemovalError(format!("the nodes of the cluster are not known: {error}"))
        };
        let Some(members) = found.map_err(unknown)? else { return Ok(()) };
        let identity =
            NodeIdentity { cluster: members.cluster(), name: TOOL.to_owned(), incarnation: 0 };
        let net = net_config(&self.net);
        let net = net.map_err(|error| UnconfirmedRemovalError(format!("{error:#}")))?;
        let peers = Peers::new(identity, net, members);
        let forgotten = peers.forget(&names, self.net.read_timeout).await;
        forgotten.map_err(|error| UnconfirmedRemovalError(error.to_string()))
    }
}

impl NamePeers for ToolNames {
    fn has_other_owner(&self, _: UidKind, _: &[u8]) -> bool {
        false
    }

    fn assign(&self, _: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>> {
        Box::pin(async move { vec![None; names.len()] })
    }

    fn forget(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
        uids: Vec<Uid>,
    ) -> BoxFuture<'_, Result<(), UnconfirmedRemovalError>> {
        Box::pin(self.forget(ForgottenNames { kind, names, uids }))
    }
}

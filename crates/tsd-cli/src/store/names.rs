//! Who else knows names and their UIDs: the other nodes, as the engine of a node or a tool needs them.
//! What is sent to them is left out: `tsd-cluster-net`.

use std::sync::Arc;

use bytes::Bytes;
use hbase_rs::Client;
use tsd_cluster::Membership;
use tsd_cluster_log::{ClusterLogConfig, ListedMembers};
use tsd_cluster_net::{ForgottenNames, NodeIdentity, Peers};
use tsd_engine::{NamePeers, UidKind};
use tsd_model::Uid;
use tsd_storage::BoxFuture;

use super::{cluster::net_config, on_hbase::OnHBase, open_store::Purpose};
use crate::config::{ClusterNetSettings, Settings};

/// Name of a tool, as nodes see it that it connects to.
const TOOL: &str = "tsdb uid";

/// The other nodes as names need them; `None` if there is no cluster for certain.
pub(crate) fn name_peers(
    hbase: &OnHBase,
    settings: &Settings,
    purpose: Purpose,
) -> Option<Arc<dyn NamePeers>> {
    if let Some(node) = &hbase.cluster_node {
        return Some(node.names());
    }
    // A daemon that is no node does not start beside those that are.
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

/// The names of a tool beside a cluster, if there is one.
#[derive(Debug)]
struct ToolNames {
    client: Client,
    log: ClusterLogConfig,
    net: ClusterNetSettings,
}

impl ToolNames {
    async fn forget(&self, names: ForgottenNames) -> Result<(), String> {
        let found = Box::pin(ListedMembers::find(&self.client, &self.log)).await;
        let unknown = |error| format!("the nodes of the cluster are not known: {error}");
        let Some(members) = found.map_err(unknown)? else { return Ok(()) };
        let identity =
            NodeIdentity { cluster: members.cluster(), name: TOOL.to_owned(), incarnation: 0 };
        let net = net_config(&self.net).map_err(|error| format!("{error:#}"))?;
        let peers = Peers::new(identity, net, members);
        peers.forget(&names, self.net.read_timeout).await
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
    ) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.forget(ForgottenNames { kind, names, uids }))
    }
}

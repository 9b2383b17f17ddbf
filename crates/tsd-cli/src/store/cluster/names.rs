//! Names and their UIDs on the other nodes of the cluster, for the engine of a node and for tools.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hbase_rs::Client;
use tsd_cluster::Membership;
use tsd_cluster_log::{ClusterLogConfig, ListedMembers};
use tsd_cluster_net::{ForgottenNames, NameOwners, NetConfig, NodeIdentity, Peers};
use tsd_engine::{NamePeers, UidKind};
use tsd_model::Uid;
use tsd_storage::BoxFuture;

use crate::{
    config::Settings,
    store::{Purpose, hbase::OnHBase},
};

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
            limit: settings.cluster_net.read_timeout,
        };
        Arc::new(tool) as Arc<dyn NamePeers>
    })
}

/// The names of a node.
#[derive(Debug)]
pub(super) struct NodeNames {
    pub(super) peers: Arc<Peers>,
    /// Who assigns UIDs, if writes are forwarded.
    pub(super) owners: Option<NameOwners>,
    /// How long a node that does not answer is waited for.
    pub(super) limit: Duration,
}

impl NamePeers for NodeNames {
    fn has_other_owner(&self, kind: UidKind, name: &[u8]) -> bool {
        let owners = self.owners.as_ref();
        owners.is_some_and(|owners| owners.other_owner(kind, name).is_some())
    }

    fn assign(&self, kind: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>> {
        Box::pin(async move {
            match &self.owners {
                Some(owners) => owners.assign(kind, &names).await,
                None => vec![None; names.len()],
            }
        })
    }

    fn forget(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
        uids: Vec<Uid>,
    ) -> BoxFuture<'_, Result<(), String>> {
        let names = ForgottenNames { kind, names, uids };
        Box::pin(async move { self.peers.forget(&names, self.limit).await })
    }
}

/// The names of a tool beside a cluster, if there is one.
#[derive(Debug)]
struct ToolNames {
    client: Client,
    log: ClusterLogConfig,
    limit: Duration,
}

impl ToolNames {
    async fn forget(&self, names: ForgottenNames) -> Result<(), String> {
        let found = Box::pin(ListedMembers::find(&self.client, &self.log)).await;
        let unknown = |error| format!("the nodes of the cluster are not known: {error}");
        let Some(members) = found.map_err(unknown)? else { return Ok(()) };
        let identity =
            NodeIdentity { cluster: members.cluster(), name: TOOL.to_owned(), incarnation: 0 };
        let peers = Peers::new(identity, NetConfig::default(), members);
        peers.forget(&names, self.limit).await
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

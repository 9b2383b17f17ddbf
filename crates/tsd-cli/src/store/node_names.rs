//! Names and their UIDs on the other nodes of the cluster, for the engine of a node. [`super::names`] is for tools.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tsd_cluster_net::{ForgottenNames, NameOwners, Peers};
use tsd_engine::{NamePeers, UidKind, UnconfirmedRemovalError};
use tsd_model::Uid;
use tsd_storage::BoxFuture;

/// The names of a node.
#[derive(Debug)]
pub(super) struct NodeNames {
    pub(super) peers: Arc<Peers>,
    /// The owners that assign UIDs, if writes are forwarded.
    pub(super) owners: Option<NameOwners>,
    /// Timeout for a silent node.
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
    ) -> BoxFuture<'_, Result<(), UnconfirmedRemovalError>> {
        let names = ForgottenNames { kind, names, uids };
        Box::pin(async move {
            let forgotten = self.peers.forget(&names, self.limit).await;
            forgotten.map_err(|error| UnconfirmedRemovalError(error.to_string()))
        })
    }
}

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
    /// The owners that assign UIDs.
    pub(super) owners: NameOwners,
    /// Timeout for a silent node.
    pub(super) limit: Duration,
}

impl NamePeers for NodeNames {
    fn has_other_owner(&self, kind: UidKind, name: &[u8]) -> bool {
        self.owners.other_owner(kind, name).is_some()
    }

    fn assign(&self, kind: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>> {
        Box::pin(async move { self.owners.assign(kind, &names).await })
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

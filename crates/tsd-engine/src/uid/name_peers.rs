//! The other nodes of a cluster, as UID assignment needs them.
//!
//! This trait does not decide how nodes are reached, nor which node owns a name.

use std::fmt;

use bytes::Bytes;
use tsd_model::{Uid, UidKind};
use tsd_storage::BoxFuture;

/// Nodes have not confirmed the removal of names. The text names the nodes, with reasons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnconfirmedRemovalError(pub String);

/// The other nodes of a cluster. Names are encoded as they are stored.
pub trait NamePeers: fmt::Debug + Send + Sync + 'static {
    /// True if another node assigns the UID of a new name.
    fn has_other_owner(&self, kind: UidKind, name: &[u8]) -> bool;

    /// Asks the owners of names for their UIDs; owners assign UIDs to new names. The time is bounded. `None` means
    /// that the owner did not answer with a UID, so this node may assign one.
    fn assign(&self, kind: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>>;

    /// Removes names and UIDs from the caches of all other running nodes. The time is bounded.
    ///
    /// # Errors
    ///
    /// The nodes that did not confirm the removal, with reasons.
    fn forget(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
        uids: Vec<Uid>,
    ) -> BoxFuture<'_, Result<(), UnconfirmedRemovalError>>;
}

#[cfg(test)]
mod tests;

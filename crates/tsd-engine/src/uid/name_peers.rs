//! The other nodes of a cluster, as names and their UIDs need them.
//!
//! How they are reached, and which of them owns a name, is not decided here.

use std::fmt;

use bytes::Bytes;
use tsd_model::{Uid, UidKind};
use tsd_storage::BoxFuture;

/// The other nodes of a cluster. Names are as they are stored.
pub trait NamePeers: fmt::Debug + Send + Sync + 'static {
    /// True if another node assigns the UID of a name that is new.
    fn has_other_owner(&self, kind: UidKind, name: &[u8]) -> bool;

    /// Asks the nodes that own names for their UIDs, which they assign to new ones. The time is bounded. `None` in
    /// place of a name whose owner has not answered with a UID: this node may assign one.
    fn assign(&self, kind: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>>;

    /// Removes names and UIDs from the caches of all other nodes that run. The time is bounded.
    ///
    /// # Errors
    ///
    /// Which nodes have not said that they have done so, and why.
    fn forget(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
        uids: Vec<Uid>,
    ) -> BoxFuture<'_, Result<(), String>>;
}

#[cfg(test)]
mod tests;

//! The other nodes of a cluster, as names and their UIDs need them.
//!
//! How they are reached is not decided here.

use std::fmt;

use bytes::Bytes;
use tsd_model::{Uid, UidKind};
use tsd_storage::BoxFuture;

/// The other nodes of a cluster. Names are as they are stored.
pub trait NamePeers: fmt::Debug + Send + Sync + 'static {
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

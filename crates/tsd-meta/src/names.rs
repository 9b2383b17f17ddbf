//! Names and their UIDs, as meta data and reads need them.
//!
//! The engine assigns, caches and changes names. Its lower crates only ask for them.

use std::fmt;

use tsd_model::{KindUid, KnownKind, Uid, UidKind};
use tsd_storage::{BoxFuture, StorageError};

use crate::uid_error::UidError;

/// Looks up names and UIDs.
pub trait Names: fmt::Debug + Send + Sync {
    /// UID of a name.
    fn uid_of<'a>(&'a self, kind: UidKind, name: &'a str) -> BoxFuture<'a, Result<Uid, UidError>>;

    /// UIDs of names; `None` for a name without a UID.
    fn uids_of<'a>(
        &'a self,
        kind: UidKind,
        names: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<Option<Uid>, UidError>>>;

    /// Names of UIDs; `None` for a UID without a name.
    fn names_of<'a>(
        &'a self,
        kind: UidKind,
        uids: &'a [Uid],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, UidError>>;

    /// The highest assigned number of a kind.
    fn used(&self, kind: UidKind) -> BoxFuture<'_, Result<i64, StorageError>>;

    /// Epoch that changes whenever a name may have changed: what was read in an earlier epoch may be stale.
    fn epoch(&self) -> u64;
}

impl dyn Names + '_ {
    /// UID of a name of a known kind.
    pub async fn uid<K: KnownKind>(&self, name: &str) -> Result<KindUid<K>, UidError> {
        self.uid_of(K::KIND, name).await.map(KindUid::new)
    }
}

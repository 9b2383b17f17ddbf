//! Names and their UIDs, as meta data needs them.
//!
//! The engine assigns, caches and changes names. This crate only asks for them.

use std::fmt;

use tsd_model::{Uid, UidKind};
use tsd_storage::{BoxFuture, StorageError};

use crate::uid_error::UidError;

/// Looks up names and UIDs.
pub trait Names: fmt::Debug + Send + Sync {
    /// UID of a name.
    fn uid_of<'a>(&'a self, kind: UidKind, name: &'a str) -> BoxFuture<'a, Result<Uid, UidError>>;

    /// Names of UIDs; `None` for a UID without a name.
    fn names_of<'a>(
        &'a self,
        kind: UidKind,
        uids: &'a [Uid],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, UidError>>;

    /// The highest assigned number of a kind.
    fn used(&self, kind: UidKind) -> BoxFuture<'_, Result<i64, StorageError>>;
}

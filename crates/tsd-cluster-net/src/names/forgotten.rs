//! Names and UIDs that nodes drop from their caches.

use bytes::Bytes;
use tsd_model::{Uid, UidKind};

/// Names and UIDs that were changed or deleted. Names are encoded as in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenNames {
    /// Kind of the names.
    pub kind: UidKind,
    /// Names whose UIDs have changed or were removed.
    pub names: Vec<Bytes>,
    /// UIDs whose names have changed.
    pub uids: Vec<Uid>,
}

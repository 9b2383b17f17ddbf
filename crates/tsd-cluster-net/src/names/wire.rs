//! Messages about names and their UIDs.

use bytes::Bytes;
use prost::Message;
use tsd_model::{Uid, UidKind};

use super::forgotten::ForgottenNames;
use crate::error::PeerError;

/// Names and UIDs that were changed in the store.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ForgetMessage {
    /// Kind as in [`UidKind::as_str`].
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    names: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    uids: Vec<Bytes>,
}

impl ForgetMessage {
    pub(super) fn of(names: &ForgottenNames) -> Self {
        let ForgottenNames { kind, names, uids } = names;
        let uids = uids.iter().map(|uid| Bytes::copy_from_slice(uid.as_bytes())).collect();
        Self { kind: kind.as_str().to_owned(), names: names.clone(), uids }
    }

    /// Returns `None` if this version does not know the kind, or a UID is invalid.
    pub(crate) fn into_names(self) -> Option<ForgottenNames> {
        let Self { kind, names, uids } = self;
        let uids = uids.iter().map(|uid| Uid::try_new(uid)).collect::<Result<_, _>>().ok()?;
        Some(ForgottenNames { kind: UidKind::from_name(&kind)?, names, uids })
    }
}

/// Names that need UIDs.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AssignUidsMessage {
    /// Kind as in [`UidKind::as_str`].
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    names: Vec<Bytes>,
}

impl AssignUidsMessage {
    pub(super) fn of(kind: UidKind, names: Vec<Bytes>) -> Self {
        Self { kind: kind.as_str().to_owned(), names }
    }

    /// Returns `None` if this version does not know the kind.
    pub(crate) fn into_names(self) -> Option<(UidKind, Vec<Bytes>)> {
        Some((UidKind::from_name(&self.kind)?, self.names))
    }
}

/// UIDs of names, in their order.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AssignedUidsMessage {
    /// Empty for a name without a UID.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    uids: Vec<Bytes>,
}

impl AssignedUidsMessage {
    pub(crate) fn of(uids: &[Option<Uid>]) -> Self {
        let bytes = |uid: &Option<Uid>| {
            uid.as_ref().map_or_else(Bytes::new, |uid| Bytes::copy_from_slice(uid.as_bytes()))
        };
        Self { uids: uids.iter().map(bytes).collect() }
    }

    /// Returns the UIDs if the message has `count` of them.
    pub(super) fn into_uids(self, count: usize) -> Result<Vec<Option<Uid>>, PeerError> {
        if self.uids.len() != count {
            return Err(PeerError::Frame("wrong number of UIDs".into()));
        }
        let uid = |bytes: &Bytes| {
            if bytes.is_empty() { Ok(None) } else { Uid::try_new(bytes).map(Some) }
        };
        self.uids
            .iter()
            .map(uid)
            .collect::<Result<_, _>>()
            .map_err(|error| PeerError::frame(&error))
    }
}

//! Messages about names and their UIDs.

use bytes::Bytes;
use prost::Message;
use tsd_model::{Uid, UidKind};

use super::ForgottenNames;

/// Names and UIDs that were changed in the store.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ForgetMessage {
    /// As [`UidKind::as_str`] has it.
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

    /// `None` if there is something that this version does not know.
    pub(crate) fn into_names(self) -> Option<ForgottenNames> {
        let Self { kind, names, uids } = self;
        let uids = uids.iter().map(|uid| Uid::try_new(uid)).collect::<Result<_, _>>().ok()?;
        Some(ForgottenNames { kind: UidKind::from_name(&kind)?, names, uids })
    }
}

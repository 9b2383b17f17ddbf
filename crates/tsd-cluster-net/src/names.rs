//! Names and their UIDs, as nodes have them in their caches.
//!
//! A node that renames or deletes a UID changes the store first. Then it looks who the members are, and has each
//! of them forget the names. One that joins later reads the changed store. One that does not answer is waited for:
//! until it answers, or until it was fenced and its log is stored, so that it acknowledges nothing and reads nothing
//! any more.
//!
//! New names are assigned by the owners of their slots ([`NameOwners`]).

mod metrics;
mod owners;
mod wire;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tsd_cluster::{Member, MemberState};
use tsd_model::{Uid, UidKind};

pub use self::owners::NameOwners;
pub(crate) use self::{
    metrics::{NameMetrics, describe_name_metrics},
    wire::{AssignUidsMessage, AssignedUidsMessage, ForgetMessage},
};
use crate::{
    client::PeerClient,
    error::PeerError,
    metrics::RequestKind,
    peers::{Peers, RETRY_PAUSE},
    wire::RequestBody,
};

/// Names and UIDs that are not what they were. Names are as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenNames {
    /// Kind of the names.
    pub kind: UidKind,
    /// Names whose UIDs have changed, or that have none any more.
    pub names: Vec<Bytes>,
    /// UIDs whose names have changed.
    pub uids: Vec<Uid>,
}

impl Peers {
    /// Has all other nodes that run forget names. Call it after the store was changed.
    ///
    /// # Errors
    ///
    /// Which nodes may still use them, and why.
    pub async fn forget(&self, names: &ForgottenNames, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        let forgotten = self.forget_until(names, deadline).await;
        if forgotten.is_err() {
            NameMetrics::of_process().unforgotten.increment(1);
        }
        forgotten
    }

    async fn forget_until(&self, names: &ForgottenNames, deadline: Instant) -> Result<(), String> {
        let looked = self.look(deadline).await;
        let mut members =
            looked.map_err(|error| format!("the other nodes are not known: {error}"))?;
        let this = self.membership().this();
        members.retain(|member| member.incarnation != this && member.state != MemberState::Left);
        let ask = |member: &Member| {
            let member = member.clone();
            async move {
                let forgotten = self.have_forget(&member, names, deadline).await;
                forgotten.map_err(|error| format!("node {}: {error}", member.name))
            }
        };
        let silent: Vec<String> =
            join_all(members.iter().map(ask)).await.into_iter().filter_map(Result::err).collect();
        if silent.is_empty() { Ok(()) } else { Err(silent.join("; ")) }
    }

    /// Has a node forget names, or waits until it is fenced and its rows are stored.
    async fn have_forget(
        &self,
        member: &Member,
        names: &ForgottenNames,
        deadline: Instant,
    ) -> Result<(), PeerError> {
        let client = self.client(member);
        let asking = async {
            loop {
                let error = match client.forget(names, deadline).await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                };
                let is_answer = matches!(error, PeerError::Failed(_));
                if is_answer || Instant::now() + RETRY_PAUSE >= deadline {
                    return Err(error);
                }
                self.suspect(member);
                sleep(RETRY_PAUSE).await;
            }
        };
        tokio::select! {
            asked = asking => asked,
            () = self.stored(member) => Ok(()),
        }
    }
}

impl PeerClient {
    /// Has the peer remove names from its caches.
    async fn forget(&self, names: &ForgottenNames, deadline: Instant) -> Result<(), PeerError> {
        let body = RequestBody::Forget(ForgetMessage::of(names));
        self.metered(RequestKind::Forget, self.done(body, deadline)).await
    }
}

#[cfg(test)]
mod tests;

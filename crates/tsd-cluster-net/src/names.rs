//! Removes names and UIDs from the caches of all nodes.
//!
//! A node that renames or deletes a UID changes the store first. It then lists the members and tells each to drop
//! the names. A node that still joins has read no names yet, and reads the changed store. If a member does not respond, the node waits until it
//! responds, or until it is fenced and its log is stored. A fenced node acknowledges and reads nothing more.
//!
//! The owners of the slots assign UIDs to new names ([`NameOwners`]).

pub(crate) mod forgotten;
pub(crate) mod metrics;
mod owners;
pub(crate) mod wire;

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tsd_cluster::{Member, MemberState};

pub use self::{forgotten::ForgottenNames, owners::NameOwners};
use self::{metrics::NameMetrics, wire::ForgetMessage};
use crate::{
    client::PeerClient,
    error::{MembersError, PeerError},
    metrics::RequestKind,
    peers::{Peers, RETRY_PAUSE},
    wire::RequestBody,
};

/// Nodes may still use names that a change has removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForgetError {
    /// The members cannot be read.
    #[error("the other nodes are not known: {0}")]
    UnknownMembers(MembersError),
    /// These nodes have not acknowledged.
    #[error("{}", named(.0))]
    Unacknowledged(Vec<UnacknowledgedForgetError>),
}

/// A node that may still use the names.
#[derive(Debug, thiserror::Error)]
#[error("node {node}: {error}")]
pub struct UnacknowledgedForgetError {
    /// Name of the node.
    pub node: String,
    /// Why the node has not acknowledged.
    pub error: PeerError,
}

fn named(nodes: &[UnacknowledgedForgetError]) -> String {
    let texts: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

impl Peers {
    /// Makes all other running nodes forget names. Call it after the change of the store.
    ///
    /// # Errors
    ///
    /// Lists the nodes that may still use the names, and why.
    pub async fn forget(&self, names: &ForgottenNames, limit: Duration) -> Result<(), ForgetError> {
        let deadline = Instant::now() + limit;
        let forgotten = self.forget_until(names, deadline).await;
        if forgotten.is_err() {
            NameMetrics::of_process().unforgotten.increment(1);
        }
        forgotten
    }

    async fn forget_until(
        &self,
        names: &ForgottenNames,
        deadline: Instant,
    ) -> Result<(), ForgetError> {
        let looked = self.look(deadline).await;
        let mut members = looked.map_err(ForgetError::UnknownMembers)?;
        let this = self.membership().this();
        members.retain(|member| {
            member.incarnation != this
                && !matches!(member.state, MemberState::Left | MemberState::Joining)
        });
        let ask = |member: &Member| {
            let member = member.clone();
            async move {
                let forgotten = self.have_forget(&member, names, deadline).await;
                forgotten.map_err(|error| UnacknowledgedForgetError { node: member.name, error })
            }
        };
        let silent: Vec<UnacknowledgedForgetError> =
            join_all(members.iter().map(ask)).await.into_iter().filter_map(Result::err).collect();
        if silent.is_empty() { Ok(()) } else { Err(ForgetError::Unacknowledged(silent)) }
    }

    /// Makes a node forget names, or waits until it is fenced and its rows are stored.
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
                let is_response = matches!(error, PeerError::Failed(_));
                if is_response || Instant::now() + RETRY_PAUSE >= deadline {
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
    /// Makes the peer remove names from its caches.
    async fn forget(&self, names: &ForgottenNames, deadline: Instant) -> Result<(), PeerError> {
        let body = RequestBody::Forget(ForgetMessage::of(names));
        self.metered(RequestKind::Forget, self.done(body, deadline)).await
    }
}

#[cfg(test)]
mod tests;

//! Assigns UIDs to new names through the owners of their slots.
//!
//! If several nodes see a new name at once, its owner assigns one UID for all of them. That saves work and numbers.
//! Correctness does not depend on it: compare-and-set in the store decides which UID a name has. So a node assigns a
//! UID by itself if the owner is unknown, leaves, or does not respond. It waits for an owner that is only slow:
//! assigning the same names twice would make the store slower still.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tsd_cluster::{Member, MemberState, Slot};
use tsd_model::{Uid, UidKind};

use super::{metrics::NameMetrics, wire::AssignUidsMessage};
use crate::{
    client::PeerClient,
    error::PeerError,
    forward::ClusterSlots,
    metrics::RequestKind,
    peers::Peers,
    wire::{RequestBody, ResponseBody},
};

/// Time without a response after which a probe checks whether the owner responds.
const SILENCE: Duration = Duration::from_secs(1);
/// Timeout of a probe.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// Probes in a row without a response after which an owner is silent.
const PROBES: u32 = 2;
/// Pause after a failure, during which the owner is not asked.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// The nodes that assign UIDs.
#[derive(Debug)]
pub struct NameOwners {
    peers: Arc<Peers>,
    slots: Arc<ClusterSlots>,
    limit: Duration,
    /// End of the pause of each owner that failed, by incarnation.
    failed: Mutex<HashMap<u64, Instant>>,
}

impl NameOwners {
    /// Uses the owners by `slots`. `limit` bounds the wait for a response.
    #[must_use]
    pub fn new(peers: Arc<Peers>, slots: Arc<ClusterSlots>, limit: Duration) -> Self {
        Self { peers, slots, limit, failed: Mutex::default() }
    }

    /// Returns the other node that assigns the UID of a name; `None` if this node does.
    #[must_use]
    pub fn other_owner(&self, kind: UidKind, name: &[u8]) -> Option<u64> {
        self.slots.other_owner(Slot::of_name(kind.as_str(), name))
    }

    /// Requests the UIDs of names, each from the owner of its slot. `None` means that this node is the owner, or
    /// that the owner has not responded.
    pub async fn assign(&self, kind: UidKind, names: &[Bytes]) -> Vec<Option<Uid>> {
        let mut shares: BTreeMap<u64, (Vec<usize>, Vec<Bytes>)> = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            if let Some(owner) = self.other_owner(kind, name) {
                let (positions, share) = shares.entry(owner).or_default();
                positions.push(at);
                share.push(name.clone());
            }
        }
        let ask = |(owner, (positions, share))| async move {
            (positions, self.ask(owner, kind, share).await)
        };
        let mut uids = vec![None; names.len()];
        for (positions, assigned) in join_all(shares.into_iter().map(ask)).await {
            for (at, uid) in positions.into_iter().zip(assigned) {
                if let Some(entry) = uids.get_mut(at) {
                    *entry = uid;
                }
            }
        }
        uids
    }

    /// Asks an owner. The result is empty, or has an entry for each name.
    async fn ask(&self, owner: u64, kind: UidKind, names: Vec<Bytes>) -> Vec<Option<Uid>> {
        let metrics = NameMetrics::of_process();
        let count = names.len();
        let uids = match self.reachable(owner) {
            Some(member) => {
                metrics.asked.increment(count as u64);
                self.ask_member(&member, kind, names).await
            }
            None => Vec::new(),
        };
        let missing = count - uids.iter().flatten().count().min(count);
        metrics.unanswered.increment(missing as u64);
        uids
    }

    /// Returns an owner, unless it failed recently.
    fn reachable(&self, owner: u64) -> Option<Member> {
        let failed = self.failed.lock();
        if failed.get(&owner).is_some_and(|until| Instant::now() < *until) {
            return None;
        }
        drop(failed);
        self.serving(owner)
    }

    /// Returns a member whose heartbeats continue.
    fn serving(&self, incarnation: u64) -> Option<Member> {
        let member = self.peers.membership().member(incarnation)?;
        (member.state == MemberState::Serving).then_some(member)
    }

    /// Completes when a node no longer responds to probes, or its heartbeats have stopped.
    async fn silent(&self, member: &Member, client: &PeerClient) {
        let mut missed = 0;
        while missed < PROBES && self.serving(member.incarnation).is_some() {
            sleep(SILENCE).await;
            let probed = client.probe(Instant::now() + PROBE_LIMIT).await;
            missed = if probed.is_ok() { 0 } else { missed + 1 };
        }
    }

    async fn ask_member(
        &self,
        member: &Member,
        kind: UidKind,
        names: Vec<Bytes>,
    ) -> Vec<Option<Uid>> {
        let client = self.peers.client(member);
        let response = tokio::select! {
            response = client.assign_uids(kind, names, Instant::now() + self.limit) => response,
            () = self.silent(member, &client) => Err(PeerError::Timeout),
        };
        let error = match response {
            Ok(uids) => return uids,
            Err(error) => error,
        };
        tracing::debug!(node = member.name, %error, "the owner of new names does not answer");
        // A failed or too large request says nothing about the next one.
        if !matches!(error, PeerError::Failed(_) | PeerError::TooLarge { .. }) {
            self.peers.suspect(member);
            let now = Instant::now();
            let mut failed = self.failed.lock();
            failed.retain(|_, until| *until > now);
            failed.insert(member.incarnation, now + FAILED_PAUSE);
        }
        Vec::new()
    }
}

impl PeerClient {
    /// Makes the peer assign UIDs to new names.
    async fn assign_uids(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<Vec<Option<Uid>>, PeerError> {
        let count = names.len();
        let body = RequestBody::AssignUids(AssignUidsMessage::of(kind, names));
        self.metered(RequestKind::Uids, async {
            match self.ask(body, deadline).await? {
                ResponseBody::AssignedUids(response) => response.into_uids(count),
                _ => Err(PeerError::Frame("an unexpected response".into())),
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests;

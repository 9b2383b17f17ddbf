//! New names, and the nodes that assign their UIDs: the owners of their slots.
//!
//! Names that are new to several nodes at once take one number each, since one node assigns them. That saves work and
//! numbers; which UID a name has is decided by compare-and-set in the store. So a node assigns by itself whenever the
//! owner is not known, leaves, or does not answer. An owner that is only slow is waited for: others that assign its
//! names beside it would make the store slower still.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tsd_cluster::{Member, MemberState, Slot};
use tsd_model::{Uid, UidKind};

use super::{AssignUidsMessage, NameMetrics};
use crate::{
    client::PeerClient,
    error::PeerError,
    forward::ClusterSlots,
    metrics::RequestKind,
    peers::Peers,
    wire::{RequestBody, ResponseBody},
};

/// After this time without an answer, a probe says whether the owner is there.
const SILENCE: Duration = Duration::from_secs(1);
/// Time in which a probe is answered.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// So many probes in a row without an answer are the end.
const PROBES: u32 = 2;
/// After a failure an owner is not asked for this time.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// The nodes that assign UIDs.
#[derive(Debug)]
pub struct NameOwners {
    peers: Arc<Peers>,
    slots: Arc<ClusterSlots>,
    limit: Duration,
    /// Until when an owner is not asked, by incarnation. Those that are over are removed.
    failed: Mutex<HashMap<u64, Instant>>,
}

impl NameOwners {
    /// The owners by `slots`. An answer is waited for no longer than `limit`.
    #[must_use]
    pub fn new(peers: Arc<Peers>, slots: Arc<ClusterSlots>, limit: Duration) -> Self {
        Self { peers, slots, limit, failed: Mutex::default() }
    }

    /// The other node that assigns the UID of a name; `None`: this one does.
    #[must_use]
    pub fn other_owner(&self, kind: UidKind, name: &[u8]) -> Option<u64> {
        self.slots.other_owner(Slot::of_name(kind.as_str(), name))
    }

    /// The UIDs of names, each from the owner of its slot; `None` where that is this node, or has not answered.
    pub async fn assign(&self, kind: UidKind, names: &[Bytes]) -> Vec<Option<Uid>> {
        let mut parts: BTreeMap<u64, (Vec<usize>, Vec<Bytes>)> = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            if let Some(owner) = self.other_owner(kind, name) {
                let (places, part) = parts.entry(owner).or_default();
                places.push(at);
                part.push(name.clone());
            }
        }
        let ask =
            |(owner, (places, part))| async move { (places, self.ask(owner, kind, part).await) };
        let mut uids = vec![None; names.len()];
        for (places, answered) in join_all(parts.into_iter().map(ask)).await {
            for (at, uid) in places.into_iter().zip(answered) {
                if let Some(place) = uids.get_mut(at) {
                    *place = uid;
                }
            }
        }
        uids
    }

    /// Asks an owner. The answer has nothing, or something for each name.
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

    /// An owner, unless it has failed of late.
    fn reachable(&self, owner: u64) -> Option<Member> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.get(&owner).is_some_and(|until| Instant::now() < *until) {
            return None;
        }
        drop(failed);
        self.serving(owner)
    }

    /// A member whose heartbeats go on.
    fn serving(&self, incarnation: u64) -> Option<Member> {
        let member = self.peers.membership().member(incarnation)?;
        (member.state == MemberState::Serving).then_some(member)
    }

    /// Completes when a node answers nothing any more, or its heartbeats have stopped.
    async fn silent(&self, member: &Member, client: &PeerClient) {
        let mut unanswered = 0;
        while unanswered < PROBES && self.serving(member.incarnation).is_some() {
            sleep(SILENCE).await;
            let probed = client.probe(Instant::now() + PROBE_LIMIT).await;
            unanswered = if probed.is_ok() { 0 } else { unanswered + 1 };
        }
    }

    async fn ask_member(
        &self,
        member: &Member,
        kind: UidKind,
        names: Vec<Bytes>,
    ) -> Vec<Option<Uid>> {
        let client = self.peers.client(member);
        let answer = tokio::select! {
            answer = client.assign_uids(kind, names, Instant::now() + self.limit) => answer,
            () = self.silent(member, &client) => Err(PeerError::Timeout),
        };
        let error = match answer {
            Ok(uids) => return uids,
            Err(error) => error,
        };
        tracing::debug!(node = member.name, %error, "the owner of new names does not answer");
        // These say nothing about the next request.
        if !matches!(error, PeerError::Failed(_) | PeerError::TooLarge { .. }) {
            self.peers.suspect(member);
            let now = Instant::now();
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.retain(|_, until| *until > now);
            failed.insert(member.incarnation, now + FAILED_PAUSE);
        }
        Vec::new()
    }
}

impl PeerClient {
    /// Has the peer assign UIDs to names that are new.
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
                ResponseBody::AssignedUids(answer) => answer.into_uids(count),
                _ => Err(PeerError::Frame("an answer out of place".into())),
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests;

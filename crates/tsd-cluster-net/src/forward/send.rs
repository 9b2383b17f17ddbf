//! Sends writes to the owners of their slots.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};
use tsd_cluster::{Member, Settlement};
use tsd_storage::{StorageError, Table};

use super::{
    PEER_BYTES,
    metrics::{ForwardMetrics, RefusedReason},
    slot_write::{SlotWrite, SlotWriteResult},
    slots::ClusterSlots,
    wire::{ForwardAnswer, ForwardMessage},
};
use crate::{
    client::PeerClient,
    error::PeerError,
    peers::Peers,
    wire::{RequestBody, ResponseBody},
};

/// After this time without an answer a node is reported as silent.
const SILENCE: Duration = Duration::from_secs(1);
/// Unit of the permits, bytes.
const PERMIT_BYTES: usize = 1 << 10;

/// Sends writes.
#[derive(Debug)]
pub(super) struct SlotSender {
    peers: Arc<Peers>,
    slots: Arc<ClusterSlots>,
    /// Bytes in progress, by incarnation. No more than members.
    budgets: Mutex<HashMap<u64, Arc<Semaphore>>>,
}

/// What became of a write that was sent.
#[derive(Debug)]
pub(super) enum SentWrite {
    /// Its end.
    Ended(Result<SlotWriteResult, StorageError>),
    /// It was not made, and may be sent to another node. The text says why.
    NotMade(String),
}

/// Counts bytes while they wait for an answer.
struct WaitingBytes(f64);

impl WaitingBytes {
    fn new(bytes: usize) -> Self {
        let bytes = bytes as f64;
        ForwardMetrics::of_process().waiting_bytes.increment(bytes);
        Self(bytes)
    }
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        ForwardMetrics::of_process().waiting_bytes.decrement(self.0);
    }
}

impl SlotSender {
    pub(super) fn new(peers: Arc<Peers>, slots: Arc<ClusterSlots>) -> Self {
        Self { peers, slots, budgets: Mutex::default() }
    }

    /// Sends a write to the node of this incarnation, once.
    pub(super) async fn send(
        &self,
        to: u64,
        generation: u64,
        table: &Table,
        write: &SlotWrite,
        deadline: Instant,
    ) -> SentWrite {
        let members = self.slots.membership().members();
        let Some(member) = members.into_iter().find(|member| member.incarnation == to) else {
            return SentWrite::NotMade(format!("the node of incarnation {to} is gone"));
        };
        let bytes = write.byte_len();
        let metrics = ForwardMetrics::of_process();
        let _waiting = WaitingBytes::new(bytes);
        let Ok(permit) = timeout_at(deadline, self.permit(to, bytes)).await else {
            metrics.refused(RefusedReason::Throttled);
            let text = "too many bytes wait for the node that owns the series";
            return SentWrite::Ended(Err(StorageError::Throttled(text)));
        };
        let begun = Instant::now();
        let message = ForwardMessage::of(generation, table, write);
        let client = self.peers.client(&member);
        let answer = tokio::select! {
            answer = client.forward(message, deadline) => answer,
            () = self.stored(to) => {
                return SentWrite::NotMade(format!("node {} was fenced", member.name));
            }
        };
        drop(permit);
        metrics.seconds.record(begun.elapsed());
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.failed(&member, &error, deadline).await,
        };
        match answer.into_answer(&member.name, table) {
            ForwardAnswer::NotOwner => {
                metrics.refused(RefusedReason::NotOwner);
                SentWrite::NotMade(format!("node {} does not own the slot", member.name))
            }
            ForwardAnswer::Ended(result) => {
                match &result {
                    Ok(_) => {
                        metrics.cells.increment(write.cell_count());
                        metrics.bytes.increment(bytes as u64);
                    }
                    Err(StorageError::Throttled(_)) => metrics.refused(RefusedReason::Throttled),
                    Err(error) if error.is_transient() => {
                        metrics.refused(RefusedReason::Unavailable);
                    }
                    Err(_) => metrics.refused(RefusedReason::Failed),
                }
                SentWrite::Ended(result)
            }
        }
    }

    async fn permit(&self, to: u64, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let all = PEER_BYTES / PERMIT_BYTES;
        let budget = {
            let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
            if !budgets.contains_key(&to) {
                let members = self.slots.membership().members();
                budgets.retain(|known, _| members.iter().any(|of| of.incarnation == *known));
            }
            Arc::clone(budgets.entry(to).or_insert_with(|| Arc::new(Semaphore::new(all))))
        };
        let permits = (bytes / PERMIT_BYTES + 1).min(all);
        budget.acquire_many_owned(u32::try_from(permits).unwrap_or(u32::MAX)).await.ok()
    }

    /// Completes when a node is fenced and all rows of its log are stored: what was sent to it is either there, or
    /// never will be.
    async fn stored(&self, incarnation: u64) {
        let membership = self.slots.membership();
        loop {
            sleep(SILENCE).await;
            membership.suspect(incarnation);
            if membership.settled(incarnation).await == Settlement::Stored {
                return;
            }
        }
    }

    /// A write without an answer. If it may have been made, it is not sent again before the node is fenced.
    async fn failed(&self, to: &Member, error: &PeerError, deadline: Instant) -> SentWrite {
        let text = format!("node {}: {error}", to.name);
        let membership = self.slots.membership();
        membership.suspect(to.incarnation);
        ForwardMetrics::of_process().refused(RefusedReason::Unavailable);
        match error {
            // Nothing was sent, or nothing was done.
            PeerError::Connect { .. } | PeerError::Refused(_) | PeerError::Failed(_) => {
                return SentWrite::NotMade(text);
            }
            PeerError::Lost | PeerError::Timeout | PeerError::Frame(_) => {}
        }
        let gone = async {
            while membership.settled(to.incarnation).await != Settlement::Stored {
                if self.peers.client(to).probe(Instant::now() + SILENCE).await.is_ok() {
                    return false;
                }
                membership.suspect(to.incarnation);
            }
            true
        };
        match timeout_at(deadline, gone).await {
            Ok(true) => SentWrite::NotMade(text),
            _ => SentWrite::Ended(Err(StorageError::Unavailable(text.into()))),
        }
    }
}

impl PeerClient {
    /// Sends a write, and returns what became of it.
    async fn forward(
        &self,
        message: ForwardMessage,
        deadline: Instant,
    ) -> Result<super::ForwardedMessage, PeerError> {
        let body = RequestBody::Forward(message);
        match self.request(body, deadline).await?.next().await? {
            ResponseBody::Forwarded(answer) => Ok(answer),
            _ => Err(PeerError::Frame("an answer out of place".into())),
        }
    }
}

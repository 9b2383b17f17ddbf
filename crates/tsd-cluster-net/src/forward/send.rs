//! Sends writes to the owners of their slots.

use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};
use tsd_cluster::{Member, Settlement};
use tsd_storage::{StorageError, Table, Write, WriteResult};

use super::{
    frame_outcome::FrameOutcome,
    metrics::{ForwardMetrics, RefusedReason},
    put_queue::{AddedPut, Forwarding, PutFrame, PutQueue, SendPermit},
    slots::ClusterSlots,
    wire::{ForwardMessage, ForwardResponse, ForwardedMessage},
};
use crate::{
    client::PeerClient,
    error::PeerError,
    peers::Peers,
    wire::{RequestBody, ResponseBody},
};

/// Time without a response after which a node is reported as silent.
const SILENCE: Duration = Duration::from_secs(1);
/// Maximum bytes of writes in progress to one node.
const PEER_BYTES: usize = 16 << 20;
/// Unit of the permits, bytes.
const PERMIT_BYTES: usize = 1 << 10;

/// Sends writes.
#[derive(Debug)]
pub(super) struct SlotSender {
    frames: FrameSender,
    /// Queues by incarnation, at most one for each member.
    queues: Mutex<HashMap<u64, PeerQueue>>,
}

/// Writes in progress to one node.
#[derive(Clone, Debug)]
struct PeerQueue {
    /// Permits for the bytes of the writes.
    budget: Arc<Semaphore>,
    puts: Arc<PutQueue>,
}

/// Sends frames.
#[derive(Clone, Debug)]
struct FrameSender {
    peers: Arc<Peers>,
    slots: Arc<ClusterSlots>,
}

/// Sends the waiting frames of a send permit in a task when it is dropped, even if its caller no longer waits.
struct WaitingFrames<'a> {
    frames: &'a FrameSender,
    to: &'a Member,
    send_permit: Option<SendPermit>,
}

/// Outcome of a sent write.
#[derive(Debug)]
pub(super) enum SentWrite {
    /// The write has ended.
    Ended(Result<WriteResult, StorageError>),
    /// The write was not made, and may be sent to another node. The text has the reason.
    NotMade(String),
}

/// Counts bytes while they wait for a response.
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

impl PeerQueue {
    fn new() -> Self {
        let budget = Arc::new(Semaphore::new(PEER_BYTES / PERMIT_BYTES));
        Self { budget, puts: Arc::default() }
    }

    async fn permit(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = (bytes / PERMIT_BYTES + 1).min(PEER_BYTES / PERMIT_BYTES);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        Arc::clone(&self.budget).acquire_many_owned(permits).await.ok()
    }
}

impl Drop for WaitingFrames<'_> {
    fn drop(&mut self) {
        let Some(mut send_permit) = self.send_permit.take() else { return };
        if let Some(frame) = send_permit.next_frame()
            && let Ok(runtime) = Handle::try_current()
        {
            let (frames, to) = (self.frames.clone(), self.to.clone());
            runtime.spawn(async move { frames.send_puts(&to, frame, send_permit).await });
        }
    }
}

impl SlotSender {
    pub(super) fn new(peers: Arc<Peers>, slots: Arc<ClusterSlots>) -> Self {
        Self { frames: FrameSender { peers, slots }, queues: Mutex::default() }
    }

    /// Sends a write to the node with this incarnation, once. Puts may share a frame.
    pub(super) async fn send(
        &self,
        to: u64,
        forwarding: Forwarding<'_>,
        write: &Write,
    ) -> SentWrite {
        let Forwarding { generation, table, deadline } = forwarding;
        let Some(member) = self.frames.slots.membership().member(to) else {
            return SentWrite::NotMade(format!("the node of incarnation {to} is gone"));
        };
        let bytes = frame_bytes(write);
        let metrics = ForwardMetrics::of_process();
        let _waiting = WaitingBytes::new(bytes);
        let queue = self.queue(to);
        let Ok(Some(permit)) = timeout_at(deadline, queue.permit(bytes)).await else {
            metrics.refused(RefusedReason::Throttled);
            let text = "too many bytes wait for the node that owns the series";
            return SentWrite::Ended(Err(StorageError::Throttled(text)));
        };
        let permit = Arc::new(permit);
        let begun = Instant::now();
        let joined = match write {
            Write::Put(batch) => {
                let put = queue.puts.add(forwarding, batch, Arc::clone(&permit));
                self.send_joined(&member, put).await
            }
            _ => None,
        };
        let outcome = if let Some(outcome) = joined {
            outcome
        } else {
            let message = ForwardMessage::of(generation, table, write);
            Box::pin(self.frames.send(&member, message, deadline)).await
        };
        drop(permit);
        metrics.seconds.record(begun.elapsed());
        match outcome {
            FrameOutcome::Response(Ok(response)) => ended(&member, table, write, response),
            // Rare cases are boxed, because the future of each forwarded put has the size of the largest case.
            FrameOutcome::Response(Err(error)) => {
                Box::pin(self.failed(&member, &error, deadline)).await
            }
            FrameOutcome::NotSent(error @ PeerError::TooLarge { .. }) => {
                metrics.refused(RefusedReason::Failed);
                let text = format!("node {}: {error}", member.name);
                SentWrite::Ended(Err(StorageError::Rejected(text.into())))
            }
            FrameOutcome::NotSent(error) => self.not_made(&member, &error),
            FrameOutcome::Fenced => SentWrite::NotMade(format!("node {} was fenced", member.name)),
            FrameOutcome::Late => SentWrite::NotMade(format!("node {} is busy", member.name)),
        }
    }

    /// Sends a put together with waiting puts. Returns `None` if the put has to be sent alone, because its frame
    /// was rejected, perhaps because of another put.
    async fn send_joined(&self, member: &Member, put: AddedPut) -> Option<FrameOutcome> {
        match put {
            AddedPut::Alone(send_permit, frame) => {
                let send_permit = Some(send_permit);
                let _waiting = WaitingFrames { frames: &self.frames, to: member, send_permit };
                Some(self.frames.send_put(member, frame).await.1)
            }
            AddedPut::Joined(outcome, send_permit) => {
                drop(WaitingFrames { frames: &self.frames, to: member, send_permit });
                match outcome.await {
                    Ok(outcome) => (!outcome.was_joined || !outcome.frame.is_refused())
                        .then_some(outcome.frame),
                    // This node stops: the outcome is unknown.
                    Err(_) => Some(FrameOutcome::Response(Err(PeerError::Lost))),
                }
            }
        }
    }

    fn queue(&self, to: u64) -> PeerQueue {
        let mut queues = self.queues.lock();
        if !queues.contains_key(&to) {
            let members = self.frames.slots.membership().members();
            queues.retain(|known, _| members.iter().any(|of| of.incarnation == *known));
        }
        queues.entry(to).or_insert_with(PeerQueue::new).clone()
    }

    /// Reports a write as not made, because the node cannot be reached or cannot make it.
    fn not_made(&self, to: &Member, error: &PeerError) -> SentWrite {
        self.frames.slots.membership().suspect(to.incarnation);
        ForwardMetrics::of_process().refused(RefusedReason::Unavailable);
        SentWrite::NotMade(format!("node {}: {error}", to.name))
    }

    /// Decides about a sent write without a response. If it may have been made, it is sent again only after the
    /// node was fenced and its log stored.
    async fn failed(&self, to: &Member, error: &PeerError, deadline: Instant) -> SentWrite {
        let not_made = self.not_made(to, error);
        if matches!(error, PeerError::Failed(_)) {
            return not_made;
        }
        let FrameSender { peers, slots } = &self.frames;
        let membership = slots.membership();
        let gone = async {
            while membership.settled(to.incarnation).await != Settlement::Stored {
                if peers.client(to).probe(Instant::now() + SILENCE).await.is_ok() {
                    return false;
                }
                membership.suspect(to.incarnation);
            }
            true
        };
        if let Ok(true) = timeout_at(deadline, gone).await {
            return not_made;
        }
        let text = format!("node {}: {error}", to.name);
        SentWrite::Ended(Err(StorageError::Unavailable(text.into())))
    }
}

/// Approximate bytes of a write in a frame.
fn frame_bytes(write: &Write) -> usize {
    64 + write.byte_len()
}

/// Returns the outcome of a write from its response.
fn ended(member: &Member, table: &Table, write: &Write, response: ForwardedMessage) -> SentWrite {
    let metrics = ForwardMetrics::of_process();
    let result = match response.into_response(&member.name, table) {
        ForwardResponse::NotOwner => {
            metrics.refused(RefusedReason::NotOwner);
            let text = format!("node {} does not own the slot", member.name);
            return SentWrite::NotMade(text);
        }
        ForwardResponse::Ended(result) => result,
    };
    match &result {
        Ok(_) => {
            metrics.cells.increment(write.batch().map_or(1, |batch| batch.cell_count() as u64));
            metrics.bytes.increment(frame_bytes(write) as u64);
        }
        Err(StorageError::Throttled(_)) => metrics.refused(RefusedReason::Throttled),
        Err(error) if error.is_transient() => metrics.refused(RefusedReason::Unavailable),
        Err(_) => metrics.refused(RefusedReason::Failed),
    }
    SentWrite::Ended(result)
}

impl FrameSender {
    /// Sends puts, then the waiting puts, until no put waits.
    async fn send_puts(&self, to: &Member, first: PutFrame, mut send_permit: SendPermit) {
        let mut next = Some(first);
        while let Some(frame) = next {
            let (frame, outcome) = self.send_put(to, frame).await;
            frame.report(&outcome);
            next = send_permit.next_frame();
        }
    }

    async fn send_put(&self, to: &Member, mut frame: PutFrame) -> (PutFrame, FrameOutcome) {
        let deadline = frame.deadline;
        let outcome = if deadline <= Instant::now() {
            FrameOutcome::Late
        } else {
            self.send(to, frame.message(), deadline).await
        };
        (frame, outcome)
    }

    /// Sends a frame, and waits for its outcome.
    async fn send(&self, to: &Member, message: ForwardMessage, deadline: Instant) -> FrameOutcome {
        ForwardMetrics::of_process().frames.increment(1);
        let client = self.peers.client(to);
        tokio::select! {
            outcome = client.forward(message, deadline) => outcome,
            () = self.stored(to.incarnation) => FrameOutcome::Fenced,
        }
    }

    /// Completes when a node is fenced and all rows of its log are stored. Then a write that was sent to it is
    /// either stored, or never will be.
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
}

impl PeerClient {
    /// Sends a write, and returns its outcome.
    async fn forward(&self, message: ForwardMessage, deadline: Instant) -> FrameOutcome {
        let request = match self.send(RequestBody::Forward(message), deadline).await {
            Ok(request) => request,
            Err(error) => return FrameOutcome::NotSent(error),
        };
        FrameOutcome::Response(match request.response().await {
            Ok(ResponseBody::Forwarded(response)) => Ok(response),
            Ok(_) => Err(PeerError::Frame("an unexpected response".into())),
            Err(error) => Err(error),
        })
    }
}

//! Sends writes to the owners of their slots.

use parking_lot::Mutex;
use std::{collections::HashMap, future::Future, pin::pin, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    select,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};
use tsd_cluster::{Member, MemberState};
use tsd_storage::{Epoch, StorageError, Table, Write, WriteResult};

use super::{
    frame_outcome::FrameOutcome,
    metrics::{ForwardMetrics, RefusedReason},
    owner_versions::OwnerVersions,
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
    versions: OwnerVersions,
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
        let frames = FrameSender { peers, slots };
        Self { frames, queues: Mutex::default(), versions: OwnerVersions::default() }
    }

    pub(super) const fn versions(&self) -> &OwnerVersions {
        &self.versions
    }

    /// True if the node with this incarnation is a member.
    pub(super) fn is_member(&self, incarnation: u64) -> bool {
        self.frames.slots.membership().member(incarnation).is_some()
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.frames.peers
    }

    /// Sends a write to the node with this incarnation, once. Puts may share a frame.
    pub(super) async fn send(
        &self,
        to: u64,
        forwarding: Forwarding<'_>,
        write: &Write,
    ) -> SentWrite {
        let Forwarding { generation, table, epoch, deadline } = forwarding;
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
            let mut message = ForwardMessage::of(generation, table, write);
            if let Write::Rewrite(rewrite) = write {
                message.version = self.versions.known_at(to, table, rewrite.read);
            }
            Box::pin(self.frames.send(&member, message, epoch, deadline)).await
        };
        drop(permit);
        metrics.seconds.record(begun.elapsed());
        match outcome {
            FrameOutcome::Response(Ok(response)) => {
                if let Some(version) = response.version {
                    self.versions.learn(to, table, version, |of| self.is_member(of));
                }
                ended(&member, table, write, response)
            }
            FrameOutcome::Response(Err(error @ PeerError::Failed(_)))
            | FrameOutcome::NotSent(error) => match error {
                PeerError::TooLarge { .. } => {
                    metrics.refused(RefusedReason::Failed);
                    let text = format!("node {}: {error}", member.name);
                    SentWrite::Ended(Err(StorageError::Rejected(text.into())))
                }
                PeerError::StoodStill => {
                    metrics.refused(RefusedReason::StoodStill);
                    SentWrite::Ended(Err(StorageError::StoodStill))
                }
                error => {
                    self.report(&member);
                    SentWrite::NotMade(format!("node {}: {error}", member.name))
                }
            },
            // It is not sent again: a late copy could undo a correction that was acknowledged meanwhile.
            FrameOutcome::Response(Err(error)) => {
                self.report(&member);
                let text = format!("node {}: {error}; the write may have been stored", member.name);
                SentWrite::Ended(Err(StorageError::Unavailable(text.into())))
            }
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

    /// Reports a node that cannot be reached, does not respond, or cannot make a write.
    fn report(&self, node: &Member) {
        self.frames.slots.membership().suspect(node.incarnation);
        ForwardMetrics::of_process().refused(RefusedReason::Unavailable);
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
            let (message, epoch) = (frame.message(), frame.epoch.clone());
            self.send(to, message, epoch.as_ref(), deadline).await
        };
        (frame, outcome)
    }

    /// Sends a frame, and waits for its outcome.
    async fn send(
        &self,
        to: &Member,
        message: ForwardMessage,
        epoch: Option<&Epoch>,
        deadline: Instant,
    ) -> FrameOutcome {
        ForwardMetrics::of_process().frames.increment(1);
        let client = self.peers.client(to);
        client.forward(message, epoch, deadline, self.fenced(to.incarnation)).await
    }

    /// Reports a node as silent, again and again, until another node has taken over its log: then it makes no write
    /// any more, and will not respond if it is paused or lost.
    async fn fenced(&self, incarnation: u64) {
        let membership = self.slots.membership();
        loop {
            sleep(SILENCE).await;
            let state = membership.member(incarnation).map(|member| member.state);
            if matches!(state, None | Some(MemberState::Recovering { .. } | MemberState::Left)) {
                return;
            }
            membership.suspect(incarnation);
        }
    }
}

impl PeerClient {
    /// Sends a write of an epoch, and returns its outcome. Does not wait longer than until the peer is fenced.
    async fn forward(
        &self,
        message: ForwardMessage,
        epoch: Option<&Epoch>,
        deadline: Instant,
        fenced: impl Future<Output = ()>,
    ) -> FrameOutcome {
        let mut fenced = pin!(fenced);
        let learned = select! {
            learned = self.learn_clock(deadline) => learned,
            () = &mut fenced => Err(PeerError::Fenced),
        };
        if let Err(error) = learned {
            return FrameOutcome::NotSent(error);
        }
        let sent = async {
            let request = match self.send(RequestBody::Forward(message), epoch, deadline).await {
                Ok(request) => request,
                Err(error) => return FrameOutcome::NotSent(error),
            };
            FrameOutcome::Response(match request.response().await {
                Ok(ResponseBody::Forwarded(response)) => Ok(response),
                Ok(_) => Err(PeerError::Frame("an unexpected response".into())),
                Err(error) => Err(error),
            })
        };
        select! {
            outcome = sent => outcome,
            // The frame may have been sent.
            () = &mut fenced => FrameOutcome::Response(Err(PeerError::Fenced)),
        }
    }
}

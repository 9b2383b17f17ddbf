//! Sends writes to the owners of their slots.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};
use tsd_cluster::{Member, Settlement};
use tsd_storage::{CellBatch, StorageError, Table};

use super::{
    ForwardedMessage, PEER_BYTES,
    metrics::{ForwardMetrics, RefusedReason},
    put_queue::{AddedPut, FrameTurn, PutFrame, PutQueue},
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
    frames: FrameSender,
    /// By incarnation. No more than members.
    queues: Mutex<HashMap<u64, PeerQueue>>,
}

/// Writes in progress to one node.
#[derive(Clone, Debug)]
struct PeerQueue {
    /// Their bytes.
    budget: Arc<Semaphore>,
    puts: Arc<PutQueue>,
}

/// Sends frames.
#[derive(Clone, Debug)]
struct FrameSender {
    peers: Arc<Peers>,
    slots: Arc<ClusterSlots>,
}

/// Frames that wait for a turn. When it is dropped, also with a caller that does not wait any more, a task sends them.
struct WaitingFrames<'a> {
    frames: &'a FrameSender,
    to: &'a Member,
    turn: Option<FrameTurn>,
}

/// What became of a frame.
#[derive(Clone, Debug)]
pub(super) enum FrameEnd {
    /// The answer of its receiver; after an error of the connection it may have been made.
    Answer(Result<ForwardedMessage, PeerError>),
    /// It was not sent.
    NotSent(PeerError),
    /// The receiver was fenced, and its log is stored.
    Fenced,
    /// Its time was over before it was sent.
    Late,
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
        let Some(mut turn) = self.turn.take() else { return };
        if let Some(frame) = turn.next_frame()
            && let Ok(runtime) = Handle::try_current()
        {
            let (frames, to) = (self.frames.clone(), self.to.clone());
            runtime.spawn(async move { frames.send_puts(&to, frame, turn).await });
        }
    }
}

impl SlotSender {
    pub(super) fn new(peers: Arc<Peers>, slots: Arc<ClusterSlots>) -> Self {
        Self { frames: FrameSender { peers, slots }, queues: Mutex::default() }
    }

    /// Sends a write to the node of this incarnation, once. Puts may share a frame.
    pub(super) async fn send(
        &self,
        to: u64,
        generation: u64,
        table: &Table,
        write: &SlotWrite,
        deadline: Instant,
    ) -> SentWrite {
        let Some(member) = self.frames.slots.membership().member(to) else {
            return SentWrite::NotMade(format!("the node of incarnation {to} is gone"));
        };
        let bytes = write.byte_len();
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
            SlotWrite::Put(batch) => {
                let put = (generation, table, batch);
                self.send_joined(&queue, &member, put, deadline, Arc::clone(&permit)).await
            }
            _ => None,
        };
        let end = if let Some(end) = joined {
            end
        } else {
            let message = ForwardMessage::of(generation, table, write);
            Box::pin(self.frames.send(&member, message, deadline)).await
        };
        drop(permit);
        metrics.seconds.record(begun.elapsed());
        match end {
            FrameEnd::Answer(Ok(answer)) => ended(&member, table, write, answer),
            // Boxed, as all that is rare: each put that is forwarded has the size of the largest case.
            FrameEnd::Answer(Err(error)) => Box::pin(self.failed(&member, &error, deadline)).await,
            FrameEnd::NotSent(error @ PeerError::TooLarge { .. }) => {
                metrics.refused(RefusedReason::Failed);
                let text = format!("node {}: {error}", member.name);
                SentWrite::Ended(Err(StorageError::Rejected(text.into())))
            }
            FrameEnd::NotSent(error) => self.not_made(&member, &error),
            FrameEnd::Fenced => SentWrite::NotMade(format!("node {} was fenced", member.name)),
            FrameEnd::Late => SentWrite::NotMade(format!("node {} is busy", member.name)),
        }
    }

    /// Sends a put with those that wait. `None` if it is to be sent alone: it was refused, perhaps for the sake of
    /// another one.
    async fn send_joined(
        &self,
        queue: &PeerQueue,
        member: &Member,
        (generation, table, batch): (u64, &Table, &CellBatch),
        deadline: Instant,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Option<FrameEnd> {
        match queue.puts.add(generation, table, batch, deadline, permit) {
            AddedPut::Alone(turn, frame) => {
                let turn = Some(turn);
                let _waiting = WaitingFrames { frames: &self.frames, to: member, turn };
                Some(self.frames.send_put(member, frame).await.1)
            }
            AddedPut::Joined(end, turn) => {
                drop(WaitingFrames { frames: &self.frames, to: member, turn });
                match end.await {
                    Ok(end) => (!end.was_joined || !end.frame.is_refused()).then_some(end.frame),
                    // The node stops, and nobody knows.
                    Err(_) => Some(FrameEnd::Answer(Err(PeerError::Lost))),
                }
            }
        }
    }

    fn queue(&self, to: u64) -> PeerQueue {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if !queues.contains_key(&to) {
            let members = self.frames.slots.membership().members();
            queues.retain(|known, _| members.iter().any(|of| of.incarnation == *known));
        }
        queues.entry(to).or_insert_with(PeerQueue::new).clone()
    }

    /// A write that was not made, since the node is not reached, or cannot make it.
    fn not_made(&self, to: &Member, error: &PeerError) -> SentWrite {
        self.frames.slots.membership().suspect(to.incarnation);
        ForwardMetrics::of_process().refused(RefusedReason::Unavailable);
        SentWrite::NotMade(format!("node {}: {error}", to.name))
    }

    /// A write that was sent and has no answer. If it may have been made, it is not sent again before the node is
    /// fenced.
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

/// The end of a write that has an answer.
fn ended(member: &Member, table: &Table, write: &SlotWrite, answer: ForwardedMessage) -> SentWrite {
    let metrics = ForwardMetrics::of_process();
    let result = match answer.into_answer(&member.name, table) {
        ForwardAnswer::NotOwner => {
            metrics.refused(RefusedReason::NotOwner);
            let text = format!("node {} does not own the slot", member.name);
            return SentWrite::NotMade(text);
        }
        ForwardAnswer::Ended(result) => result,
    };
    match &result {
        Ok(_) => {
            metrics.cells.increment(write.cell_count());
            metrics.bytes.increment(write.byte_len() as u64);
        }
        Err(StorageError::Throttled(_)) => metrics.refused(RefusedReason::Throttled),
        Err(error) if error.is_transient() => metrics.refused(RefusedReason::Unavailable),
        Err(_) => metrics.refused(RefusedReason::Failed),
    }
    SentWrite::Ended(result)
}

impl FrameEnd {
    /// True if nothing of the frame was made, because of some of its cells.
    fn is_refused(&self) -> bool {
        matches!(self, Self::Answer(Ok(answer)) if answer.is_refused())
    }
}

impl FrameSender {
    /// Sends puts, and then those that wait, until none do.
    async fn send_puts(&self, to: &Member, first: PutFrame, mut turn: FrameTurn) {
        let mut next = Some(first);
        while let Some(frame) = next {
            let (frame, end) = self.send_put(to, frame).await;
            frame.end(&end);
            next = turn.next_frame();
        }
    }

    async fn send_put(&self, to: &Member, mut frame: PutFrame) -> (PutFrame, FrameEnd) {
        let deadline = frame.deadline;
        let end = if deadline <= Instant::now() {
            FrameEnd::Late
        } else {
            self.send(to, frame.message(), deadline).await
        };
        (frame, end)
    }

    /// Sends a frame, and waits for its end.
    async fn send(&self, to: &Member, message: ForwardMessage, deadline: Instant) -> FrameEnd {
        ForwardMetrics::of_process().frames.increment(1);
        let client = self.peers.client(to);
        tokio::select! {
            end = client.forward(message, deadline) => end,
            () = self.stored(to.incarnation) => FrameEnd::Fenced,
        }
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
}

impl PeerClient {
    /// Sends a write, and returns what became of it.
    async fn forward(&self, message: ForwardMessage, deadline: Instant) -> FrameEnd {
        let request = match self.send(RequestBody::Forward(message), deadline).await {
            Ok(request) => request,
            Err(error) => return FrameEnd::NotSent(error),
        };
        FrameEnd::Answer(match request.answer().await {
            Ok(ResponseBody::Forwarded(answer)) => Ok(answer),
            Ok(_) => Err(PeerError::Frame("an answer out of place".into())),
            Err(error) => Err(error),
        })
    }
}

//! One connection of a peer: greeting, requests, responses.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::mpsc,
    task::{AbortHandle, JoinSet, coop::consume_budget},
    time::timeout,
};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use tsd_cluster::SlotSet;
use tsd_storage::{Epoch, HeldRow, HeldRowBatches, StorageError, stood_still_since};

use super::{context::ServerContext, dial_back::dial_back};
use crate::{
    error::PeerError,
    forward::receiver::ForwardFrame,
    frame_writer::{WriteOutcome, write_frames},
    held_query::HeldQuery,
    metrics::NetMetrics,
    names::{metrics::NameMetrics, wire::AssignedUidsMessage},
    peers::no_query,
    service::PeerService,
    socket::configure,
    standstill::discard,
    tls::{ReadSide, WriteSide, accept},
    wire::{
        AliveMessage, Hello, Nothing, ProvenMessage, ReportMessage, RequestBody, RequestFrame,
        ResponseBody, ResponseFrame, RowMessage, RowsMessage, VERSIONS, Welcome, codec, decode,
        encode,
    },
};

/// How long a response with held rows waits for the present assignment.
const REFRESH_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of frames that wait for their write.
const WAITING_FRAMES: usize = 8;

/// Why a connection was closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("not encrypted: {0}")]
    Tls(String),
    #[error("refused: {0}")]
    Greeting(GreetingError),
    #[error("bad frame: {0}")]
    Frame(String),
    #[error("the node does not read its responses")]
    SlowReader,
    #[error("no greeting in time")]
    NoGreeting,
}

/// Why this node rejects a peer. The peer gets the text.
#[derive(Debug, thiserror::Error)]
pub(super) enum GreetingError {
    #[error("the first frame is no greeting")]
    Missing,
    // The id of this node's cluster is a secret.
    #[error("node {peer:?} belongs to another cluster than {this:?}")]
    OtherCluster { peer: String, this: String },
    #[error(
        "node {peer:?} speaks versions {} to {} of the protocol of nodes, node {this:?} speaks {} to {}",
        .peer_versions.0, .peer_versions.1, VERSIONS.0, VERSIONS.1
    )]
    Versions { peer: String, peer_versions: (u32, u32), this: String },
}

/// Why this node does not fulfil a request. The peer gets the text.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("too many requests in progress")]
    Busy,
    #[error("this node takes no writes of others")]
    NoForwarding,
    #[error("names of a kind that this version does not know")]
    UnknownKind,
    #[error("a request that this version does not know")]
    UnknownRequest,
    #[error(transparent)]
    Flush(#[from] StorageError),
    #[error(transparent)]
    Peer(#[from] PeerError),
}

/// Sender of a request's responses.
struct ResponseWriter {
    id: u64,
    frames: mpsc::Sender<Bytes>,
}

/// The connection is closing.
struct Closing;

impl ResponseWriter {
    async fn send(&self, body: ResponseBody) -> Result<(), Closing> {
        let frame = encode(&ResponseFrame::new(self.id, body));
        self.frames.send(frame).await.map_err(|_| Closing)
    }

    async fn done(&self, result: Result<(), RequestError>) -> Result<(), Closing> {
        let done = match result {
            Ok(()) => ResponseBody::Done(Nothing {}),
            Err(error) => ResponseBody::Failed(error.to_string()),
        };
        self.send(done).await
    }
}

/// Handles requests until the peer closes the connection, or breaks a rule, or this node has stood still.
pub(super) async fn serve(
    stream: TcpStream,
    context: &Arc<ServerContext>,
) -> Result<(), SessionError> {
    if configure(&stream, context.config.silence_timeout).is_err() {
        // The peer has closed the connection.
        return Ok(());
    }
    let epoch = context.config.epoch();
    let greeted = async {
        let accepted = match accept(stream, context.config.tls.as_deref()).await {
            // For example, a check of the port.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            accepted => accepted,
        };
        let (read, mut write) = accepted.map_err(|error| {
            NetMetrics::of_process().tls_failures.increment(1);
            SessionError::Tls(error.to_string())
        })?;
        let frames = FramedRead::new(read, codec(context.config.max_frame_bytes));
        let mut requests = Requests { frames, epoch: epoch.clone() };
        let peer = greet(&mut requests, &mut write, context).await?;
        Ok(peer.map(|peer| (peer, requests, write)))
    };
    let greeted = timeout(context.config.connect_timeout, greeted).await;
    let greeted = greeted.unwrap_or(Err(SessionError::NoGreeting))?;
    let Some((peer, mut requests, mut write)) = greeted else { return Ok(()) };
    let peer: Arc<str> = peer.into();
    let (frames, waiting) = mpsc::channel(WAITING_FRAMES);
    tokio::select! {
        biased;
        () = stood_still_since(epoch.as_ref()) => {}
        ended = handle_requests(&mut requests, frames, context, &peer) => return ended,
        outcome = write_frames(&mut write, waiting, context.config.write_timeout) => {
            return match outcome {
                WriteOutcome::Closed => Ok(()),
                WriteOutcome::SlowReader => Err(SessionError::SlowReader),
            };
        }
    }
    // The requests in progress have ended: their writes are dropped where they wait.
    discard(requests.frames, &mut write).await;
    Ok(())
}

/// Stream of the requests.
struct Requests {
    frames: FramedRead<ReadSide, LengthDelimitedCodec>,
    /// The epoch of the connection; `None` if standstills are not detected.
    epoch: Option<Epoch>,
}

impl Requests {
    /// Returns the next request; `None` at the end of the stream. Returns nothing once this node has stood still.
    async fn next(&mut self) -> Result<Option<RequestFrame>, SessionError> {
        let bad = |text: String| {
            NetMetrics::of_process().bad_frames.increment(1);
            SessionError::Frame(text)
        };
        match self.frames.next().await {
            Some(Ok(frame)) => {
                let (metrics, bytes) = (NetMetrics::of_process(), 4 + frame.len() as u64);
                metrics.received_bytes.increment(bytes);
                if let Some(epoch) = self.epoch.as_ref().filter(|epoch| !epoch.holds()) {
                    metrics.discarded_bytes.increment(bytes);
                    epoch.ended().await;
                    return Ok(None);
                }
                decode(frame).map(Some).map_err(|error| bad(error.to_string()))
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Err(bad(error.to_string()))
            }
            // A lost peer does not count as an error.
            Some(Err(_)) | None => Ok(None),
        }
    }
}

/// Checks the identity of the peer, and returns its name; `None` if the connection ended before.
async fn greet(
    requests: &mut Requests,
    write: &mut WriteSide,
    context: &ServerContext,
) -> Result<Option<String>, SessionError> {
    let Some(request) = requests.next().await? else { return Ok(None) };
    let checked = match &request.body {
        Some(RequestBody::Hello(hello)) => {
            check_hello(hello, context).map(|welcome| (welcome, hello.name.clone()))
        }
        _ => Err(GreetingError::Missing),
    };
    let (body, greeted) = match checked {
        Ok((welcome, name)) => (ResponseBody::Welcome(welcome), Ok(Some(name))),
        Err(reason) => {
            NetMetrics::of_process().greetings_refused.increment(1);
            (ResponseBody::Failed(reason.to_string()), Err(SessionError::Greeting(reason)))
        }
    };
    let frame = encode(&ResponseFrame::new(request.id, body));
    // The next read reports a failure.
    if write.write_all(&frame).await.is_ok() {
        let _ = write.flush().await;
    }
    greeted
}

fn check_hello(hello: &Hello, context: &ServerContext) -> Result<Welcome, GreetingError> {
    let identity = &context.identity;
    let (peer, this) = (hello.name.clone(), identity.name.clone());
    if hello.cluster != identity.cluster.to_string() {
        return Err(GreetingError::OtherCluster { peer, this });
    }
    let (lowest, highest) = VERSIONS;
    let version = highest.min(hello.highest_version);
    if version < lowest.max(hello.lowest_version) {
        let peer_versions = (hello.lowest_version, hello.highest_version);
        return Err(GreetingError::Versions { peer, peer_versions, this });
    }
    // A tool has no incarnation.
    if ![0, identity.incarnation].contains(&hello.incarnation) {
        context.was_reached.store(true, Ordering::Relaxed);
    }
    Ok(Welcome { version, name: this, incarnation: identity.incarnation })
}

/// Handles requests. Forwarded writes run in the task of the connection, which has little to do until the log has
/// them. All other requests run in their own tasks.
async fn handle_requests(
    requests: &mut Requests,
    frames: mpsc::Sender<Bytes>,
    context: &Arc<ServerContext>,
    peer: &Arc<str>,
) -> Result<(), SessionError> {
    let mut running = JoinSet::new();
    let mut by_id: HashMap<u64, AbortHandle> = HashMap::new();
    let mut writes = FuturesUnordered::new();
    loop {
        let next = tokio::select! {
            biased;
            Some(()) = writes.next() => continue,
            next = timeout(context.config.idle_timeout, requests.next()) => next,
        };
        // Without this yield the frames of one read could occupy the task for long.
        consume_budget().await;
        let request = match next {
            Ok(request) => request?,
            Err(_) if running.is_empty() && writes.is_empty() => return Ok(()),
            Err(_) => continue,
        };
        let Some(RequestFrame { id, timeout_ms, body }) = request else { return Ok(()) };
        while running.try_join_next().is_some() {}
        by_id.retain(|_, request| !request.is_finished());
        let responses = ResponseWriter { id, frames: frames.clone() };
        let limit = Duration::from_millis(timeout_ms.into());
        match body {
            Some(RequestBody::Cancel(_)) => {
                if let Some(request) = by_id.remove(&id) {
                    request.abort();
                }
            }
            // Also while many requests wait: a slow node is reached.
            Some(RequestBody::Probe(_)) => {
                let beats = context.service.membership.beats();
                if responses.send(ResponseBody::Alive(AliveMessage { beats })).await.is_err() {
                    return Ok(());
                }
            }
            Some(_) if by_id.len() + writes.len() >= context.config.max_requests * 2 => {
                NetMetrics::of_process().busy.increment(1);
                if responses.done(Err(RequestError::Busy)).await.is_err() {
                    return Ok(());
                }
            }
            Some(RequestBody::Forward(message)) => {
                let frame = ForwardFrame { message, epoch: requests.epoch.clone() };
                writes.push(async move {
                    // The peer has its own deadline; writes for which it no longer waits are dropped.
                    let _ = timeout(limit, handle_write(context, frame, &responses)).await;
                });
            }
            body => {
                let (context, peer) = (Arc::clone(context), Arc::clone(peer));
                by_id.insert(
                    id,
                    running.spawn(async move {
                        let _ =
                            timeout(limit, handle_request(&context, &peer, body, &responses)).await;
                    }),
                );
            }
        }
    }
}

/// Executes a forwarded write.
async fn handle_write(
    context: &ServerContext,
    frame: ForwardFrame,
    responses: &ResponseWriter,
) -> Result<(), Closing> {
    let Some(writes) = &context.service.writes else {
        return responses.done(Err(RequestError::NoForwarding)).await;
    };
    let reply = writes.receive(frame).await;
    responses.send(ResponseBody::Forwarded(reply.0)).await
}

/// Handles any request other than a forwarded write.
async fn handle_request(
    context: &ServerContext,
    peer: &str,
    body: Option<RequestBody>,
    responses: &ResponseWriter,
) -> Result<(), Closing> {
    let service = &context.service;
    match body {
        Some(RequestBody::Held(query)) => {
            let limits = HeldLimits {
                batch_bytes: context.config.batch_bytes,
                max_bytes: usize::try_from(query.max_bytes).unwrap_or(usize::MAX),
            };
            let Some(slots) = SlotSet::decode(&query.slots) else {
                return responses.done(Err(RequestError::UnknownRequest)).await;
            };
            handle_held(service, (query.into_query(), slots), responses, limits).await
        }
        Some(RequestBody::Report(_)) => {
            let report = ReportMessage::of(service.node.report());
            responses.send(ResponseBody::Report(report)).await
        }
        Some(RequestBody::Flush(_)) => {
            responses.done(service.node.flush().await.map_err(RequestError::from)).await
        }
        Some(RequestBody::DialBack(message)) => {
            let dialled = dial_back(context, &message, peer).await;
            responses.done(dialled.map_err(RequestError::from)).await
        }
        Some(RequestBody::NoteRefusal(reason)) => {
            context.note_refusal(peer, &reason);
            responses.done(Ok(())).await
        }
        Some(RequestBody::Queries(_)) => {
            responses.send(ResponseBody::Queries(service.node.queries().await)).await
        }
        Some(RequestBody::CancelQuery(id)) => {
            let is_cancelled = service.node.cancel_query(id);
            let done = if is_cancelled { Ok(()) } else { Err(no_query(id).into()) };
            responses.done(done).await
        }
        Some(RequestBody::Forget(message)) => {
            let names = message.into_names();
            let done = names.map(|names| service.node.forget(&names));
            responses.done(done.ok_or(RequestError::UnknownKind)).await
        }
        Some(RequestBody::AssignUids(message)) => match message.into_names() {
            Some((kind, names)) => {
                NameMetrics::of_process().received.increment(names.len() as u64);
                let uids = service.node.assign_uids(kind, names).await;
                let response = AssignedUidsMessage::of(&uids);
                responses.send(ResponseBody::AssignedUids(response)).await
            }
            None => responses.done(Err(RequestError::UnknownKind)).await,
        },
        Some(
            RequestBody::Hello(_)
            | RequestBody::Cancel(_)
            | RequestBody::Forward(_)
            | RequestBody::Probe(_),
        )
        | None => responses.done(Err(RequestError::UnknownRequest)).await,
    }
}

/// Sizes of a response with held rows, bytes.
#[derive(Clone, Copy)]
struct HeldLimits {
    /// Bytes of a frame.
    batch_bytes: usize,
    /// Bytes of all rows; 0 means unlimited.
    max_bytes: usize,
}

/// Sends held rows up to the limit, then the proof that the node was not fenced when it took the view of its rows.
///
/// The order matters: the view, the owned slots, the proof. So at the time of the proof no other node has served the
/// owned slots, and the view has all their rows that were acknowledged before the request and are not stored.
async fn handle_held(
    service: &PeerService,
    (query, slots): (HeldQuery, SlotSet),
    responses: &ResponseWriter,
    limits: HeldLimits,
) -> Result<(), Closing> {
    if !slots.without(&service.slots.owned()).is_empty() {
        // The node that asks may have a newer assignment. If HBase fails, it asks again.
        let _ = timeout(REFRESH_LIMIT, service.slots.refresh()).await;
    }
    let HeldQuery { table, ranges, filter } = query;
    let rows = service.rows.held_rows(&table, ranges, filter);
    let not_owned = slots.without(&service.slots.owned()).encode().into();
    let sending = send_rows(rows, responses, limits);
    let (sent_before, proven) = tokio::join!(sending, service.membership.prove());
    let complete = ResponseBody::Proven(ProvenMessage { not_owned, sent_before: sent_before? });
    let failed = |error: tsd_cluster::ProofError| ResponseBody::Failed(error.to_string());
    responses.send(proven.map_or_else(failed, |()| complete)).await
}

/// Sends rows. If the limit is reached, returns the key of the first row that was not sent.
async fn send_rows(
    rows: HeldRowBatches,
    responses: &ResponseWriter,
    limits: HeldLimits,
) -> Result<Option<Bytes>, Closing> {
    let mut batch = RowBatch { rows: Vec::new(), bytes: 0, limit: limits.batch_bytes };
    let mut sent_bytes = 0;
    for rows in rows {
        for row in rows {
            if limits.max_bytes > 0 && sent_bytes >= limits.max_bytes {
                batch.send(responses).await?;
                return Ok(Some(row.key));
            }
            sent_bytes += row.byte_len();
            batch.add(row, responses).await?;
        }
        // Yields to other tasks between copies of memtables.
        tokio::task::yield_now().await;
    }
    batch.send(responses).await?;
    Ok(None)
}

/// Rows of one frame.
struct RowBatch {
    rows: Vec<RowMessage>,
    bytes: usize,
    limit: usize,
}

impl RowBatch {
    /// Adds a row. A large row is divided; only its first fraction has the delete.
    async fn add(&mut self, mut row: HeldRow, responses: &ResponseWriter) -> Result<(), Closing> {
        loop {
            let at = split_at(&row, self.limit);
            let rest = row.columns.split_off(at);
            let key = row.key.clone();
            self.bytes += row.byte_len();
            self.rows.push(RowMessage::of(row));
            if self.bytes >= self.limit {
                self.send(responses).await?;
            }
            if rest.is_empty() {
                return Ok(());
            }
            row = HeldRow { key, delete_row_ms: None, columns: rest };
        }
    }

    async fn send(&mut self, responses: &ResponseWriter) -> Result<(), Closing> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        responses.send(ResponseBody::Rows(RowsMessage { rows })).await
    }
}

/// Returns the number of columns in the first fraction of a row.
fn split_at(row: &HeldRow, limit: usize) -> usize {
    let mut bytes = 0;
    for (at, column) in row.columns.iter().enumerate() {
        bytes += 20 + column.qualifier.len() + column.value.as_ref().map_or(0, Bytes::len);
        if bytes > limit && at > 0 {
            return at;
        }
    }
    row.columns.len()
}

//! One connection of a peer: greeting, requests, answers.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use tsd_storage::{HeldRow, HeldRowBatches};

use super::{ServerContext, dial_back::dial_back};
use crate::{
    forward::{ForwardFrame, ForwardMessage},
    frame_writer::{WriteEnd, write_frames},
    metrics::NetMetrics,
    names::{AssignedUidsMessage, NameMetrics},
    peers::no_query,
    service::{HeldQuery, PeerService},
    socket::configure,
    tls::{ReadSide, WriteSide, accept},
    wire::{
        Hello, Nothing, ReportMessage, RequestBody, RequestFrame, ResponseBody, ResponseFrame,
        RowMessage, RowsMessage, VERSIONS, Welcome, codec, decode, encode,
    },
};

/// Frames that wait to be written.
const WAITING_FRAMES: usize = 8;
/// Answer to a message about other names.
const UNKNOWN_KIND: &str = "names of a kind that this version does not know";

/// Why a connection was closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("not encrypted: {0}")]
    Tls(String),
    #[error("refused: {0}")]
    Greeting(String),
    #[error("bad frame: {0}")]
    Frame(String),
    #[error("the node does not read its answers")]
    SlowReader,
    #[error("no greeting in time")]
    NoGreeting,
}

/// Where a request puts its answers.
struct AnswerWriter {
    id: u64,
    frames: mpsc::Sender<Bytes>,
}

/// The connection is closing.
struct Closing;

impl AnswerWriter {
    async fn send(&self, body: ResponseBody) -> Result<(), Closing> {
        let frame = encode(&ResponseFrame { id: self.id, body: Some(body) });
        self.frames.send(frame).await.map_err(|_| Closing)
    }

    async fn done(&self, result: Result<(), String>) -> Result<(), Closing> {
        let done = result.map_or_else(ResponseBody::Failed, |()| ResponseBody::Done(Nothing {}));
        self.send(done).await
    }
}

/// Answers requests until the peer closes the connection, or breaks a rule.
pub(super) async fn serve(
    stream: TcpStream,
    context: &Arc<ServerContext>,
) -> Result<(), SessionError> {
    if configure(&stream, context.config.silence_timeout).is_err() {
        // The peer is gone.
        return Ok(());
    }
    let greeted = async {
        let accepted = match accept(stream, context.config.tls.as_deref()).await {
            // A check of the port, for example.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            accepted => accepted,
        };
        let (read, mut write) = accepted.map_err(|error| {
            NetMetrics::of_process().tls_failures.increment(1);
            SessionError::Tls(error.to_string())
        })?;
        let frames = FramedRead::new(read, codec(context.config.max_frame_bytes));
        let mut requests = Requests { frames };
        let peer = greet(&mut requests, &mut write, context).await?;
        Ok(peer.map(|peer| (peer, requests, write)))
    };
    let greeted = timeout(context.config.connect_timeout, greeted).await;
    let greeted = greeted.unwrap_or(Err(SessionError::NoGreeting))?;
    let Some((peer, mut requests, write)) = greeted else { return Ok(()) };
    let peer: Arc<str> = peer.into();
    let (frames, waiting) = mpsc::channel(WAITING_FRAMES);
    tokio::select! {
        ended = answer_all(&mut requests, frames, context, &peer) => ended,
        end = write_frames(write, waiting, context.config.write_timeout) => match end {
            WriteEnd::Closed => Ok(()),
            WriteEnd::SlowReader => Err(SessionError::SlowReader),
        },
    }
}

/// Requests as they come.
struct Requests {
    frames: FramedRead<ReadSide, LengthDelimitedCodec>,
}

impl Requests {
    /// The next request; `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<RequestFrame>, SessionError> {
        let bad = |text: String| {
            NetMetrics::of_process().bad_frames.increment(1);
            SessionError::Frame(text)
        };
        match self.frames.next().await {
            Some(Ok(frame)) => {
                NetMetrics::of_process().received_bytes.increment(4 + frame.len() as u64);
                decode(frame).map(Some).map_err(|error| bad(error.to_string()))
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Err(bad(error.to_string()))
            }
            // A peer that is gone is no error.
            Some(Err(_)) | None => Ok(None),
        }
    }
}

/// Checks who connects, and returns its name. `None`: the connection has ended before.
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
        _ => Err("the first frame is no greeting".to_owned()),
    };
    let (body, greeted) = match checked {
        Ok((welcome, name)) => (ResponseBody::Welcome(welcome), Ok(Some(name))),
        Err(reason) => {
            NetMetrics::of_process().greetings_refused.increment(1);
            (ResponseBody::Failed(reason.clone()), Err(SessionError::Greeting(reason)))
        }
    };
    let frame = encode(&ResponseFrame { id: request.id, body: Some(body) });
    // A failure is noticed by the next read.
    if write.write_all(&frame).await.is_ok() {
        let _ = write.flush().await;
    }
    greeted
}

fn check_hello(hello: &Hello, context: &ServerContext) -> Result<Welcome, String> {
    let identity = &context.identity;
    if hello.cluster != identity.cluster.to_string() {
        // The number of the own cluster is a secret.
        return Err(format!(
            "node {:?} is of another cluster than {:?}",
            hello.name, identity.name
        ));
    }
    let (lowest, highest) = VERSIONS;
    let version = highest.min(hello.highest_version);
    if version < lowest.max(hello.lowest_version) {
        return Err(format!(
            "node {:?} speaks versions {} to {} of the protocol of nodes, node {:?} speaks {lowest} to {highest}",
            hello.name, hello.lowest_version, hello.highest_version, identity.name
        ));
    }
    Ok(Welcome { version, name: identity.name.clone(), incarnation: identity.incarnation })
}

/// Answers requests: writes of others in the task of the connection, which has little to do until the log has them; all
/// else in tasks of its own.
async fn answer_all(
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
        let request = match next {
            Ok(request) => request?,
            Err(_) if running.is_empty() && writes.is_empty() => return Ok(()),
            Err(_) => continue,
        };
        let Some(RequestFrame { id, timeout_ms, body }) = request else { return Ok(()) };
        while running.try_join_next().is_some() {}
        by_id.retain(|_, request| !request.is_finished());
        let answers = AnswerWriter { id, frames: frames.clone() };
        let limit = Duration::from_millis(timeout_ms.into());
        match body {
            Some(RequestBody::Cancel(_)) => {
                if let Some(request) = by_id.remove(&id) {
                    request.abort();
                }
            }
            Some(_) if by_id.len() + writes.len() >= context.config.max_requests * 2 => {
                NetMetrics::of_process().busy.increment(1);
                let busy = Err("too many requests in progress".to_owned());
                if answers.done(busy).await.is_err() {
                    return Ok(());
                }
            }
            Some(RequestBody::Forward(message)) => writes.push(async move {
                // The peer has its own deadline; what it does not wait for is dropped.
                let _ = timeout(limit, answer_write(context, message, &answers)).await;
            }),
            body => {
                let (context, peer) = (Arc::clone(context), Arc::clone(peer));
                by_id.insert(
                    id,
                    running.spawn(async move {
                        let _ = timeout(limit, answer(&context, &peer, body, &answers)).await;
                    }),
                );
            }
        }
    }
}

/// Makes a write of another node.
async fn answer_write(
    context: &ServerContext,
    message: ForwardMessage,
    answers: &AnswerWriter,
) -> Result<(), Closing> {
    let Some(writes) = &context.service.writes else {
        return answers.done(Err("this node takes no writes of others".to_owned())).await;
    };
    let reply = writes.receive(ForwardFrame(message)).await;
    answers.send(ResponseBody::Forwarded(reply.0)).await
}

/// Answers a request that is no write for another node.
async fn answer(
    context: &ServerContext,
    peer: &str,
    body: Option<RequestBody>,
    answers: &AnswerWriter,
) -> Result<(), Closing> {
    let service = &context.service;
    match body {
        Some(RequestBody::Held(query)) => {
            let limits = HeldLimits {
                batch_bytes: context.config.batch_bytes,
                max_bytes: usize::try_from(query.max_bytes).unwrap_or(usize::MAX),
            };
            answer_held(service, query.into_query(), answers, limits).await
        }
        Some(RequestBody::Probe(_)) => answers.done(Ok(())).await,
        Some(RequestBody::Report(_)) => {
            let report = ReportMessage::of(service.node.report());
            answers.send(ResponseBody::Report(report)).await
        }
        Some(RequestBody::Flush(_)) => answers.done(service.node.flush().await).await,
        Some(RequestBody::DialBack(message)) => {
            answers.done(dial_back(context, &message, peer).await).await
        }
        Some(RequestBody::NoteRefusal(reason)) => {
            context.note_refusal(peer, &reason);
            answers.done(Ok(())).await
        }
        Some(RequestBody::Queries(_)) => {
            answers.send(ResponseBody::Queries(service.node.queries().await)).await
        }
        Some(RequestBody::CancelQuery(id)) => {
            let is_cancelled = service.node.cancel_query(id);
            let done = if is_cancelled { Ok(()) } else { Err(no_query(id).to_string()) };
            answers.done(done).await
        }
        Some(RequestBody::Forget(message)) => {
            let names = message.into_names();
            let done = names.map(|names| service.node.forget(&names));
            answers.done(done.ok_or_else(|| UNKNOWN_KIND.to_owned())).await
        }
        Some(RequestBody::AssignUids(message)) => match message.into_names() {
            Some((kind, names)) => {
                NameMetrics::of_process().received.increment(names.len() as u64);
                let uids = service.node.assign_uids(kind, names).await;
                let answer = AssignedUidsMessage::of(&uids);
                answers.send(ResponseBody::AssignedUids(answer)).await
            }
            None => answers.done(Err(UNKNOWN_KIND.to_owned())).await,
        },
        Some(RequestBody::Hello(_) | RequestBody::Cancel(_) | RequestBody::Forward(_)) | None => {
            answers.done(Err("a request that this version does not know".to_owned())).await
        }
    }
}

/// Sizes of an answer with held rows, bytes.
#[derive(Clone, Copy)]
struct HeldLimits {
    /// Of a frame.
    batch_bytes: usize,
    /// Of all rows; 0: unlimited.
    max_bytes: usize,
}

/// Sends held rows up to the limit, and then whether the node was not fenced after the request came.
async fn answer_held(
    service: &PeerService,
    query: HeldQuery,
    answers: &AnswerWriter,
    limits: HeldLimits,
) -> Result<(), Closing> {
    let HeldQuery { table, ranges, filter } = query;
    let rows = service.rows.held_rows(&table, ranges, filter);
    let sending = send_rows(rows, answers, limits);
    let (stopped_at, proven) = tokio::join!(sending, service.membership.prove());
    let complete = match stopped_at? {
        None => ResponseBody::Proven(Nothing {}),
        Some(key) => ResponseBody::ProvenUpTo(key),
    };
    let failed = |error: tsd_cluster::ProofError| ResponseBody::Failed(error.to_string());
    answers.send(proven.map_or_else(failed, |()| complete)).await
}

/// Returns the key of the first row that was not sent, if the limit was reached.
async fn send_rows(
    rows: HeldRowBatches,
    answers: &AnswerWriter,
    limits: HeldLimits,
) -> Result<Option<Bytes>, Closing> {
    let mut batch = RowBatch { rows: Vec::new(), bytes: 0, limit: limits.batch_bytes };
    let mut sent_bytes = 0;
    for rows in rows {
        for row in rows {
            if limits.max_bytes > 0 && sent_bytes >= limits.max_bytes {
                batch.send(answers).await?;
                return Ok(Some(row.key));
            }
            sent_bytes += row.byte_len();
            batch.add(row, answers).await?;
        }
        // Copies of memtables are made between other tasks.
        tokio::task::yield_now().await;
    }
    batch.send(answers).await?;
    Ok(None)
}

/// Rows of one frame.
struct RowBatch {
    rows: Vec<RowMessage>,
    bytes: usize,
    limit: usize,
}

impl RowBatch {
    /// Adds a row; a large one in parts, of which only the first one has its delete.
    async fn add(&mut self, mut row: HeldRow, answers: &AnswerWriter) -> Result<(), Closing> {
        loop {
            let at = split_at(&row, self.limit);
            let rest = row.columns.split_off(at);
            let key = row.key.clone();
            self.bytes += row.byte_len();
            self.rows.push(RowMessage::of(row));
            if self.bytes >= self.limit {
                self.send(answers).await?;
            }
            if rest.is_empty() {
                return Ok(());
            }
            row = HeldRow { key, delete_row_ms: None, columns: rest };
        }
    }

    async fn send(&mut self, answers: &AnswerWriter) -> Result<(), Closing> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        answers.send(ResponseBody::Rows(RowsMessage { rows })).await
    }
}

/// Number of columns of the first part of a row.
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

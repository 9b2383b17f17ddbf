//! The connection of a client: requests of many callers, answers by their numbers.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;
use prost::Message;
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
use tokio_util::{
    codec::{FramedRead, LengthDelimitedCodec},
    task::AbortOnDropHandle,
};

use crate::{
    config::{NetConfig, NodeIdentity},
    error::PeerError,
    frame_writer::write_frames,
    metrics::NetMetrics,
    socket::configure,
    tls::{ReadSide, WriteSide, greet},
    wire::{
        Hello, Nothing, RequestBody, RequestFrame, ResponseBody, ResponseFrame, VERSIONS, codec,
        decode, encode,
    },
};

/// Frames of one request that wait for its caller. While it is full the connection is not read: callers take
/// frames as they come, and hand them on by memory that they have reserved.
const WAITING_FRAMES: usize = 4;
/// Requests that wait to be written.
const WAITING_REQUESTS: usize = 16;

/// Answers to one request; an error is that of the connection.
pub(crate) type AnswerReceiver = mpsc::Receiver<Result<ResponseBody, PeerError>>;
type AnswerSender = mpsc::Sender<Result<ResponseBody, PeerError>>;

/// A connection to a peer that has accepted the greeting.
#[derive(Debug)]
pub(crate) struct Connection {
    requests: mpsc::Sender<Bytes>,
    answers: Arc<PendingAnswers>,
    next_id: AtomicU64,
    max_frame_bytes: usize,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// Who waits for which answers.
#[derive(Debug, Default)]
struct PendingAnswers(Mutex<PendingSenders>);

#[derive(Debug, Default)]
struct PendingSenders {
    by_id: HashMap<u64, AnswerSender>,
    /// Why the connection has ended.
    end: Option<PeerError>,
}

impl PendingAnswers {
    fn lock(&self) -> MutexGuard<'_, PendingSenders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who waits for an answer. After the last one nobody does.
    fn of(&self, id: u64, is_last: bool) -> Option<AnswerSender> {
        let mut pending = self.lock();
        if is_last { pending.by_id.remove(&id) } else { pending.by_id.get(&id).cloned() }
    }

    /// Ends all requests in progress.
    fn end(&self, error: PeerError) {
        let mut pending = self.lock();
        for (_, sender) in pending.by_id.drain() {
            // One whose frames wait finds the end of its channel after them.
            let _ = sender.try_send(Err(error.clone()));
        }
        pending.end.get_or_insert(error);
    }
}

impl Connection {
    /// Connects and greets. The peer must be the run `incarnation` of its node.
    pub(crate) async fn open(
        address: &str,
        incarnation: u64,
        identity: &NodeIdentity,
        config: &NetConfig,
    ) -> Result<Self, PeerError> {
        let greeting = async {
            let stream = TcpStream::connect(address).await;
            let stream = stream.map_err(|error| PeerError::connect(address, &error))?;
            let configured = configure(&stream, config.silence_timeout);
            configured.map_err(|error| PeerError::connect(address, &error))?;
            let (tls, hello) = (config.tls.as_deref(), encode(&hello(identity)));
            let (read, write) = greet(stream, address, tls, &hello).await?;
            let mut frames = FramedRead::new(read, codec(config.max_frame_bytes));
            let welcome = next_frame(&mut frames).await.map_err(|error| match error {
                // The other node has not accepted the certificate.
                PeerError::Frame(reason) if tls.is_some() => PeerError::tls(address, &reason),
                error => error,
            });
            let welcome = welcome?.ok_or(PeerError::Lost)?;
            check_welcome(welcome, incarnation)?;
            Ok((frames, write))
        };
        let greeting = timeout(config.connect_timeout, greeting).await;
        let (frames, write) = greeting.unwrap_or(Err(PeerError::Timeout))?;
        let answers = Arc::<PendingAnswers>::default();
        let (requests, waiting) = mpsc::channel(WAITING_REQUESTS);
        let reader = tokio::spawn(read_answers(frames, Arc::clone(&answers)));
        let limit = config.write_timeout;
        let writer = write_requests(write, waiting, Arc::clone(&answers), limit);
        let tasks = [reader, tokio::spawn(writer)].map(AbortOnDropHandle::new);
        NetMetrics::of_process().connections.increment(1);
        let (next_id, max_frame_bytes) = (AtomicU64::new(1), config.max_frame_bytes);
        Ok(Self { requests, answers, next_id, max_frame_bytes, _tasks: tasks })
    }

    /// True if it takes no more requests.
    pub(crate) fn has_ended(&self) -> bool {
        self.answers.lock().end.is_some()
    }

    /// Prepares a request: its number, and where its answers come.
    pub(crate) fn register(&self) -> Result<(u64, AnswerReceiver), PeerError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answers) = mpsc::channel(WAITING_FRAMES);
        let mut pending = self.answers.lock();
        if let Some(error) = &pending.end {
            return Err(error.clone());
        }
        pending.by_id.insert(id, sender);
        Ok((id, answers))
    }

    /// Sends the request with this number. After an error nothing of it was sent.
    pub(crate) async fn send(
        &self,
        id: u64,
        body: RequestBody,
        timeout_ms: u32,
    ) -> Result<(), PeerError> {
        let frame = RequestFrame { id, timeout_ms, body: Some(body) };
        let (length, limit) = (frame.encoded_len(), self.max_frame_bytes);
        if length > limit {
            // The peer would end the connection, with all requests in progress.
            return Err(PeerError::TooLarge { length, limit });
        }
        self.requests.send(encode(&frame)).await.map_err(|_| PeerError::Lost)
    }

    /// Ends a request. One whose answers may still come is cancelled, if the peer can be told now.
    pub(crate) fn forget(&self, id: u64) {
        if self.answers.lock().by_id.remove(&id).is_some() {
            let body = Some(RequestBody::Cancel(Nothing {}));
            let _ = self.requests.try_send(encode(&RequestFrame { id, timeout_ms: 0, body }));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        NetMetrics::of_process().connections.decrement(1);
        self.answers.end(PeerError::Lost);
    }
}

fn hello(identity: &NodeIdentity) -> RequestFrame {
    let (lowest_version, highest_version) = VERSIONS;
    let hello = Hello {
        lowest_version,
        highest_version,
        cluster: identity.cluster.to_string(),
        name: identity.name.clone(),
        incarnation: identity.incarnation,
    };
    RequestFrame { id: 0, timeout_ms: 0, body: Some(RequestBody::Hello(hello)) }
}

fn check_welcome(answer: ResponseFrame, incarnation: u64) -> Result<(), PeerError> {
    match answer.body {
        Some(ResponseBody::Welcome(welcome)) if welcome.incarnation != incarnation => {
            let found = welcome.incarnation;
            let text = format!("{} is incarnation {found}, not {incarnation}", welcome.name);
            Err(PeerError::Refused(text.into()))
        }
        Some(ResponseBody::Welcome(_)) => Ok(()),
        Some(ResponseBody::Failed(reason)) => Err(PeerError::Refused(reason.into())),
        _ => Err(PeerError::Frame("no answer to the greeting".into())),
    }
}

type AnswerFrames = FramedRead<ReadSide, LengthDelimitedCodec>;

/// The next answer; `None` at the end of the stream.
async fn next_frame(frames: &mut AnswerFrames) -> Result<Option<ResponseFrame>, PeerError> {
    let Some(frame) = frames.next().await else { return Ok(None) };
    let frame = frame.map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => PeerError::frame(&error),
        _ => PeerError::Lost,
    })?;
    NetMetrics::of_process().received_bytes.increment(4 + frame.len() as u64);
    decode(frame).map(Some)
}

async fn read_answers(mut frames: AnswerFrames, answers: Arc<PendingAnswers>) {
    let error = loop {
        let frame = match next_frame(&mut frames).await {
            Ok(Some(frame)) => frame,
            Ok(None) => break PeerError::Lost,
            Err(error) => break error,
        };
        let Some(body) = frame.body else {
            break PeerError::Frame("an answer that this version does not know".into());
        };
        let sender = answers.of(frame.id, body.is_last());
        if let Some(sender) = sender
            && sender.send(Ok(body)).await.is_err()
        {
            answers.lock().by_id.remove(&frame.id);
        }
    };
    if matches!(error, PeerError::Frame(_)) {
        NetMetrics::of_process().bad_frames.increment(1);
    }
    answers.end(error);
}

async fn write_requests(
    write: WriteSide,
    waiting: mpsc::Receiver<Bytes>,
    answers: Arc<PendingAnswers>,
    limit: Duration,
) {
    write_frames(write, waiting, limit).await;
    answers.end(PeerError::Lost);
}

//! Connection of a client: multiplexes the requests of many callers, and assigns responses by number.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures_util::StreamExt;
use prost::Message;
use tokio::{net::TcpStream, task::coop::consume_budget, time::timeout};
use tokio_util::{
    codec::{FramedRead, LengthDelimitedCodec},
    task::AbortOnDropHandle,
};
use tsd_storage::{Epoch, stood_still_since};

use crate::{
    config::{NetConfig, NodeIdentity},
    error::PeerError,
    metrics::NetMetrics,
    peer_clock::PeerClock,
    pending_responses::{PendingResponses, ResponseReceiver},
    request_writer::{OpenFrame, RequestWriter},
    socket::configure,
    standstill::discard,
    tls::{ReadSide, greet},
    wire::{
        Hello, Nothing, RequestBody, RequestFrame, ResponseBody, ResponseFrame, VERSIONS, codec,
        decode, encode,
    },
};

/// A connection to a peer that has accepted the greeting.
#[derive(Debug)]
pub(crate) struct Connection {
    requests: RequestWriter,
    responses: Arc<PendingResponses>,
    clock: Arc<PeerClock>,
    next_id: AtomicU64,
    max_frame_bytes: usize,
    _reader: AbortOnDropHandle<()>,
}

impl Connection {
    /// Connects and greets. The peer must be the run `incarnation` of its node.
    pub(crate) async fn open(
        address: &str,
        incarnation: u64,
        identity: &NodeIdentity,
        config: &NetConfig,
    ) -> Result<Self, PeerError> {
        let epoch = config.epoch();
        let greeting = async {
            let stream = TcpStream::connect(address).await;
            let stream = stream.map_err(|error| PeerError::connect(address, &error))?;
            let configured = configure(&stream, config.silence_timeout);
            configured.map_err(|error| PeerError::connect(address, &error))?;
            let (tls, hello) = (config.tls.as_deref(), encode(&hello(identity)));
            let (read, write) = greet(stream, address, tls, &hello).await?;
            let mut frames = FramedRead::new(read, codec(config.max_frame_bytes));
            let welcome = next_frame(&mut frames).await.map_err(|error| match error {
                // The other node has rejected the certificate.
                PeerError::Frame(reason) if tls.is_some() => PeerError::tls(address, &reason),
                error => error,
            });
            let welcome = welcome?.ok_or(PeerError::Lost)?;
            let clock = Arc::<PeerClock>::default();
            clock.note(welcome.boot_ms);
            check_welcome(welcome, incarnation)?;
            Ok((frames, write, clock))
        };
        let greeting = timeout(config.connect_timeout, greeting).await;
        let (frames, write, clock) = greeting.unwrap_or(Err(PeerError::Timeout))?;
        let responses = Arc::<PendingResponses>::default();
        let requests =
            RequestWriter::new(write, Arc::clone(&responses), epoch.clone(), config.write_timeout);
        let reader = ResponseReader {
            frames,
            responses: Arc::clone(&responses),
            clock: Arc::clone(&clock),
            requests: requests.clone(),
            epoch,
        };
        let reader = AbortOnDropHandle::new(tokio::spawn(reader.run()));
        NetMetrics::of_process().connections.increment(1);
        let (next_id, max_frame_bytes) = (AtomicU64::new(1), config.max_frame_bytes);
        Ok(Self { requests, responses, clock, next_id, max_frame_bytes, _reader: reader })
    }

    /// True if the connection takes no more requests.
    pub(crate) fn has_ended(&self) -> bool {
        self.responses.ended().is_some()
    }

    /// The clock of the peer.
    pub(crate) fn clock(&self) -> &PeerClock {
        &self.clock
    }

    /// Registers a request. Returns its number and the receiver of its responses.
    pub(crate) fn register<A: ResponseReceiver>(&self) -> Result<(u64, A), PeerError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, responses) = A::open();
        self.responses.add(id, sender)?;
        Ok((id, responses))
    }

    /// Waits until the request with this number may be written.
    pub(crate) async fn begin(
        &self,
        id: u64,
        body: RequestBody,
        timeout_ms: u32,
    ) -> Result<OpenFrame, PeerError> {
        let frame = RequestFrame { id, timeout_ms, body: Some(body) };
        let (length, limit) = (frame.encoded_len(), self.max_frame_bytes);
        if length > limit {
            // The peer would close the connection, which fails all requests in progress.
            return Err(PeerError::TooLarge { length, limit });
        }
        self.requests.begin(encode(&frame)).await
    }

    /// Ends a request. If its responses may still come, cancels it on the peer, provided that a frame
    /// can be written now.
    pub(crate) fn forget(&self, id: u64) {
        if self.responses.remove(id) {
            let body = Some(RequestBody::Cancel(Nothing {}));
            self.requests.try_write(encode(&RequestFrame { id, timeout_ms: 0, body }));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        NetMetrics::of_process().connections.decrement(1);
        self.responses.end(PeerError::Lost);
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

fn check_welcome(response: ResponseFrame, incarnation: u64) -> Result<(), PeerError> {
    match response.body {
        Some(ResponseBody::Welcome(welcome)) if welcome.incarnation != incarnation => {
            let found = welcome.incarnation;
            let text = format!("{} is incarnation {found}, not {incarnation}", welcome.name);
            Err(PeerError::Refused(text.into()))
        }
        Some(ResponseBody::Welcome(_)) => Ok(()),
        Some(ResponseBody::Failed(reason)) => Err(PeerError::Refused(reason.into())),
        _ => Err(PeerError::Frame("no response to the greeting".into())),
    }
}

type ResponseFrames = FramedRead<ReadSide, LengthDelimitedCodec>;

/// Returns the next response; `None` at the end of the stream.
async fn next_frame(frames: &mut ResponseFrames) -> Result<Option<ResponseFrame>, PeerError> {
    let Some(frame) = frames.next().await else { return Ok(None) };
    let frame = frame.map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => PeerError::frame(&error),
        _ => PeerError::Lost,
    })?;
    NetMetrics::of_process().received_bytes.increment(4 + frame.len() as u64);
    decode(frame).map(Some)
}

/// Reads the responses of a connection.
struct ResponseReader {
    frames: ResponseFrames,
    responses: Arc<PendingResponses>,
    clock: Arc<PeerClock>,
    requests: RequestWriter,
    /// The epoch of the connection; `None` if standstills are not detected.
    epoch: Option<Epoch>,
}

impl ResponseReader {
    /// Reads responses until the connection ends, or this node has stood still.
    async fn run(mut self) {
        let epoch = self.epoch.clone();
        let error = tokio::select! {
            biased;
            () = stood_still_since(epoch.as_ref()) => None,
            error = self.read() => Some(error),
        };
        if matches!(error, Some(PeerError::Frame(_))) {
            NetMetrics::of_process().bad_frames.increment(1);
        }
        let has_stood_still = error.is_none();
        self.responses.end(error.unwrap_or(PeerError::Lost));
        if has_stood_still {
            // In a task, because the connection is dropped when the next request needs another one.
            let Self { frames, requests, .. } = self;
            tokio::spawn(async move {
                let mut write = requests.take().await;
                discard(frames, &mut write).await;
            });
        }
    }

    async fn read(&mut self) -> PeerError {
        loop {
            let ResponseFrame { id, boot_ms, body } = match next_frame(&mut self.frames).await {
                Ok(Some(frame)) => frame,
                Ok(None) => return PeerError::Lost,
                Err(error) => return error,
            };
            if let Some(epoch) = self.epoch.as_ref().filter(|epoch| !epoch.holds()) {
                epoch.ended().await;
                return PeerError::Lost;
            }
            self.clock.note(boot_ms);
            let Some(body) = body else {
                return PeerError::Frame("a response that this version does not know".into());
            };
            self.responses.deliver(id, body).await;
            // Many responses may have come with one read.
            consume_budget().await;
        }
    }
}

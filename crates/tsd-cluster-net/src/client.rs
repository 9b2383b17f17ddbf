//! Requests to one peer, over one connection that is opened on demand.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, error::Elapsed, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use tsd_cluster::SlotSet;
use tsd_storage::{Epoch, HeldRow};

use crate::{
    config::{NetConfig, NodeIdentity},
    connection::Connection,
    error::PeerError,
    held_query::HeldQuery,
    metrics::{NetMetrics, RequestKind},
    node_report::NodeReport,
    pending_responses::{ResponseReceiver, ResponseResult},
    wire::{
        DialBackMessage, HeldMessage, Nothing, ProvenMessage, RequestBody, ResponseBody, RowMessage,
    },
};

/// Client of one run of a peer. While the peer cannot be reached, requests fail.
#[derive(Debug)]
pub struct PeerClient {
    address: String,
    incarnation: u64,
    identity: Arc<NodeIdentity>,
    config: NetConfig,
    link: Mutex<PeerLink>,
    permits: Arc<Semaphore>,
    /// When the last request began.
    asked_at: parking_lot::Mutex<Option<Instant>>,
    /// Runtime of the connections.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct PeerLink {
    connection: Option<Arc<Connection>>,
    /// Failed attempts to connect since the last success.
    failures: u32,
    /// The last failure, and the end of the pause in which requests fail with it.
    failed: Option<(PeerError, Instant)>,
}

/// A request that waits for its responses until the deadline.
struct PendingRequest<A> {
    connection: Arc<Connection>,
    id: u64,
    responses: A,
    deadline: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A request with one response.
pub(crate) struct SentRequest(PendingRequest<oneshot::Receiver<ResponseResult>>);

impl SentRequest {
    pub(crate) async fn response(mut self) -> ResponseResult {
        let PendingRequest { responses, deadline, .. } = &mut self.0;
        let response = timeout_at(*deadline, responses).await;
        received(response.map(Result::ok))
    }
}

impl PendingRequest<mpsc::Receiver<ResponseResult>> {
    async fn next(&mut self) -> ResponseResult {
        received(timeout_at(self.deadline, self.responses.recv()).await)
    }
}

/// Returns the response, or an error if it is late or missing.
fn received(response: Result<Option<ResponseResult>, Elapsed>) -> ResponseResult {
    match response {
        Ok(Some(Ok(ResponseBody::Failed(reason)))) => Err(PeerError::Failed(reason.into())),
        Ok(Some(response)) => response,
        Ok(None) => Err(PeerError::Lost),
        Err(_) => Err(PeerError::Timeout),
    }
}

impl<A> Drop for PendingRequest<A> {
    fn drop(&mut self) {
        self.connection.forget(self.id);
    }
}

/// End of a response with held rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenRows {
    /// Requested slots that the peer does not own.
    pub not_owned: SlotSet,
    /// The key before which all rows were passed; `None` if all rows were passed.
    pub sent_before: Option<Bytes>,
}

impl PeerClient {
    /// Returns a client of the run `incarnation` of the node at `address`. Its connections belong to the current
    /// runtime, even if a caller in another runtime opens them.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use]
    pub fn new(
        address: &str,
        incarnation: u64,
        identity: Arc<NodeIdentity>,
        config: NetConfig,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(config.max_requests));
        let (address, link, runtime) = (address.to_owned(), Mutex::default(), Handle::current());
        let asked_at = parking_lot::Mutex::default();
        Self { address, incarnation, identity, config, link, permits, asked_at, runtime }
    }

    /// The published address of the peer.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Passes the peer's held rows to `take`, in key order. Returns after the peer has proven that it was not
    /// fenced at that time, with the slots of `slots` that it does not own. After about `max_bytes` (0: unlimited) the
    /// peer may stop. Then the result has the key before which all rows were passed.
    ///
    /// # Errors
    ///
    /// If the peer did not send a complete response in time, or `take` refused rows.
    pub async fn held(
        &self,
        (query, slots): (&HeldQuery, &SlotSet),
        max_bytes: usize,
        deadline: Instant,
        take: &mut (dyn FnMut(Vec<HeldRow>) -> Result<(), PeerError> + Send),
    ) -> Result<ProvenRows, PeerError> {
        let body = RequestBody::Held(HeldMessage::of(query, slots, max_bytes));
        self.metered(RequestKind::Held, async {
            let mut request: PendingRequest<mpsc::Receiver<ResponseResult>> =
                self.request(body, None, deadline).await?;
            loop {
                match request.next().await? {
                    ResponseBody::Rows(rows) => {
                        let rows = rows.rows.into_iter();
                        let rows: Result<Vec<HeldRow>, PeerError> =
                            rows.map(RowMessage::into_row).collect();
                        take(rows?)?;
                    }
                    ResponseBody::Proven(ProvenMessage { not_owned, sent_before }) => {
                        let not_owned = SlotSet::decode(&not_owned);
                        let not_owned = not_owned.ok_or_else(unexpected_response)?;
                        return Ok(ProvenRows { not_owned, sent_before });
                    }
                    _ => return Err(unexpected_response()),
                }
            }
        })
        .await
    }

    /// Checks that the peer responds.
    ///
    /// # Errors
    ///
    /// No response before the deadline.
    pub async fn probe(&self, deadline: Instant) -> Result<(), PeerError> {
        self.is_alive(deadline).await.map(|_| ())
    }

    /// As [`Self::probe`]. Returns true if the heartbeats of the peer succeed.
    pub(crate) async fn is_alive(&self, deadline: Instant) -> Result<bool, PeerError> {
        let body = RequestBody::Probe(Nothing {});
        self.metered(RequestKind::Probe, async {
            match self.ask(body, deadline).await? {
                ResponseBody::Alive(alive) => Ok(alive.beats),
                _ => Err(unexpected_response()),
            }
        })
        .await
    }

    /// Time of the last frame from the peer on the present connection.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        let link = self.link.try_lock().ok()?;
        link.connection.as_ref().and_then(|connection| connection.clock().heard_at())
    }

    /// When the last request to the peer began.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        *self.asked_at.lock()
    }

    /// Flushes all rows of the peer.
    ///
    /// # Errors
    ///
    /// If the rows are not flushed before the deadline.
    pub async fn flush(&self, deadline: Instant) -> Result<(), PeerError> {
        let body = RequestBody::Flush(Nothing {});
        self.metered(RequestKind::Flush, self.done(body, deadline)).await
    }

    /// Makes the peer connect to this node at `address`, as other nodes will.
    ///
    /// # Errors
    ///
    /// [`PeerError::Failed`] if it cannot; no response before the deadline.
    pub(crate) async fn dial_back(
        &self,
        address: &str,
        deadline: Instant,
    ) -> Result<(), PeerError> {
        let incarnation = self.identity.incarnation;
        let message = DialBackMessage { address: address.to_owned(), incarnation };
        let body = RequestBody::DialBack(message);
        self.metered(RequestKind::Admission, self.done(body, deadline)).await
    }

    /// Makes the peer log why this node does not join.
    ///
    /// # Errors
    ///
    /// No response before the deadline.
    pub(crate) async fn note_refusal(
        &self,
        reason: &str,
        deadline: Instant,
    ) -> Result<(), PeerError> {
        let body = RequestBody::NoteRefusal(reason.to_owned());
        self.metered(RequestKind::Admission, self.done(body, deadline)).await
    }

    /// Returns the queries that run on the peer, as JSON.
    ///
    /// # Errors
    ///
    /// No response before the deadline.
    pub async fn queries(&self, deadline: Instant) -> Result<String, PeerError> {
        self.metered(RequestKind::Queries, async {
            let body = RequestBody::Queries(Nothing {});
            match self.ask(body, deadline).await? {
                ResponseBody::Queries(json) => Ok(json),
                _ => Err(unexpected_response()),
            }
        })
        .await
    }

    /// Cancels a query on the peer.
    ///
    /// # Errors
    ///
    /// [`PeerError::Failed`] if it does not run; no response before the deadline.
    pub async fn cancel_query(&self, id: u64, deadline: Instant) -> Result<(), PeerError> {
        let body = RequestBody::CancelQuery(id);
        self.metered(RequestKind::Queries, self.done(body, deadline)).await
    }

    /// Returns the peer's report on itself.
    ///
    /// # Errors
    ///
    /// No response before the deadline.
    pub async fn report(&self, deadline: Instant) -> Result<NodeReport, PeerError> {
        self.metered(RequestKind::Report, async {
            let body = RequestBody::Report(Nothing {});
            match self.ask(body, deadline).await? {
                ResponseBody::Report(report) => Ok(report.into_report()),
                _ => Err(unexpected_response()),
            }
        })
        .await
    }

    pub(crate) async fn done(&self, body: RequestBody, deadline: Instant) -> Result<(), PeerError> {
        match self.ask(body, deadline).await? {
            ResponseBody::Done(_) => Ok(()),
            _ => Err(unexpected_response()),
        }
    }

    pub(crate) async fn metered<T>(
        &self,
        kind: RequestKind,
        call: impl Future<Output = Result<T, PeerError>>,
    ) -> Result<T, PeerError> {
        let started = Instant::now();
        let result = call.await;
        NetMetrics::of_process().ended(kind, started.elapsed(), result.as_ref().err());
        result
    }

    /// Sends a request with one response, and waits for the response.
    pub(crate) async fn ask(&self, body: RequestBody, deadline: Instant) -> ResponseResult {
        self.send(body, None, deadline).await?.response().await
    }

    /// Sends a request with one response, unless the epoch of the request has ended. An error means that the request was
    /// sent only in part, so the peer has done nothing.
    pub(crate) async fn send(
        &self,
        body: RequestBody,
        epoch: Option<&Epoch>,
        deadline: Instant,
    ) -> Result<SentRequest, PeerError> {
        Ok(SentRequest(self.request(body, epoch, deadline).await?))
    }

    /// Connects, and makes sure that a recent time of the peer is known when a write is sent.
    pub(crate) async fn learn_clock(&self, deadline: Instant) -> Result<(), PeerError> {
        *self.asked_at.lock() = Some(Instant::now());
        let connection = timeout_at(deadline, self.connection()).await;
        let is_outdated = connection.unwrap_or(Err(PeerError::Timeout))?.clock().is_outdated();
        if is_outdated { Box::pin(self.probe(deadline)).await } else { Ok(()) }
    }

    /// As [`Self::send`], also for several responses.
    async fn request<A: ResponseReceiver>(
        &self,
        mut body: RequestBody,
        epoch: Option<&Epoch>,
        deadline: Instant,
    ) -> Result<PendingRequest<A>, PeerError> {
        *self.asked_at.lock() = Some(Instant::now());
        let beginning = async {
            // A probe does not wait for other requests.
            let is_probe = matches!(body, RequestBody::Probe(_));
            let permit = if is_probe { None } else { Some(self.permit().await?) };
            let connection = self.connection().await?;
            if let RequestBody::Forward(message) = &mut body {
                message.void_after_ms = connection.clock().at(deadline);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
            let (id, responses) = connection.register()?;
            let request = PendingRequest { connection, id, responses, deadline, _permit: permit };
            let frame = request.connection.begin(id, body, timeout_ms).await?;
            Ok((request, frame))
        };
        let begun = timeout_at(deadline, beginning).await;
        let (request, frame) = begun.unwrap_or(Err(PeerError::Timeout))?;
        if epoch.is_some_and(|epoch| !epoch.holds()) {
            frame.discard();
            return Err(PeerError::StoodStill);
        }
        match timeout_at(deadline, frame.finish()).await {
            Ok(Err(error)) => Err(error),
            // The deadline passed while the rest was being written. The rest is written in the background: the peer
            // may execute the request.
            Ok(Ok(())) | Err(_) => Ok(request),
        }
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, PeerError> {
        Arc::clone(&self.permits).acquire_owned().await.map_err(|_| PeerError::Lost)
    }

    /// Returns the connection; opens it if necessary. After a failure, requests fail at once until a pause is over.
    async fn connection(&self) -> Result<Arc<Connection>, PeerError> {
        let mut link = self.link.lock().await;
        if let Some(connection) = link.connection.as_ref().filter(|open| !open.has_ended()) {
            return Ok(Arc::clone(connection));
        }
        link.connection = None;
        if let Some((error, until)) = &link.failed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        match self.open_connection().await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                (link.failures, link.failed) = (0, None);
                link.connection = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Err(error) => {
                let pause = self.pause(link.failures);
                link.failures = link.failures.saturating_add(1);
                link.failed = Some((error.clone(), Instant::now() + pause));
                if link.failures == 1 {
                    tracing::warn!(address = self.address, %error, "a node cannot be reached");
                }
                Err(error)
            }
        }
    }

    async fn open_connection(&self) -> Result<Connection, PeerError> {
        let (address, incarnation) = (self.address.clone(), self.incarnation);
        let (identity, config) = (Arc::clone(&self.identity), self.config.clone());
        let open = async move { Connection::open(&address, incarnation, &identity, &config).await };
        let opening = AbortOnDropHandle::new(self.runtime.spawn(open));
        // An error means that the runtime ends.
        opening.await.unwrap_or(Err(PeerError::Lost))
    }

    fn pause(&self, failures: u32) -> Duration {
        let (first, longest) = self.config.backoff;
        first.saturating_mul(1 << failures.min(16)).min(longest)
    }
}

fn unexpected_response() -> PeerError {
    PeerError::Frame("an unexpected response".into())
}

//! Requests to one peer, over one connection that is opened on demand.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, error::Elapsed, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use tsd_storage::HeldRow;

use crate::{
    config::{NetConfig, NodeIdentity},
    connection::Connection,
    error::PeerError,
    held_query::HeldQuery,
    metrics::{NetMetrics, RequestKind},
    node_report::NodeReport,
    pending_responses::{ResponseReceiver, ResponseResult},
    wire::{DialBackMessage, HeldMessage, Nothing, RequestBody, ResponseBody, RowMessage},
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
    _permit: OwnedSemaphorePermit,
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
        Self { address, incarnation, identity, config, link, permits, runtime }
    }

    /// The published address of the peer.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Passes the peer's held rows to `take`, in key order. Returns after the peer has proven that it was not
    /// fenced at that time. After about `max_bytes` (0: unlimited) the peer may stop. Then the result is the key
    /// before which all rows were passed.
    ///
    /// # Errors
    ///
    /// If the peer did not send a complete response in time, or `take` refused rows.
    pub async fn held(
        &self,
        query: &HeldQuery,
        max_bytes: usize,
        deadline: Instant,
        take: &mut (dyn FnMut(Vec<HeldRow>) -> Result<(), PeerError> + Send),
    ) -> Result<Option<Bytes>, PeerError> {
        let body = RequestBody::Held(HeldMessage::of(query, max_bytes));
        self.metered(RequestKind::Held, async {
            let mut request: PendingRequest<mpsc::Receiver<ResponseResult>> =
                self.request(body, deadline).await?;
            loop {
                match request.next().await? {
                    ResponseBody::Rows(rows) => {
                        let rows = rows.rows.into_iter();
                        let rows: Result<Vec<HeldRow>, PeerError> =
                            rows.map(RowMessage::into_row).collect();
                        take(rows?)?;
                    }
                    ResponseBody::Proven(_) => return Ok(None),
                    ResponseBody::ProvenUpTo(key) => return Ok(Some(key)),
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
        let body = RequestBody::Probe(Nothing {});
        self.metered(RequestKind::Probe, self.done(body, deadline)).await
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
        self.send(body, deadline).await?.response().await
    }

    /// Sends a request with one response. An error means that the request was sent only in part, so the peer has done
    /// nothing.
    pub(crate) async fn send(
        &self,
        body: RequestBody,
        deadline: Instant,
    ) -> Result<SentRequest, PeerError> {
        Ok(SentRequest(self.request(body, deadline).await?))
    }

    /// As [`Self::send`], also for several responses.
    async fn request<A: ResponseReceiver>(
        &self,
        body: RequestBody,
        deadline: Instant,
    ) -> Result<PendingRequest<A>, PeerError> {
        let beginning = async {
            let permit = self.permit().await?;
            let connection = self.connection().await?;
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
            let (id, responses) = connection.register()?;
            let request = PendingRequest { connection, id, responses, deadline, _permit: permit };
            let frame = request.connection.begin(id, body, timeout_ms).await?;
            Ok((request, frame))
        };
        let begun = timeout_at(deadline, beginning).await;
        let (request, frame) = begun.unwrap_or(Err(PeerError::Timeout))?;
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

//! Requests to one peer, over one connection that is opened when it is needed.

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
    metrics::{NetMetrics, RequestKind},
    pending_answers::{Answer, AnswerReceiver},
    service::{HeldQuery, NodeReport},
    wire::{DialBackMessage, HeldMessage, Nothing, RequestBody, ResponseBody, RowMessage},
};

/// One run of a peer. It takes requests also while it cannot be reached; they fail.
#[derive(Debug)]
pub struct PeerClient {
    address: String,
    incarnation: u64,
    identity: Arc<NodeIdentity>,
    config: NetConfig,
    link: Mutex<PeerLink>,
    permits: Arc<Semaphore>,
    /// Of its connections.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct PeerLink {
    connection: Option<Arc<Connection>>,
    /// Failed attempts to connect since the last success.
    failures: u32,
    /// The last failure, and until when it is the answer.
    failed: Option<(PeerError, Instant)>,
}

/// A request whose answers are waited for until the deadline.
struct PendingRequest<A> {
    connection: Arc<Connection>,
    id: u64,
    answers: A,
    deadline: Instant,
    _permit: OwnedSemaphorePermit,
}

/// A request that has one answer.
pub(crate) struct SentRequest(PendingRequest<oneshot::Receiver<Answer>>);

impl SentRequest {
    pub(crate) async fn answer(mut self) -> Answer {
        let PendingRequest { answers, deadline, .. } = &mut self.0;
        let answer = timeout_at(*deadline, answers).await;
        received(answer.map(Result::ok))
    }
}

impl PendingRequest<mpsc::Receiver<Answer>> {
    async fn next(&mut self) -> Answer {
        received(timeout_at(self.deadline, self.answers.recv()).await)
    }
}

/// An answer, if there was one in time.
fn received(answer: Result<Option<Answer>, Elapsed>) -> Answer {
    match answer {
        Ok(Some(Ok(ResponseBody::Failed(reason)))) => Err(PeerError::Failed(reason.into())),
        Ok(Some(answer)) => answer,
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
    /// A client of the run `incarnation` of the node at `address`. Its connections belong to the current runtime, also
    /// if a caller in another one opens them.
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

    /// Where the peer is said to be.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Takes the rows that the peer holds, in key order, and returns after it has proven that it was not fenced
    /// then. After about `max_bytes` (0: never) the peer may stop: then the key is returned before which all rows
    /// were taken.
    ///
    /// # Errors
    ///
    /// The peer did not answer all of it in time, or `take` has refused rows.
    pub async fn held(
        &self,
        query: &HeldQuery,
        max_bytes: usize,
        deadline: Instant,
        take: &mut (dyn FnMut(Vec<HeldRow>) -> Result<(), PeerError> + Send),
    ) -> Result<Option<Bytes>, PeerError> {
        let body = RequestBody::Held(HeldMessage::of(query, max_bytes));
        self.metered(RequestKind::Held, async {
            let mut request: PendingRequest<mpsc::Receiver<Answer>> =
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
                    _ => return Err(out_of_place()),
                }
            }
        })
        .await
    }

    /// Asks whether the peer is there.
    ///
    /// # Errors
    ///
    /// No answer before the deadline.
    pub async fn probe(&self, deadline: Instant) -> Result<(), PeerError> {
        let body = RequestBody::Probe(Nothing {});
        self.metered(RequestKind::Probe, self.done(body, deadline)).await
    }

    /// Flushes all rows of the peer.
    ///
    /// # Errors
    ///
    /// They are not flushed, or there is no answer before the deadline.
    pub async fn flush(&self, deadline: Instant) -> Result<(), PeerError> {
        let body = RequestBody::Flush(Nothing {});
        self.metered(RequestKind::Flush, self.done(body, deadline)).await
    }

    /// Has the peer connect to this node at `address`, as others will.
    ///
    /// # Errors
    ///
    /// [`PeerError::Failed`] if it cannot; no answer before the deadline.
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

    /// Has the peer note in its log why this node does not join.
    ///
    /// # Errors
    ///
    /// No answer before the deadline.
    pub(crate) async fn note_refusal(
        &self,
        reason: &str,
        deadline: Instant,
    ) -> Result<(), PeerError> {
        let body = RequestBody::NoteRefusal(reason.to_owned());
        self.metered(RequestKind::Admission, self.done(body, deadline)).await
    }

    /// The queries that run on the peer, as JSON.
    ///
    /// # Errors
    ///
    /// No answer before the deadline.
    pub async fn queries(&self, deadline: Instant) -> Result<String, PeerError> {
        self.metered(RequestKind::Queries, async {
            let body = RequestBody::Queries(Nothing {});
            match self.ask(body, deadline).await? {
                ResponseBody::Queries(json) => Ok(json),
                _ => Err(out_of_place()),
            }
        })
        .await
    }

    /// Cancels a query on the peer.
    ///
    /// # Errors
    ///
    /// [`PeerError::Failed`] if it does not run; no answer before the deadline.
    pub async fn cancel_query(&self, id: u64, deadline: Instant) -> Result<(), PeerError> {
        let body = RequestBody::CancelQuery(id);
        self.metered(RequestKind::Queries, self.done(body, deadline)).await
    }

    /// What the peer says of itself.
    ///
    /// # Errors
    ///
    /// No answer before the deadline.
    pub async fn report(&self, deadline: Instant) -> Result<NodeReport, PeerError> {
        self.metered(RequestKind::Report, async {
            let body = RequestBody::Report(Nothing {});
            match self.ask(body, deadline).await? {
                ResponseBody::Report(report) => Ok(report.into_report()),
                _ => Err(out_of_place()),
            }
        })
        .await
    }

    pub(crate) async fn done(&self, body: RequestBody, deadline: Instant) -> Result<(), PeerError> {
        match self.ask(body, deadline).await? {
            ResponseBody::Done(_) => Ok(()),
            _ => Err(out_of_place()),
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

    /// Sends a request that has one answer, and waits for that.
    pub(crate) async fn ask(&self, body: RequestBody, deadline: Instant) -> Answer {
        self.send(body, deadline).await?.answer().await
    }

    /// Sends a request that has one answer. After an error not all of it was sent, so the peer has done nothing.
    pub(crate) async fn send(
        &self,
        body: RequestBody,
        deadline: Instant,
    ) -> Result<SentRequest, PeerError> {
        Ok(SentRequest(self.request(body, deadline).await?))
    }

    /// As [`Self::send`], for several answers too.
    async fn request<A: AnswerReceiver>(
        &self,
        body: RequestBody,
        deadline: Instant,
    ) -> Result<PendingRequest<A>, PeerError> {
        let beginning = async {
            let permit = self.permit().await?;
            let connection = self.connection().await?;
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
            let (id, answers) = connection.register()?;
            let request = PendingRequest { connection, id, answers, deadline, _permit: permit };
            let frame = request.connection.begin(id, body, timeout_ms).await?;
            Ok((request, frame))
        };
        let begun = timeout_at(deadline, beginning).await;
        let (request, frame) = begun.unwrap_or(Err(PeerError::Timeout))?;
        match timeout_at(deadline, frame.finish()).await {
            Ok(Err(error)) => Err(error),
            // After the deadline the rest is written all the same: the peer may do it.
            Ok(Ok(())) | Err(_) => Ok(request),
        }
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, PeerError> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        NetMetrics::of_process().waits.increment(1);
        Arc::clone(&self.permits).acquire_owned().await.map_err(|_| PeerError::Lost)
    }

    /// The connection, opened if there is none. After a failure the next attempts wait for a pause: until
    /// then requests fail at once.
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
        // An error: the runtime ends.
        opening.await.unwrap_or(Err(PeerError::Lost))
    }

    fn pause(&self, failures: u32) -> Duration {
        let (first, longest) = self.config.backoff;
        first.saturating_mul(1 << failures.min(16)).min(longest)
    }
}

fn out_of_place() -> PeerError {
    PeerError::Frame("an answer out of place".into())
}

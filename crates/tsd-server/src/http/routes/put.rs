//! `/api/put`, `/api/rollup` and `/api/histogram`: points in JSON.
//!
//! A point acknowledged with success is durable, with or without `sync`. So every client gets storage
//! failures. If a point cannot be stored *now*, the response is a 503, and collectors retry.

use std::{net::SocketAddr, time::Duration};

use hyper::{Method, StatusCode};
use tsd_engine::{HistogramCodecs, IngestSession, NameText, PutError, Sample, SampleContent};
use tsd_model::Timestamp;
use tsd_protocol::{
    ApiError, CommonTag, HistogramBatch, HistogramValueError, HttpHistogram, HttpRollup,
    NAME_SEPARATOR, ParseMemory, PointError, PutBatch, PutBodyError, PutOptions, PutOutcome,
    PutPointError, RollupBatch, RollupError, RollupPoint, SeriesRules,
};

use crate::{
    http::{
        error::HttpError,
        parsed_body::PointMemory,
        request::HttpRequest,
        response::{ContentType, HttpResponse},
    },
    identity_limits::LimitedSender,
    put_error_mapping::{http_cause, to_http_error},
    rollups::{RollupInput, RollupWriter, put_one},
    server_state::ServerState,
};

/// Maximum points of a body that a single call of the store writes: calls have a fixed cost, and a cluster splits
/// each call by owners. Concurrent calls write larger bodies in less time.
const MAX_SINGLE_BATCH_POINTS: usize = 2_048;

/// Memory of a point in the session: its cell, in a growing list.
const CELL_BYTES: usize = 144;
/// Memory of a point whose series is not cached, without its names.
const NEW_SERIES_BYTES: usize = 640;
/// Copies of the names of a point whose series is not cached.
const NEW_NAME_FACTOR: usize = 5;
/// Memory of a failed point: its error in the engine and in the response.
const ERROR_BYTES: usize = 512;

/// Why a point was rejected.
enum PointRejection {
    /// The point is invalid.
    Invalid(PutPointError),
    /// The engine rejected it.
    Engine(PutError),
}

impl From<PointError> for PointRejection {
    fn from(error: PointError) -> Self {
        Self::Invalid(error.into())
    }
}

impl From<PutError> for PointRejection {
    fn from(error: PutError) -> Self {
        Self::Engine(error)
    }
}

impl From<RollupError> for PointRejection {
    fn from(error: RollupError) -> Self {
        Self::Invalid(error.into())
    }
}

impl From<HistogramValueError> for PointRejection {
    fn from(error: HistogramValueError) -> Self {
        Self::Invalid(error.into())
    }
}

/// Stores the points of a body.
pub(super) async fn put(request: HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let put = PutRequest::read(&request)?;
    let mut memory = put.memory(&request).await?;
    let mut batch = PutBatch::default();
    let read = batch.read(put.body, put.common.as_ref(), &mut memory);
    read.map_err(|error| body_error(error, &memory))?;
    request.admit_points(batch.points().len())?;
    let outcome = PutOutcome::new(&batch);
    let mut pending = PendingPut::new(&request, outcome, batch.points().len(), memory)?;
    put_points(&mut pending, &request.state.rules, &batch)?;
    Ok(pending.finish(&put).await?)
}

/// Stores the rolled-up points of a body.
pub(super) async fn rollup(request: HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let put = PutRequest::read(&request)?;
    let mut memory = put.memory(&request).await?;
    let mut batch = RollupBatch::default();
    let read = batch.read(put.body, put.common.as_ref(), &mut memory);
    read.map_err(|error| body_error(error, &memory))?;
    let state = request.state;
    request.admit_points(batch.points().len())?;
    let outcome = PutOutcome::of_rollups(&batch);
    let mut pending = PendingPut::new(&request, outcome, batch.points().len(), memory)?;
    let mut tag_buffer = Vec::new();
    for point in batch.points() {
        let unresolved = pending.session.unresolved();
        let result = match &state.rollups {
            Some(rules) => {
                let HttpRollup { spec, metric, tags_raw, timestamp, value, offset: tag } = point;
                let separators = (NAME_SEPARATOR, NAME_SEPARATOR);
                let rolled_up = RollupPoint { spec, metric, timestamp, value };
                let input = RollupInput { point: rolled_up, tags_raw, separators, tag };
                let (session, series) = (&mut pending.session, &state.rules);
                RollupWriter { session, rules, series, tag_buffer: &mut tag_buffer }
                    .put(&input, |_| Ok(point.tags()))
            }
            None => Err(RollupError::without_configuration(&point.spec).into()),
        };
        pending.record(point.offset, result);
        pending.take_cells(1, point.metric.len() + point.tags_raw.len(), unresolved)?;
    }
    Ok(pending.finish(&put).await?)
}

/// Stores the histograms of a body.
pub(super) async fn histogram(request: HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let Some(codecs) = &request.state.engine.config().histograms else {
        return Err(ApiError::histograms_disabled().into());
    };
    let put = PutRequest::read(&request)?;
    let mut memory = put.memory(&request).await?;
    // The encoded histograms.
    if !memory.take(put.body.len() * 2) {
        return Err(memory.refusal().into());
    }
    let mut batch = HistogramBatch::default();
    let read = batch.read(put.body, put.common.as_ref(), &mut memory);
    read.map_err(|error| body_error(error, &memory))?;
    request.admit_points(batch.points().len())?;
    let outcome = PutOutcome::of_histograms(&batch);
    let mut pending = PendingPut::new(&request, outcome, batch.points().len(), memory)?;
    for point in batch.points() {
        let unresolved = pending.session.unresolved();
        let result = put_histogram(&mut pending.session, codecs, &request.state.rules, &point);
        pending.record(point.offset, result);
        pending.take_cells(1, point.metric.len() + point.tags_raw.len(), unresolved)?;
    }
    Ok(pending.finish(&put).await?)
}

/// Maps an error of a body, or a lack of memory for its points.
fn body_error(error: PutBodyError, memory: &PointMemory) -> ApiError {
    match error {
        PutBodyError::NoMemory => memory.refusal(),
        error => error.into(),
    }
}

/// Passes points to the session in groups. If memory runs out, fails before anything is stored.
fn put_points(
    pending: &mut PendingPut<'_>,
    rules: &SeriesRules,
    batch: &PutBatch,
) -> Result<(), ApiError> {
    let mut points = batch.points();
    let mut group = Vec::with_capacity(points.len().min(IngestSession::GROUP));
    while points.len() > 0 {
        group.clear();
        group.extend(points.by_ref().take(IngestSession::GROUP));
        let unresolved = pending.session.unresolved();
        let rejected = pending.session.put(
            &group,
            |point| Sample {
                metric: point.metric,
                tags_raw: point.tags_raw,
                timestamp: point.timestamp.as_given(),
                content: SampleContent::Point(point.value),
                tag: point.offset,
            },
            |point| Ok(point.tags(rules)?),
        );
        let mut rejected = rejected.into_iter().peekable();
        for (at, point) in group.iter().enumerate() {
            let rejection = rejected.next_if(|(position, _)| *position == at);
            pending.record(point.offset, rejection.map_or(Ok(()), |(_, rejection)| Err(rejection)));
        }
        let names = group.iter().map(|point| point.metric.len() + point.tags_raw.len()).sum();
        pending.take_cells(group.len(), names, unresolved)?;
    }
    Ok(())
}

/// Passes a histogram to the session.
fn put_histogram(
    session: &mut IngestSession,
    codecs: &HistogramCodecs,
    rules: &SeriesRules,
    point: &HttpHistogram<'_>,
) -> Result<(), PointRejection> {
    let HttpHistogram { metric, tags_raw, offset, timestamp, value } = *point;
    let stored = value.encode(codecs)?;
    if Timestamp::try_new(timestamp).is_err() {
        return Err(point.bad_timestamp(&stored).into());
    }
    let content = SampleContent::Histogram(&stored);
    let sample = Sample { metric, tags_raw, timestamp, content, tag: offset };
    put_one(session, &sample, || Ok(point.tags(rules)?))
}

/// Details of a 503 for points with unknown outcome. A retry writes the same cells.
const STORE_TIMED_OUT: &str = "the store did not answer in time";

/// Options, body and common tag of a write request.
struct PutRequest<'a> {
    options: PutOptions,
    body: &'a str,
    common: Option<CommonTag>,
    peer: SocketAddr,
}

impl<'a> PutRequest<'a> {
    fn read(request: &'a HttpRequest<'_>) -> Result<Self, HttpError> {
        request.state.metrics.received_put.add(1);
        request.allow(&[Method::POST])?;
        let options = PutOptions::parse(&request.query)?;
        if request.body.bytes().is_empty() {
            return Err(ApiError::missing_put_content().into());
        }
        let body = request.body.text()?;
        Ok(Self { options, body, common: common_tag(request)?, peer: request.peer })
    }

    async fn memory(&self, request: &HttpRequest<'_>) -> Result<PointMemory, ApiError> {
        let wait = request.body.memory_wait();
        PointMemory::begin(&request.state.body_memory, self.body.len(), wait).await
    }
}

/// The points of one write request and their outcome.
struct PendingPut<'a> {
    state: &'a ServerState,
    sender: Option<LimitedSender>,
    session: IngestSession,
    outcome: PutOutcome,
    // Body offsets of the accepted points, which identify them in the response.
    accepted: Vec<u32>,
    rejected: Vec<(u32, PutError)>,
    memory: PointMemory,
    /// True if some failed points were only counted, since there was no memory for their errors.
    lacks_errors: bool,
}

impl<'a> PendingPut<'a> {
    fn new(
        request: &HttpRequest<'a>,
        outcome: PutOutcome,
        points: usize,
        mut memory: PointMemory,
    ) -> Result<Self, ApiError> {
        let state = request.state;
        if !memory.take(points * size_of::<u32>()) {
            return Err(memory.refusal());
        }
        let mut session = state.engine.ingest_session(NameText::Latin1);
        session.set_receipt(request.receipt.clone());
        if let Some(identity) = &request.identity {
            session.restrict(identity.creatable_names(), identity.rights().clone());
        }
        let sender = request.sender.clone();
        session.limit_new_series(sender.as_ref().map(LimitedSender::new_series));
        if points <= MAX_SINGLE_BATCH_POINTS {
            session.use_single_shard(points);
        }
        Ok(Self {
            state,
            sender,
            session,
            outcome,
            accepted: Vec::with_capacity(points),
            rejected: Vec::new(),
            memory,
            lacks_errors: false,
        })
    }

    /// Reserves the memory of points in the session. The points have `names` bytes of names; before them, the
    /// session had `unresolved` points of new series.
    fn take_cells(
        &mut self,
        points: usize,
        names: usize,
        unresolved: usize,
    ) -> Result<(), ApiError> {
        let new = self.session.unresolved() - unresolved;
        let names = if new > 0 { names * NEW_NAME_FACTOR } else { 0 };
        let bytes = points * CELL_BYTES + new * NEW_SERIES_BYTES + names;
        if self.memory.take(bytes) { Ok(()) } else { Err(self.memory.refusal()) }
    }

    /// Reserves memory for the error of one more point; false if there is not enough.
    fn take_error(&mut self) -> bool {
        let is_taken = !self.lacks_errors && self.memory.take(ERROR_BYTES);
        self.lacks_errors |= !is_taken;
        is_taken
    }

    /// Records a point that was not stored.
    fn fail(&mut self, offset: u32, error: impl FnOnce() -> PutPointError) {
        if self.take_error() {
            self.outcome.fail(offset, error());
        } else {
            self.outcome.fail_unlisted();
        }
    }

    /// Records whether the session accepted a point.
    fn record(&mut self, offset: u32, result: Result<(), PointRejection>) {
        match result {
            Ok(()) => self.accepted.push(offset),
            Err(PointRejection::Invalid(error)) => self.fail(offset, || error),
            Err(PointRejection::Engine(error)) if self.take_error() => {
                self.rejected.push((offset, error));
            }
            Err(PointRejection::Engine(_)) => self.outcome.fail_unlisted(),
        }
    }

    /// Returns the 429 of a request of which nothing was stored, because every point would add a series over the limit
    /// of its sender. Other requests report such points like all rejected ones.
    fn limit_refusal(&self, stored: usize) -> Option<ApiError> {
        let errors = self.outcome.errors();
        let (_, PutPointError::NewSeriesLimit(reason)) = errors.first()? else { return None };
        let is_limit = |error: &PutPointError| matches!(error, PutPointError::NewSeriesLimit(_));
        let nothing_else = stored == 0 && errors.iter().all(|(_, error)| is_limit(error));
        let retry_after = self.sender.as_ref().filter(|_| nothing_else)?.new_series_wait();
        Some(ApiError::too_many_requests(reason, retry_after))
    }

    /// Waits until the points are stored and builds the response.
    async fn finish(mut self, request: &PutRequest<'_>) -> Result<HttpResponse, ApiError> {
        let PutRequest { options, body, .. } = request;
        let limit = if !options.sync {
            // An unavailable backend must not block clients, since they can retry.
            Some(self.state.engine.config().ingest.store_deadline)
        } else if options.sync_timeout_ms > 0 {
            Some(Duration::from_millis(options.sync_timeout_ms))
        } else {
            None
        };
        let report = self.session.commit_within(limit).await;
        for (offset, error) in std::mem::take(&mut self.rejected) {
            self.fail(offset, || to_http_error(&error));
        }
        for failure in &report.failures {
            self.fail(failure.tag, || to_http_error(&failure.error));
        }
        if report.timed_out == 0 {
            self.outcome.succeed(report.stored as u64);
        } else {
            // It is unknown which of the other points were stored in time, so all count as timed out.
            for offset in std::mem::take(&mut self.accepted) {
                if report.failures.binary_search_by_key(&offset, |failure| failure.tag).is_err() {
                    self.fail(offset, || PutPointError::WriteTimedOut);
                }
            }
        }
        let outcome = &self.outcome;
        for (offset, error) in outcome.errors() {
            self.state.metrics.put_errors(error.kind()).add(1);
            let point = body.get(*offset as usize..).unwrap_or_default();
            let cause = http_cause(error);
            self.state.refused_points.log(request.peer, cause, error, &head(point));
        }
        let listed = if options.details { outcome.errors().len() } else { 0 };
        let rendered = if listed > 0 { details_bytes(listed, body.len()) } else { 0 };
        if self.lacks_errors || !self.memory.take(rendered) {
            return Err(self.memory.refusal());
        }
        if let Some(refusal) = self.limit_refusal(report.stored) {
            return Err(refusal);
        }
        let mut response = self.outcome.response(*options, body);
        let retryable = report.failures.iter().find(|f| is_retryable(&f.error, *options));
        let retryable = retryable.map(|failure| failure.error.to_string());
        let timed_out = report.timed_out > 0 && !options.sync;
        if let Some(why) = retryable.or_else(|| timed_out.then(|| STORE_TIMED_OUT.to_owned())) {
            if !(options.summary || options.details) {
                let message = "Not all points were stored, please send them again";
                let error = ApiError::new(503, message).with_details(why);
                response.body = error.render().into_bytes();
            }
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(HttpResponse::new(status, ContentType::Json, response.body));
        }
        let status =
            StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let response = HttpResponse::new(status, ContentType::Json, response.body);
        if listed == 0 {
            return Ok(response);
        }
        // Releases the memory of the listed points when the connection has taken the last of them.
        let memory = self.memory;
        Ok(response.with_on_sent(Box::new(move || drop(memory))))
    }
}

/// Estimates the bytes of a growing response that lists failed points, each as sent and with its error.
const fn details_bytes(points: usize, body_bytes: usize) -> usize {
    (body_bytes * 2 + points * 200) * 2
}

/// Maximum logged bytes of a point.
const LOGGED_BYTES: usize = 256;

/// Returns the beginning of a text, for the log.
fn head(body: &str) -> &str {
    body.get(..body.floor_char_boundary(LOGGED_BYTES)).unwrap_or(body)
}

/// Returns true if a retry may succeed. With `sync`, storage errors have OpenTSDB's responses.
fn is_retryable(error: &PutError, options: PutOptions) -> bool {
    match error {
        PutError::Throttled(_) | PutError::Closed => true,
        PutError::Storage(cause) => !options.sync && !cause.is_permanent(),
        PutError::Lost => !options.sync,
        _ => false,
    }
}

/// Parses the tag that a request header adds to every point.
fn common_tag(request: &HttpRequest<'_>) -> Result<Option<CommonTag>, HttpError> {
    let Some(name) = &request.state.config.header_tag else { return Ok(None) };
    let Some(value) = request.headers.get(name.as_str()) else { return Ok(None) };
    value.to_str().ok().and_then(CommonTag::parse).map(Some).ok_or_else(|| {
        ApiError::new(400, "Invalid tag in a request header")
            .with_details(format!("The header {name} must hold one tag as k=v"))
            .into()
    })
}

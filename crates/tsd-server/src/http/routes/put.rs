//! `/api/put`, `/api/rollup` and `/api/histogram`: points in JSON.
//!
//! A point acknowledged with success is durable, with or without `sync`. So storage failures are
//! reported to every client; a point that cannot be stored *now* is a 503, on which collectors
//! retry.

use std::{net::SocketAddr, time::Duration};

use hyper::{Method, StatusCode};
use tsd_engine::{HistogramCodecs, IngestSession, NameText, PutError, Sample, SampleContent};
use tsd_model::Timestamp;
use tsd_protocol::{
    ApiError, CommonTag, HistogramBatch, HistogramValueError, HttpHistogram, HttpRollup,
    NAME_SEPARATOR, PointError, PutBatch, PutOptions, PutOutcome, PutPointError, RollupBatch,
    RollupError, SeriesRules,
};

use crate::{
    http::{
        error::HttpError,
        response::{ContentType, HttpResponse},
        service::HttpRequest,
    },
    put_error_mapping::{http_cause, to_http_error},
    rollups::{RollupInput, put_one, put_rollup},
    server_state::ServerState,
};

/// Bodies of up to this many points are written by one call of the store.
const MAX_SINGLE_BATCH_POINTS: usize = 512;

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
    let mut batch = PutBatch::default();
    batch.read(put.body, put.common.as_ref()).map_err(ApiError::from)?;
    let mut pending = PendingPut::new(request.state, PutOutcome::new(&batch), batch.points().len());
    put_points(&mut pending, &request.state.rules, &batch);
    Ok(pending.finish(&put).await)
}

/// Stores the rolled-up points of a body.
pub(super) async fn rollup(request: HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let put = PutRequest::read(&request)?;
    let mut batch = RollupBatch::default();
    batch.read(put.body, put.common.as_ref()).map_err(ApiError::from)?;
    let state = request.state;
    let mut pending = PendingPut::new(state, PutOutcome::of_rollups(&batch), batch.points().len());
    let mut tag_buffer = Vec::new();
    for point in batch.points() {
        let result = match &state.rollups {
            Some(rules) => {
                let HttpRollup { spec, metric, tags_raw, timestamp, value, offset: tag } = point;
                let separators = (NAME_SEPARATOR, NAME_SEPARATOR);
                let input =
                    RollupInput { spec, metric, tags_raw, separators, timestamp, value, tag };
                let (session, series) = (&mut pending.session, &state.rules);
                put_rollup(session, rules, series, &input, &mut tag_buffer, |_| Ok(point.tags()))
            }
            None => Err(RollupError::without_configuration(&point.spec).into()),
        };
        pending.record(point.offset, result);
    }
    Ok(pending.finish(&put).await)
}

/// Stores the histograms of a body.
pub(super) async fn histogram(request: HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let Some(codecs) = &request.state.engine.config().histograms else {
        return Err(ApiError::histograms_disabled().into());
    };
    let put = PutRequest::read(&request)?;
    let mut batch = HistogramBatch::default();
    batch.read(put.body, put.common.as_ref()).map_err(ApiError::from)?;
    let outcome = PutOutcome::of_histograms(&batch);
    let mut pending = PendingPut::new(request.state, outcome, batch.points().len());
    for point in batch.points() {
        let result = put_histogram(&mut pending.session, codecs, &request.state.rules, &point);
        pending.record(point.offset, result);
    }
    Ok(pending.finish(&put).await)
}

/// Passes points to the session in groups.
fn put_points(pending: &mut PendingPut<'_>, rules: &SeriesRules, batch: &PutBatch) {
    let mut points = batch.points();
    let mut group = Vec::with_capacity(points.len().min(IngestSession::GROUP));
    while points.len() > 0 {
        group.clear();
        group.extend(points.by_ref().take(IngestSession::GROUP));
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
    }
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
        request.check_change()?;
        let options = PutOptions::parse(&request.query)?;
        if request.body.bytes().is_empty() {
            return Err(ApiError::missing_put_content().into());
        }
        let body = request.body.text()?;
        Ok(Self { options, body, common: common_tag(request)?, peer: request.peer })
    }
}

/// The points of one write request and their outcome.
struct PendingPut<'a> {
    state: &'a ServerState,
    session: IngestSession,
    outcome: PutOutcome,
    // Body offsets of the accepted points, which identify them in the response.
    accepted: Vec<u32>,
    rejected: Vec<(u32, PutError)>,
}

impl<'a> PendingPut<'a> {
    fn new(state: &'a ServerState, outcome: PutOutcome, points: usize) -> Self {
        let mut session = state.engine.ingest_session(NameText::Latin1);
        if points <= MAX_SINGLE_BATCH_POINTS {
            session.use_single_shard(points);
        }
        Self { state, session, outcome, accepted: Vec::with_capacity(points), rejected: Vec::new() }
    }

    /// Records whether the session accepted a point.
    fn record(&mut self, offset: u32, result: Result<(), PointRejection>) {
        match result {
            Ok(()) => self.accepted.push(offset),
            Err(PointRejection::Invalid(error)) => self.outcome.fail(offset, error),
            Err(PointRejection::Engine(error)) => self.rejected.push((offset, error)),
        }
    }

    /// Waits until the points are stored and builds the response.
    async fn finish(mut self, request: &PutRequest<'_>) -> HttpResponse {
        let PutRequest { options, body, .. } = request;
        let limit = if !options.sync {
            // An unavailable backend must not block clients: they may retry.
            Some(self.state.engine.config().ingest.store_deadline)
        } else if options.sync_timeout_ms > 0 {
            Some(Duration::from_millis(options.sync_timeout_ms))
        } else {
            None
        };
        let report = self.session.commit_within(limit).await;
        let outcome = &mut self.outcome;
        for (offset, error) in &self.rejected {
            outcome.fail(*offset, to_http_error(error));
        }
        for failure in &report.failures {
            outcome.fail(failure.tag, to_http_error(&failure.error));
        }
        if report.timed_out == 0 {
            outcome.succeed(report.stored as u64);
        } else {
            // Which of the other points were stored in time is unknown, so all count as timed out.
            for offset in self.accepted {
                if report.failures.binary_search_by_key(&offset, |failure| failure.tag).is_err() {
                    outcome.fail(offset, PutPointError::WriteTimedOut);
                }
            }
        }
        for (offset, error) in outcome.errors() {
            self.state.metrics.put_errors(error.kind()).add(1);
            let point = body.get(*offset as usize..).unwrap_or_default();
            let cause = http_cause(error);
            self.state.refused_points.log(request.peer, cause, error, &head(point));
        }
        let mut response = outcome.response(*options, body);
        let retryable = report.failures.iter().find(|f| is_retryable(&f.error, *options));
        let retryable = retryable.map(|failure| failure.error.to_string());
        let timed_out = report.timed_out > 0 && !options.sync;
        if let Some(why) = retryable.or_else(|| timed_out.then(|| STORE_TIMED_OUT.to_owned())) {
            if !(options.summary || options.details) {
                let message = "Not all points were stored, please send them again";
                let error = ApiError::new(503, message).with_details(why);
                response.body = error.render().into_bytes();
            }
            return HttpResponse::new(
                StatusCode::SERVICE_UNAVAILABLE,
                ContentType::Json,
                response.body,
            );
        }
        let status =
            StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        HttpResponse::new(status, ContentType::Json, response.body)
    }
}

/// Longest part of a point that is logged, in bytes.
const LOGGED_BYTES: usize = 256;

/// Returns the beginning of a body from a point on.
fn head(body: &str) -> &str {
    body.get(..body.floor_char_boundary(LOGGED_BYTES)).unwrap_or(body)
}

/// Returns true if a retry may succeed. With `sync`, storage errors have OpenTSDB's responses.
fn is_retryable(error: &PutError, options: PutOptions) -> bool {
    match error {
        PutError::Throttled | PutError::Closed => true,
        PutError::Storage(_) | PutError::Lost => !options.sync,
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

//! `/api/put`: points in JSON.
//!
//! A point that is answered with success is durable, whether or not the client asked to wait (`sync`). So
//! failures of the store show to every client; what cannot be stored *now* is a 503, which collectors take
//! as a reason to send again.

use std::time::Duration;

use hyper::{Method, StatusCode};
use tsd_engine::{CommitReport, NameText, PutError};
use tsd_protocol::{ApiError, CommonTag, PutBatch, PutOptions, PutOutcome, PutPointError};

use crate::{
    http::{
        error::HttpError,
        reply::{ContentType, Reply},
        service::Asked,
    },
    put_failure::http_error_of,
    shared::Shared,
};

/// Bodies of up to so many points go to one write actor as one message.
const KEPT_TOGETHER: usize = 512;

/// Stores the points of a body.
pub(super) async fn put(asked: Asked<'_>) -> Result<Reply, HttpError> {
    let shared = asked.shared;
    shared.counters.received_put.add(1);
    asked.allow(&[Method::POST])?;
    let options = PutOptions::parse(&asked.query)?;
    if asked.body.bytes().is_empty() {
        return Err(ApiError::missing_put_content().into());
    }
    let body = asked.body.text()?;
    let common = common_tag(&asked)?;
    let mut batch = PutBatch::default();
    batch.read(body, common.as_ref()).map_err(ApiError::from)?;
    let mut outcome = PutOutcome::new(&batch);
    let report = store(shared, &batch, options, &mut outcome).await;
    for (_, error) in outcome.errors() {
        shared.counters.put_errors(error.kind()).add(1);
    }
    let retry = report.failures.iter().find(|failure| worth_a_retry(&failure.error, options));
    if let Some(failure) = retry {
        let mut reply = outcome.reply(options, body);
        if !(options.summary || options.details) {
            let error = ApiError::new(503, "Not all points were stored, please send them again")
                .with_details(failure.error.to_string());
            reply.body = error.render().into_bytes();
        }
        return Ok(Reply::new(StatusCode::SERVICE_UNAVAILABLE, ContentType::Json, reply.body));
    }
    let reply = outcome.reply(options, body);
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(Reply::new(status, ContentType::Json, reply.body))
}

/// Stores the points of a batch and notes those that fail.
async fn store(
    shared: &Shared,
    batch: &PutBatch,
    options: PutOptions,
    outcome: &mut PutOutcome,
) -> CommitReport {
    let mut session = shared.engine.ingest_session(NameText::Latin1);
    if batch.points().len() <= KEPT_TOGETHER {
        session.keep_together();
    }
    // Offsets name the points: they are what the answer needs.
    let mut given = Vec::with_capacity(batch.points().len());
    let mut refused = Vec::new();
    for point in batch.points() {
        let (metric, tags_raw) = (point.metric, point.tags_raw);
        let time = point.timestamp.as_given();
        let put = match session.put_cached(metric, tags_raw, time, point.value, point.offset) {
            Some(put) => put,
            None => match point.tags(&shared.rules) {
                Ok(tags) => {
                    session.put_new(metric, tags_raw, &tags, time, point.value, point.offset)
                }
                Err(fault) => {
                    outcome.fail(point.offset, fault.into());
                    continue;
                }
            },
        };
        match put {
            Ok(()) => given.push(point.offset),
            Err(error) => refused.push((point.offset, error)),
        }
    }
    let limit = (options.sync && options.sync_timeout_ms > 0)
        .then(|| Duration::from_millis(options.sync_timeout_ms));
    let report = session.commit_within(limit).await;
    for (offset, error) in &refused {
        outcome.fail(*offset, http_error_of(error));
    }
    for failure in &report.failures {
        outcome.fail(failure.tag, http_error_of(&failure.error));
    }
    if report.timed_out == 0 {
        outcome.succeed(report.stored as u64);
        return report;
    }
    // Which of the others were stored in time is not known, so none is claimed to be.
    for offset in given {
        if report.failures.binary_search_by_key(&offset, |failure| failure.tag).is_err() {
            outcome.fail(offset, PutPointError::WriteTimedOut);
        }
    }
    report
}

/// Whether the same point may be stored later. Who asks to wait for the store gets OpenTSDB's answers about it.
fn worth_a_retry(error: &PutError, options: PutOptions) -> bool {
    match error {
        PutError::Throttled | PutError::Closed => true,
        PutError::Storage(_) | PutError::Lost => !options.sync,
        _ => false,
    }
}

/// The tag that a header adds to every point.
fn common_tag(asked: &Asked<'_>) -> Result<Option<CommonTag>, HttpError> {
    let Some(name) = &asked.shared.config.header_tag else { return Ok(None) };
    let Some(value) = asked.headers.get(name.as_str()) else { return Ok(None) };
    value.to_str().ok().and_then(CommonTag::parse).map(Some).ok_or_else(|| {
        ApiError::new(400, "Invalid tag in a request header")
            .with_details(format!("The header {name} must hold one tag as k=v"))
            .into()
    })
}

//! `/api/annotation`, `/api/annotations` and `/api/annotation/bulk`: annotations of series and
//! global annotations.

use hyper::{Method, StatusCode};
use tsd_engine::{Annotation, MetricAct, Tsuid, UidKind};
use tsd_meta::{AnnotationEdit, AnnotationEditOutcome, AnnotationError};
use tsd_model::{Uid, millis_of};
use tsd_protocol::{
    ApiError, parse_annotation_body, parse_annotation_range_body, parse_annotation_range_uri,
    parse_annotation_uri, parse_annotations_body, render_annotation, render_annotations,
};

use super::{
    query_control::control_by_uri,
    response_stream::{self, SerializationTimer},
};
use crate::{
    failure_mapping::{storage_api_error, uid_api_error},
    http::{error::HttpError, request::HttpRequest, response::HttpResponse},
    query_failure_mapping::cause_of,
};

/// Handles one annotation, or several below `bulk`.
pub(super) async fn annotation(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let method = request.api_method()?;
    if request.path.sub_path.to_ascii_lowercase().ends_with("bulk") {
        return match method {
            Method::POST => edit_bulk(request, false).await,
            Method::PUT => edit_bulk(request, true).await,
            Method::DELETE => delete_range(request).await,
            _ => Err(ApiError::method_not_allowed(request.method.as_str()).into()),
        };
    }
    let annotation = read_annotation(request)?;
    match method {
        Method::GET => get(request, &annotation).await,
        Method::POST => edit(request, annotation, false).await,
        Method::PUT => edit(request, annotation, true).await,
        Method::DELETE => delete(request, &annotation).await,
        _ => Err(ApiError::method_not_allowed(method.as_str()).into()),
    }
}

/// Lists the global annotations of a time range. Methods other than GET handle one annotation.
pub(super) async fn annotations(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    if request.api_method()? != Method::GET {
        return annotation(request).await;
    }
    let annotation = read_annotation(request)?;
    let start_ms = millis_of(annotation.start_time);
    // OpenTSDB reads the current time in milliseconds as seconds here.
    let end_ms = match annotation.end_time {
        1.. => millis_of(annotation.end_time),
        _ => request.state.clock().now_ms,
    };
    if end_ms < start_ms {
        let message = "The end timestamp cannot be less than the start timestamp";
        return Err(ApiError::new(400, message).into());
    }
    let range = (start_ms, end_ms);
    let found =
        request.state.engine.reads().global_annotations(range, control_by_uri(request)).await;
    let (annotations, guard) = found.map_err(|failure| cause_of(&failure).lookup_error())?;
    let mut annotations = annotations.into_iter();
    let mut separator = b'[';
    let write = move |out: &mut Vec<u8>, bytes| {
        while out.len() < bytes {
            let Some(annotation) = annotations.next() else {
                out.extend_from_slice(if separator == b'[' { b"[]" } else { b"]" });
                return false;
            };
            out.push(std::mem::replace(&mut separator, b','));
            out.extend(render_annotation(&annotation));
        }
        true
    };
    Ok(response_stream::chunked(write, SerializationTimer::default(), guard))
}

/// Parses the annotation of a request from its body or its parameters.
fn read_annotation(request: &HttpRequest<'_>) -> Result<Annotation, HttpError> {
    if request.body.bytes().is_empty() {
        return Ok(parse_annotation_uri(&request.query, &request.state.clock())?);
    }
    Ok(parse_annotation_body(request.body.text()?)?)
}

async fn get(
    request: &HttpRequest<'_>,
    annotation: &Annotation,
) -> Result<HttpResponse, HttpError> {
    let tsuid = series(request, &annotation.tsuid, MetricAct::Read).await?;
    let found = request.state.engine.annotations().get(tsuid.as_ref(), annotation.start_time).await;
    match found.map_err(to_api_error)? {
        Some(annotation) => Ok(HttpResponse::json(render_annotation(&annotation))),
        None => Err(ApiError::new(404, "Unable to locate annotation in storage").into()),
    }
}

async fn edit(
    request: &HttpRequest<'_>,
    annotation: Annotation,
    replace: bool,
) -> Result<HttpResponse, HttpError> {
    let tsuid = series(request, &annotation.tsuid, MetricAct::Write).await?;
    let outcome =
        request.state.engine.annotations().edit(edit_of(annotation, tsuid), replace).await;
    Ok(match outcome.map_err(to_api_error)? {
        AnnotationEditOutcome::Stored(annotation) => {
            HttpResponse::json(render_annotation(&annotation))
        }
        AnnotationEditOutcome::Unchanged => HttpResponse::status_only(StatusCode::NOT_MODIFIED),
    })
}

async fn delete(
    request: &HttpRequest<'_>,
    annotation: &Annotation,
) -> Result<HttpResponse, HttpError> {
    let tsuid = series(request, &annotation.tsuid, MetricAct::Delete).await?;
    let deleted =
        request.state.engine.annotations().delete(tsuid.as_ref(), annotation.start_time).await;
    deleted.map_err(|error| match error {
        AnnotationError::NoStartTime => {
            ApiError::new(400, "Unable to delete Annotation information")
                .with_details(error.to_string())
        }
        other => to_api_error(other),
    })?;
    Ok(HttpResponse::status_only(StatusCode::NO_CONTENT))
}

/// Edits annotations sequentially, so that edits of the same annotation apply in the order of the body.
async fn edit_bulk(request: &HttpRequest<'_>, replace: bool) -> Result<HttpResponse, HttpError> {
    let mut stored = Vec::new();
    for annotation in parse_annotations_body(request.body.required_text()?)? {
        let tsuid = series(request, &annotation.tsuid, MetricAct::Write).await?;
        let summary = format!(
            "TSUID: {} Start: {}  Description: {}",
            annotation.tsuid, annotation.start_time, annotation.description
        );
        match request.state.engine.annotations().edit(edit_of(annotation, tsuid), replace).await {
            Ok(AnnotationEditOutcome::Stored(annotation)) => stored.push(annotation),
            Ok(AnnotationEditOutcome::Unchanged) => {}
            Err(error @ AnnotationError::NoStartTime) => {
                let details = format!("Annotation error: {summary}");
                return Err(ApiError::new(400, error.to_string()).with_details(details).into());
            }
            Err(error @ AnnotationError::Contended) => {
                let details = format!("{error}: {summary}");
                let message = "Failed to save an Annotation to storage";
                return Err(ApiError::new(500, message).with_details(details).into());
            }
            Err(other) => return Err(to_api_error(other).into()),
        }
    }
    Ok(HttpResponse::json(render_annotations(&stored)))
}

async fn delete_range(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let clock = request.state.clock();
    let range = if request.body.bytes().is_empty() {
        parse_annotation_range_uri(&request.query, &clock)?
    } else {
        parse_annotation_range_body(request.body.text()?, &clock)?
    };
    let mut tsuids = Vec::new();
    for text in range.tsuids.iter().flatten() {
        tsuids.extend(series(request, text, MetricAct::Delete).await?);
    }
    let within = (range.start_ms, range.end_ms);
    let deleted =
        request.state.engine.annotations().delete_range(&tsuids, range.global, within).await;
    Ok(HttpResponse::json(range.render(deleted.map_err(to_api_error)?)))
}

/// Parses a TSUID, and fails unless the sender may act on its metric. The empty text means global annotations, which
/// belong to no metric.
async fn series(
    request: &HttpRequest<'_>,
    text: &str,
    act: MetricAct,
) -> Result<Option<Tsuid>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    let engine = &request.state.engine;
    let schema = &engine.config().schema;
    let tsuid = Tsuid::parse_hex(schema, text)
        .map_err(|error| ApiError::wrapped(400, error.to_string()))?;
    let rights = request.rights();
    if !rights.are_all() {
        let metric = tsuid.as_bytes().get(..schema.metric_width());
        let name = match metric.and_then(|bytes| Uid::try_new(bytes).ok()) {
            Some(uid) => {
                let names = engine.uids().names_of(UidKind::Metric, &[uid]).await;
                names.map_err(|error| uid_api_error(&error))?.pop().flatten()
            }
            None => None,
        };
        rights
            .check_tsuid(act, tsuid.as_bytes(), name.as_deref())
            .map_err(|error| ApiError::new(403, "Forbidden").with_details(error.to_string()))?;
    }
    Ok(Some(tsuid))
}

fn edit_of(annotation: Annotation, tsuid: Option<Tsuid>) -> AnnotationEdit {
    AnnotationEdit {
        tsuid,
        start_time: annotation.start_time,
        end_time: Some(annotation.end_time),
        description: Some(annotation.description),
        notes: Some(annotation.notes),
        custom: annotation.custom,
    }
}

fn to_api_error(error: AnnotationError) -> ApiError {
    match error {
        AnnotationError::NoStartTime
        | AnnotationError::Timestamp(_)
        | AnnotationError::Expired(_) => ApiError::wrapped(400, error.to_string()),
        AnnotationError::TooLarge { .. } => ApiError::new(413, error.to_string()),
        AnnotationError::Contended => {
            ApiError::new(500, "Failed to save the Annotation to storage")
                .with_details(error.to_string())
        }
        AnnotationError::Storage(error) => storage_api_error(&error),
        AnnotationError::Unreadable(_) => ApiError::internal(error.to_string()),
    }
}

//! `/api/uid/uidmeta` and `/api/uid/tsmeta`: meta objects of names and of series.
//!
//! As in OpenTSDB, some invalid ids get a 500 from reads and a 400 from writes.

use hyper::{Method, StatusCode};
use tsd_engine::{SeriesMeta, Tsuid, UidKind};
use tsd_meta::{MetaEditOutcome, MetaError};
use tsd_model::{from_hex, java_byte_list};
use tsd_protocol::{
    ApiError, TsMetaRequest, UidMetaRequest, parse_series_text, parse_ts_meta_body,
    parse_ts_meta_uri, parse_uid_meta_body, parse_uid_meta_uri, parse_uid_uri, render_series_meta,
    render_uid_meta, series_metas_response,
};

use super::{
    super::{
        query_control::control_by_uri,
        response_stream::{self, SerializationTimer},
    },
    mode::{check_reads, check_writes},
};
use crate::{
    failure_mapping::meta_api_error,
    http::{error::HttpError, request::HttpRequest, response::HttpResponse},
    query_failure_mapping::cause_of,
};

const UNKNOWN_UID: &str = "Could not find the requested UID";

/// Why the id of a request does not name a meta object. The texts are OpenTSDB's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum MetaIdError {
    #[error("Missing UID")]
    MissingUid,
    #[error("Missing type")]
    MissingKind,
    #[error("UID was empty")]
    Empty,
    #[error("The id is not hexadecimal: {0}")]
    NotHexadecimal(String),
}

/// Handles a request for the UIDMeta of a UID.
pub(super) async fn uid_meta(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    match request.api_method()? {
        Method::GET => get_uid_meta(request).await,
        method @ (Method::POST | Method::PUT) => {
            edit_uid_meta(request, method == Method::PUT).await
        }
        Method::DELETE => delete_uid_meta(request).await,
        method => Err(ApiError::method_not_allowed(method.as_str()).into()),
    }
}

/// Handles a request for the TSMeta of a series.
pub(super) async fn ts_meta(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    match request.api_method()? {
        Method::GET => get_ts_meta(request).await,
        method @ (Method::POST | Method::PUT) => edit_ts_meta(request, method == Method::PUT).await,
        Method::DELETE => delete_ts_meta(request).await,
        method => Err(ApiError::method_not_allowed(method.as_str()).into()),
    }
}

async fn get_uid_meta(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    check_reads(request)?;
    let (uid, kind) = parse_uid_uri(&request.query)?;
    let uid = id_bytes(&uid).map_err(|error| ApiError::new(400, error.to_string()))?;
    let found = request.state.engine.meta_objects().uid_meta(kind, &uid).await;
    let object = found.map_err(uid_meta_error)?;
    Ok(HttpResponse::json(render_uid_meta(&object)))
}

async fn edit_uid_meta(
    request: &HttpRequest<'_>,
    replace: bool,
) -> Result<HttpResponse, HttpError> {
    check_writes(request)?;
    let UidMetaRequest { uid, kind, edit } = read_uid_meta(request)?;
    let kind = identified(&uid, kind).map_err(|error| ApiError::wrapped(400, error.to_string()))?;
    if edit.is_empty() {
        return Ok(HttpResponse::status_only(StatusCode::NOT_MODIFIED));
    }
    let uid = id_bytes(&uid).map_err(|error| ApiError::wrapped(400, error.to_string()))?;
    let meta = request.state.engine.meta_objects();
    let outcome = meta.edit_uid_meta(kind, &uid, &edit, replace).await;
    Ok(match outcome.map_err(uid_meta_error)? {
        MetaEditOutcome::Stored(object) => HttpResponse::json(render_uid_meta(&object)),
        MetaEditOutcome::Unchanged => HttpResponse::status_only(StatusCode::NOT_MODIFIED),
    })
}

async fn delete_uid_meta(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    check_writes(request)?;
    let UidMetaRequest { uid, kind, .. } = read_uid_meta(request)?;
    let unable = |error: MetaIdError| {
        ApiError::new(400, "Unable to delete UIDMeta information").with_details(error.to_string())
    };
    let kind = identified(&uid, kind).map_err(unable)?;
    let uid = id_bytes(&uid).map_err(unable)?;
    let deleted = request.state.engine.meta_objects().delete_uid_meta(kind, &uid).await;
    deleted.map_err(uid_meta_error)?;
    Ok(HttpResponse::status_only(StatusCode::NO_CONTENT))
}

fn read_uid_meta(request: &HttpRequest<'_>) -> Result<UidMetaRequest, HttpError> {
    if request.body.bytes().is_empty() {
        return Ok(parse_uid_meta_uri(&request.query)?);
    }
    Ok(parse_uid_meta_body(request.body.text()?)?)
}

/// Returns the kind of a request that has both a UID and a kind.
fn identified(uid: &str, kind: Option<UidKind>) -> Result<UidKind, MetaIdError> {
    if uid.is_empty() {
        return Err(MetaIdError::MissingUid);
    }
    kind.ok_or(MetaIdError::MissingKind)
}

async fn get_ts_meta(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    check_reads(request)?;
    if !request.query.has("tsuid") {
        return Ok(list_ts_meta(request).await?);
    }
    let tsuid = id_bytes(request.query.get("tsuid").unwrap_or_default());
    let tsuid = tsuid.map_err(|error| ApiError::new(400, error.to_string()))?;
    let found = request.state.engine.meta_objects().series_meta(&tsuid).await;
    match found.map_err(|error| ts_meta_error(error, "Unable to find one of the UIDs"))? {
        Some(object) => Ok(HttpResponse::json(render_series_meta(&object))),
        None => Err(ApiError::new(404, "Could not find Timeseries meta data").into()),
    }
}

/// Lists the TSMeta of the series with a metric and tags.
async fn list_ts_meta(request: &HttpRequest<'_>) -> Result<HttpResponse, ApiError> {
    let (metric, tags) = parse_series_text(request.query.required("m")?)?;
    let listed =
        request.state.engine.reads().series_metas(metric, tags, control_by_uri(request)).await;
    let (objects, guard) = listed.map_err(|failure| cause_of(&failure).ts_meta_error())?;
    let mut response = series_metas_response(objects.into_iter());
    let write = move |out: &mut Vec<u8>, bytes| response.write(out, bytes);
    Ok(response_stream::chunked(write, SerializationTimer::default(), guard))
}

async fn edit_ts_meta(request: &HttpRequest<'_>, replace: bool) -> Result<HttpResponse, HttpError> {
    check_writes(request)?;
    let TsMetaRequest { tsuid, edit } = read_ts_meta(request)?;
    let meta = request.state.engine.meta_objects();
    let error = |error| ts_meta_error(error, "Unable to find one or more UIDs");
    if !tsuid.is_empty() {
        if edit.is_empty() {
            return Ok(HttpResponse::status_only(StatusCode::NOT_MODIFIED));
        }
        let tsuid = parse_tsuid(request, &tsuid)?;
        return Ok(edited(meta.edit_series_meta(&tsuid, &edit, replace).await.map_err(error)?));
    }
    let (metric, tags) = parse_series_text(request.query.required("m")?)?;
    let tsuid =
        meta.tsuid_of(&metric, &tags).await.map_err(|error| meta_api_error(&error, "TSMeta"))?;
    let tsuid = checked_tsuid(request, &tsuid)?;
    if request.query.get("create") == Some("true") {
        let created = meta.create_series_meta(&tsuid, &edit, replace).await.map_err(error)?;
        request.state.engine.series_created(&tsuid);
        return Ok(edited(created));
    }
    if !meta.has_series_meta(&tsuid).await.map_err(error)? {
        let text = "Could not find TSMeta, specify \"create=true\" to create a new one.";
        return Err(ApiError::new(400, text).into());
    }
    Ok(edited(meta.edit_series_meta(&tsuid, &edit, replace).await.map_err(error)?))
}

fn edited(outcome: MetaEditOutcome<SeriesMeta>) -> HttpResponse {
    match outcome {
        MetaEditOutcome::Stored(object) => HttpResponse::json(render_series_meta(&object)),
        MetaEditOutcome::Unchanged => HttpResponse::status_only(StatusCode::NOT_MODIFIED),
    }
}

async fn delete_ts_meta(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    check_writes(request)?;
    let tsuid = read_ts_meta(request)?.tsuid;
    let unable = |error: MetaIdError| {
        ApiError::new(400, "Unable to delete TSMeta information").with_details(error.to_string())
    };
    if tsuid.is_empty() {
        return Err(unable(MetaIdError::MissingUid).into());
    }
    let tsuid = id_bytes(&tsuid).map_err(unable)?;
    let deleted = request.state.engine.meta_objects().delete_series_meta(&tsuid).await;
    deleted.map_err(|error| ts_meta_error(error, UNKNOWN_UID))?;
    Ok(HttpResponse::status_only(StatusCode::NO_CONTENT))
}

fn read_ts_meta(request: &HttpRequest<'_>) -> Result<TsMetaRequest, HttpError> {
    if request.body.bytes().is_empty() {
        return Ok(parse_ts_meta_uri(&request.query)?);
    }
    Ok(parse_ts_meta_body(request.body.text()?)?)
}

/// Decodes an id in hex. Adds a leading zero to an odd number of digits.
fn id_bytes(text: &str) -> Result<Vec<u8>, MetaIdError> {
    if text.is_empty() {
        return Err(MetaIdError::Empty);
    }
    let padded = if text.len().is_multiple_of(2) { text.to_owned() } else { format!("0{text}") };
    from_hex(padded.as_bytes()).ok_or_else(|| MetaIdError::NotHexadecimal(text.to_owned()))
}

/// Parses the TSUID of an edit.
fn parse_tsuid(request: &HttpRequest<'_>, text: &str) -> Result<Tsuid, ApiError> {
    let bytes = from_hex(text.as_bytes());
    let bytes = bytes
        .ok_or_else(|| ApiError::wrapped(400, format!("The TSUID is not hexadecimal: {text}")))?;
    checked_tsuid(request, &bytes)
}

fn checked_tsuid(request: &HttpRequest<'_>, bytes: &[u8]) -> Result<Tsuid, ApiError> {
    let schema = &request.state.engine.config().schema;
    Tsuid::try_new(schema, bytes).map_err(|_| {
        ApiError::wrapped(
            400,
            if bytes.len() <= schema.metric_width() {
                "TSUID is too short, may be missing tags"
            } else {
                "The TSUID appears to be malformed, improper tag width"
            },
        )
    })
}

/// Maps an error of a UIDMeta.
fn uid_meta_error(error: MetaError) -> ApiError {
    match error {
        MetaError::NoSuchUid { kind, uid } => {
            ApiError::new(404, UNKNOWN_UID).with_details(no_such_uid(kind, &uid))
        }
        other => meta_api_error(&other, "UIDMeta"),
    }
}

/// Maps an error of a TSMeta. `unknown` is the message for a UID without a name.
fn ts_meta_error(error: MetaError, unknown: &str) -> ApiError {
    match error {
        MetaError::NoSuchUid { kind, uid } => {
            ApiError::new(404, unknown).with_details(no_such_uid(kind, &uid))
        }
        MetaError::NotStored => ApiError::wrapped(400, "Requested TSMeta did not exist"),
        other => meta_api_error(&other, "TSMeta"),
    }
}

fn no_such_uid(kind: UidKind, uid: &[u8]) -> String {
    format!("No such unique ID for '{kind}': {}", java_byte_list(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hexadecimal_with_whole_bytes() {
        assert_eq!(id_bytes("00000a"), Ok(vec![0, 0, 10]));
        assert_eq!(id_bytes("1"), Ok(vec![1]));
        for bad in ["", "xy", "é", "0x01", "00 01"] {
            assert!(id_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_uid_of_another_width_is_an_error_of_the_request() {
        let error = MetaError::WrongWidth { kind: UidKind::Metric, found: 1, expected: 3 };
        let text = "Wrong id.length = 1 which is != 3 required for 'metrics'";
        assert_eq!(uid_meta_error(error), ApiError::wrapped(400, text));
    }

    #[test]
    fn errors_name_what_is_missing() {
        let unknown = MetaError::NoSuchUid { kind: UidKind::Metric, uid: vec![0, 0, 0xff] };
        let error = uid_meta_error(unknown);
        assert_eq!(error.details, "No such unique ID for 'metrics': [0, 0, -1]");
        assert_eq!(ts_meta_error(MetaError::NotStored, "").status, 400);
        let conflict = ts_meta_error(MetaError::Contended, "");
        assert_eq!(conflict.message, "Failed to save the TSMeta to storage");
    }
}

//! `/api/suggest` and `/suggest`: names with a prefix, or with `match=any` names that contain a text.

use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use tsd_engine::{MetricAct, ShownNames, UidKind};
use tsd_protocol::{ApiError, ParseMemory, write_json_string};

use crate::{
    failure_mapping::uid_api_error,
    http::{
        error::HttpError,
        parsed_body::PointMemory,
        request::HttpRequest,
        response::{ContentType, HttpResponse},
    },
};

/// Default maximum number of names.
const DEFAULT_MAX: usize = 25;
/// Upper bound of `max`.
const LARGEST_MAX: usize = 1 << 20;
/// Memory of a name in addition to its text, in the list and in the response.
const NAME_BYTES: usize = 48;

/// Longest time of a search by any part of a name, which reads all names.
const SEARCH_TIME: Duration = Duration::from_secs(1);

/// Parameters of a request.
#[derive(Debug, PartialEq, Eq)]
struct SuggestRequest {
    kind: String,
    prefix: String,
    max: Option<String>,
    /// `prefix` or `any`.
    matching: Option<String>,
}

/// Suggests names of a kind. Outside the API the body is ignored.
pub(super) async fn suggest(
    request: &HttpRequest<'_>,
    api: bool,
) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::POST])?;
    let suggest = if api && (request.method == Method::POST || !request.body.bytes().is_empty()) {
        let body = request.body.text()?;
        if body.is_empty() {
            return Err(ApiError::missing_content().into());
        }
        read_body(body)?
    } else {
        SuggestRequest {
            kind: request.query.required("type")?.to_owned(),
            prefix: request.query.get("q").unwrap_or_default().to_owned(),
            max: request.query.get("max").map(str::to_owned),
            matching: request.query.get("match").map(str::to_owned),
        }
    };
    let max = read_max(suggest.max.as_deref())?;
    let kind = match suggest.kind.as_str() {
        "metrics" => UidKind::Metric,
        "tagk" => UidKind::Tagk,
        "tagv" => UidKind::Tagv,
        other => return Err(ApiError::new(400, format!("Invalid 'type' parameter:{other}")).into()),
    };
    let rights = request.rights();
    if kind != UidKind::Metric {
        // Tags belong to the series of any metric.
        rights
            .check_all(MetricAct::Read)
            .map_err(|error| ApiError::new(403, "Forbidden").with_details(error.to_string()))?;
    }
    let is_readable = |name: &[u8]| rights.allows_stored(MetricAct::Read, name);
    let is_shown = (!rights.are_all()).then(|| Box::new(is_readable) as ShownNames<'_>);
    let wait = request.body.memory_wait();
    let mut memory = PointMemory::begin(&request.state.body_memory, 0, wait).await?;
    let content_type = if api { ContentType::Json } else { ContentType::LegacyJson };
    if is_search(suggest.matching.as_deref())? {
        let found = search(request, (kind, &suggest.prefix, max), is_shown, &mut memory).await?;
        let response = HttpResponse::new(StatusCode::OK, content_type, found);
        return Ok(response.with_on_sent(Box::new(move || drop(memory))));
    }
    let mut suggestions =
        request.state.engine.uids().suggestions(kind, &suggest.prefix, max, is_shown);
    let mut names = Vec::new();
    while let Some(batch) = suggestions.next_batch().await.map_err(|error| uid_api_error(&error))? {
        keep(&mut memory, &mut names, batch).await?;
    }
    let body = render(&names);
    take_rest(&mut memory, body.len(), &names)?;
    let response = HttpResponse::new(StatusCode::OK, content_type, body);
    Ok(response.with_on_sent(Box::new(move || drop(memory))))
}

/// Searches names by any part of them: the first ones, the number of all, and whether all names were read.
async fn search(
    request: &HttpRequest<'_>,
    (kind, part, max): (UidKind, &str, usize),
    is_shown: Option<ShownNames<'_>>,
    memory: &mut PointMemory,
) -> Result<Vec<u8>, HttpError> {
    let deadline = Instant::now() + SEARCH_TIME;
    let mut search = request.state.engine.uids().search(kind, part, max, is_shown);
    let mut names = Vec::new();
    let is_complete = loop {
        match timeout_at(deadline, search.next_batch()).await {
            Ok(Ok(Some(batch))) => keep(memory, &mut names, batch).await?,
            Ok(Ok(None)) => break true,
            Ok(Err(error)) => return Err(uid_api_error(&error).into()),
            Err(_) => break false,
        }
        // A store whose batches are ready does not let the timeout expire.
        if Instant::now() >= deadline {
            break false;
        }
    };
    let mut body = b"{\"names\":".to_vec();
    body.append(&mut render(&names));
    let matching = search.matching();
    body.extend_from_slice(
        format!(",\"matching\":{matching},\"complete\":{is_complete}}}").as_bytes(),
    );
    take_rest(memory, body.len(), &names)?;
    Ok(body)
}

/// Reserves memory for names and their text in the response, and adds them.
async fn keep(
    memory: &mut PointMemory,
    names: &mut Vec<String>,
    batch: Vec<String>,
) -> Result<(), HttpError> {
    let bytes = batch.iter().map(|name| NAME_BYTES + 2 * name.len()).sum();
    if !memory.take_or_wait(bytes).await {
        return Err(memory.refusal().into());
    }
    names.extend(batch);
    Ok(())
}

/// Reserves the rest of a body, such as escapes, which are rare in names.
fn take_rest(memory: &mut PointMemory, body: usize, names: &[String]) -> Result<(), HttpError> {
    if memory.take(body.saturating_sub(least_rendered_bytes(names))) {
        Ok(())
    } else {
        Err(memory.refusal().into())
    }
}

/// True if any part of a name may match.
fn is_search(matching: Option<&str>) -> Result<bool, ApiError> {
    match matching {
        None | Some("" | "prefix") => Ok(false),
        Some("any") => Ok(true),
        Some(other) => {
            let message = format!("Invalid 'match' parameter:{other}");
            Err(ApiError::new(400, message).with_details("Valid values: prefix, any"))
        }
    }
}

/// Renders an array of names.
fn render(names: &[String]) -> Vec<u8> {
    let mut body = Vec::with_capacity(least_rendered_bytes(names));
    body.push(b'[');
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        write_json_string(&mut body, name);
    }
    body.push(b']');
    body
}

/// Returns the bytes of a rendered array of names without escapes.
fn least_rendered_bytes(names: &[String]) -> usize {
    names.iter().map(|name| name.len() + r#""","#.len()).sum::<usize>() + "[]".len()
}

fn read_max(text: Option<&str>) -> Result<usize, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(DEFAULT_MAX) };
    let max: i32 =
        text.parse().map_err(|_| ApiError::new(400, "Unable to parse 'max' as a number"))?;
    Ok(usize::try_from(max).ok().filter(|max| *max > 0).unwrap_or(DEFAULT_MAX).min(LARGEST_MAX))
}

/// Reads `{"type":…,"q":…,"max":…,"match":…}`. Reads numbers as text.
fn read_body(body: &str) -> Result<SuggestRequest, ApiError> {
    let fields: Map<String, Value> =
        serde_json::from_str(body).map_err(|error| ApiError::bad_json(error.to_string()))?;
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(Value::Bool(flag)) => Ok(Some(flag.to_string())),
        Some(_) => Err(ApiError::bad_json(format!("{name} must be a text"))),
    };
    Ok(SuggestRequest {
        kind: text("type")?.ok_or_else(|| ApiError::new(400, "Missing 'type' parameter"))?,
        prefix: text("q")?.unwrap_or_default(),
        max: text("max")?,
        matching: text("match")?,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn bodies_may_hold_numbers_as_numbers_or_texts() {
        let suggest = read_body(r#"{"type":"metrics","q":"sys","max":10}"#).unwrap();
        assert_eq!(
            suggest,
            SuggestRequest {
                kind: "metrics".into(),
                prefix: "sys".into(),
                max: Some("10".into()),
                matching: None,
            }
        );
        assert_eq!(read_body(r#"{"type":"tagk"}"#).unwrap().prefix, "");
        assert_eq!(read_body("{}").unwrap_err().message, "Missing 'type' parameter");
        for bad in ["", "[]", "{", r#"{"type":["metrics"]}"#] {
            assert_eq!(read_body(bad).unwrap_err().message, "Unable to parse the given JSON");
        }
    }

    #[test]
    fn invalid_max_means_the_default() {
        for (text, max) in
            [(None, 25), (Some(""), 25), (Some("0"), 25), (Some("-1"), 25), (Some("7"), 7)]
        {
            assert_eq!(read_max(text).unwrap(), max, "{text:?}");
        }
        assert!(read_max(Some("many")).is_err());
    }
}

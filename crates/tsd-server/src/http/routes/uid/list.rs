//! `/api/uid/list`: names and their UIDs as stored, for tools. OpenTSDB has no such endpoint.
//!
//! With `name` or `uid` it finds the mappings of one name or UID. Otherwise it lists names that contain a match
//! of a regular expression (`match`), in pages. Each page reads a limited number of names; `next` is the `after`
//! of the next page.

use hyper::Method;
use serde_json::{Value, json};
use tsd_engine::{MappingPage, StoredMapping, UidKind};
use tsd_model::{from_hex, to_hex};
use tsd_protocol::ApiError;

use crate::{
    failure_mapping::storage_api_error,
    http::{error::HttpError, request::HttpRequest, response::HttpResponse},
};

/// Default and maximum number of mappings of a page.
const DEFAULT_LIMIT: usize = 1_000;
const LARGEST_LIMIT: usize = 10_000;
/// Maximum names to read for a page.
const NAMES_PER_PAGE: usize = 100_000;

pub(super) async fn list(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET])?;
    let given = |name| request.query.get(name).filter(|value| !value.is_empty());
    let kind = given("type").map(kind).transpose()?;
    let uids = request.state.engine.uids();
    let found = if let Some(name) = given("name") {
        let mappings = uids.mappings_of_name(kind, name).await;
        mappings.map(|mappings| MappingPage { mappings, next: None })
    } else if let Some(uid) = given("uid") {
        let uid = from_hex(uid.as_bytes())
            .ok_or_else(|| ApiError::new(400, format!("Invalid 'uid' parameter:{uid}")))?;
        let mappings = uids.mappings_of_uid(kind, &uid).await;
        mappings.map(|mappings| MappingPage { mappings, next: None })
    } else {
        let pattern =
            tsd_engine::compile_pattern(given("match").unwrap_or_default()).map_err(|error| {
                ApiError::new(400, "Invalid 'match' parameter").with_details(error.to_string())
            })?;
        let limits = (limit(given("limit"))?, NAMES_PER_PAGE);
        uids.page(kind, request.query.get("after"), |name| pattern.is_match(name), limits).await
    };
    let page = found.map_err(|error| storage_api_error(&error))?;
    Ok(HttpResponse::json(body(&page).to_string()))
}

fn kind(name: &str) -> Result<UidKind, ApiError> {
    UidKind::from_name(name)
        .ok_or_else(|| ApiError::new(400, format!("Invalid 'type' parameter:{name}")))
}

fn limit(text: Option<&str>) -> Result<usize, ApiError> {
    let Some(text) = text else { return Ok(DEFAULT_LIMIT) };
    match text.parse::<usize>() {
        Ok(limit @ 1..) => Ok(limit.min(LARGEST_LIMIT)),
        _ => Err(ApiError::new(400, format!("Invalid 'limit' parameter:{text}"))),
    }
}

fn body(page: &MappingPage) -> Value {
    let mapping = |StoredMapping { kind, name, uid, is_counter }: &StoredMapping| {
        json!({
            "type": kind.as_str(),
            "name": name,
            "uid": to_hex(uid),
            "counter": is_counter,
        })
    };
    json!({
        "mappings": page.mappings.iter().map(mapping).collect::<Vec<_>>(),
        "next": page.next,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;

    use super::*;

    #[test]
    fn limits_are_numbers_above_zero() {
        assert_eq!(limit(None).unwrap(), DEFAULT_LIMIT);
        assert_eq!(limit(Some("7")).unwrap(), 7);
        assert_eq!(limit(Some("1000000")).unwrap(), LARGEST_LIMIT);
        for bad in ["0", "-1", "x"] {
            assert!(limit(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_page_has_its_mappings_and_where_the_next_begins() {
        let mapping = StoredMapping {
            kind: UidKind::Metric,
            name: "sys.cpu".to_owned(),
            uid: Bytes::from_static(&[0, 0, 1]),
            is_counter: false,
        };
        let page = MappingPage { mappings: vec![mapping], next: Some("sys.cpu".to_owned()) };
        assert_eq!(
            body(&page).to_string(),
            r#"{"mappings":[{"type":"metrics","name":"sys.cpu","uid":"000001","counter":false}],"next":"sys.cpu"}"#
        );
    }
}

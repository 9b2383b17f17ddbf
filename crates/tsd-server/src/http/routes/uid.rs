//! `/api/uid/assign` assigns UIDs to names, `/api/uid/rename` renames UIDs, `/api/uid/list` lists them,
//! `/api/uid/uidmeta` and `/api/uid/tsmeta` are about meta objects.

mod list;
mod meta;
mod rename;

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};
use serde_json::{Map, Value};
use tsd_engine::{UidError, UidKind};
use tsd_model::to_hex;
use tsd_protocol::ApiError;

use crate::{
    auth::Identity,
    http::{
        error::HttpError,
        response::{ContentType, HttpResponse},
        service::HttpRequest,
    },
};

/// UID kinds by their names in this API.
const KINDS: [(&str, UidKind); 3] =
    [("metric", UidKind::Metric), ("tagk", UidKind::Tagk), ("tagv", UidKind::Tagv)];

/// Keys of the response, in OpenTSDB's order.
const REPLY_ORDER: [&str; 6] =
    ["tagv_errors", "metric", "tagk", "tagk_errors", "metric_errors", "tagv"];

/// Names by kind, as sent.
type NamesByKind = Vec<(String, Vec<String>)>;

/// Dispatches a request to its sub-path.
pub(super) async fn uid(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    match request.path.sub_path.to_ascii_lowercase().as_str() {
        "assign" => assign(request).await,
        "rename" => rename::rename(request).await,
        "list" => list::list(request).await,
        "uidmeta" => meta::uid_meta(request).await,
        "tsmeta" => meta::ts_meta(request).await,
        _ => Err(ApiError::new(501, "Other UID endpoints have not been implemented yet").into()),
    }
}

async fn assign(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::POST])?;
    check_writes(request)?;
    let names_by_kind = if request.method == Method::POST {
        read_body(request.body.required_text()?)?
    } else {
        KINDS
            .iter()
            .filter_map(|(label, _)| {
                let names = request.query.get(label).filter(|names| !names.is_empty())?;
                Some(((*label).to_owned(), names.split(',').map(str::to_owned).collect()))
            })
            .collect()
    };
    if names_by_kind.is_empty() {
        return Err(ApiError::new(400, "Missing values to assign UIDs").into());
    }
    check_assign(request, &names_by_kind)?;
    let mut maps: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut failed = false;
    for (label, names) in names_by_kind {
        let mut assigned = BTreeMap::new();
        let mut errors = BTreeMap::new();
        for name in names {
            match assign_one(request, &label, &name).await? {
                Ok(uid) => assigned.insert(name, uid),
                Err(text) => errors.insert(name, text),
            };
        }
        if !errors.is_empty() {
            failed = true;
            maps.insert(format!("{label}_errors"), sorted(errors));
        }
        maps.insert(label, sorted(assigned));
    }
    let status = if failed { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    Ok(HttpResponse::new(status, ContentType::Json, render(maps)))
}

/// Fails unless the sender may administer the daemon, or create names of each kind.
fn check_assign(request: &HttpRequest<'_>, names: &NamesByKind) -> Result<(), ApiError> {
    let may_create = |identity: &Identity| {
        let creatable = identity.creatable_names();
        names.iter().all(|(label, _)| {
            KINDS.iter().any(|(known, kind)| known == label && creatable.allows(*kind))
        })
    };
    let is_by_role = request
        .state
        .config
        .authentication
        .as_ref()
        .is_some_and(|config| config.authenticator.decides_administration());
    if is_by_role && request.identity.as_ref().is_some_and(may_create) {
        return request.check_change();
    }
    request.check_admin("uid assign")
}

/// Fails on a read-only daemon.
fn check_writes(request: &HttpRequest<'_>) -> Result<(), ApiError> {
    if request.state.config.mode.writes() {
        return Ok(());
    }
    Err(ApiError::new(404, "Operation not allowed")
        .with_details("This operation is not allowed in ro mode."))
}

/// Fails on a write-only daemon.
fn check_reads(request: &HttpRequest<'_>) -> Result<(), ApiError> {
    if request.state.config.mode.reads() {
        return Ok(());
    }
    Err(ApiError::new(404, "Operation not allowed")
        .with_details("This operation is not allowed in wo mode."))
}

/// Converts an error to a text about a name, or to an error of the whole request.
fn name_error(label: &str, error: UidError) -> Result<String, ApiError> {
    match error {
        UidError::IllegalName { name, character: Some(character), .. } => {
            Ok(format!("Invalid {label} (\"{name}\"): illegal character: {character}"))
        }
        UidError::IllegalName { .. } => Ok(format!("Invalid {label}: empty string")),
        UidError::Throttled | UidError::Closed => Err(ApiError::overloaded(&error.to_string())),
        UidError::Storage(_) | UidError::Lost | UidError::NotForgotten { .. } => {
            Err(ApiError::internal(error.to_string()))
        }
        error => Ok(error.to_string()),
    }
}

/// Assigns a UID to one name. The inner error concerns the name, the outer one the whole request.
async fn assign_one(
    request: &HttpRequest<'_>,
    label: &str,
    name: &str,
) -> Result<Result<String, String>, ApiError> {
    let Some((_, kind)) = KINDS.iter().find(|(name_of_kind, _)| *name_of_kind == label) else {
        return Ok(Err("Unknown type name".to_owned()));
    };
    match request.state.engine.uids().assign(*kind, name).await {
        Ok(uid) => Ok(Ok(uid.to_string())),
        Err(UidError::NameTaken { uid, .. }) => {
            Ok(Err(format!("Name already exists with UID: {}", to_hex(&uid))))
        }
        Err(error) => name_error(label, error).map(Err),
    }
}

fn sorted(map: BTreeMap<String, String>) -> Map<String, Value> {
    map.into_iter().map(|(name, text)| (name, Value::from(text))).collect()
}

fn render(mut maps: BTreeMap<String, Map<String, Value>>) -> String {
    let mut reply = Map::new();
    for key in REPLY_ORDER {
        if let Some(map) = maps.remove(key) {
            reply.insert(key.to_owned(), Value::Object(map));
        }
    }
    reply.extend(maps.into_iter().map(|(key, map)| (key, Value::Object(map))));
    Value::Object(reply).to_string()
}

/// Reads `{"metric":[…],"tagk":[…],"tagv":[…]}`.
fn read_body(body: &str) -> Result<NamesByKind, ApiError> {
    let fields: Map<String, Value> =
        serde_json::from_str(body).map_err(|error| ApiError::bad_json(error.to_string()))?;
    fields
        .into_iter()
        .map(|(label, names)| {
            let names: Vec<String> = serde_json::from_value(names)
                .map_err(|error| ApiError::bad_json(format!("{label}: {error}")))?;
            Ok((label, names))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn response_keys_have_opentsdbs_order() {
        let map = |name: &str| sorted(BTreeMap::from([(name.to_owned(), "x".to_owned())]));
        let maps = BTreeMap::from([
            ("metric".to_owned(), map("m")),
            ("metric_errors".to_owned(), map("n")),
            ("tagv".to_owned(), map("v")),
            ("tagv_errors".to_owned(), map("w")),
            ("host".to_owned(), map("h")),
        ]);
        assert_eq!(
            render(maps),
            r#"{"tagv_errors":{"w":"x"},"metric":{"m":"x"},"metric_errors":{"n":"x"},"tagv":{"v":"x"},"host":{"h":"x"}}"#
        );
    }

    #[test]
    fn bodies_are_lists_of_names_by_kind() {
        let names_by_kind = read_body(r#"{"metric":["a","b"],"tagk":["c"]}"#).unwrap();
        assert_eq!(
            names_by_kind,
            [
                ("metric".into(), vec!["a".into(), "b".into()]),
                ("tagk".into(), vec!["c".to_owned()])
            ]
        );
        for bad in ["", "[]", r#"{"metric":"a"}"#, r#"{"metric":[{}]}"#] {
            assert_eq!(read_body(bad).unwrap_err().message, "Unable to parse the given JSON");
        }
    }
}

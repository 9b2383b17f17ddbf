//! `/api/uid` and its sub-paths: `assign` assigns UIDs to names, `rename` renames UIDs, `list` lists them,
//! `uidmeta` and `tsmeta` handle meta objects.

mod list;
mod meta;
mod mode;
mod names;
mod rename;

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};
use serde_json::{Map, Value};
use tsd_engine::UidKind;
use tsd_meta::UidError;
use tsd_protocol::{ApiError, parse_uid_assign_body};

use self::{
    mode::check_writes,
    names::{KINDS, RequestedNameError, name_error},
};
use crate::{
    auth::{Identity, Permission},
    http::{
        error::HttpError,
        request::HttpRequest,
        response::{ContentType, HttpResponse},
    },
};

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
        parse_uid_assign_body(request.body.required_text()?)?
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
                Err(error) => errors.insert(name, error.to_string()),
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
        return Ok(());
    }
    let refused = request.check_admin("uid assign");
    let needed: Option<Vec<&str>> = names.iter().map(|(label, _)| creation(label)).collect();
    match needed {
        Some(needed) if is_by_role => refused.map_err(|error| {
            let details = format!("{}, or {}", error.details, needed.join(" and "));
            error.with_details(details)
        }),
        _ => refused,
    }
}

/// Returns the permission to create names of a kind.
fn creation(label: &str) -> Option<&'static str> {
    let (_, kind) = KINDS.iter().find(|(known, _)| *known == label)?;
    let permission = match kind {
        UidKind::Metric => Permission::CreateMetric,
        UidKind::Tagk => Permission::CreateTagk,
        UidKind::Tagv => Permission::CreateTagv,
    };
    Some(permission.as_str())
}

/// Assigns a UID to one name. The inner error concerns the name, the outer one the whole request.
async fn assign_one(
    request: &HttpRequest<'_>,
    label: &str,
    name: &str,
) -> Result<Result<String, RequestedNameError>, ApiError> {
    let Some((_, kind)) = KINDS.iter().find(|(name_of_kind, _)| *name_of_kind == label) else {
        return Ok(Err(RequestedNameError::UnknownKind));
    };
    match request.state.engine.uids().assign(*kind, name).await {
        Ok(uid) => Ok(Ok(uid.to_string())),
        Err(UidError::NameTaken { uid, .. }) => Ok(Err(RequestedNameError::Assigned(uid))),
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

#[cfg(test)]
mod tests {
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
}

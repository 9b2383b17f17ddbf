//! `/api/uid/rename`: changes the name of a UID.

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tsd_engine::{UidError, UidKind};
use tsd_protocol::ApiError;

use super::{
    mode::check_writes,
    names::{KINDS, name_error},
};
use crate::http::{
    error::HttpError,
    request::HttpRequest,
    response::{ContentType, HttpResponse},
};

/// Kind, old and new name.
#[derive(Debug, Default, PartialEq, Eq)]
struct RenameRequest {
    label: String,
    old: String,
    new: String,
}

pub(super) async fn rename(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    if request.method != Method::GET && request.method != Method::POST {
        let details =
            format!("The HTTP method[{}] is not permitted for this endpoint", request.method);
        return Err(ApiError::new(405, "Method not allowed").with_details(details).into());
    }
    check_writes(request)?;
    request.check_admin("uid rename")?;
    let fields = if request.method == Method::POST {
        read_body(request.body.required_text()?)?
    } else {
        let names = KINDS.iter().map(|(label, _)| *label).chain(["name"]);
        let given = |name| request.query.get(name).filter(|value| !value.is_empty());
        names.filter_map(|name| Some((name.to_owned(), given(name)?.to_owned()))).collect()
    };
    let rename_request = rename_request(fields)
        .ok_or_else(|| ApiError::new(400, "Missing necessary values to rename UID"))?;
    Ok(match rename_one(request, &rename_request).await? {
        Ok(()) => HttpResponse::json(json!({"result": "true"}).to_string()),
        Err(text) => {
            let text = Value::from(text);
            let body = format!(r#"{{"result":"false","error":{text}}}"#);
            HttpResponse::new(StatusCode::BAD_REQUEST, ContentType::Json, body)
        }
    })
}

/// Renames a UID. The inner error concerns the names, the outer one the whole request.
async fn rename_one(
    request: &HttpRequest<'_>,
    rename_request: &RenameRequest,
) -> Result<Result<(), String>, ApiError> {
    let RenameRequest { label, old, new } = rename_request;
    let Some((_, kind)) = KINDS.iter().find(|(name_of_kind, _)| name_of_kind == label) else {
        return Ok(Err("Unknown type name".to_owned()));
    };
    match request.state.engine.rename_uid(*kind, old, new).await {
        Ok(()) => Ok(Ok(())),
        Err(UidError::NoSuchName { name, .. }) => {
            Ok(Err(format!("Name(\"{name}\") does not exist")))
        }
        Err(UidError::NameTaken { uid, .. }) => {
            Ok(Err(name_taken_text(request, *kind, rename_request, &uid)))
        }
        Err(error) => name_error(label, error).map(Err),
    }
}

fn name_taken_text(
    request: &HttpRequest<'_>,
    kind: UidKind,
    rename_request: &RenameRequest,
    uid: &[u8],
) -> String {
    let config = request.state.engine.config();
    let bytes: Vec<String> = uid.iter().map(|byte| byte.cast_signed().to_string()).collect();
    format!(
        "When trying rename(\"{}\", \"{}\") on UniqueId({}, {}, {}): new name already assigned \
         ID=[{}]",
        rename_request.old,
        rename_request.new,
        config.tables.uid,
        kind.as_str(),
        kind.width(&config.schema),
        bytes.join(", ")
    )
}

/// Reads `{"metric":"old","name":"new"}`.
fn read_body(body: &str) -> Result<Vec<(String, String)>, ApiError> {
    let fields: Map<String, Value> =
        serde_json::from_str(body).map_err(|error| ApiError::bad_json(error.to_string()))?;
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| match value {
            Value::String(text) => Ok((key, text)),
            Value::Number(number) => Ok((key, number.to_string())),
            Value::Bool(value) => Ok((key, value.to_string())),
            _ => Err(ApiError::bad_json(format!("{key} is no text"))),
        })
        .collect()
}

/// Selects the last kind in the fields, as OpenTSDB does.
fn rename_request(fields: Vec<(String, String)>) -> Option<RenameRequest> {
    let (mut of, mut new) = (None, None);
    for (key, value) in fields {
        if key == "name" {
            new = Some(value);
        } else {
            of = Some((key, value));
        }
    }
    let ((label, old), new) = (of?, new?);
    Some(RenameRequest { label, old, new })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_kind_and_two_names_are_needed() {
        let read = |body: &str| rename_request(read_body(body).unwrap());
        let expected = RenameRequest { label: "tagk".into(), old: "a".into(), new: "1".into() };
        assert_eq!(read(r#"{"name":1,"tagk":"a"}"#), Some(expected));
        for body in ["{}", r#"{"name":"a"}"#, r#"{"tagk":"a"}"#, r#"{"name":null,"tagk":"a"}"#] {
            assert_eq!(read(body), None, "{body}");
        }
        for body in ["", "[]", r#"{"name":[]}"#] {
            assert!(read_body(body).is_err(), "{body}");
        }
    }
}

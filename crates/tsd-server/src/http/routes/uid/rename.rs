//! `/api/uid/rename`: changes the name of a UID.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tsd_meta::UidError;
use tsd_protocol::{ApiError, parse_uid_rename_body};

use super::{
    mode::check_writes,
    names::{KINDS, RequestedNameError, name_error},
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
    let fields = if request.method == Method::POST {
        parse_uid_rename_body(request.body.required_text()?)?
    } else {
        let names = KINDS.iter().map(|(label, _)| *label).chain(["name"]);
        let given = |name| request.query.get(name).filter(|value| !value.is_empty());
        names.filter_map(|name| Some((name.to_owned(), given(name)?.to_owned()))).collect()
    };
    let rename_request = rename_request(fields)
        .ok_or_else(|| ApiError::new(400, "Missing necessary values to rename UID"))?;
    Ok(match rename_one(request, &rename_request).await? {
        Ok(()) => HttpResponse::json(json!({"result": "true"}).to_string()),
        Err(error) => {
            let text = Value::from(error.to_string());
            let body = format!(r#"{{"result":"false","error":{text}}}"#);
            HttpResponse::new(StatusCode::BAD_REQUEST, ContentType::Json, body)
        }
    })
}

/// Renames a UID. The inner error concerns the names, the outer one the whole request.
async fn rename_one(
    request: &HttpRequest<'_>,
    rename_request: &RenameRequest,
) -> Result<Result<(), RequestedNameError>, ApiError> {
    let RenameRequest { label, old, new } = rename_request;
    let Some((_, kind)) = KINDS.iter().find(|(name_of_kind, _)| name_of_kind == label) else {
        return Ok(Err(RequestedNameError::UnknownKind));
    };
    match request.state.engine.rename_uid(*kind, old, new).await {
        Ok(()) => Ok(Ok(())),
        Err(UidError::NoSuchName { name, .. }) => Ok(Err(RequestedNameError::Missing(name))),
        Err(UidError::NameTaken { uid, .. }) => {
            let config = request.state.engine.config();
            Ok(Err(RequestedNameError::Taken {
                old: old.clone(),
                new: new.clone(),
                table: config.tables.uid.to_string(),
                kind: kind.as_str(),
                width: kind.width(&config.schema),
                uid,
            }))
        }
        Err(error) => name_error(label, error).map(Err),
    }
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
        let read = |body: &str| rename_request(parse_uid_rename_body(body).unwrap());
        let expected = RenameRequest { label: "tagk".into(), old: "a".into(), new: "1".into() };
        assert_eq!(read(r#"{"name":1,"tagk":"a"}"#), Some(expected));
        for body in ["{}", r#"{"name":"a"}"#, r#"{"tagk":"a"}"#, r#"{"name":null,"tagk":"a"}"#] {
            assert_eq!(read(body), None, "{body}");
        }
    }
}

//! `/api/quarantine` lists the damaged files that the store has quarantined; `/api/quarantine/accept`
//! accepts the loss of some of them.

use hyper::Method;
use serde_json::{Value, json};
use tsd_engine::QuarantinedPart;
use tsd_model::to_hex;
use tsd_protocol::ApiError;

use crate::http::{error::HttpError, request::HttpRequest, response::HttpResponse};

/// Dispatches a request to its sub-path.
pub(super) async fn quarantine(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    match request.path.sub_path.to_ascii_lowercase().as_str() {
        "" => {
            request.allow(&[Method::GET])?;
            let parts = request.state.engine.quarantine().await;
            Ok(HttpResponse::json(quarantine_json(&parts).to_string()))
        }
        "accept" => accept(request).await,
        _ => Err(ApiError::endpoint_not_found().into()),
    }
}

async fn accept(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::POST])?;
    let bad =
        || ApiError::new(400, r#"Expected {"files": [NAME, ...]}, with names of /api/quarantine"#);
    let body: Value = serde_json::from_str(request.body.required_text()?).map_err(|_| bad())?;
    let names = body.get("files").and_then(Value::as_array).ok_or_else(bad)?;
    let names: Vec<&str> =
        names.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(bad)?;
    let engine = &request.state.engine;
    let known = engine.quarantine().await;
    // Accepts all of the files or none.
    if let Some(unknown) = names.iter().find(|name| known.iter().all(|p| p.file.name != **name)) {
        let message = format!("No file {unknown:?} is in quarantine");
        return Err(ApiError::new(404, message).into());
    }
    for name in &names {
        let accepted = engine.accept_loss(name).await;
        accepted.map_err(|error| {
            ApiError::new(500, format!("The loss of {name} was not accepted"))
                .with_details(error.to_string())
        })?;
    }
    Ok(HttpResponse::json(json!({ "accepted": names }).to_string()))
}

/// Renders the files in quarantine for `/api/quarantine`. Times are epoch milliseconds (`since`)
/// and epoch seconds (`from`, `to`), keys are hexadecimal.
#[must_use]
pub fn quarantine_json(parts: &[QuarantinedPart]) -> Value {
    let files = parts.iter().map(|QuarantinedPart { file, lost }| {
        let lost = file.lost.iter().zip(lost).map(|(rows, points)| {
            json!({
                "metrics": points.metrics,
                "from": points.time.map(|(from, _)| from),
                "to": points.time.map(|(_, to)| to),
                "firstRow": rows.first.as_deref().map(to_hex),
                "lastRow": rows.last.as_deref().map(to_hex),
            })
        });
        json!({
            "name": file.name,
            "file": file.file,
            "table": file.table.as_str(),
            "cause": file.what,
            "bytes": file.bytes,
            "since": file.since_ms,
            "loss": !file.lost.is_empty(),
            "lost": lost.collect::<Vec<_>>(),
            "extent": file.extent.map(|extent| json!({
                "points": extent.points,
                "allPoints": extent.all_points,
                "blocks": extent.blocks,
                "allBlocks": extent.all_blocks,
            })),
        })
    });
    files.collect()
}

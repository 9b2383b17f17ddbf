//! `/api/verify` starts a verification of the store and shows the last one; `/api/verify/stop` stops it.

use hyper::Method;
use serde_json::{Value, json};
use tsd_engine::{RepairOutcome, VerificationError, VerificationStage, VerificationStatus};
use tsd_protocol::ApiError;

use crate::http::{error::HttpError, request::HttpRequest, response::HttpResponse};

/// Dispatches a request to its sub-path.
pub(super) async fn verify(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::POST])?;
    let is_post = request.method == Method::POST;
    match request.path.sub_path.to_ascii_lowercase().as_str() {
        "" if is_post => start(request)?,
        "" => {}
        "stop" if is_post => {
            request.state.engine.stop_verification().await;
        }
        _ => return Err(ApiError::endpoint_not_found().into()),
    }
    let last = request.state.engine.verification();
    let shown = last.map_or(Value::Null, |last| verification_json(&last.status()));
    Ok(HttpResponse::json(shown.to_string()))
}

fn start(request: &HttpRequest<'_>) -> Result<(), HttpError> {
    let bad = || ApiError::new(400, r#"Expected {"repair": true} or {"repair": false}"#);
    let body: Value = serde_json::from_str(request.body.required_text()?).map_err(|_| bad())?;
    let repairs = body.get("repair").and_then(Value::as_bool).ok_or_else(bad)?;
    request.state.engine.start_verification(repairs).map_err(|error| {
        let status = match error {
            VerificationError::InProgress => 409,
            VerificationError::NotSupported => 400,
            _ => 500,
        };
        ApiError::new(status, "No verification was started").with_details(error.to_string())
    })?;
    Ok(())
}

/// Renders a verification for `/api/verify`. `action` is the repair of a finding, `repaired` is true if the repair
/// succeeded, and `error` is the reason if it failed.
#[must_use]
pub fn verification_json(status: &VerificationStatus) -> Value {
    let (state, error) = match &status.stage {
        VerificationStage::Reading => ("reading", None),
        VerificationStage::Repairing => ("repairing", None),
        VerificationStage::Done => ("done", None),
        VerificationStage::Failed(error) => ("failed", Some(error)),
    };
    let findings = status.findings.iter().map(|found| {
        let error = match &found.outcome {
            RepairOutcome::Failed(error) => Some(error),
            RepairOutcome::Open | RepairOutcome::Repaired => None,
        };
        json!({
            "file": found.finding.file,
            "damage": found.finding.what,
            "cost": found.finding.cost,
            "action": found.finding.action.as_ref().map(ToString::to_string),
            "repaired": found.outcome == RepairOutcome::Repaired,
            "error": error,
        })
    });
    json!({
        "state": state,
        "error": error,
        "bytes": status.done_bytes,
        "totalBytes": status.total_bytes,
        "seconds": status.duration.as_secs_f64(),
        "found": status.found,
        "findings": findings.collect::<Vec<_>>(),
    })
}

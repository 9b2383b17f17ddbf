//! `/api/snapshot`: POST takes a snapshot of the store and responds when it is complete; GET returns the
//! progress of the running snapshot. Closing the connection of the POST cancels the snapshot.

use std::{error::Error, io, path::PathBuf};

use hyper::Method;
use serde_json::{Value, json};
use tsd_engine::{SnapshotError, SnapshotReport, SnapshotRequest, StorageError};
use tsd_protocol::ApiError;

use crate::http::{error::HttpError, request::HttpRequest, response::HttpResponse};

pub(super) async fn snapshot(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::POST])?;
    if !request.path.sub_path.is_empty() {
        return Err(ApiError::endpoint_not_found().into());
    }
    let engine = &request.state.engine;
    if request.method == Method::GET {
        let progress = engine.snapshot_progress().map(
            |progress| json!({ "bytes": progress.bytes(), "totalBytes": progress.total_bytes() }),
        );
        return Ok(HttpResponse::json(json!({ "running": progress }).to_string()));
    }
    let wanted = parse(request.body.required_text()?)?;
    let version = &request.state.config.build.version;
    let report = engine.snapshot(wanted, version).await.map_err(|error| api_error(&error))?;
    Ok(HttpResponse::json(snapshot_json(&report).to_string()))
}

fn parse(body: &str) -> Result<SnapshotRequest, ApiError> {
    let bad = || {
        let text = r#"Expected {"target": PATH, "base": PATH, "copy": BOOL, "allowDamage": BOOL}; only the target is required"#;
        ApiError::new(400, text)
    };
    let body: Value = serde_json::from_str(body).map_err(|_| bad())?;
    let member = |name| body.get(name).filter(|value| !value.is_null());
    let path = |name| match member(name) {
        None => Ok(None),
        Some(value) => value.as_str().map(|path| Some(PathBuf::from(path))).ok_or_else(bad),
    };
    let flag = |name| match member(name) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or_else(bad),
    };
    Ok(SnapshotRequest {
        target: path("target")?.ok_or_else(bad)?,
        base: path("base")?,
        copy: flag("copy")?,
        allow_damage: flag("allowDamage")?,
    })
}

fn api_error(error: &SnapshotError) -> ApiError {
    let status = match error {
        SnapshotError::InProgress | SnapshotError::Damage { .. } => 409,
        SnapshotError::Target { .. }
        | SnapshotError::NoSnapshot { .. }
        | SnapshotError::DamagedList { .. }
        | SnapshotError::OtherFormat { .. } => 400,
        SnapshotError::Store(error) if error.is_permanent() => 400,
        SnapshotError::Store(StorageError::DiskFull) => 503,
        SnapshotError::Io { source, .. } if is_full(source) => 503,
        _ => 500,
    };
    let mut causes = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    let answer = ApiError::new(status, error.to_string());
    if causes.is_empty() { answer } else { answer.with_details(causes.join(": ")) }
}

/// Returns true if a disk is full, such as the disk of the target.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Renders a completed snapshot for `/api/snapshot`.
#[must_use]
pub fn snapshot_json(report: &SnapshotReport) -> Value {
    let path = |path: &PathBuf| path.display().to_string();
    json!({
        "target": path(&report.target),
        "files": report.files,
        "bytes": report.bytes,
        "linkedBytes": report.linked_bytes,
        "baseBytes": report.base_bytes,
        "copiedBytes": report.copied_bytes,
        "damaged": report.damaged,
        "removed": report.removed.as_ref().map(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 37: a full disk was a 500, while it is a 503 for a put.
    #[test]
    fn a_full_disk_is_503() {
        assert_eq!(api_error(&StorageError::DiskFull.into()).status, 503);
        for (kind, status) in
            [(io::ErrorKind::StorageFull, 503), (io::ErrorKind::PermissionDenied, 500)]
        {
            let error = SnapshotError::io("writing", "target")(kind.into());
            assert_eq!(api_error(&error).status, status);
        }
    }
}

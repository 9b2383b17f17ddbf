//! `/diediedie` and `/metrics`.

use hyper::StatusCode;
use tracing::info;

use crate::http::{
    error::HttpError,
    request::HttpRequest,
    response::{ContentType, HttpResponse},
};

/// Requests a stop of the daemon after this response.
pub(super) fn diediedie(request: &HttpRequest<'_>) -> HttpResponse {
    info!(peer = %request.peer, "a client requested a stop");
    request.state.stop_requested.cancel();
    let body = "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>TSD Exiting</title></head>\
                <body><h1>Cleaning up and exiting now.</h1></body></html>";
    HttpResponse::new(StatusCode::OK, ContentType::Html, body).close_if(true)
}

/// The Prometheus exposition.
pub(super) fn metrics(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[hyper::Method::GET])?;
    let Some(handle) = &request.state.config.metrics else {
        return Err(tsd_protocol::ApiError::page_not_found().into());
    };
    request.state.engine.set_gauges();
    if let Some(authentication) = &request.state.config.authentication {
        authentication.authenticator.set_gauges();
    }
    if let Some(log) = &request.state.config.log {
        log.recent.set_counters();
    }
    let mut page = handle.render();
    crate::process::render(&mut page);
    Ok(HttpResponse::new(StatusCode::OK, ContentType::Metrics, page))
}

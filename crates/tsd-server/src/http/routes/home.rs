//! The home page, `/diediedie` and `/metrics`.

use std::fmt::Write;

use hyper::StatusCode;
use tracing::info;

use crate::{
    http::{
        error::HttpError,
        response::{ContentType, HttpResponse},
        service::HttpRequest,
    },
    server_state::ServerState,
};

/// Links of the home page.
const LINKS: [(&str, &str); 5] = [
    ("/api/version", "version"),
    ("/api/aggregators", "aggregators"),
    ("/api/config", "configuration"),
    ("/api/stats", "statistics"),
    ("/metrics", "metrics for Prometheus"),
];

/// The home page.
pub(super) fn home(state: &ServerState) -> HttpResponse {
    let mut links = String::new();
    for (path, text) in LINKS {
        if path != "/metrics" || state.config.metrics.is_some() {
            let _ = write!(links, "<li><a href=\"{path}\">{text}</a> <code>{path}</code></li>");
        }
    }
    let body = format!(
        "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>Saltern</title></head><body>\
         <h1>Saltern {}</h1>\
         <p>A time series daemon that speaks OpenTSDB's protocols: point Grafana or any other OpenTSDB \
         client at this address, or request single graphs, such as \
         <code>/q?start=1h-ago&amp;m=sum:METRIC&amp;png</code>.</p>\
         <p>Points come in by <code>put</code> lines on this port or by <code>POST /api/put</code>; \
         they are read by <code>/api/query</code>.</p><ul>{links}</ul></body></html>",
        state.config.build.version
    );
    HttpResponse::new(StatusCode::OK, ContentType::Html, body)
}

/// Requests a daemon stop after this response.
pub(super) fn diediedie(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.check_admin("diediedie")?;
    info!(peer = %request.peer, "a client requested a stop");
    request.state.stop_requested.cancel();
    let body = "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>TSD Exiting</title></head>\
                <body><h1>Cleaning up and exiting now.</h1></body></html>";
    Ok(HttpResponse::new(StatusCode::OK, ContentType::Html, body).close_if(true))
}

/// The Prometheus exposition.
pub(super) fn metrics(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[hyper::Method::GET])?;
    let Some(handle) = &request.state.config.metrics else {
        return Err(tsd_protocol::ApiError::page_not_found().into());
    };
    request.state.engine.set_gauges();
    let mut page = handle.render();
    crate::process::render(&mut page);
    Ok(HttpResponse::new(StatusCode::OK, ContentType::Metrics, page))
}

//! Error responses without hyper: for refused connections, and for heads that hyper cannot parse.

use hyper::StatusCode;
use tsd_protocol::ApiError;

use super::{error::status, response::ContentType};
use crate::request_id::RequestId;

/// Renders an error as a complete response that announces the close of the connection.
pub(crate) fn render_raw_error(error: &ApiError) -> Vec<u8> {
    let (status, body) = (status(error.status), error.render());
    let retry = if status == StatusCode::SERVICE_UNAVAILABLE { "Retry-After: 1\r\n" } else { "" };
    format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nX-Request-Id: {}\r\nX-Content-Type-Options: nosniff\r\n{retry}Connection: \
         close\r\nContent-Length: {}\r\n\r\n{body}",
        status.as_str(),
        status.canonical_reason().unwrap_or("Error"),
        ContentType::Json.as_str(),
        RequestId::generate().as_str(),
        body.len()
    )
    .into_bytes()
}

//! Answers request heads that hyper cannot parse.

use std::{io, time::Duration};

use hyper::StatusCode;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use tsd_protocol::ApiError;

use super::{connection_io::ConnectionIo, raw_error::render_raw_error};
use crate::{gentle_close::close_gently, route::Route, server_state::ServerState};

/// How long to read and discard the rest of the input, so that the client receives the answer.
const DISCARD_FOR: Duration = Duration::from_secs(2);

/// Answers a malformed head and closes the connection. Does nothing after other errors.
pub(super) async fn answer_malformed_head<S: AsyncRead + AsyncWrite + Unpin>(
    state: &ServerState,
    io: &mut ConnectionIo<S>,
    error: &hyper::Error,
) -> io::Result<()> {
    let status = match io.withheld() {
        Some(status) => status,
        // hyper does not answer the preface of HTTP/2.
        None if error.is_parse() => StatusCode::BAD_REQUEST,
        None => return Ok(()),
    };
    state.metrics.received_http.add(1);
    state.metrics.request_completed(Route::Unknown, status.as_u16(), Duration::ZERO);
    let message = match status {
        StatusCode::URI_TOO_LONG => "The request line is too long",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "The request headers are too large",
        _ => "The head of the request is malformed",
    };
    let answer = ApiError::new(status.as_u16(), message).with_details(error.to_string());
    let answer = render_raw_error(&answer);
    let written = timeout(state.config.limits.write_timeout, io.inner.write_all(&answer)).await;
    written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    close_gently(&mut io.inner, DISCARD_FOR).await;
    Ok(())
}

//! Errors of HTTP requests and their rendering.

use hyper::{
    StatusCode,
    header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use tsd_protocol::{ApiError, LegacyFormat, QueryString};

use super::response::{ContentType, HttpResponse};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HttpError {
    /// Rendered in the error format of the request.
    Api(ApiError),
    /// Rendered likewise. Then the connection is closed, since its read position is unknown.
    ApiThenClose(ApiError),
    /// Rendered as a status line only. Then the connection is closed.
    StatusOnly(StatusCode),
}

impl From<ApiError> for HttpError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

/// Format of the errors of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// The error object of the API.
    Api {
        /// Adds a `trace`.
        trace: bool,
    },
    /// One of the legacy formats.
    Legacy(LegacyFormat),
}

impl ErrorFormat {
    /// Selects the legacy format by the flags of the request.
    pub(crate) fn legacy(query: &QueryString) -> Self {
        Self::Legacy(if query.has("json") {
            LegacyFormat::Json
        } else if query.has("png") {
            LegacyFormat::Png
        } else {
            LegacyFormat::Html
        })
    }
}

impl HttpError {
    /// The error, if the daemon failed. An overload (503) and an API version of the future (501) are no failures.
    pub(crate) const fn failure(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) | Self::ApiThenClose(error)
                if error.status >= 500 && !matches!(error.status, 501 | 503) =>
            {
                Some(error)
            }
            _ => None,
        }
    }

    /// Renders the error as a response.
    pub(crate) fn render(self, format: ErrorFormat) -> HttpResponse {
        let (error, close) = match self {
            Self::StatusOnly(status) => return HttpResponse::status_only(status).close_if(true),
            Self::Api(error) => (error, false),
            Self::ApiThenClose(error) => (error, true),
        };
        let retry_after = error.retry_after_secs.map(HeaderValue::from);
        let challenge = error.token_error.as_deref().and_then(token_challenge);
        let response = match format {
            ErrorFormat::Api { trace } => {
                let error = if trace && error.trace.is_empty() { with_trace(error) } else { error };
                HttpResponse::new(status(error.status), ContentType::Json, error.render())
            }
            ErrorFormat::Legacy(format) => {
                let status = status(error.legacy_status());
                let body = error.render_legacy(format);
                match format {
                    LegacyFormat::Png => HttpResponse::new(status, ContentType::Text, body),
                    LegacyFormat::Json => HttpResponse::new(status, ContentType::LegacyJson, body),
                    LegacyFormat::Html => HttpResponse::new(status, ContentType::Html, body),
                }
            }
        };
        let response = match challenge {
            Some(challenge) => response.with_header(WWW_AUTHENTICATE, challenge),
            None => response,
        };
        let response = response.close_if(close);
        match retry_after {
            Some(seconds) => response.with_header(RETRY_AFTER, seconds),
            None => response,
        }
    }
}

/// Tells the sender of a token why it is refused, as RFC 6750 defines it.
fn token_challenge(reason: &str) -> Option<HeaderValue> {
    let text =
        format!(r#"Bearer realm="tsdb", error="invalid_token", error_description="{reason}""#);
    HeaderValue::try_from(text).ok()
}

pub(super) fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Adds the first line of OpenTSDB's stack trace, the only informative line.
fn with_trace(error: ApiError) -> ApiError {
    if error == ApiError::endpoint_not_found() {
        return error;
    }
    let name = status(error.status).canonical_reason().unwrap_or("error");
    let trace = format!("{name}: {}\n", error.message);
    error.with_trace(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: impl Into<HttpError>, format: ErrorFormat, status: u16, body: &str) {
        let response = error.into().render(format);
        assert_eq!(response.status.as_u16(), status);
        assert_eq!(String::from_utf8_lossy(&response.full_body()), body);
    }

    #[test]
    fn traces_are_added_on_request_but_not_to_unknown_endpoints() {
        check(
            ApiError::internal("x"),
            ErrorFormat::Api { trace: true },
            500,
            r#"{"error":{"code":500,"message":"x","trace":"Internal Server Error: x\n"}}"#,
        );
        check(
            ApiError::internal("x"),
            ErrorFormat::Api { trace: false },
            500,
            r#"{"error":{"code":500,"message":"x"}}"#,
        );
        check(
            ApiError::endpoint_not_found(),
            ErrorFormat::Api { trace: true },
            404,
            r#"{"error":{"code":404,"message":"Endpoint not found"}}"#,
        );
    }

    #[test]
    fn legacy_client_errors_are_400() {
        let format = ErrorFormat::Legacy(LegacyFormat::Json);
        check(
            ApiError::body_too_large(5),
            format,
            400,
            r#"{"err":"The request body is larger than 5 bytes (tsd.http.request.max_chunk)"}"#,
        );
        check(ApiError::endpoint_not_found(), format, 404, r#"{"err":"Page Not Found"}"#);
        check(ApiError::internal("x"), ErrorFormat::Legacy(LegacyFormat::Png), 500, "x\n");
    }

    #[test]
    fn status_only_errors_close_the_connection() {
        let response =
            HttpError::StatusOnly(StatusCode::BAD_REQUEST).render(ErrorFormat::Api { trace: true });
        assert!(response.close);
        assert!(response.full_body().is_empty());
    }
}

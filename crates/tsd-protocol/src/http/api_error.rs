//! Error responses of the HTTP API and of the legacy pages.

use std::{borrow::Cow, fmt::Write, time::Duration};

/// Maximum bytes of each text of a response. Texts repeat names and values of the request, whose body may be large.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// Message for a body that is not the expected JSON.
pub(super) const UNREADABLE_JSON: &str = "Unable to parse the given JSON";

/// An error response: status and texts.
///
/// API routes render it as `{"error":{"code":…,"message":…,"details":…,"trace":…}}`, legacy routes as
/// a page or as `{"err":…}`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[must_use]
pub struct ApiError {
    /// HTTP status, repeated in the body.
    pub status: u16,
    /// What went wrong.
    pub message: String,
    /// Details; omitted if empty.
    pub details: String,
    /// Stack trace, if the daemon shows it; omitted if empty.
    pub trace: String,
    /// Seconds after which the client may send the request again, for the header `Retry-After`.
    pub retry_after_secs: Option<u64>,
    /// Why the token of the request is refused, for the header `WWW-Authenticate`.
    pub token_error: Option<String>,
}

/// Format of the error of a legacy page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacyFormat {
    /// A page of HTML.
    Html,
    /// `{"err":…}`: the URI has the parameter `json`.
    Json,
    /// The text alone: the URI has the parameter `png`. OpenTSDB sends no text.
    Png,
}

impl ApiError {
    /// Creates an error without details.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            details: String::new(),
            trace: String::new(),
            retry_after_secs: None,
            token_error: None,
        }
    }

    /// Sets the details.
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// Sets the trace.
    pub fn with_trace(mut self, trace: impl Into<String>) -> Self {
        self.trace = trace.into();
        self
    }

    /// Creates an error with the same text as message and details, like OpenTSDB for wrapped exceptions.
    pub fn wrapped(status: u16, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::new(status, text.clone()).with_details(text)
    }

    /// 401 for a request to `path` without valid credentials.
    pub fn unauthorized(path: &str, reason: &str) -> Self {
        Self::new(401, format!("Unauthorized for {path}")).with_details(reason)
    }

    /// Sets why the token of the request is refused. The text has no quotes and no backslashes.
    pub fn with_token_error(mut self, reason: impl Into<String>) -> Self {
        self.token_error = Some(reason.into());
        self
    }

    /// 403 for a request to `path` whose sender lacks a permission.
    pub fn forbidden(path: &str, reason: &str) -> Self {
        Self::new(403, format!("Forbidden for {path}")).with_details(reason)
    }

    /// 429 for a client that sends too much; it may retry after this time.
    pub fn too_many_requests(reason: impl Into<String>, retry_after: Duration) -> Self {
        let secs = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
        let error = Self::new(429, "Too Many Requests").with_details(reason);
        Self { retry_after_secs: Some(secs.max(1)), ..error }
    }

    /// 421 for a browser that asks for another host than this daemon.
    pub fn unknown_host(host: &str) -> Self {
        Self::new(
            421,
            format!(
                "This daemon has no host name {host:?}. If the name is right, add it to tsd.http.hosts in the \
                 configuration and restart the daemon; or use the address of the daemon"
            ),
        )
    }

    /// 404 for an unknown API route.
    pub fn endpoint_not_found() -> Self {
        Self::new(404, "Endpoint not found")
    }

    /// 404 for a missing page.
    pub fn page_not_found() -> Self {
        Self::new(404, "Page not found")
    }

    /// 405 for a method that an endpoint does not support.
    pub fn method_not_allowed(method: &str) -> Self {
        Self::new(405, "Method not allowed")
            .with_details(format!("The HTTP method [{method}] is not permitted for this endpoint"))
    }

    /// 405 for `OPTIONS` where cross-origin requests are not configured.
    pub fn options_not_allowed() -> Self {
        Self::new(405, "Method not allowed")
            .with_details("The HTTP method [OPTIONS] is not permitted")
    }

    /// 200, as in OpenTSDB, for an origin that may not read. The caller sets 403 for a request that changes data.
    pub fn origin_not_allowed(origin: &str) -> Self {
        Self::new(200, "CORS domain not allowed")
            .with_details(format!("The domain [{origin}] is not permitted access"))
    }

    /// 405 for `method_override` without a value.
    pub fn missing_method_override() -> Self {
        Self::new(405, "Missing method override value")
    }

    /// 405 for a `method_override` that is not a method.
    pub fn unknown_method_override() -> Self {
        Self::new(405, "Unknown or unsupported method override value")
    }

    /// 501 for an API version that does not exist yet.
    pub fn version_too_new(version: u32, newest: u32) -> Self {
        Self::new(501, "Requested API version is greater than the max implemented")
            .with_details(format!("API version [{version}] is greater than the max [{newest}]"))
    }

    /// 400 for an API version that is not a number.
    pub fn bad_version() -> Self {
        Self::new(400, "Invalid API version format supplied")
    }

    /// 400 for an unknown serializer.
    pub fn unknown_serializer(name: &str) -> Self {
        Self::new(400, "Requested serializer was not found")
            .with_details(format!("Could not find a serializer with the name: {name}"))
    }

    /// 400 for a missing parameter of the URI.
    pub fn missing_parameter(name: &str) -> Self {
        Self::new(400, format!("Missing parameter <code>{name}</code>"))
    }

    /// 400 for an empty body.
    pub fn missing_content() -> Self {
        Self::new(400, "Missing message content")
            .with_details("Supply valid JSON formatted data in the body of your request")
    }

    /// 400 for an empty body of a write.
    pub fn missing_put_content() -> Self {
        Self::new(400, "Missing request content")
    }

    /// 503 for histograms without a configured codec.
    pub fn histograms_disabled() -> Self {
        Self::new(
            503,
            "Histogram storage has not been enabled. Check the 'tsd.core.histograms.config' \
             configuration.",
        )
    }

    /// 400 for a body that is not the expected JSON.
    pub fn bad_json(details: impl Into<String>) -> Self {
        Self::new(400, UNREADABLE_JSON).with_details(details)
    }

    /// 400 for a chunked request if these are disabled.
    pub fn chunked_not_supported() -> Self {
        Self::new(400, "Chunked request not supported.")
    }

    /// 413 for a request with more elements than the limit.
    pub fn too_many(what: &str, most: usize) -> Self {
        Self::new(413, format!("Too many {what}: the limit is {most}"))
    }

    /// 413 for a body over the limit.
    pub fn body_too_large(limit: u64) -> Self {
        let text =
            format!("The request body is larger than {limit} bytes (tsd.http.request.max_chunk)");
        Self::new(413, text)
    }

    /// 413 for a body that is larger than the memory of all bodies; `key` is the setting of that limit.
    pub fn body_exceeds_memory(most: u64, key: &str) -> Self {
        let text = format!(
            "The request body needs more memory than all request bodies may use: the limit is {most} \
             bytes ({key})"
        );
        Self::new(413, text)
    }

    /// 413 for a compressed body that inflates to more than `limit` bytes.
    pub fn inflated_body_too_large(limit: u64) -> Self {
        let text = format!(
            "The request body inflates to more than {limit} bytes (tsd.http.request.max_inflated)"
        );
        Self::new(413, text)
    }

    /// 400 for a delete by query if deletes are disabled.
    pub fn delete_not_enabled() -> Self {
        Self::new(400, "Bad request")
            .with_details("Deleting data is not enabled (tsd.http.query.allow_delete=false)")
    }

    /// 400 for options that OpenTSDB ignores, if the daemon rejects them.
    pub fn ignored_options(options: &str) -> Self {
        Self::new(400, format!("Unknown options: {options}")).with_details(
            "This daemon rejects unknown options of a sub query (tsd.http.query.reject_unknown_options=true)",
        )
    }

    /// 400 for a write with failed points, without `details` or `summary`.
    pub(crate) fn points_had_errors() -> Self {
        Self::new(400, "One or more data points had errors").with_details(PUT_ERROR_DETAILS)
    }

    /// 400 for a synchronous write that took too long.
    pub(crate) fn put_timed_out(succeeded: u64, failed: u64, timed_out: u64) -> Self {
        Self::new(
            400,
            format!(
                "The put call has timedout with {succeeded} successful writes, {failed} failed \
                 writes and {timed_out} timed out writes."
            ),
        )
        .with_details(PUT_ERROR_DETAILS)
    }

    /// 503 for an overloaded daemon.
    pub fn overloaded(what: &str) -> Self {
        Self::new(503, format!("Please throttle: {what}"))
    }

    /// 500 for a failure of the daemon. Errors in a request never get it.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, message)
    }

    /// Renders the error object of an API route.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(64 + self.message.len().min(MAX_TEXT_BYTES));
        let _ = write!(out, "{{\"error\":{{\"code\":{},\"message\":\"", self.status);
        escape(&mut out, &bounded(&self.message));
        out.push('"');
        for (key, text) in [("details", &self.details), ("trace", &self.trace)] {
            if !text.is_empty() {
                let _ = write!(out, ",\"{key}\":\"");
                escape(&mut out, &bounded(text));
                out.push('"');
            }
        }
        out.push_str("}}");
        out
    }

    /// Returns the status of a legacy page: client errors other than 404 are 400.
    #[must_use]
    pub fn legacy_status(&self) -> u16 {
        match self.status {
            401 | 403 | 404 | 421 | 429 => self.status,
            500.. => 500,
            _ => 400,
        }
    }

    /// Renders the body of a legacy page.
    #[must_use]
    pub fn render_legacy(&self, form: LegacyFormat) -> String {
        match form {
            LegacyFormat::Png => format!("{}\n", bounded(self.legacy_text())),
            LegacyFormat::Json => {
                let mut out = String::from("{\"err\":\"");
                escape(&mut out, &bounded(self.legacy_text()));
                out.push_str("\"}");
                out
            }
            LegacyFormat::Html => {
                let (title, lead) = match self.legacy_status() {
                    401 => ("Unauthorized", "Only authenticated users may do this:"),
                    429 => ("Too Many Requests", "Please try again later:"),
                    403 => ("Forbidden", "You are not allowed to do this:"),
                    404 => ("Page Not Found", "There is nothing here."),
                    421 => (
                        "Misdirected Request",
                        "The daemon does not serve browsers under this host name:",
                    ),
                    500 => ("Internal Server Error", "The daemon failed on this request:"),
                    _ => ("Bad Request", "The daemon rejected the request:"),
                };
                let mut out = format!(
                    "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>{title}</title></head>\
                     <body><h1>{title}</h1><p>{lead}</p><blockquote>"
                );
                escape_html(&mut out, &bounded(self.legacy_text()));
                out.push_str("</blockquote></body></html>");
                out
            }
        }
    }

    fn legacy_text(&self) -> &str {
        match self.status {
            404 => "Page Not Found",
            500.. if !self.trace.is_empty() => &self.trace,
            _ => &self.message,
        }
    }
}

const PUT_ERROR_DETAILS: &str = "Please see the TSD logs or append \"details\" to the put request";

/// Escapes like OpenTSDB's error rendering, which writes non-ASCII characters unescaped.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

pub(super) fn escape_html(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

/// Cuts a long text and says how many bytes were cut.
fn bounded(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT_BYTES {
        return text.into();
    }
    let shown = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
    format!("{shown}... ({} more bytes)", text.len() - shown.len()).into()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn error_objects() {
        let errors = [
            ApiError::endpoint_not_found(),
            ApiError::method_not_allowed("PUT"),
            ApiError::options_not_allowed(),
            ApiError::origin_not_allowed("http://x"),
            ApiError::missing_method_override(),
            ApiError::unknown_method_override(),
            ApiError::version_too_new(2, 1),
            ApiError::bad_version(),
            ApiError::unknown_serializer("xml"),
            ApiError::missing_parameter("start"),
            ApiError::missing_content(),
            ApiError::missing_put_content(),
            ApiError::bad_json("unexpected \"x\"\n\tat é\u{1}\u{8}\u{c}\r\\/😀"),
            ApiError::chunked_not_supported(),
            ApiError::delete_not_enabled(),
            ApiError::points_had_errors(),
            ApiError::put_timed_out(3, 1, 2),
            ApiError::wrapped(400, "No such name for 'metrics': 'm'"),
            ApiError::internal("boom").with_trace("boom\n\tat here"),
        ];
        let texts: Vec<String> = errors.iter().map(ApiError::render).collect();
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn legacy_pages_hide_the_status() {
        let rejected = ApiError::method_not_allowed("<b>");
        assert_eq!(rejected.legacy_status(), 400);
        assert_eq!(ApiError::version_too_new(2, 1).legacy_status(), 500);
        assert_eq!(rejected.render_legacy(LegacyFormat::Json), r#"{"err":"Method not allowed"}"#);
        assert_eq!(rejected.render_legacy(LegacyFormat::Png), "Method not allowed\n");
        let html = ApiError::new(400, "no <script> & 'x'").render_legacy(LegacyFormat::Html);
        assert!(html.contains("no &lt;script&gt; &amp; &#39;x&#39;"), "{html}");
        assert_eq!(
            ApiError::endpoint_not_found().render_legacy(LegacyFormat::Json),
            r#"{"err":"Page Not Found"}"#
        );
        let failed = ApiError::internal("boom").with_trace("boom\n\tat here");
        assert_eq!(failed.render_legacy(LegacyFormat::Json), r#"{"err":"boom\n\tat here"}"#);
    }

    #[test]
    fn errors_do_not_repeat_whole_bodies() {
        let text = "\u{e9}".repeat(1 << 20);
        let error = ApiError::wrapped(400, text);
        let most = 2 * MAX_TEXT_BYTES + 200;
        assert!(error.render().len() < most && error.render().contains(" more bytes)"));
        for form in [LegacyFormat::Html, LegacyFormat::Json, LegacyFormat::Png] {
            assert!(error.render_legacy(form).len() < most);
        }
    }

    proptest! {
        #[test]
        fn error_objects_are_json(message in any::<String>(), details in any::<String>()) {
            let error = ApiError::new(400, message.clone()).with_details(details.clone());
            let read: serde_json::Value = serde_json::from_str(&error.render())?;
            prop_assert_eq!(&read["error"]["message"], &message);
            prop_assert_eq!(read["error"]["details"].as_str().unwrap_or_default(), &details);
        }
    }
}

//! Converts route responses to hyper responses: headers, compression, JSONP.

use bytes::Bytes;
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{
        ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
        HeaderValue, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    },
};

use tsd_protocol::{Compressor, Encoding};

use super::response::{ContentType, HttpResponse, OutgoingBody, ResponseContent};
use crate::{
    request_id::{REQUEST_ID, RequestId},
    timeout_io::ActiveRequest,
};

/// Smaller bodies are not compressed: the frame overhead outweighs the gain.
const WORTH_COMPRESSING: usize = 256;

/// Authentication schemes for a client without valid credentials.
const BASIC_CHALLENGE: &str = r#"Basic realm="tsdb", charset="UTF-8""#;
const BEARER_CHALLENGE: &str = r#"Bearer realm="tsdb""#;

/// Options of a response that depend on the request and not on the route.
#[derive(Debug, Default)]
pub(crate) struct ResponseOptions {
    /// JSONP function to wrap the JSON in.
    pub(crate) jsonp: Option<String>,
    /// Id of the request.
    pub(crate) request_id: Option<RequestId>,
    /// Allowed cross-origin origin, and the headers it may send.
    pub(crate) origin: Option<(HeaderValue, HeaderValue)>,
}

/// Encodes a response for hyper.
pub(crate) fn encode_response(
    route_response: HttpResponse,
    options: ResponseOptions,
    request_headers: &HeaderMap,
    active_request: ActiveRequest,
) -> Response<OutgoingBody> {
    let encoding = request_headers
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .and_then(Encoding::preferred)
        .filter(|_| route_response.content_type.is_none_or(ContentType::is_compressible));
    let wrap =
        options.jsonp.map(|name| (Bytes::from(format!("{name}(")), Bytes::from_static(b")")));
    let content_type = match &wrap {
        Some(_) => route_response.content_type.map(|_| ContentType::Script),
        None => route_response.content_type,
    };
    let (body, encoding, length) = encode_body(route_response.body, wrap, encoding, active_request);
    let body = body.with_running_query(route_response.running_query);
    let mut response = Response::new(body.with_on_sent(route_response.on_sent));
    *response.status_mut() = route_response.status;
    let headers = response.headers_mut();
    headers.extend(route_response.headers);
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type.as_str()));
    }
    if let Some(encoding) = encoding {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding.name()));
    }
    if let Some((origin, allowed)) = options.origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, PUT, DELETE"),
        );
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    if let Some(id) = options.request_id {
        headers.insert(REQUEST_ID, id.to_header());
    }
    add_challenges(headers, route_response.status);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if route_response.close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns the body inside its JSONP call, its compression, and its length if the body does not know it.
fn encode_body(
    body: ResponseContent,
    wrap: Option<(Bytes, Bytes)>,
    encoding: Option<Encoding>,
    active_request: ActiveRequest,
) -> (OutgoingBody, Option<Encoding>, Option<u64>) {
    match body {
        ResponseContent::Empty => (OutgoingBody::full(Bytes::new(), active_request), None, None),
        ResponseContent::Full(bytes) => {
            let bytes = match wrap {
                Some((head, tail)) => Bytes::from([&head[..], &bytes, &tail].concat()),
                None => bytes,
            };
            let encoding = encoding.filter(|_| bytes.len() >= WORTH_COMPRESSING);
            // If the compression fails, the body is sent uncompressed.
            let compressed =
                encoding.and_then(|encoding| Compressor::new(encoding).finish(&bytes).ok());
            let encoding = encoding.filter(|_| compressed.is_some());
            (OutgoingBody::full(compressed.unwrap_or(bytes), active_request), encoding, None)
        }
        ResponseContent::Chunks(chunks) => {
            let (head, tail) = wrap.unzip();
            let compressor = encoding.map(|encoding| Box::new(Compressor::new(encoding)));
            (OutgoingBody::chunks(head, chunks, tail, compressor, active_request), encoding, None)
        }
        ResponseContent::File(length, chunks) => {
            (OutgoingBody::chunks(None, chunks, None, None, active_request), None, Some(length))
        }
    }
}

/// Tells an unauthenticated client how to authenticate. The response to a refused token has a challenge with the reason.
fn add_challenges(headers: &mut HeaderMap, status: StatusCode) {
    if status == StatusCode::UNAUTHORIZED {
        let bearer = headers.remove(WWW_AUTHENTICATE);
        let bearer = bearer.unwrap_or(HeaderValue::from_static(BEARER_CHALLENGE));
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(BASIC_CHALLENGE));
        headers.append(WWW_AUTHENTICATE, bearer);
    }
}

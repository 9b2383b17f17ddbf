//! Converts route responses to hyper responses: headers, compression, JSONP.

use bytes::Bytes;
use hyper::{
    HeaderMap, Response,
    header::{
        ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue,
    },
};

use super::{
    encoding::{Compressor, Encoding},
    response::{HttpResponse, OutgoingBody, ResponseContent},
};
use crate::timeout_io::ActiveRequest;

/// Smaller bodies are not compressed: the frame overhead outweighs the gain.
const WORTH_COMPRESSING: usize = 256;

/// Options of a response that depend on the request and not on the route.
#[derive(Debug, Default)]
pub(crate) struct ResponseOptions {
    /// JSONP function to wrap the JSON in.
    pub(crate) jsonp: Option<String>,
    /// Allowed cross-origin origin, and the headers it may send.
    pub(crate) origin: Option<(HeaderValue, HeaderValue)>,
}

/// Encodes a response for hyper.
pub(crate) fn respond(
    reply: HttpResponse,
    options: ResponseOptions,
    request: &HeaderMap,
    active_request: ActiveRequest,
) -> Response<OutgoingBody> {
    let encoding = request
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .and_then(Encoding::preferred);
    let wrap =
        options.jsonp.map(|name| (Bytes::from(format!("{name}(")), Bytes::from_static(b")")));
    let (body, encoding) = match reply.body {
        ResponseContent::Empty => (OutgoingBody::full(Bytes::new(), active_request), None),
        ResponseContent::Full(bytes) => {
            let bytes = match wrap {
                Some((head, tail)) => Bytes::from([&head[..], &bytes, &tail].concat()),
                None => bytes,
            };
            let packed = encoding
                .filter(|_| bytes.len() >= WORTH_COMPRESSING)
                .and_then(|encoding| Some((compress(encoding, &bytes)?, encoding)));
            match packed {
                Some((packed, encoding)) => {
                    (OutgoingBody::full(packed, active_request), Some(encoding))
                }
                None => (OutgoingBody::full(bytes, active_request), None),
            }
        }
        ResponseContent::Chunks(pieces) => {
            let (head, tail) = wrap.unzip();
            let deflater = encoding.map(|encoding| Box::new(Compressor::new(encoding)));
            (OutgoingBody::pieces(head, pieces, tail, deflater, active_request), encoding)
        }
    };
    let mut response = Response::new(body.telling(reply.on_sent));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    if let Some(content_type) = reply.content_type {
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
    if reply.close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Compresses a complete body; `None` on failure, which sends it uncompressed.
fn compress(encoding: Encoding, bytes: &[u8]) -> Option<Bytes> {
    let mut deflater = Compressor::new(encoding);
    let mut packed = deflater.push(bytes).ok()?.to_vec();
    packed.extend_from_slice(&deflater.finish().ok()?);
    Some(Bytes::from(packed))
}

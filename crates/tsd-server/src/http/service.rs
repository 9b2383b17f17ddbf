//! Processes one HTTP request: limits, error format, cross-origin rules, then its route.

use std::{net::SocketAddr, time::Instant};

use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::{Body, Incoming},
    header::{CONTENT_LENGTH, EXPECT, HOST, HeaderValue, ORIGIN, TRANSFER_ENCODING},
    http::request::Parts,
};
use tsd_protocol::{ApiError, QueryString};

use super::{
    access::{Access, ConnectionIdentity},
    body::read_body,
    cross_site::is_own_page,
    encode_response::{ResponseOptions, encode_response},
    error::{ErrorFormat, HttpError},
    parsed_body::{parsed_bytes, reserve_parsed},
    request::HttpRequest,
    request_path::RequestPath,
    response::{HttpResponse, OutgoingBody},
    route::Route,
    routes,
};
use crate::{ServerConfig, config::Limits, server_state::ServerState, timeout_io::ActiveRequest};

/// OpenTSDB treats larger bodies as chunked.
const WHOLE_BODY_BYTES: u64 = 8_192;
/// What a header has beside its name and value.
const HEADER_FRAMING: &str = ": \r\n";

/// What the response depends on besides the result of the route.
#[derive(Debug)]
struct ResponseContext {
    route: Route,
    error_format: ErrorFormat,
    options: ResponseOptions,
}

/// Handles a request.
pub(crate) async fn handle_request(
    state: &ServerState,
    request: Request<Incoming>,
    peer: SocketAddr,
    connection: &ConnectionIdentity,
    active_request: ActiveRequest,
) -> Response<OutgoingBody> {
    let began = Instant::now();
    state.metrics.received_http.add(1);
    let (parts, body) = request.into_parts();
    let mut context = ResponseContext {
        route: Route::Unknown,
        error_format: ErrorFormat::Legacy(tsd_protocol::LegacyFormat::Html),
        options: ResponseOptions::default(),
    };
    let response = match route_request(state, &parts, body, peer, connection, &mut context).await {
        Ok(response) => response,
        Err(error) => error.render(context.error_format),
    };
    state.metrics.request_completed(context.route, response.status.as_u16(), began.elapsed());
    encode_response(response, context.options, &parts.headers, active_request)
}

async fn route_request(
    state: &ServerState,
    parts: &Parts,
    body: Incoming,
    peer: SocketAddr,
    connection: &ConnectionIdentity,
    context: &mut ResponseContext,
) -> Result<HttpResponse, HttpError> {
    let (query, path) = read_head(&state.config, parts, &body, context)?;
    if let Some(response) = check_origin(state, parts, context)? {
        return Ok(response);
    }
    let (route, headers, uri_path) = (path.route, &parts.headers, parts.uri.path());
    let access = Access { state, headers, peer: peer.ip(), route, path: uri_path };
    let identity = access.check(connection).await?;
    let body = read_body(headers, body, &state.config.limits, &state.body_memory).await?;
    if !body.bytes().is_empty() {
        state.metrics.http_body_bytes.record(body.bytes().len() as f64);
    }
    let is_head = parts.method == Method::HEAD;
    let method = if is_head { Method::GET } else { parts.method.clone() };
    let parsed = parsed_bytes(&path, &method, &query, body.bytes());
    // Until the request was handled.
    let _parsed = match parsed {
        0 => None,
        bytes => Some(reserve_parsed(&state.body_memory, bytes).await?),
    };
    let request = HttpRequest {
        state,
        method: &method,
        is_head,
        path,
        uri: &parts.uri,
        query,
        headers: &parts.headers,
        body,
        peer,
        identity,
    };
    routes::dispatch(request).await
}

/// Checks the request line and the headers; returns what the URI requests. The context says how the error of a request
/// is rendered, as far as it was read.
fn read_head<'p>(
    config: &ServerConfig,
    parts: &'p Parts,
    body: &Incoming,
    context: &mut ResponseContext,
) -> Result<(QueryString, RequestPath<'p>), HttpError> {
    let supported =
        [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS];
    if !supported.contains(&parts.method) {
        return Err(HttpError::StatusOnly(StatusCode::METHOD_NOT_ALLOWED));
    }
    let uri_path = parts.uri.path();
    if parts.uri.authority().is_some() || !uri_path.starts_with('/') {
        return Err(HttpError::StatusOnly(StatusCode::BAD_REQUEST));
    }
    let api = ErrorFormat::Api { trace: config.show_stack_trace };
    if let Err(error) = check_head(parts, &config.limits) {
        // What the request asks for is not looked at.
        context.error_format = api;
        return Err(HttpError::ApiThenClose(error));
    }
    let is_api = RequestPath::is_api(uri_path);
    if is_api {
        context.error_format = api;
    }
    check_host(parts).map_err(HttpError::ApiThenClose)?;
    let query = QueryString::parse(parts.uri.query().unwrap_or_default())
        .map_err(|error| ApiError::new(400, error.to_string()))?;
    context.error_format = ErrorFormat::legacy(&query);
    if !config.chunked_requests && counts_as_chunked(parts, body) {
        return Err(HttpError::ApiThenClose(ApiError::chunked_not_supported()));
    }
    if is_api {
        context.error_format = api;
        if let Some(name) = query.get("jsonp").filter(|name| !name.is_empty()) {
            if !is_callback(name) {
                let details = "A callback has letters, digits and _ . $ [ ] only";
                return Err(ApiError::new(400, "Invalid jsonp callback")
                    .with_details(details)
                    .into());
            }
            context.options.jsonp = Some(name.to_owned());
        }
    }
    let path = RequestPath::parse(uri_path, config)?;
    context.route = path.route;
    if path.version == 0 {
        context.error_format = ErrorFormat::legacy(&query);
        context.options.jsonp = None;
    }
    if let Some(name) = query.get("serializer").filter(|name| *name != "json") {
        return Err(ApiError::unknown_serializer(name).into());
    }
    Ok((query, path))
}

/// Fails unless the request has one valid `Host`, which HTTP/1.0 may omit (RFC 9112, 3.2). Proxies
/// and daemons that select different ones of several could be played off against each other.
fn check_host(parts: &Parts) -> Result<(), ApiError> {
    let is_host = |value: &HeaderValue| {
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:[]".contains(b);
        value.as_bytes().iter().all(is_part)
    };
    let mut hosts = parts.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => Ok(()),
        (None, _) if parts.version < Version::HTTP_11 => Ok(()),
        (None, _) => Err(ApiError::new(400, "The request has no Host header")),
        (Some(_), None) => Err(ApiError::new(400, "The Host header is not a host")),
        (Some(_), Some(_)) => Err(ApiError::new(400, "The request has several Host headers")),
    }
}

/// Returns true if a JSONP callback is the name of a function, or an element of an object or array.
fn is_callback(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.$[]".contains(&b))
}

/// Fails if the request line or the headers are too long.
fn check_head(parts: &Parts, limits: &Limits) -> Result<(), ApiError> {
    let uri = parts.uri.path_and_query().map_or(0, |p| p.as_str().len());
    let line = parts.method.as_str().len() + uri + "  HTTP/1.1\r\n".len();
    if line > limits.request_line_bytes {
        return Err(ApiError::new(414, "The request line is too long").with_details(format!(
            "It has {line} bytes of at most {}. Send the request as a body, by POST",
            limits.request_line_bytes
        )));
    }
    let headers: usize = parts
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + HEADER_FRAMING.len())
        .sum();
    if headers > limits.header_bytes {
        return Err(ApiError::new(431, "The request headers are too large").with_details(format!(
            "They have {headers} bytes of at most {}",
            limits.header_bytes
        )));
    }
    Ok(())
}

/// Number of headers that [`check_head`] allows.
pub(super) const fn max_headers(limits: &Limits) -> usize {
    let shortest = "a".len() + HEADER_FRAMING.len();
    limits.header_bytes / shortest
}

/// Returns true if OpenTSDB treats the request as chunked.
fn counts_as_chunked(parts: &Parts, body: &Incoming) -> bool {
    let declared = parts
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
        .unwrap_or(0);
    parts.headers.contains_key(TRANSFER_ENCODING)
        || declared > WHOLE_BODY_BYTES
        || (parts.headers.contains_key(EXPECT) && !body.is_end_stream())
}

/// Applies the cross-origin rules; returns the response of a preflight request.
fn check_origin(
    state: &ServerState,
    parts: &Parts,
    context: &mut ResponseContext,
) -> Result<Option<HttpResponse>, HttpError> {
    let cors = &state.config.cors;
    let preflight = parts.method == Method::OPTIONS;
    let origin = parts.headers.get(ORIGIN).filter(|_| cors.is_enabled());
    let Some(origin) = origin else {
        return if preflight { Err(ApiError::options_not_allowed().into()) } else { Ok(None) };
    };
    let text = String::from_utf8_lossy(origin.as_bytes());
    if !cors.allows(&text) {
        if !preflight && is_own_page(&parts.headers, &text) {
            // A browser names the origin also in a request of the daemon's own page that changes something.
            return Ok(None);
        }
        return Err(ApiError::origin_not_allowed(&text).into());
    }
    if let Ok(headers) = HeaderValue::from_str(cors.headers()) {
        context.options.origin = Some((origin.clone(), headers));
    }
    Ok(preflight.then(|| HttpResponse::status_only(StatusCode::OK)))
}

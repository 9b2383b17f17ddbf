//! Processes one HTTP request: limits, error format, cross-origin rules, then its route.

use std::time::Instant;

use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Version,
    body::{Body, Incoming},
    header::{CONTENT_LENGTH, EXPECT, HOST, HeaderValue, ORIGIN, TRANSFER_ENCODING},
    http::request::Parts,
};
use tsd_engine::{MEMORY_LIMIT_KEY, Requester};
use tsd_protocol::{ApiError, QueryString};

use super::{
    access::{Access, ConnectionPeer},
    admission::{Admitted, admit},
    body::read_body,
    cross_site::{is_foreign_script, is_own_page, is_same_host},
    encode_response::{ResponseOptions, encode_response},
    error::{ErrorFormat, HttpError},
    forwarded,
    own_host::check_own_host,
    parsed_body::{parsed_bytes, reserve_parsed},
    request::{HttpRequest, effective_method},
    request_act::{RequestAct, outcome},
    request_path::RequestPath,
    response::{HttpResponse, OutgoingBody, ResponseContent},
    routes,
};
use crate::{
    ServerConfig,
    auth::{Audited, Row, of_request},
    client::Client,
    config::Limits,
    request_id::RequestId,
    route::Route,
    server_state::ServerState,
    timeout_io::ActiveRequest,
};

/// OpenTSDB treats larger bodies as chunked.
const WHOLE_BODY_BYTES: u64 = 8_192;
/// A complete response of up to this many bytes needs no memory beyond its connection's.
const SMALL_RESPONSE_BYTES: usize = 16 << 10;
/// Maximum characters of a wrong request target that an error repeats.
const SHOWN_TARGET_CHARS: usize = 255;
/// Text around the name and value of a header.
const HEADER_FRAMING: &str = ": \r\n";

/// Inputs of the response other than the result of the route.
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
    peer: &ConnectionPeer,
    active_request: ActiveRequest,
) -> Response<OutgoingBody> {
    let began = Instant::now();
    state.metrics.received_http.add(1);
    let (parts, body) = request.into_parts();
    let id = RequestId::of(&parts.headers);
    let origin = id.to_origin();
    let mut context = ResponseContext {
        route: Route::Unknown,
        error_format: ErrorFormat::Legacy(tsd_protocol::LegacyFormat::Html),
        options: ResponseOptions { request_id: Some(id), ..ResponseOptions::default() },
    };
    let routed = if active_request.is_without_memory() {
        context.error_format = ErrorFormat::Api { trace: false };
        let text = format!("no memory is left for the request ({MEMORY_LIMIT_KEY})");
        Err(HttpError::ApiThenClose(ApiError::overloaded(&text)))
    } else {
        let routed = route_request(state, &parts, body, peer, &mut context);
        origin.clone().scope(routed).await
    };
    let response = match routed {
        Ok(response) if context.route.is_operational() => Ok(response),
        Ok(response) => reserve_response(state, response).await,
        Err(error) => Err(error),
    };
    let response = response.unwrap_or_else(|error| {
        if let Some(failure) = error.failure() {
            let path = parts.uri.path();
            origin.in_scope(|| state.log_failed(peer.address.ip(), path, failure));
        }
        error.render(context.error_format)
    });
    state.metrics.request_completed(context.route, response.status.as_u16(), began.elapsed());
    encode_response(response, context.options, &parts.headers, active_request)
}

/// Reserves the memory of a complete response until it is sent, unless its route has done so. Operational routes respond
/// without a reservation, so that a daemon without memory can be monitored.
async fn reserve_response(
    state: &ServerState,
    response: HttpResponse,
) -> Result<HttpResponse, HttpError> {
    match &response.body {
        ResponseContent::Full(bytes)
            if bytes.len() > SMALL_RESPONSE_BYTES && response.on_sent.is_none() =>
        {
            let permit = state.body_memory.reserve_response(bytes.len()).await;
            let permit = permit.ok_or_else(|| {
                let text = format!("no memory is left for the response ({MEMORY_LIMIT_KEY})");
                ApiError::overloaded(&text)
            })?;
            Ok(response.with_on_sent(Box::new(move || drop(permit))))
        }
        _ => Ok(response),
    }
}

async fn route_request(
    state: &ServerState,
    parts: &Parts,
    body: Incoming,
    peer: &ConnectionPeer,
    context: &mut ResponseContext,
) -> Result<HttpResponse, HttpError> {
    let (query, path) = read_head(&state.config, parts, &body, context)?;
    let headers = &parts.headers;
    let client = forwarded::client(headers, peer.address, &state.config.trusted_proxies);
    let is_head = parts.method == Method::HEAD;
    let method = if is_head { Method::GET } else { parts.method.clone() };
    // The handler reports the error, once the sender is known.
    let used = effective_method(&path, &method, &query).unwrap_or_else(|_| method.clone());
    let route = path.route;
    let act = RequestAct::new(state.config.audit.as_ref(), parts, client.address);
    let &Row { requirement, reach, audited, .. } = of_request(route, path.sub_path, &used);
    if let (Some(_), Audited::Always(name)) = (&state.config.audit, audited) {
        act.name(name);
    }
    let handled = async {
        check_own_host(state, headers, peer.address, client, requirement.changes())?;
        check_script(state, headers, client, context)?;
        let changes = requirement.changes() || used == Method::DELETE;
        if let Some(response) = check_origin(state, parts, changes, context)? {
            return Ok(response);
        }
        let access = Access {
            state,
            headers,
            is_head,
            client,
            route,
            requirement,
            reach,
            path: parts.uri.path(),
            act: &act,
        };
        let identity = access.check(&peer.identity).await?;
        let body = read_body(headers, body, &state.config.limits, &state.body_memory).await?;
        let admitted = admit(state, route, identity.as_ref(), client.address.ip())?;
        // Dropped with the request, also when its connection ends.
        let requester = Requester::default();
        let receipt = peer.epoch.as_ref().map(|epoch| epoch.receipt().awaited_by(&requester));
        if !body.bytes().is_empty() {
            state.metrics.http_body_bytes.record(body.bytes().len() as f64);
        }
        let request_bytes = body.bytes().len();
        let parsed = parsed_bytes(&path, &method, &query, body.bytes());
        // Kept until the request was handled.
        let _parsed = match parsed {
            0 => None,
            bytes => {
                let mut wait = body.memory_wait();
                Some(reserve_parsed(&state.body_memory, bytes, request_bytes, &mut wait).await?)
            }
        };
        act.begin(body.bytes()).await?;
        let Admitted { sender, query: running_query } = admitted;
        let request = HttpRequest {
            state,
            method: &method,
            path,
            uri: &parts.uri,
            query,
            headers: &parts.headers,
            body,
            receipt,
            peer: client.address,
            access,
            identity,
            sender,
        };
        let dispatched = routes::dispatch(request).await;
        drop(requester);
        dispatched.map(|response| HttpResponse { running_query, ..response })
    };
    let handled: Result<HttpResponse, HttpError> = handled.await;
    if state.config.audit.is_some() {
        act.end(outcome(&handled)).await;
    }
    handled
}

/// Checks the request line and the headers. Returns the path and the parameters. Sets the format of errors in the
/// context as soon as it is known.
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
    let api = ErrorFormat::Api { trace: config.show_stack_trace };
    if let Err(error) = check_head(parts, &config.limits) {
        // The path is not parsed yet.
        context.error_format = api;
        return Err(HttpError::ApiThenClose(error));
    }
    let is_api = RequestPath::is_api(uri_path);
    if is_api {
        context.error_format = api;
    }
    check_host(parts).map_err(HttpError::ApiThenClose)?;
    if let Err(error) = check_target(parts) {
        context.error_format = api;
        return Err(HttpError::ApiThenClose(error));
    }
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
                let details = "A callback may have only letters, digits and _ . $ [ ]";
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

/// Fails unless the request has one valid `Host`, which HTTP/1.0 may omit (RFC 9112, 3.2). With several,
/// a proxy and the daemon could select different hosts, which an attacker can exploit.
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
        (Some(_), None) => Err(ApiError::new(400, "The Host header is not a valid host")),
        (Some(_), Some(_)) => Err(ApiError::new(400, "The request has several Host headers")),
    }
}

/// Fails unless the request target is a path, or a URL of the host in `Host` (RFC 9112, 3.2.2).
fn check_target(parts: &Parts) -> Result<(), ApiError> {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_own = parts.uri.authority().is_none() || is_same_host(&parts.uri.to_string(), host);
    if is_own && parts.uri.path().starts_with('/') {
        return Ok(());
    }
    let shown: String = parts.uri.to_string().chars().take(SHOWN_TARGET_CHARS).collect();
    let details = format!(
        "The request asks for {shown:?}, but its Host is {host:?}. Send a path, or a URL of that host"
    );
    Err(ApiError::new(400, "The request target is not a path of this host").with_details(details))
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
            "It has {line} bytes; the limit is {}. Send the request in a body, by POST",
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
            "They have {headers} bytes; the limit is {}",
            limits.header_bytes
        )));
    }
    Ok(())
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

/// Fails if a page of another site includes the response as a script (JSONP), since the page could read it.
fn check_script(
    state: &ServerState,
    headers: &HeaderMap,
    client: Client,
    context: &mut ResponseContext,
) -> Result<(), ApiError> {
    if context.options.jsonp.is_none() || !is_foreign_script(headers, &state.config.cors) {
        return Ok(());
    }
    context.options.jsonp = None;
    let details = "A page of another site may read JSONP only if its origin is in \
                   tsd.http.request.cors_domains";
    state.log_refusal(client.address.ip(), &state.metrics.forbidden_http, &details);
    Err(ApiError::new(403, "Cross-site script refused").with_details(details))
}

/// Applies the cross-origin rules; returns the response to a preflight request. If the request `changes` data or state,
/// the refusal is a 403: with OpenTSDB's 200, a sender of points would assume that they are stored.
fn check_origin(
    state: &ServerState,
    parts: &Parts,
    changes: bool,
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
            // For changes, a browser sends the origin also from the daemon's own page.
            return Ok(None);
        }
        let mut error = ApiError::origin_not_allowed(&text);
        if changes && !preflight {
            error.status = StatusCode::FORBIDDEN.as_u16();
        }
        return Err(error.into());
    }
    if let Ok(headers) = HeaderValue::from_str(cors.headers()) {
        context.options.origin = Some((origin.clone(), headers));
    }
    Ok(preflight.then(|| HttpResponse::status_only(StatusCode::OK)))
}

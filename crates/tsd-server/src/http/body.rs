//! Reads request bodies of all kinds within limits of size, time and total memory.

use std::{
    pin::{Pin, pin},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap,
    body::{Frame, Incoming},
    header,
};
use tokio::time::{Instant, timeout, timeout_at};
use tsd_engine::MEMORY_LIMIT_KEY;
use tsd_protocol::ApiError;

use super::{
    body_memory::{BodyMemory, BodyPermit},
    encoding::{Decompressor, Encoding},
    error::HttpError,
};
use crate::Limits;

/// Maximum memory reserved up front for a declared `Content-Length`.
const MAX_INITIAL_RESERVATION: u64 = 64 << 10;
/// First reservation for a body that is decompressed, bytes; doubled as needed.
const INFLATE_START: usize = 8 << 10;
/// Bytes that are decompressed before other tasks may run.
const INFLATE_STEP: usize = 256 << 10;
/// How long the rest of an oversized body is read and discarded, so that the client sees the
/// response and not a connection reset.
const DISCARD_FOR: Duration = Duration::from_secs(2);

/// A complete, decompressed request body.
#[derive(Debug, Default)]
pub(crate) struct RequestBody {
    bytes: Bytes,
    /// Released when the body is dropped.
    memory: Vec<BodyPermit>,
}

impl RequestBody {
    /// Returns the content.
    pub(crate) const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the content as text, or a 400 if it is not UTF-8.
    pub(crate) fn text(&self) -> Result<&str, ApiError> {
        std::str::from_utf8(&self.bytes).map_err(|error| {
            ApiError::bad_json(format!("Invalid UTF-8 at byte {}", error.valid_up_to()))
        })
    }

    /// Returns the body as text, or an error if it is empty.
    pub(crate) fn required_text(&self) -> Result<&str, ApiError> {
        if self.bytes.is_empty() { Err(ApiError::missing_content()) } else { self.text() }
    }
}

/// Reads, decompresses and transcodes the body of a request.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    mut body: Incoming,
    limits: &Limits,
    memory: &BodyMemory,
) -> Result<RequestBody, HttpError> {
    let declared = declared_length(headers);
    if declared.is_some_and(|length| length > limits.body_bytes as u64) {
        // A client that sent `Expect: 100-continue` has not sent the body yet.
        if !headers.contains_key(header::EXPECT) {
            discard(&mut body).await;
        }
        return Err(too_large(limits.body_bytes));
    }
    let mut read = BytesMut::new();
    let mut permits = Vec::new();
    let mut reserved = 0;
    let received = AtomicUsize::new(0);
    let await_stall = || memory.await_stall(&received, limits.body_stall);
    let mut stall = pin!(await_stall());
    loop {
        let Some(frame) = next_frame(&mut body, limits, stall.as_mut()).await? else { break };
        let Ok(data) = frame.into_data() else { continue };
        received.fetch_add(data.len(), Ordering::Relaxed);
        let length = read.len() + data.len();
        if length > limits.body_bytes {
            drop((read, permits));
            discard(&mut body).await;
            return Err(too_large(limits.body_bytes));
        }
        if length > reserved {
            // Reservations double like the buffer. A declared length is reserved only up to a small
            // bound: a client that declares much and sends little must not use up the budget.
            let declared = declared.unwrap_or(0).min(MAX_INITIAL_RESERVATION) as usize;
            let target = length.max((reserved * 2).min(limits.body_bytes)).max(declared);
            permits.push(memory.reserve(target - reserved, target).await?);
            reserved = target;
            read.reserve(target - read.len());
            // It may have waited itself.
            stall.set(await_stall());
        }
        read.extend_from_slice(&data);
    }
    let bytes = read.freeze();
    let encoding = headers
        .get(header::CONTENT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .and_then(Encoding::of_request);
    let Some(encoding) = encoding.filter(|_| !bytes.is_empty()) else {
        return decode_charset(headers, RequestBody { bytes, memory: permits });
    };
    let limit = limits.inflated_bytes.max(limits.body_bytes);
    let inflated = inflate(encoding, (bytes, reserved), limit, memory).await?;
    drop(permits);
    decode_charset(headers, inflated)
}

/// The next part of a body, if it comes in time; `None` at its end.
async fn next_frame(
    body: &mut Incoming,
    limits: &Limits,
    stall: Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<Frame<Bytes>>, HttpError> {
    let error = tokio::select! {
        biased;
        frame = timeout(limits.body_timeout, body.frame()) => match frame {
            Ok(frame) => {
                return frame.transpose().map_err(|source| {
                    let error = ApiError::new(400, "The request body broke off");
                    HttpError::ApiThenClose(error.with_details(source.to_string()))
                });
            }
            Err(_) => ApiError::new(408, "The request body did not arrive in time"),
        },
        () = stall => {
            metrics::counter!("tsd_server_stalled_bodies_total").increment(1);
            // Not the fault of its client, which may send it again.
            let text = format!(
                "others wait for the memory of a request body that does not arrive ({MEMORY_LIMIT_KEY})"
            );
            ApiError::overloaded(&text)
        }
    };
    Err(HttpError::ApiThenClose(error))
}

/// Decompresses a body of at most `limit` bytes, for which `sent_bytes` are reserved as it was sent. Memory is reserved
/// as the result grows, since its size is not known, and other connections are served between two steps.
async fn inflate(
    encoding: Encoding,
    (sent, sent_bytes): (Bytes, usize),
    limit: usize,
    memory: &BodyMemory,
) -> Result<RequestBody, HttpError> {
    let mut out = Vec::new();
    let mut permits = Vec::new();
    let mut reserved = 0;
    let mut decompressor = Decompressor::new(encoding, sent);
    loop {
        if out.len() == reserved {
            // One byte beyond the limit shows that it is exceeded.
            let target = (reserved * 2).max(INFLATE_START).min(limit + 1);
            permits.push(memory.reserve(target - reserved, target + sent_bytes).await?);
            out.reserve_exact(target - out.len());
            reserved = target;
        }
        let step = (reserved - out.len()).min(INFLATE_STEP);
        let read = decompressor.read(&mut out, step).map_err(|source| {
            ApiError::new(400, "Unable to inflate the request body")
                .with_details(source.to_string())
        })?;
        if read == 0 {
            return Ok(RequestBody { bytes: out.into(), memory: permits });
        }
        if out.len() > limit {
            return Err(ApiError::inflated_body_too_large(limit as u64).into());
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the declared `Content-Length`.
fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn too_large(limit: usize) -> HttpError {
    HttpError::ApiThenClose(ApiError::body_too_large(limit as u64))
}

async fn discard(body: &mut Incoming) {
    let deadline = Instant::now() + DISCARD_FOR;
    while let Ok(Some(Ok(_))) = timeout_at(deadline, body.frame()).await {}
}

/// Converts ISO-8859-1 bodies to UTF-8. Other bodies are assumed to be UTF-8, which the parser
/// checks.
fn decode_charset(headers: &HeaderMap, body: RequestBody) -> Result<RequestBody, HttpError> {
    let charset = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| {
            let at = value.to_ascii_lowercase().find("charset=")?;
            value.get(at + "charset=".len()..)?.split(';').next()
        })
        .map(|name| name.trim().trim_matches('"').to_ascii_lowercase());
    match charset.as_deref() {
        None | Some("" | "utf-8" | "utf8" | "us-ascii" | "ascii") => Ok(body),
        Some("iso-8859-1" | "latin1" | "iso8859-1") => {
            if body.bytes.is_ascii() {
                return Ok(body);
            }
            let text: String = body.bytes.iter().map(|b| char::from(*b)).collect();
            Ok(RequestBody { bytes: Bytes::from(text), memory: body.memory })
        }
        Some(other) => Err(ApiError::new(400, "Unsupported character set")
            .with_details(format!("Bodies are read as UTF-8 or ISO-8859-1, not {other}"))
            .into()),
    }
}

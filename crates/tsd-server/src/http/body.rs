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
use tsd_protocol::{ApiError, Decompressor, Encoding};

use super::error::HttpError;
use crate::{
    Limits,
    body_memory::{BodyMemory, BodyPermit, MemoryWait},
};

/// Maximum memory reserved up front for a declared `Content-Length`.
const MAX_INITIAL_RESERVATION: u64 = 64 << 10;
/// First reservation for a decompressed body, bytes; doubled as needed.
const INFLATE_START: usize = 8 << 10;
/// Bytes to decompress before other tasks may run.
const INFLATE_STEP: usize = 256 << 10;
/// How long to read and discard the rest of an oversized body, so that the client sees the response
/// and not a connection reset.
const DISCARD_FOR: Duration = Duration::from_secs(2);

/// A complete, decompressed request body.
#[derive(Debug, Default)]
pub(crate) struct RequestBody {
    bytes: Bytes,
    /// Released when the body is dropped.
    _memory: Vec<BodyPermit>,
    wait: MemoryWait,
}

impl RequestBody {
    /// Returns the content.
    pub(crate) const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How long the request may still wait for memory.
    pub(crate) const fn memory_wait(&self) -> MemoryWait {
        self.wait
    }

    /// Returns the content as text, or a 400 if it is not UTF-8.
    pub(crate) fn text(&self) -> Result<&str, ApiError> {
        std::str::from_utf8(&self.bytes).map_err(|error| {
            ApiError::bad_json(format!("Invalid UTF-8 at byte {}", error.valid_up_to()))
        })
    }

    /// Returns the content as text, or an error if it is empty.
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
    let whole = declared.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    if let Err(error) = memory.check(whole) {
        if !headers.contains_key(header::EXPECT) {
            discard(&mut body).await;
        }
        return Err(HttpError::ApiThenClose(error));
    }
    let mut read = BytesMut::new();
    let mut permits = Vec::new();
    let mut reserved = 0;
    let mut wait = memory.request_wait();
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
        if let Err(error) = memory.check(length) {
            drop((read, permits));
            discard(&mut body).await;
            return Err(HttpError::ApiThenClose(error));
        }
        if length > reserved {
            // Reservations double like the buffer. A declared length is reserved only up to a small
            // limit: a client that declares much and sends little must not use up the budget.
            let first = declared.unwrap_or(0).min(MAX_INITIAL_RESERVATION) as usize;
            let target = length.max((reserved * 2).min(limits.body_bytes)).max(first);
            let target = memory.rounded(target);
            let permit = memory.reserve(target - reserved, target.max(whole), &mut wait).await;
            permits.push(permit.map_err(HttpError::ApiThenClose)?);
            reserved = target;
            read.reserve(target - read.len());
            // The reservation may have taken time, so the measurement starts again.
            stall.set(await_stall());
        }
        read.extend_from_slice(&data);
    }
    let bytes = read.freeze();
    let encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let encodings: Vec<_> =
        encodings.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let encoding =
        if bytes.is_empty() { None } else { Encoding::of_request(&encodings.join(", "))? };
    let Some(encoding) = encoding else {
        return decode_charset(headers, RequestBody { bytes, _memory: permits, wait });
    };
    let limit = limits.inflated_bytes.max(limits.body_bytes);
    let inflated = inflate(encoding, (bytes, reserved), limit, (memory, wait)).await?;
    drop(permits);
    decode_charset(headers, inflated)
}

/// Returns the next frame of a body, if it arrives in time; `None` at the end of the body.
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
                    let error = ApiError::new(400, "The request body is incomplete or malformed");
                    HttpError::ApiThenClose(error.with_details(source.to_string()))
                });
            }
            Err(_) => ApiError::new(408, "The request body did not arrive in time"),
        },
        () = stall => {
            metrics::counter!("tsd_server_stalled_bodies_total").increment(1);
            // A 503, so that the client retries.
            let text = format!(
                "the request body stalled while other requests waited for memory ({MEMORY_LIMIT_KEY})"
            );
            ApiError::overloaded(&text)
        }
    };
    Err(HttpError::ApiThenClose(error))
}

/// Decompresses a body to at most `limit` bytes; `sent_bytes` are already reserved for the compressed body. Reserves
/// memory as the result grows, since its size is unknown. Other connections are served between two steps.
async fn inflate(
    encoding: Encoding,
    (sent, sent_bytes): (Bytes, usize),
    limit: usize,
    (memory, mut wait): (&BodyMemory, MemoryWait),
) -> Result<RequestBody, HttpError> {
    let (most, key) = memory.most();
    let room = most.saturating_sub(sent_bytes);
    let mut out = Vec::new();
    let mut permits = Vec::new();
    let mut reserved = 0;
    let mut decompressor = Decompressor::new(encoding, sent);
    loop {
        if out.len() == reserved && reserved < room {
            // One byte beyond the limit shows that it is exceeded.
            let target = (reserved * 2).max(INFLATE_START).min(limit + 1).min(room);
            let permit = memory.reserve(target - reserved, target + sent_bytes, &mut wait).await;
            permits.push(permit.map_err(HttpError::ApiThenClose)?);
            out.reserve_exact(target - out.len());
            reserved = target;
        }
        // A body may use all memory that a body can have; one byte more shows that it is not enough.
        let step = (reserved - out.len()).clamp(1, INFLATE_STEP);
        let read = decompressor.read(&mut out, step).map_err(|source| {
            ApiError::new(400, "Unable to inflate the request body")
                .with_details(source.to_string())
        })?;
        if read == 0 {
            return Ok(RequestBody { bytes: out.into(), _memory: permits, wait });
        }
        if out.len() > limit {
            return Err(ApiError::inflated_body_too_large(limit as u64).into());
        }
        if out.len() > room {
            return Err(ApiError::body_exceeds_memory(most as u64, key).into());
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

/// Converts ISO-8859-1 bodies to UTF-8. Assumes that other bodies are UTF-8, which the parser
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
            Ok(RequestBody { bytes: Bytes::from(text), ..body })
        }
        Some(other) => Err(ApiError::new(400, "Unsupported character set")
            .with_details(format!(
                "The character set of the body is {other}; send UTF-8 or ISO-8859-1"
            ))
            .into()),
    }
}

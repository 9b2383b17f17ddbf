//! Memory of parsed request bodies, in addition to the bodies themselves.
//!
//! | body | reserved in addition to its bytes |
//! |---|---|
//! | points | as the lists of points and of their errors grow, 1 to 4 bytes for each byte of usual points: [`PointMemory`] |
//! | queries, lists of names and annotations, trees | before it is parsed, by its shape: [`ParsedKind::memory`] |
//!
//! A request waits only briefly, since it holds memory itself. Reservations during the parsing of points
//! do not wait at all.

use std::cell::Cell;

use hyper::Method;
use tsd_engine::{MEMORY_LIMIT_KEY, MemoryConsumer, MemoryPermit, ProcessMemory};
use tsd_protocol::{ApiError, BodyShape, ParseMemory, ParsedKind, QueryString};

use super::request_path::RequestPath;
use crate::{
    body_memory::{BodyMemory, MemoryWait},
    route::Route,
};

/// Maximum reservation before points are parsed, bytes.
const MAX_FIRST_BYTES: usize = 32 << 10;
/// Minimum step of a reservation, bytes.
const STEP_BYTES: usize = 32 << 10;

/// Memory of the points of one request, or of a list of names, until its response is sent.
#[derive(Debug)]
pub(crate) struct PointMemory {
    permit: MemoryPermit,
    used: usize,
    /// Maximum bytes reserved for the body: its reservation doubles while it is read.
    reserved_body: usize,
    memory: BodyMemory,
    wait: MemoryWait,
    is_refused: Cell<bool>,
}

impl PointMemory {
    /// Begins with a small reservation for a body of `bytes` bytes.
    pub(crate) async fn begin(
        memory: &BodyMemory,
        bytes: usize,
        mut wait: MemoryWait,
    ) -> Result<Self, ApiError> {
        let first = (bytes * 2).min(MAX_FIRST_BYTES);
        let permit = reserve_parsed(memory, first, bytes, &mut wait).await?;
        Ok(Self {
            permit,
            used: 0,
            reserved_body: bytes * 2,
            memory: memory.clone(),
            wait,
            is_refused: Cell::new(false),
        })
    }

    /// Reserves `bytes` more, and waits for them if they are not available now.
    pub(crate) async fn take_or_wait(&mut self, bytes: usize) -> bool {
        if self.take(bytes) {
            return true;
        }
        if self.used as u64 > self.memory.process().most(MemoryConsumer::Bodies) {
            return false;
        }
        let missing = self.used - self.permit.bytes();
        let Some(more) = self.memory.reserve_parsed(missing, &mut self.wait).await else {
            // The wait counted the refusal.
            self.is_refused.set(true);
            return false;
        };
        self.permit.merge(more);
        true
    }

    /// Returns the error of a request whose points got no memory, and counts it once.
    pub(crate) fn refusal(&self) -> ApiError {
        let process = self.memory.process();
        if !self.is_refused.replace(true) {
            process.record_refusal(MemoryConsumer::Bodies);
        }
        refusal(process, self.used.saturating_add(self.reserved_body))
    }
}

impl ParseMemory for PointMemory {
    fn take(&mut self, bytes: usize) -> bool {
        self.used = self.used.saturating_add(bytes);
        self.used <= self.permit.bytes()
            || self
                .permit
                .try_grow(self.used.saturating_add(STEP_BYTES).saturating_add(self.used / 4))
            || self.permit.try_grow(self.used)
    }
}

/// Reserves memory for the parsed content of a body of `body_bytes`.
pub(super) async fn reserve_parsed(
    memory: &BodyMemory,
    bytes: usize,
    body_bytes: usize,
    wait: &mut MemoryWait,
) -> Result<MemoryPermit, ApiError> {
    let whole = bytes.saturating_add(body_bytes);
    let process = memory.process();
    if whole as u64 > process.most(MemoryConsumer::Bodies) {
        // A wait cannot help.
        process.record_refusal(MemoryConsumer::Bodies);
        return Err(refusal(process, whole));
    }
    let reserved = memory.reserve_parsed(bytes, wait).await;
    reserved.ok_or_else(|| refusal(process, whole))
}

/// Returns a 503, or a 413 if the request exceeds the limit even without other requests.
fn refusal(process: &ProcessMemory, bytes: usize) -> ApiError {
    let most = process.most(MemoryConsumer::Bodies);
    if bytes as u64 > most {
        let text = format!(
            "The request needs {bytes} bytes of memory; the limit of request bodies is {most} \
             ({MEMORY_LIMIT_KEY})"
        );
        return ApiError::new(413, text);
    }
    let text = format!("no memory is left for the content of the request ({MEMORY_LIMIT_KEY})");
    ApiError::overloaded(&text)
}

/// Bytes to reserve before a request is handled, for the parsed content of its body or parameters. Bodies
/// of points reserve memory while they are parsed.
pub(super) fn parsed_bytes(
    path: &RequestPath<'_>,
    method: &Method,
    query: &QueryString,
    body: &[u8],
) -> usize {
    let kind = match path.route {
        Route::Query if path.sub_path.eq_ignore_ascii_case("exp") => ParsedKind::Expressions,
        Route::Query if path.sub_path.eq_ignore_ascii_case("last") => ParsedKind::List,
        Route::Query => ParsedKind::Query,
        Route::Search | Route::Annotation | Route::Annotations => ParsedKind::List,
        Route::Put | Route::Rollup | Route::Histogram => return 0,
        _ => ParsedKind::Tree,
    };
    let mut shape = BodyShape::of(body);
    let is_query = matches!(kind, ParsedKind::Query);
    if is_query && method != Method::POST {
        shape = BodyShape::default();
    }
    if is_query {
        let values = query.pairs().iter().map(|(_, value)| BodyShape::of(value.as_bytes()));
        shape = values.fold(shape, BodyShape::and);
    }
    kind.memory(shape)
}

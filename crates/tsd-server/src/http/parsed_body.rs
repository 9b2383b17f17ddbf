//! Memory of what is made of request bodies, beside the bodies.
//!
//! | body | reserved beside its bytes |
//! |---|---|
//! | points | as the lists of points and of their errors grow, 1 to 4 bytes for each byte of usual points: [`PointMemory`] |
//! | queries, lists of names and annotations, trees | before it is parsed, by its shape: [`ParsedKind::memory`] |
//!
//! A wait is for a moment only: a waiting request holds memory itself. Memory that is asked for while
//! points are parsed does not wait at all.

use std::cell::Cell;

use hyper::Method;
use tsd_engine::{MEMORY_LIMIT_KEY, MemoryPart, MemoryPermit, ProcessMemory};
use tsd_protocol::{ApiError, BodyShape, ParseMemory, ParsedKind, QueryString};

use super::{body_memory::BodyMemory, request_path::RequestPath, route::Route};

/// Most that is reserved before points are parsed, bytes.
const MAX_FIRST_BYTES: usize = 32 << 10;
/// Memory is reserved in steps of at least these bytes.
const STEP_BYTES: usize = 32 << 10;

/// Memory of the points of one request, until its response is sent.
#[derive(Debug)]
pub(crate) struct PointMemory {
    permit: MemoryPermit,
    used: usize,
    /// Bytes reserved for the body at most: its reservation doubles as it is read.
    reserved_body: usize,
    process: ProcessMemory,
    is_refused: Cell<bool>,
}

impl PointMemory {
    /// Begins with a small reservation for a body of `bytes` bytes.
    pub(crate) async fn begin(memory: &BodyMemory, bytes: usize) -> Result<Self, ApiError> {
        let permit = reserve_parsed(memory, (bytes * 2).min(MAX_FIRST_BYTES)).await?;
        let process = memory.process().clone();
        Ok(Self {
            permit,
            used: 0,
            reserved_body: bytes * 2,
            process,
            is_refused: Cell::new(false),
        })
    }

    /// The error of a request whose points did not get memory; counts it, once.
    pub(crate) fn refusal(&self) -> ApiError {
        if !self.is_refused.replace(true) {
            self.process.record_refusal(MemoryPart::Bodies);
        }
        refusal(&self.process, self.used.saturating_add(self.reserved_body))
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

/// Reserves memory for what is made of a body.
pub(super) async fn reserve_parsed(
    memory: &BodyMemory,
    bytes: usize,
) -> Result<MemoryPermit, ApiError> {
    let reserved = memory.reserve_parsed(bytes).await;
    reserved.ok_or_else(|| refusal(memory.process(), bytes))
}

/// 503, or 413 if no other request is in the way.
fn refusal(process: &ProcessMemory, bytes: usize) -> ApiError {
    let most = process.most(MemoryPart::Bodies);
    if bytes as u64 > most {
        let text = format!(
            "The request needs {bytes} bytes of memory, request bodies have at most {most} \
             ({MEMORY_LIMIT_KEY})"
        );
        return ApiError::new(413, text);
    }
    let text = format!("no memory is left for the content of the request ({MEMORY_LIMIT_KEY})");
    ApiError::overloaded(&text)
}

/// Bytes to reserve before a request is handled, for what is made of its body or its parameters. Bodies
/// of points reserve theirs as they are parsed.
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

//! Response bodies that are generated while they are sent.
//!
//! A chunk is generated when the socket can accept it: a slow reader holds its result and one chunk
//! in memory, but no slot of a running query. Query threads generate all chunks except the first,
//! because formatting thousands of points must not delay writes.

use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hyper::{
    StatusCode,
    header::{HeaderName, HeaderValue},
};
use tsd_engine::{QueryGuard, QueryThreads};

use crate::http::response::{ContentType, HttpResponse, OnSent, ResponseAborted};

/// Chunk size in bytes. A smaller response is sent as a whole, with `Content-Length`.
const CHUNK_BYTES: usize = 64 << 10;

/// Header of a result that may lack points (`allow_damaged`).
const PARTIAL_RESULT: HeaderName = HeaderName::from_static("x-partial-result");

/// Measures the time spent writing a response.
#[derive(Clone, Debug, Default)]
pub(super) struct SerializationTimer {
    state: Arc<Mutex<TimerState>>,
}

#[derive(Debug, Default)]
struct TimerState {
    done: Duration,
    /// Start of the current chunk.
    started: Option<Instant>,
}

impl SerializationTimer {
    pub(super) fn time(&self) -> Duration {
        let state = self.state.lock();
        state.done + state.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    /// Calls `work` and adds its duration.
    fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        self.state.lock().started = Some(started);
        let value = work();
        let mut state = self.state.lock();
        state.started = None;
        state.done += started.elapsed();
        value
    }
}

/// Builds a response whose body `write` generates: it appends up to a number of bytes to the buffer
/// and returns true if there is more. The guard is notified when the body is sent, and dropped
/// otherwise.
pub(super) fn chunked(
    write: impl FnMut(&mut Vec<u8>, usize) -> bool + Send + 'static,
    timer: SerializationTimer,
    guard: QueryGuard,
) -> HttpResponse {
    chunked_as(ContentType::Json, write, timer, guard)
}

/// Like [`chunked`], with another content type.
pub(super) fn chunked_as(
    content_type: ContentType,
    write: impl FnMut(&mut Vec<u8>, usize) -> bool + Send + 'static,
    timer: SerializationTimer,
    guard: QueryGuard,
) -> HttpResponse {
    let threads = guard.threads().clone();
    let missed = missed_files(&guard);
    // Shared by the chunk stream and the completion callback, and dropped with the last of them.
    let guard = Arc::new(Mutex::new(Some(guard)));
    let on_sent_guard = Arc::clone(&guard);
    let sent_timer = timer.clone();
    let on_sent: OnSent = Box::new(move || {
        if let Some(guard) = on_sent_guard.lock().take() {
            guard.mark_sent(sent_timer.time());
        }
    });
    let mut writer = ChunkWriter { write: Box::new(write), timer, more: true };
    let first = writer.write_chunk(0);
    if !writer.more {
        let response = HttpResponse::new(StatusCode::OK, content_type, first);
        return with_missed(response, missed).with_on_sent(on_sent);
    }
    let rest = stream::try_unfold(writer, move |writer| {
        let is_cancelled = guard.lock().as_ref().is_some_and(QueryGuard::is_cancelled);
        next_chunk(writer, is_cancelled, threads.clone())
    });
    let chunks = stream::iter([Ok(first)]).chain(rest);
    let response = HttpResponse::chunks(content_type, Box::pin(chunks));
    with_missed(response, missed).with_on_sent(on_sent)
}

/// Lists the quarantined files whose points the result may lack, for a header; `None` if the result is complete.
pub(super) fn missed_files(guard: &QueryGuard) -> Option<HeaderValue> {
    let files = guard.losses();
    if files.is_empty() {
        return None;
    }
    HeaderValue::try_from(files.join(", ")).ok()
}

pub(super) fn with_missed(response: HttpResponse, missed: Option<HeaderValue>) -> HttpResponse {
    match missed {
        Some(files) => response.with_header(PARTIAL_RESULT, files),
        None => response,
    }
}

/// Appends up to a number of bytes to the buffer; returns true if there is more.
type Write = dyn FnMut(&mut Vec<u8>, usize) -> bool + Send;

/// Generates chunks.
struct ChunkWriter {
    write: Box<Write>,
    timer: SerializationTimer,
    more: bool,
}

impl ChunkWriter {
    fn write_chunk(&mut self, capacity: usize) -> Bytes {
        let mut chunk = Vec::with_capacity(capacity);
        self.more = self.timer.measure(|| (self.write)(&mut chunk, CHUNK_BYTES));
        Bytes::from(chunk)
    }
}

async fn next_chunk(
    mut writer: ChunkWriter,
    is_cancelled: bool,
    threads: QueryThreads,
) -> Result<Option<(Bytes, ChunkWriter)>, ResponseAborted> {
    if !writer.more {
        return Ok(None);
    }
    if is_cancelled {
        return Err(ResponseAborted("the query was cancelled".to_owned()));
    }
    let generated =
        threads.call(move || (writer.write_chunk(CHUNK_BYTES + CHUNK_BYTES / 8), writer)).await;
    generated.map(Some).map_err(|lost| ResponseAborted(lost.to_string()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::http::response::ResponseContent;

    /// Returns a response of `chunks` chunks, and a counter of the generated chunks.
    fn chunked_response(chunks: usize) -> (HttpResponse, Arc<AtomicUsize>) {
        let generated = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&generated);
        let write = move |out: &mut Vec<u8>, chunk_bytes: usize| {
            out.resize(chunk_bytes, b'x');
            counter.fetch_add(1, Ordering::Relaxed) + 1 < chunks
        };
        (chunked(write, SerializationTimer::default(), QueryGuard::default()), generated)
    }

    #[tokio::test]
    async fn chunks_are_generated_on_demand() {
        let (response, generated) = chunked_response(1_000);
        let ResponseContent::Chunks(mut chunks) = response.body else { panic!("not chunked") };
        assert_eq!(generated.load(Ordering::Relaxed), 1);
        for read in 1..=3 {
            assert_eq!(chunks.next().await.unwrap().unwrap().len(), CHUNK_BYTES);
            assert_eq!(generated.load(Ordering::Relaxed), read);
        }
        drop(chunks);
        assert_eq!(generated.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn small_response_is_not_chunked() {
        let (response, generated) = chunked_response(1);
        assert!(matches!(response.body, ResponseContent::Full(_)));
        assert_eq!(generated.load(Ordering::Relaxed), 1);
    }
}

//! Response bodies that are generated while they are sent.
//!
//! A chunk is generated when the socket can accept it: a slow reader holds its result and one chunk
//! in memory, but no slot of a running query. All chunks but the first are generated on the query
//! threads, because formatting thousands of points must not delay writes.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_engine::{QueryGuard, QueryThreads};

use crate::http::response::{ContentType, HttpResponse, OnSent, ResponseAborted};

/// Chunk size in bytes. A smaller response is sent whole, with `Content-Length`.
const CHUNK_BYTES: usize = 64 << 10;

/// Measures the time spent writing a response.
#[derive(Clone, Debug, Default)]
pub(super) struct SerializationTimer {
    times: Arc<Mutex<TimerState>>,
}

#[derive(Debug, Default)]
struct TimerState {
    done: Duration,
    /// Start of the current chunk.
    began: Option<Instant>,
}

impl SerializationTimer {
    pub(super) fn time(&self) -> Duration {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.done + times.began.map(|began| began.elapsed()).unwrap_or_default()
    }

    /// Calls `work` and adds its duration.
    fn count<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        self.times.lock().unwrap_or_else(PoisonError::into_inner).began = Some(began);
        let value = work();
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.began = None;
        times.done += began.elapsed();
        value
    }
}

/// Builds a response whose body `write` generates: it appends to the buffer up to a number of bytes
/// and returns true if there is more. The guard is notified when the body is sent, and dropped
/// otherwise.
pub(super) fn reply(
    write: impl FnMut(&mut Vec<u8>, usize) -> bool + Send + 'static,
    writing: SerializationTimer,
    guard: QueryGuard,
) -> HttpResponse {
    let threads = guard.threads().clone();
    // Shared by the chunk stream and the completion callback; dropped with the last of them.
    let guard = Arc::new(Mutex::new(Some(guard)));
    let held = Arc::clone(&guard);
    let times = writing.clone();
    let on_sent = OnSent::new(move || {
        if let Some(guard) = held.lock().unwrap_or_else(PoisonError::into_inner).take() {
            guard.mark_sent(200, times.time());
        }
    });
    let mut maker = ChunkWriter { write: Box::new(write), writing, more: true };
    let first = maker.make(0);
    if !maker.more {
        return HttpResponse::json(first).telling(on_sent);
    }
    let rest = stream::try_unfold(maker, move |maker| {
        let is_cancelled = guard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(QueryGuard::is_cancelled);
        next(maker, is_cancelled, threads.clone())
    });
    let pieces = stream::iter([Ok(first)]).chain(rest);
    HttpResponse::pieces(ContentType::Json, Box::pin(pieces)).telling(on_sent)
}

/// Builds a response with a complete body.
pub(in crate::http::routes) fn whole(
    make: impl FnOnce() -> Vec<u8>,
    guard: QueryGuard,
) -> HttpResponse {
    let writing = SerializationTimer::default();
    let body = writing.count(make);
    HttpResponse::json(body).telling(OnSent::new(move || guard.mark_sent(200, writing.time())))
}

/// Appends up to a number of bytes to the buffer; returns true if there is more.
type Write = dyn FnMut(&mut Vec<u8>, usize) -> bool + Send;

/// Generates chunks.
struct ChunkWriter {
    write: Box<Write>,
    writing: SerializationTimer,
    more: bool,
}

impl ChunkWriter {
    fn make(&mut self, room: usize) -> Bytes {
        let mut piece = Vec::with_capacity(room);
        self.more = self.writing.count(|| (self.write)(&mut piece, CHUNK_BYTES));
        Bytes::from(piece)
    }
}

async fn next(
    mut maker: ChunkWriter,
    is_cancelled: bool,
    threads: QueryThreads,
) -> Result<Option<(Bytes, ChunkWriter)>, ResponseAborted> {
    if !maker.more {
        return Ok(None);
    }
    if is_cancelled {
        return Err(ResponseAborted("the query was cancelled".to_owned()));
    }
    let made = threads.call(move || (maker.make(CHUNK_BYTES + CHUNK_BYTES / 8), maker)).await;
    made.map(Some).map_err(|lost| ResponseAborted(lost.to_string()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::http::response::ResponseContent;

    /// A response of `chunks` chunks, and a counter of the generated ones.
    fn counted(pieces: usize) -> (HttpResponse, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let write = move |out: &mut Vec<u8>, enough: usize| {
            out.resize(enough, b'x');
            count.fetch_add(1, Ordering::Relaxed) + 1 < pieces
        };
        (reply(write, SerializationTimer::default(), QueryGuard::default()), made)
    }

    #[tokio::test]
    async fn a_piece_is_made_when_it_is_asked_for() {
        let (reply, made) = counted(1_000);
        let ResponseContent::Chunks(mut pieces) = reply.body else { panic!("not in pieces") };
        assert_eq!(made.load(Ordering::Relaxed), 1);
        for taken in 1..=3 {
            assert_eq!(pieces.next().await.unwrap().unwrap().len(), CHUNK_BYTES);
            assert_eq!(made.load(Ordering::Relaxed), taken);
        }
        drop(pieces);
        assert_eq!(made.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_small_answer_is_whole() {
        let (reply, made) = counted(1);
        assert!(matches!(reply.body, ResponseContent::Full(_)));
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }
}

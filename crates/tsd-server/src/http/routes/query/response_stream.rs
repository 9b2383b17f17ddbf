//! Answers made while they are sent.
//!
//! A piece is made when the socket has room for it, never before: a client that reads slowly holds its
//! answer and one piece, and no place among the queries that work. All but the first are made on the
//! threads for queries: thousands of points become text in each, and those who put points should not
//! wait for that.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_engine::{QueryGuard, QueryThreads};

use crate::http::response::{ContentType, HttpResponse, OnSent, ResponseAborted};

/// Size of a piece of an answer. What is smaller is sent whole, with its length.
const CHUNK_BYTES: usize = 64 << 10;

/// How long the writing of an answer took so far.
#[derive(Clone, Debug, Default)]
pub(super) struct SerializationTimer {
    times: Arc<Mutex<TimerState>>,
}

#[derive(Debug, Default)]
struct TimerState {
    done: Duration,
    /// When the piece at hand was begun.
    began: Option<Instant>,
}

impl SerializationTimer {
    pub(super) fn time(&self) -> Duration {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.done + times.began.map(|began| began.elapsed()).unwrap_or_default()
    }

    /// Calls `work`, counting its time.
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

/// The reply whose body `write` makes: it appends to its buffer until that holds so many bytes, and
/// says whether there is more. The guard is told when all was sent, and dropped where it was not.
pub(super) fn reply(
    write: impl FnMut(&mut Vec<u8>, usize) -> bool + Send + 'static,
    writing: SerializationTimer,
    guard: QueryGuard,
) -> HttpResponse {
    let threads = guard.threads().clone();
    // Both the pieces and the end of them have a use for it; it goes when both are gone.
    let guard = Arc::new(Mutex::new(Some(guard)));
    let held = Arc::clone(&guard);
    let times = writing.clone();
    let on_sent = OnSent::new(move || {
        if let Some(guard) = held.lock().unwrap_or_else(PoisonError::into_inner).take() {
            guard.sent(200, times.time());
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

/// The reply whose body is made at once.
pub(in crate::http::routes) fn whole(
    make: impl FnOnce() -> Vec<u8>,
    guard: QueryGuard,
) -> HttpResponse {
    let writing = SerializationTimer::default();
    let body = writing.count(make);
    HttpResponse::json(body).telling(OnSent::new(move || guard.sent(200, writing.time())))
}

/// Appends to its buffer until that holds so many bytes; says whether there is more.
type Write = dyn FnMut(&mut Vec<u8>, usize) -> bool + Send;

/// What makes pieces.
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

    /// A reply of so many pieces, and how many were made.
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

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

use crate::http::reply::{BrokenAnswer, ContentType, OnSent, Reply};

/// Size of a piece of an answer. What is smaller is sent whole, with its length.
const PIECE: usize = 64 << 10;

/// How long the writing of an answer took so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Writing {
    times: Arc<Mutex<Times>>,
}

#[derive(Debug, Default)]
struct Times {
    done: Duration,
    /// When the piece at hand was begun.
    began: Option<Instant>,
}

impl Writing {
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
    writing: Writing,
    guard: QueryGuard,
) -> Reply {
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
    let mut maker = Maker { write: Box::new(write), writing, more: true };
    let first = maker.make(0);
    if !maker.more {
        return Reply::json(first).telling(on_sent);
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
    Reply::pieces(ContentType::Json, Box::pin(pieces)).telling(on_sent)
}

/// The reply whose body is made at once.
pub(in crate::http::routes) fn whole(make: impl FnOnce() -> Vec<u8>, guard: QueryGuard) -> Reply {
    let writing = Writing::default();
    let body = writing.count(make);
    Reply::json(body).telling(OnSent::new(move || guard.sent(200, writing.time())))
}

/// Appends to its buffer until that holds so many bytes; says whether there is more.
type Write = dyn FnMut(&mut Vec<u8>, usize) -> bool + Send;

/// What makes pieces.
struct Maker {
    write: Box<Write>,
    writing: Writing,
    more: bool,
}

impl Maker {
    fn make(&mut self, room: usize) -> Bytes {
        let mut piece = Vec::with_capacity(room);
        self.more = self.writing.count(|| (self.write)(&mut piece, PIECE));
        Bytes::from(piece)
    }
}

async fn next(
    mut maker: Maker,
    is_cancelled: bool,
    threads: QueryThreads,
) -> Result<Option<(Bytes, Maker)>, BrokenAnswer> {
    if !maker.more {
        return Ok(None);
    }
    if is_cancelled {
        return Err(BrokenAnswer("the query was cancelled".to_owned()));
    }
    let made = threads.call(move || (maker.make(PIECE + PIECE / 8), maker)).await;
    made.map(Some).map_err(|lost| BrokenAnswer(lost.to_string()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::http::reply::ReplyBody;

    /// A reply of so many pieces, and how many were made.
    fn counted(pieces: usize) -> (Reply, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let write = move |out: &mut Vec<u8>, enough: usize| {
            out.resize(enough, b'x');
            count.fetch_add(1, Ordering::Relaxed) + 1 < pieces
        };
        (reply(write, Writing::default(), QueryGuard::default()), made)
    }

    #[tokio::test]
    async fn a_piece_is_made_when_it_is_asked_for() {
        let (reply, made) = counted(1_000);
        let ReplyBody::Pieces(mut pieces) = reply.body else { panic!("not in pieces") };
        assert_eq!(made.load(Ordering::Relaxed), 1);
        for taken in 1..=3 {
            assert_eq!(pieces.next().await.unwrap().unwrap().len(), PIECE);
            assert_eq!(made.load(Ordering::Relaxed), taken);
        }
        drop(pieces);
        assert_eq!(made.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_small_answer_is_whole() {
        let (reply, made) = counted(1);
        assert!(matches!(reply.body, ReplyBody::Full(_)));
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }
}

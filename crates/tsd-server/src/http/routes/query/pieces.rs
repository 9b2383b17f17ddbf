//! Answers made while they are sent.
//!
//! A piece is made when the socket has room for it, never before: a client that reads slowly holds its
//! answer and one piece, and no place among the queries that work.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::stream;
use tokio_util::sync::CancellationToken;
use tsd_engine::AnswerGuard;

use crate::http::reply::{BrokenAnswer, ContentType, OnSent, Reply};

/// Size of a piece of an answer. What is smaller is sent whole, with its length.
const PIECE: usize = 64 << 10;

/// How long the writing of an answer took so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Writing {
    nanos: Arc<AtomicU64>,
}

impl Writing {
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// The reply whose body `write` makes: it appends to its buffer until that holds so many bytes, and
/// says whether there is more. The guard is told when all was sent, and dropped where it was not.
pub(super) fn reply(
    mut write: impl FnMut(&mut Vec<u8>, usize) -> bool + Send + 'static,
    writing: Writing,
    guard: AnswerGuard,
    cancel: CancellationToken,
) -> Reply {
    let mut piece = {
        let writing = writing.clone();
        move |room: usize| {
            let began = Instant::now();
            let mut piece = Vec::with_capacity(room);
            let more = write(&mut piece, PIECE);
            writing.add(began.elapsed());
            (Bytes::from(piece), more)
        }
    };
    let on_sent = OnSent::new(move || guard.sent(200, writing.time()));
    let (first, mut more) = piece(0);
    if !more {
        return Reply::json(first).telling(on_sent);
    }
    let rest = iter::from_fn(move || {
        if !more {
            return None;
        }
        if cancel.is_cancelled() {
            more = false;
            return Some(Err(BrokenAnswer("the query was cancelled".to_owned())));
        }
        let (bytes, again) = piece(PIECE + PIECE / 8);
        more = again;
        Some(Ok(bytes))
    });
    let pieces = iter::once(Ok(first)).chain(rest);
    Reply::pieces(ContentType::Json, Box::pin(stream::iter(pieces))).telling(on_sent)
}

//! Whether a server speaks at all.
//!
//! A server that does not like the connection header (service, codec, compressor) or wants TLS or
//! Kerberos closes without a word, and so does one that is killed behind a proxy. The first will never
//! answer, the second is replaced in a minute. Who ever got an answer from any server has the
//! right settings: then silence is the server's trouble and passes. Only a client that never heard
//! anything gives up, and only after a while.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::error::DisconnectReason;

/// Connections in a row that end without a word,
const TIMES: u32 = 3;

/// over so long a time, before that counts as the server's will.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of one kind of connections to one server.
#[derive(Debug)]
pub(crate) struct FirstWords {
    /// Whether this client ever heard a word from any server.
    heard_any: Arc<AtomicBool>,
    /// Connections in a row that ended without a word, and when the first of them did.
    silent: Mutex<Option<(u32, Instant)>>,
}

impl FirstWords {
    pub(crate) const fn new(heard_any: Arc<AtomicBool>) -> Self {
        Self { heard_any, silent: Mutex::new(None) }
    }

    /// A connection brought its first bytes.
    pub(super) fn heard(&self) {
        self.heard_any.store(true, Ordering::Relaxed);
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A connection ended without having brought any.
    pub(super) fn ended_in_silence(&self) -> DisconnectReason {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let (times, since) = silent.get_or_insert_with(|| (0, Instant::now()));
        *times += 1;
        let for_good = *times >= TIMES
            && since.elapsed() >= PATIENCE
            && !self.heard_any.load(Ordering::Relaxed);
        DisconnectReason::Silent { times: *times, for_good }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &FirstWords, times: u32, for_good: bool) {
        let reason = words.ended_in_silence();
        let DisconnectReason::Silent { times: seen, for_good: final_word } = reason else {
            panic!("{reason}")
        };
        assert_eq!((seen, final_word), (times, for_good));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_final_only_for_a_client_that_never_heard_anything() {
        let words = FirstWords::new(Arc::default());
        for times in 1..=5 {
            check(&words, times, false);
        }
        tokio::time::advance(PATIENCE).await;
        check(&words, 6, true);
        words.heard();
        check(&words, 1, false);
        tokio::time::advance(PATIENCE).await;
        check(&words, 2, false);
        check(&words, 3, false);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_one_server_speaks_for_the_others() {
        let heard = Arc::new(AtomicBool::new(false));
        let (one, other) =
            (FirstWords::new(Arc::clone(&heard)), FirstWords::new(Arc::clone(&heard)));
        check(&other, 1, false);
        one.heard();
        tokio::time::advance(PATIENCE).await;
        check(&other, 2, false);
        check(&other, 3, false);
    }
}

//! One direction of a protected stream: wraps or unwraps one message at a time without blocking the runtime.
//!
//! Libraries protect some 75 MB a second, and a server may send a response of many megabytes as one message.
//! So a short message is processed in place, with a yield to other tasks after each [`YIELD_BYTES`]. A longer one
//! goes to the runtime's blocking threads.

use std::{
    future::Future,
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::spawn_blocking,
};

use super::mechanism::SaslMechanism;
use crate::transport::TransportError;

/// Maximum length in bytes of a message that is processed in place.
pub(super) const MAX_INLINE: usize = 64 << 10;

/// Bytes that are processed in place before other tasks get their turn, about 3 ms.
const YIELD_BYTES: usize = 256 << 10;

/// Bytes by which a message counts at least, for its fixed costs.
const MIN_COST: usize = 1 << 10;

/// The mechanism of a connection, for both directions.
#[derive(Clone)]
pub(super) struct SharedMechanism {
    mechanism: Arc<Mutex<Box<dyn SaslMechanism>>>,
    confidential: bool,
}

/// What a direction does with its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Wrap,
    Unwrap,
}

/// Processes the messages of one direction.
pub(super) struct Engine {
    shared: SharedMechanism,
    direction: Direction,
    work: Work,
    /// Bytes processed in place since the last yield.
    processed: usize,
}

enum Work {
    Idle,
    Done(Result<Vec<u8>, TransportError>),
    Running(Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>),
}

impl SharedMechanism {
    pub(super) fn new(mechanism: Box<dyn SaslMechanism>, confidential: bool) -> Self {
        Self { mechanism: Arc::new(Mutex::new(mechanism)), confidential }
    }
}

impl Engine {
    pub(super) const fn new(shared: SharedMechanism, direction: Direction) -> Self {
        Self { shared, direction, work: Work::Idle, processed: 0 }
    }

    /// True if a message was started and its result was not taken yet.
    pub(super) const fn is_busy(&self) -> bool {
        !matches!(self.work, Work::Idle)
    }

    /// Starts a message; the former one must have been taken.
    pub(super) fn start(&mut self, message: impl AsRef<[u8]> + Send + 'static) {
        let length = message.as_ref().len();
        let (direction, confidential) = (self.direction, self.shared.confidential);
        if length <= MAX_INLINE
            && let Ok(mut mechanism) = self.shared.mechanism.try_lock()
        {
            self.processed += length.max(MIN_COST);
            let result = direction.process(&mut **mechanism, message.as_ref(), confidential);
            self.work = Work::Done(result);
            return;
        }
        let mechanism = Arc::clone(&self.shared.mechanism);
        self.work = Work::Running(Box::pin(async move {
            let mut mechanism: OwnedMutexGuard<_> = mechanism.lock_owned().await;
            let mut process =
                move || direction.process(&mut **mechanism, message.as_ref(), confidential);
            let result = if length <= MAX_INLINE {
                process()
            } else {
                spawn_blocking(process).await.map_err(io::Error::other)?
            };
            result.map_err(invalid)
        }));
    }

    /// Takes the result of the message.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        if self.processed >= YIELD_BYTES {
            self.processed = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let result = match mem::replace(&mut self.work, Work::Idle) {
            Work::Idle => Ok(Vec::new()),
            Work::Done(result) => result.map_err(invalid),
            Work::Running(mut running) => match running.as_mut().poll(cx) {
                Poll::Pending => {
                    self.work = Work::Running(running);
                    return Poll::Pending;
                }
                Poll::Ready(result) => result,
            },
        };
        Poll::Ready(result)
    }
}

impl Direction {
    fn process(
        self,
        mechanism: &mut dyn SaslMechanism,
        message: &[u8],
        confidential: bool,
    ) -> Result<Vec<u8>, TransportError> {
        match self {
            Self::Wrap => mechanism.wrap(message, confidential),
            Self::Unwrap => mechanism.unwrap(message, confidential),
        }
    }
}

fn invalid(error: TransportError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

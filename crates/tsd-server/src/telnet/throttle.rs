//! Pauses the reads of a connection whose identity sent more points than it may.
//!
//! TCP then slows the client down, and no point is lost. The request in progress keeps the connection from counting as
//! idle, since it may have points that were not read.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

use crate::timeout_io::ActiveRequest;

/// A pause of the reads.
#[derive(Default)]
pub(super) struct Throttle(Option<(Pin<Box<Sleep>>, ActiveRequest)>);

impl Throttle {
    /// Begins a pause.
    pub(super) fn pause(&mut self, pause: Duration, request: ActiveRequest) {
        self.0 = Some((Box::pin(sleep(pause)), request));
    }

    /// Ends the pause: received bytes must be read now.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// Ready when the connection may be read.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some((timer, _)) = &mut self.0
            && timer.as_mut().poll(cx).is_pending()
        {
            return Poll::Pending;
        }
        self.0 = None;
        Poll::Ready(())
    }
}

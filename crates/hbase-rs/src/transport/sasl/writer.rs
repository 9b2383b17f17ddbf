//! Write half of a protected stream.

use std::{
    io::{self, IoSlice},
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWrite;

use super::engine::{Direction, Engine, SharedMechanism};

/// Maximum content of a message in bytes. With its protection it fits into the 65536 bytes that servers announce as
/// their maximum.
pub(super) const MAX_CONTENT: usize = (64 << 10) - 128;

/// Collects bytes until a flush, and sends them as one message, or as several if they exceed [`MAX_CONTENT`].
pub(super) struct ProtectedWriter<W> {
    inner: W,
    engine: Engine,
    /// Bytes that are not wrapped.
    plain: Vec<u8>,
    /// A message with its length, of which `sent` bytes are sent.
    message: Vec<u8>,
    sent: usize,
}

impl<W: AsyncWrite + Unpin> ProtectedWriter<W> {
    pub(super) fn new(inner: W, shared: SharedMechanism) -> Self {
        let engine = Engine::new(shared, Direction::Wrap);
        Self { inner, engine, plain: Vec::new(), message: Vec::new(), sent: 0 }
    }

    /// Sends all messages that were started.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.message.get(self.sent..) {
                Some(rest) if !rest.is_empty() => {
                    let count = ready!(Pin::new(&mut self.inner).poll_write(cx, rest))?;
                    if count == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    self.sent += count;
                }
                _ if self.engine.is_busy() => {
                    let wrapped = ready!(self.engine.poll(cx))?;
                    self.message.clear();
                    self.message.extend_from_slice(&(wrapped.len() as u32).to_be_bytes());
                    self.message.extend_from_slice(&wrapped);
                    self.sent = 0;
                }
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Wraps and sends the collected bytes.
    fn poll_wrap(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        if self.plain.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.engine.start(mem::take(&mut self.plain));
        self.poll_send(cx)
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for ProtectedWriter<W> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.plain.len() >= MAX_CONTENT {
            ready!(this.poll_wrap(cx))?;
        }
        let before = this.plain.len();
        for slice in slices {
            let count = slice.len().min(MAX_CONTENT - this.plain.len());
            this.plain.extend_from_slice(slice.get(..count).unwrap_or_default());
        }
        Poll::Ready(Ok(this.plain.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_wrap(cx))?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_wrap(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

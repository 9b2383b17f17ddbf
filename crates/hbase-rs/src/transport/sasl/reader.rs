//! Read half of a protected stream.

use std::{
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::engine::{Direction, Engine, SharedMechanism};

/// Maximum length in bytes of a received message. Servers send a response as one message, so this is the default
/// limit of a response frame and the overhead of its protection.
pub(super) const MAX_MESSAGE: usize = (512 << 20) + (64 << 10);

/// Capacity in bytes that is reserved for a read.
const READ_SIZE: usize = 64 << 10;

/// Status of a SASL failure, in the place of the first message's length.
const FAILURE: usize = 1;

/// Reads messages and returns their content as a stream.
///
/// A server that rejects the client's last SASL message sends the failure unprotected. It then passes through as it
/// is, since a protected message is never one byte long.
pub(super) struct ProtectedReader<R> {
    inner: R,
    engine: Engine,
    /// Received bytes that are not unwrapped.
    raw: BytesMut,
    /// Content that is not read.
    plain: Bytes,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No message was received.
    Start,
    Protected,
    /// The stream is a SASL failure.
    Failure,
}

impl<R: AsyncRead + Unpin> ProtectedReader<R> {
    pub(super) fn new(inner: R, shared: SharedMechanism) -> Self {
        Self {
            inner,
            engine: Engine::new(shared, Direction::Unwrap),
            raw: BytesMut::new(),
            plain: Bytes::new(),
            phase: Phase::Start,
        }
    }

    /// Starts to unwrap the next message; false if its bytes are incomplete.
    fn start_next(&mut self) -> io::Result<bool> {
        let Some(length) = self.raw.first_chunk::<4>() else { return Ok(false) };
        let length = u32::from_be_bytes(*length) as usize;
        if self.phase == Phase::Start {
            self.phase = if length == FAILURE { Phase::Failure } else { Phase::Protected };
        }
        if self.phase == Phase::Failure {
            return Ok(false);
        }
        if length > MAX_MESSAGE {
            let error = format!("protected message is {length} bytes; the limit is {MAX_MESSAGE}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        if self.raw.len() - 4 < length {
            return Ok(false);
        }
        self.raw.advance(4);
        self.engine.start(self.raw.split_to(length));
        Ok(true)
    }

    /// Receives more bytes; false at the end of the stream.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.raw.reserve(READ_SIZE);
        let count = ready!(pin!(self.inner.read_buf(&mut self.raw)).poll(cx))?;
        if count == 0 && !self.raw.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        Poll::Ready(Ok(count > 0))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ProtectedReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.engine.is_busy() {
                this.plain = ready!(this.engine.poll(cx))?.into();
            }
            if !this.plain.is_empty() {
                let count = this.plain.len().min(buffer.remaining());
                buffer.put_slice(&this.plain.split_to(count));
                return Poll::Ready(Ok(()));
            }
            if this.start_next()? {
                continue;
            }
            if this.phase == Phase::Failure && !this.raw.is_empty() {
                let count = this.raw.len().min(buffer.remaining());
                buffer.put_slice(&this.raw.split_to(count));
                return Poll::Ready(Ok(()));
            }
            if !ready!(this.poll_receive(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

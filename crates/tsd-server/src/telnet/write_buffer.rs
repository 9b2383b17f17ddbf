//! Write buffer of a telnet connection.
//!
//! Collectors seldom read. So error lines are queued in a bounded buffer and dropped when it is full. The
//! connection stays open, and a client that reads again gets the number of dropped lines. Replies to
//! commands are sent in full, and a client that does not read them is disconnected.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use tsd_engine::ProcessMemory;

use crate::connection_memory::ActiveMemory;

/// Maximum bytes of the last line of a connection.
const LAST_LINE_BYTES: usize = 4_096;
/// Bytes of lines that the minimum of a connection covers.
const FREE_BYTES: usize = 2_048;

/// Queued error lines.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    pending: BytesMut,
    limit: usize,
    /// Reserved for lines beyond [`FREE_BYTES`].
    memory: ActiveMemory,
    /// Lines dropped since the buffer was last empty.
    dropped: u64,
    /// True while the client does not read a full buffer.
    is_unread: bool,
}

impl WriteBuffer {
    pub(crate) fn new(limit: usize, memory: ProcessMemory) -> Self {
        let memory = ActiveMemory::new(memory);
        Self { pending: BytesMut::new(), limit, memory, dropped: 0, is_unread: false }
    }

    /// Queues a line; returns false if the buffer or the memory is full.
    pub(crate) fn queue(&mut self, line: &[u8]) -> bool {
        let length = self.pending.len() + line.len();
        let fits = length <= self.limit && self.has_memory(length);
        if fits {
            self.pending.extend_from_slice(line);
        } else {
            self.dropped += 1;
        }
        fits
    }

    /// Reserves the memory for `length` bytes in the buffer; false if there is not enough.
    fn has_memory(&mut self, length: usize) -> bool {
        // Doubles like the buffer.
        length <= FREE_BYTES || length <= self.memory.bytes() || self.memory.try_reserve(2 * length)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn is_half_full(&self) -> bool {
        self.pending.len() >= self.limit / 2
    }

    /// Returns false after [`Self::set_unread`], until the client has read the buffer.
    pub(crate) const fn is_read(&self) -> bool {
        !self.is_unread
    }

    /// Records that the client does not read.
    pub(crate) const fn set_unread(&mut self) {
        self.is_unread = true;
    }

    /// Makes room for one more line, however full the buffer is.
    pub(crate) fn make_room(&mut self) {
        self.limit = self.limit.max(self.pending.len() + LAST_LINE_BYTES);
    }

    /// Writes queued bytes to the socket. Pending until all are written.
    pub(crate) fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut S,
    ) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let n = ready!(Pin::new(&mut *io).poll_write(cx, &self.pending))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.advance(n);
            if self.pending.is_empty() {
                self.is_unread = false;
                if self.dropped > 0 {
                    let dropped = std::mem::take(&mut self.dropped);
                    let text = format!("{dropped} error lines were dropped before this one\n");
                    self.pending.extend_from_slice(text.as_bytes());
                }
            }
        }
        if self.pending.capacity() > 0 {
            self.pending = BytesMut::new();
            self.memory.release(0);
        }
        // TLS keeps bytes that its socket does not accept.
        Pin::new(io).poll_flush(cx)
    }

    /// Sends the queued lines and then `reply`. Fails if the write takes longer than `write_timeout`.
    pub(crate) async fn reply<S: AsyncWrite + Unpin>(
        &mut self,
        io: &mut S,
        reply: &[u8],
        write_timeout: Duration,
    ) -> io::Result<()> {
        timeout(write_timeout, async {
            poll_fn(|cx| self.poll_send(cx, io)).await?;
            io.write_all(reply).await?;
            io.flush().await
        })
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn lines_beyond_the_limit_are_dropped_whole() {
        let (mut client, mut server) = tokio::io::duplex(4);
        let mut write_buffer = WriteBuffer::new(10, ProcessMemory::unlimited());
        assert!(write_buffer.queue(b"first\n"));
        let sent = poll_fn(|cx| Poll::Ready(write_buffer.poll_send(cx, &mut server))).await;
        assert!(sent.is_pending());
        assert!(write_buffer.queue(b"second\n"));
        assert!(!write_buffer.queue(b"third\n"));
        let reader = tokio::spawn(async move {
            let mut text = String::new();
            client.read_to_string(&mut text).await.unwrap();
            text
        });
        write_buffer.reply(&mut server, b"reply\n", Duration::from_mins(1)).await.unwrap();
        drop(server);
        assert_eq!(
            reader.await.unwrap(),
            "first\nsecond\n1 error lines were dropped before this one\nreply\n"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_replies_is_disconnected() {
        let (_client, mut server) = tokio::io::duplex(4);
        let mut write_buffer = WriteBuffer::new(10, ProcessMemory::unlimited());
        let end = write_buffer.reply(&mut server, b"more than four", Duration::from_secs(5)).await;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

//! Write buffer of a telnet connection.
//!
//! Collectors seldom read. Error lines are queued in a bounded buffer and dropped when it is full;
//! the connection stays open. Replies to commands are sent in full, and a client that does not read
//! them is disconnected.

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

/// Queued error lines.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    waiting: BytesMut,
    limit: usize,
}

impl WriteBuffer {
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: BytesMut::new(), limit }
    }

    /// Queues a line; returns false if the buffer is full.
    pub(crate) fn offer(&mut self, line: &[u8]) -> bool {
        let fits = self.waiting.len() + line.len() <= self.limit;
        if fits {
            self.waiting.extend_from_slice(line);
        }
        fits
    }

    /// Writes queued bytes to the socket. Pending if some are left.
    pub(crate) fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut S,
    ) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let n = ready!(Pin::new(&mut *io).poll_write(cx, &self.waiting))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(n);
        }
        if self.waiting.capacity() > 0 {
            self.waiting = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the queued lines and then `reply`. Fails if that takes longer than `write_timeout`.
    pub(crate) async fn reply<S: AsyncWrite + Unpin>(
        &mut self,
        io: &mut S,
        reply: &[u8],
        timeouts: Duration,
    ) -> io::Result<()> {
        timeout(timeouts, async {
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
    async fn lines_that_find_no_room_are_refused_and_none_is_cut() {
        let (mut client, mut server) = tokio::io::duplex(4);
        let mut output = WriteBuffer::new(10);
        assert!(output.offer(b"first\n"));
        let sent = poll_fn(|cx| Poll::Ready(output.poll_send(cx, &mut server))).await;
        assert!(sent.is_pending());
        assert!(output.offer(b"second\n"));
        assert!(!output.offer(b"third\n"));
        let reader = tokio::spawn(async move {
            let mut text = String::new();
            client.read_to_string(&mut text).await.unwrap();
            text
        });
        output.reply(&mut server, b"reply\n", Duration::from_mins(1)).await.unwrap();
        drop(server);
        assert_eq!(reader.await.unwrap(), "first\nsecond\nreply\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_without_reading_is_cut_off() {
        let (_client, mut server) = tokio::io::duplex(4);
        let mut output = WriteBuffer::new(10);
        let end = output.reply(&mut server, b"more than four", Duration::from_secs(5)).await;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

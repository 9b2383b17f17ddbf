//! Read buffer of a telnet connection: large for active connections, none for idle ones.
//!
//! Each worker thread has a small buffer pool. A connection holds a buffer only while it has
//! unprocessed bytes, so ten thousand idle collectors need ten thousand sockets and no buffers.

use std::{
    cell::RefCell,
    future::Future,
    io,
    pin::pin,
    task::{Context, Poll},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Initial read size of a connection, in bytes.
const FIRST_READ: usize = 64 << 10;
/// Maximum read size, in bytes; a few thousand points.
const LARGEST_READ: usize = 256 << 10;
/// Maximum buffers in the pool of a thread.
const POOLED: usize = 8;

thread_local! {
    static POOL: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

fn take_buffer() -> BytesMut {
    POOL.with_borrow_mut(Vec::pop).unwrap_or_else(|| BytesMut::with_capacity(FIRST_READ))
}

fn return_buffer(mut buffer: BytesMut) {
    buffer.clear();
    if (FIRST_READ..=2 * LARGEST_READ).contains(&buffer.capacity()) {
        POOL.with_borrow_mut(|pool| {
            if pool.len() < POOLED {
                pool.push(buffer);
            }
        });
    }
}

/// Unprocessed bytes of a connection.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    buffer: BytesMut,
    read_size: usize,
}

impl ReadBuffer {
    pub(crate) fn new() -> Self {
        Self { buffer: BytesMut::new(), read_size: FIRST_READ }
    }

    /// Reads available bytes, at most the current read size; 0 at the end of input.
    pub(crate) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut S,
    ) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() == 0 {
            self.buffer = take_buffer();
        }
        self.buffer.reserve(self.read_size);
        let room = self.buffer.capacity() - self.buffer.len();
        let polled = pin!(io.read_buf(&mut self.buffer)).poll(cx);
        match &polled {
            // A full read indicates more data: the next read is larger.
            Poll::Ready(Ok(n)) if *n == room => {
                self.read_size = (self.read_size * 2).min(LARGEST_READ);
            }
            Poll::Ready(_) => {}
            Poll::Pending => {
                self.read_size = FIRST_READ;
                self.release();
            }
        }
        polled
    }

    /// Returns all unprocessed bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Drops the first `n` bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        self.buffer.advance(n.min(self.buffer.len()));
    }

    /// Returns the buffer to the pool if it is nearly empty; a short rest is copied to a small
    /// buffer.
    fn release(&mut self) {
        if self.buffer.len() <= FIRST_READ / 16 && self.buffer.capacity() > FIRST_READ / 8 {
            let rest = BytesMut::from(self.bytes());
            return_buffer(std::mem::replace(&mut self.buffer, rest));
        }
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        return_buffer(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn read<S: AsyncRead + Unpin>(read_buffer: &mut ReadBuffer, io: &mut S) -> usize {
        poll_fn(|cx| read_buffer.poll_read(cx, io)).await.unwrap()
    }

    #[tokio::test]
    async fn partial_lines_are_kept_for_the_next_read() {
        let (mut client, mut server) = tokio::io::duplex(1 << 20);
        let mut read_buffer = ReadBuffer::new();
        client.write_all(b"one\ntw").await.unwrap();
        assert_eq!(read(&mut read_buffer, &mut server).await, 6);
        read_buffer.consume(4);
        client.write_all(b"o\n").await.unwrap();
        assert_eq!(read(&mut read_buffer, &mut server).await, 2);
        assert_eq!(read_buffer.bytes(), b"two\n");
        drop(client);
        assert_eq!(read(&mut read_buffer, &mut server).await, 0);
    }

    #[tokio::test]
    async fn idle_connections_have_no_buffer() {
        let (mut client, mut server) = tokio::io::duplex(1 << 20);
        let mut read_buffer = ReadBuffer::new();
        client.write_all(&vec![b'x'; 300_000]).await.unwrap();
        let mut total = 0;
        while total < 300_000 {
            total += read(&mut read_buffer, &mut server).await;
        }
        read_buffer.consume(300_000 - 10);
        let pending =
            poll_fn(|cx| Poll::Ready(read_buffer.poll_read(cx, &mut server).is_pending())).await;
        assert!(pending);
        assert_eq!(read_buffer.bytes(), b"xxxxxxxxxx");
        assert!(read_buffer.buffer.capacity() < 1_024, "{}", read_buffer.buffer.capacity());
    }
}

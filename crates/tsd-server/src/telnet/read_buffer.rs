//! Read buffer of a telnet connection: large while the connection is active, absent while it is idle.
//!
//! Each worker thread has a small buffer pool. A connection holds a buffer only while it has
//! unprocessed bytes, so ten thousand idle collectors need ten thousand sockets but no buffers.

use std::{
    cell::RefCell,
    future::Future,
    io,
    pin::pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tsd_engine::{MemoryPermit, ProcessMemory};

use crate::connection_memory::ActiveMemory;

/// Initial read size of a connection, in bytes.
const FIRST_READ: usize = 64 << 10;
/// Maximum read size, in bytes; a few thousand points.
const LARGEST_READ: usize = 256 << 10;
/// Bytes of an unfinished line that the minimum of a connection covers.
const FREE_BYTES: usize = 1 << 10;
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
    memory: ActiveMemory,
}

/// Memory of the buffer of a read, as a multiple of the read: a buffer with unprocessed bytes grows to
/// twice its size.
const BUFFER_FACTOR: usize = 2;
/// Memory of the points of a read, as a multiple of the read: the cells of short lines are longer
/// than the lines.
const POINTS_FACTOR: usize = 3;

/// Memory to reserve for a read.
const fn memory_of(read_size: usize) -> usize {
    (BUFFER_FACTOR + POINTS_FACTOR) * read_size
}

impl ReadBuffer {
    pub(crate) fn new(memory: ProcessMemory) -> Self {
        let memory = ActiveMemory::new(memory);
        Self { buffer: BytesMut::new(), read_size: FIRST_READ, memory }
    }

    /// Reads available bytes, at most the current read size; 0 at the end of input. While there is no
    /// memory for a read, stays pending and does not touch the socket.
    pub(crate) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut S,
    ) -> Poll<io::Result<usize>> {
        ready!(self.memory.poll_reserve(cx, memory_of(self.read_size)));
        if self.buffer.capacity() == 0 {
            self.buffer = take_buffer();
        }
        self.buffer.reserve(self.read_size);
        let room = self.buffer.capacity() - self.buffer.len();
        let polled = pin!(io.read_buf(&mut self.buffer)).poll(cx);
        match &polled {
            // A full read indicates more data: the next read is larger.
            Poll::Ready(Ok(n)) if *n == room => {
                let larger = (self.read_size * 2).min(LARGEST_READ);
                if self.memory.try_reserve(memory_of(larger)) {
                    self.read_size = larger;
                }
            }
            Poll::Ready(_) => {}
            Poll::Pending => self.rest(),
        }
        polled
    }

    /// Releases the buffer and its memory until the next read.
    pub(crate) fn rest(&mut self) {
        self.read_size = FIRST_READ;
        self.release();
    }

    /// Returns all unprocessed bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Drops the first `n` bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        self.buffer.advance(n.min(self.buffer.len()));
    }

    /// Takes the memory reserved for the points of the lines read.
    pub(crate) fn take_point_memory(&mut self) -> Option<MemoryPermit> {
        self.memory.take(POINTS_FACTOR * self.read_size)
    }

    /// Returns the buffer to the pool if it is nearly empty, and copies a short rest to a small
    /// buffer.
    fn release(&mut self) {
        if self.buffer.len() <= FIRST_READ / 4 && self.buffer.capacity() > FIRST_READ / 8 {
            let rest = BytesMut::from(self.bytes());
            return_buffer(std::mem::replace(&mut self.buffer, rest));
        }
        // The minimum of a connection has room for a short unfinished line.
        let kept = self.buffer.capacity();
        self.memory.release(if kept > FREE_BYTES { kept } else { 0 });
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
    use tsd_engine::MemoryConsumer;

    use super::*;

    async fn read<S: AsyncRead + Unpin>(read_buffer: &mut ReadBuffer, io: &mut S) -> usize {
        poll_fn(|cx| read_buffer.poll_read(cx, io)).await.unwrap()
    }

    #[tokio::test]
    async fn partial_lines_are_kept_for_the_next_read() {
        let (mut client, mut server) = tokio::io::duplex(1 << 20);
        let mut read_buffer = ReadBuffer::new(ProcessMemory::unlimited());
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
        let mut read_buffer = ReadBuffer::new(ProcessMemory::unlimited());
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

    #[tokio::test]
    async fn a_connection_is_not_read_without_memory_and_loses_nothing() {
        let memory = ProcessMemory::new(2 << 20, Vec::new());
        let most = memory.most(MemoryConsumer::Reads) as usize;
        let taken = memory.try_reserve(MemoryConsumer::Reads, most - 1_000).unwrap();
        let (mut client, mut server) = tokio::io::duplex(1 << 20);
        let mut read_buffer = ReadBuffer::new(memory.clone());
        client.write_all(b"one\ntw").await.unwrap();
        let pending =
            poll_fn(|cx| Poll::Ready(read_buffer.poll_read(cx, &mut server).is_pending())).await;
        assert!(pending && read_buffer.bytes().is_empty());
        drop(taken);
        assert_eq!(read(&mut read_buffer, &mut server).await, 6);
        assert_eq!(memory.reserved(MemoryConsumer::Reads), memory_of(FIRST_READ) as u64);
        let of_points = read_buffer.take_point_memory();
        read_buffer.consume(4);
        let pending =
            poll_fn(|cx| Poll::Ready(read_buffer.poll_read(cx, &mut server).is_pending())).await;
        assert!(pending);
        let points = (POINTS_FACTOR * FIRST_READ) as u64;
        assert_eq!(memory.reserved(MemoryConsumer::Reads), points);
        drop(of_points);
        assert_eq!(memory.reserved(MemoryConsumer::Reads), 0);
    }
}

//! Memory of connections, drawn from the memory limit of the process.
//!
//! - A connection reserves its minimum when it is accepted.
//! - An HTTP connection reserves its buffers when a request arrives.
//! - A telnet connection reserves the buffer of a read before it reads, and releases it when there is
//!   nothing more to read. Without memory its socket is not read, and TCP slows the client down.
//!
//! This is the first of two limits on points. It covers the bytes of a connection, from the socket until
//! the points are in the queue of the store. From then on the byte budget of the store covers them
//! ([`IngestConfig::budget`](tsd_engine::IngestConfig::budget)). Request bodies use the same memory until
//! the response is sent.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tsd_engine::{MemoryConsumer, MemoryPermit, ProcessMemory};

/// Bytes of an HTTP connection that waits for a request: the task and hyper's buffers. Measured: 13 KiB.
pub(crate) const HTTP_IDLE_BYTES: usize = 16 << 10;
/// Bytes of an HTTP connection with a request, or the beginning of one: hyper's buffers have grown.
pub(crate) const HTTP_ACTIVE_BYTES: usize = 48 << 10;
/// Bytes of a telnet connection that is not reading: a short unfinished line, some replies, the session and the task.
/// Measured without the first two: 8 KiB.
pub(crate) const TELNET_BYTES: usize = 12 << 10;
/// Bytes of TLS on a connection, in addition: the session, and the buffers of a record in each direction.
pub(crate) const TLS_BYTES: usize = 48 << 10;
/// Bytes of a new connection, whose protocol is not known yet. Measured: 5 KiB.
pub(crate) const NEW_BYTES: usize = 8 << 10;

type Wait = Pin<Box<dyn Future<Output = Option<MemoryPermit>> + Send>>;

/// Memory that a connection reserves while it needs it.
pub(crate) struct ActiveMemory {
    memory: ProcessMemory,
    permit: Option<MemoryPermit>,
    wait: Option<Wait>,
}

impl std::fmt::Debug for ActiveMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveMemory").field("permit", &self.permit).finish_non_exhaustive()
    }
}

impl ActiveMemory {
    pub(crate) const fn new(memory: ProcessMemory) -> Self {
        Self { memory, permit: None, wait: None }
    }

    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.permit.as_ref().map_or(0, MemoryPermit::bytes)
    }

    /// Reserves memory up to `bytes` in all; pending while there is not enough.
    pub(crate) fn poll_reserve(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        if self.bytes() >= bytes || self.wait.is_none() && self.try_reserve(bytes) {
            return Poll::Ready(());
        }
        let more = bytes - self.bytes();
        let memory = &self.memory;
        let wait = self.wait.get_or_insert_with(|| {
            let memory = memory.clone();
            Box::pin(async move { memory.reserve(MemoryConsumer::Reads, more).await })
        });
        let Poll::Ready(granted) = wait.as_mut().poll(cx) else { return Poll::Pending };
        self.wait = None;
        // Bytes beyond the share of connections are not accounted for: even the smallest limit allows them.
        if let Some(granted) = granted {
            self.add(granted);
        }
        Poll::Ready(())
    }

    /// Reserves memory up to `bytes` in all; false if there is not enough now.
    pub(crate) fn try_reserve(&mut self, bytes: usize) -> bool {
        if let Some(permit) = &mut self.permit {
            return permit.try_grow(bytes);
        }
        self.permit = self.memory.try_reserve(MemoryConsumer::Reads, bytes);
        self.permit.is_some()
    }

    /// Keeps `bytes`, releases the rest, and ends a wait.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.wait = None;
        match &mut self.permit {
            Some(permit) if bytes > 0 => permit.shrink(bytes),
            _ => self.permit = None,
        }
    }

    /// Takes up to `bytes` of the reserved memory.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<MemoryPermit> {
        Some(self.permit.as_mut()?.split(bytes))
    }

    fn add(&mut self, more: MemoryPermit) {
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_wait_ends_with_the_memory_of_another_connection() {
        let all = ProcessMemory::new(1 << 20, Vec::new());
        let most = all.most(MemoryConsumer::Reads) as usize;
        let (mut first, mut second) =
            (ActiveMemory::new(all.clone()), ActiveMemory::new(all.clone()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.poll_reserve(&mut cx, most).is_ready());
        assert!(second.poll_reserve(&mut cx, 1_000).is_pending());
        assert!(!second.try_reserve(1));
        let half = first.take(most / 2);
        first.release(0);
        assert_eq!((first.bytes(), half.map(|half| half.bytes())), (0, Some(most / 2)));
        assert!(second.poll_reserve(&mut cx, 1_000).is_ready());
        assert_eq!((second.bytes(), all.reserved(MemoryConsumer::Reads)), (1_000, 1_000));
        second.release(10);
        assert_eq!(all.reserved(MemoryConsumer::Reads), 10);
    }
}

//! The epoch of a connection, in which the process did not stand still.
//!
//! After a standstill the input that waits in a socket is from the past: its client may have given up and sent it to
//! another node of the cluster. Then nothing is read from or written to the socket, and `connection.rs` closes it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tsd_engine::{Epoch, Receipt, boot_ms};

/// The epoch of a connection, and the time of its last read.
#[derive(Debug)]
pub(crate) struct ConnectionEpoch {
    epoch: Epoch,
    /// Time of the last read since the boot of the machine.
    read_ms: AtomicU64,
}

impl ConnectionEpoch {
    pub(crate) const fn new(epoch: Epoch) -> Self {
        Self { epoch, read_ms: AtomicU64::new(0) }
    }

    pub(crate) const fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// The receipt of the bytes that were read last.
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt::new(self.epoch.clone(), self.read_ms.load(Ordering::Relaxed))
    }
}

/// A socket whose reads and writes hang once the process has stood still.
#[derive(Debug)]
pub(crate) struct EpochIo<S> {
    inner: S,
    /// `None` if standstills are not detected.
    epoch: Option<Arc<ConnectionEpoch>>,
    /// Bytes that were read too late.
    discarded: Counter,
}

impl<S> EpochIo<S> {
    pub(crate) const fn new(
        inner: S,
        epoch: Option<Arc<ConnectionEpoch>>,
        discarded: Counter,
    ) -> Self {
        Self { inner, epoch, discarded }
    }

    fn has_stood_still(&self) -> bool {
        self.epoch.as_ref().is_some_and(|connection| !connection.epoch.holds())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for EpochIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buf);
        if polled.is_pending() {
            return polled;
        }
        // Comes after the read, since the process may have stood still just before it.
        if this.has_stood_still() {
            this.discarded.increment((buf.filled().len() - before) as u64);
            buf.set_filled(before);
            return Poll::Pending;
        }
        if let Some(connection) = &this.epoch {
            connection.read_ms.store(boot_ms(), Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for EpochIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.has_stood_still() {
            return Poll::Pending;
        }
        Pin::new(&mut this.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.has_stood_still() {
            return Poll::Pending;
        }
        Pin::new(&mut this.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tsd_engine::Standstills;

    use super::*;

    #[tokio::test]
    async fn a_socket_gives_and_takes_nothing_after_a_standstill() {
        let detector = Standstills::new(boot_ms() + 3_600_000);
        let epoch = Arc::new(ConnectionEpoch::new(detector.epoch()));
        let (mut client, server) = tokio::io::duplex(64);
        let mut socket = EpochIo::new(server, Some(Arc::clone(&epoch)), Counter::noop());
        client.write_all(b"first").await.unwrap();
        let mut buffer = [0; 16];
        let before_ms = boot_ms();
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 5);
        assert!(epoch.read_ms.load(Ordering::Relaxed) >= before_ms);
        assert!(epoch.receipt().check().is_ok());
        client.write_all(b"second").await.unwrap();
        let _ = detector.mark(boot_ms() + 2 * 3_600_000);
        assert!(epoch.receipt().check().is_err());
        assert!(socket.read(&mut buffer).now_or_never().is_none());
        assert!(socket.write(b"reply").now_or_never().is_none());
        let mut later = EpochIo::new(socket.inner, None, Counter::noop());
        client.write_all(b"third").await.unwrap();
        assert_eq!(later.read(&mut buffer).await.unwrap(), 5);
    }
}

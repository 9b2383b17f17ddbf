//! Writes the requests of a connection. The task that makes a request also writes it, so that no other task
//! has to be woken.

use std::{future::poll_fn, io, pin::pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::{
    io::AsyncWriteExt,
    runtime::Handle,
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};
use tsd_storage::Epoch;

use crate::{
    error::PeerError, metrics::NetMetrics, pending_responses::PendingResponses, tls::WriteSide,
};

/// The writing side of a connection. Clones share it.
#[derive(Clone)]
pub(crate) struct RequestWriter {
    write: Arc<Mutex<WriteSide>>,
    connection: WrittenConnection,
}

/// State that the end of a write changes.
#[derive(Clone)]
struct WrittenConnection {
    responses: Arc<PendingResponses>,
    /// The epoch of the connection; `None` if standstills are not detected.
    epoch: Option<Epoch>,
    /// Timeout of a write.
    limit: Duration,
}

/// A frame in progress. If it is dropped, a task writes the rest, because the next frame begins after it.
#[must_use]
pub(crate) struct OpenFrame {
    write: Option<OwnedMutexGuard<WriteSide>>,
    rest: Bytes,
    connection: WrittenConnection,
    /// True in the task that writes the rest.
    is_detached: bool,
}

impl RequestWriter {
    pub(crate) fn new(
        write: WriteSide,
        responses: Arc<PendingResponses>,
        epoch: Option<Epoch>,
        limit: Duration,
    ) -> Self {
        let connection = WrittenConnection { responses, epoch, limit };
        Self { write: Arc::new(Mutex::new(write)), connection }
    }

    /// Waits for the end of the frame in progress, and returns the writing side of an ended connection.
    pub(crate) async fn take(self) -> OwnedMutexGuard<WriteSide> {
        self.write.lock_owned().await
    }

    /// Waits until a frame may be written.
    pub(crate) async fn begin(&self, frame: Bytes) -> Result<OpenFrame, PeerError> {
        let write = Arc::clone(&self.write).lock_owned().await;
        match self.connection.responses.ended() {
            Some(error) => Err(error),
            None => Ok(self.open(write, frame)),
        }
    }

    /// Writes a frame without waiting, unless another one is in progress.
    pub(crate) fn try_write(&self, frame: Bytes) {
        if let Ok(write) = Arc::clone(&self.write).try_lock_owned()
            && self.connection.responses.ended().is_none()
        {
            let mut frame = self.open(write, frame);
            if let Some(written) = frame.advance().now_or_never() {
                // An error has ended the connection.
                let _ = frame.end(written);
            }
        }
    }

    fn open(&self, write: OwnedMutexGuard<WriteSide>, frame: Bytes) -> OpenFrame {
        NetMetrics::of_process().sent_bytes.increment(frame.len() as u64);
        let connection = self.connection.clone();
        OpenFrame { write: Some(write), rest: frame, connection, is_detached: false }
    }
}

impl OpenFrame {
    /// Writes the rest of the frame. After an error the peer does not have the whole frame.
    pub(crate) async fn finish(mut self) -> Result<(), PeerError> {
        let limit = self.connection.limit;
        let written = timeout(limit, self.advance()).await;
        let written = written.unwrap_or_else(|_| {
            NetMetrics::of_process().slow_readers.increment(1);
            Err(io::ErrorKind::TimedOut.into())
        });
        self.end(written)
    }

    /// Leaves out a frame of which nothing was written.
    pub(crate) fn discard(mut self) {
        self.write = None;
    }

    /// Writes until the frame is complete, or this node has stood still. May be dropped.
    async fn advance(&mut self) -> io::Result<()> {
        let Self { write: Some(write), rest, connection, .. } = self else { return Ok(()) };
        let mut written = pin!(async {
            write.write_all_buf(rest).await?;
            write.flush().await
        });
        poll_fn(|cx| {
            if connection.epoch.as_ref().is_some_and(|epoch| !epoch.holds()) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            written.as_mut().poll(cx)
        })
        .await
    }

    fn end(&mut self, written: io::Result<()>) -> Result<(), PeerError> {
        if written.is_err() {
            // Must come before the next caller may write.
            self.connection.responses.end(PeerError::Lost);
        }
        self.write = None;
        written.map_err(|_| PeerError::Lost)
    }
}

impl Drop for OpenFrame {
    fn drop(&mut self) {
        let Some(write) = self.write.take() else { return };
        match Handle::try_current() {
            Ok(runtime) if !self.is_detached => {
                let (rest, connection) = (self.rest.split_off(0), self.connection.clone());
                let frame = Self { write: Some(write), rest, connection, is_detached: true };
                runtime.spawn(frame.finish());
            }
            _ => self.connection.responses.end(PeerError::Lost),
        }
    }
}

impl std::fmt::Debug for RequestWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestWriter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    async fn write(writer: &RequestWriter, frame: Vec<u8>) -> Result<(), PeerError> {
        writer.begin(frame.into()).await?.finish().await
    }

    /// A writer whose other side has room for ten bytes.
    fn writer(limit: Duration) -> (Arc<RequestWriter>, tokio::io::DuplexStream) {
        let (write, read) = duplex(10);
        (Arc::new(RequestWriter::new(Box::new(write), Arc::default(), None, limit)), read)
    }

    async fn read(from: &mut tokio::io::DuplexStream, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        from.read_exact(&mut found).await.unwrap();
        found
    }

    #[tokio::test]
    async fn a_frame_whose_caller_is_dropped_is_written_as_a_whole() {
        let (writer, mut other) = writer(Duration::from_mins(1));
        let first = write(&writer, vec![1; 25]);
        assert!(first.now_or_never().is_none());
        // The second frame waits for the rest of the first one.
        let second = tokio::spawn({
            let writer = Arc::clone(&writer);
            async move { write(&writer, vec![2; 15]).await }
        });
        writer.try_write(Bytes::from(vec![3; 5]));
        assert_eq!(read(&mut other, 40).await, [vec![1; 25], vec![2; 15]].concat());
        second.await.unwrap().unwrap();
        writer.try_write(Bytes::from(vec![3; 15]));
        assert_eq!(read(&mut other, 15).await, [3; 15]);
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_ends_the_connection() {
        let (writer, mut other) = writer(Duration::from_millis(20));
        let second = tokio::spawn({
            let writer = Arc::clone(&writer);
            async move {
                tokio::task::yield_now().await;
                write(&writer, vec![2; 5]).await
            }
        });
        let failed = write(&writer, vec![1; 25]).await;
        assert!(matches!(failed, Err(PeerError::Lost)));
        assert!(matches!(second.await.unwrap(), Err(PeerError::Lost)));
        writer.try_write(Bytes::from(vec![3; 5]));
        assert_eq!(read(&mut other, 10).await, [1; 10]);
        assert!(write(&writer, vec![4; 5]).await.is_err());
        drop(writer);
        assert_eq!(other.read(&mut [0; 10]).await.unwrap(), 0, "nothing comes after it");
    }
}

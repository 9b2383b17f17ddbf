//! Write half of a connection: sends the handshake and queued requests in vectored writes.

use std::{io::IoSlice, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::timeout,
};

use super::pending_calls::PendingCalls;
use crate::metrics::PeerMetrics;

/// Maximum number of requests per write.
const MAX_BATCH: usize = 64;

/// After a failed write: how long to wait for an exception of the server that tells the reason.
const ERROR_GRACE: Duration = Duration::from_secs(1);

/// An encoded request in the writer's queue.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) call_id: u32,
    /// Frame up to the cell block, without `message` if that is not empty.
    pub(super) head: Bytes,
    /// Message that is encoded apart from the head.
    pub(super) message: Bytes,
    /// Cell block.
    pub(super) block: Bytes,
}

/// Writes requests until the connection ends. The handshake is part of the first write.
pub(super) async fn run(
    mut socket: impl AsyncWrite + Unpin,
    handshake: Bytes,
    mut queue: mpsc::Receiver<QueuedRequest>,
    calls: Arc<PendingCalls>,
    metrics: PeerMetrics,
) {
    let mut handshake = Some(handshake);
    let mut batch = Vec::with_capacity(MAX_BATCH);
    loop {
        let received = tokio::select! {
            biased;
            () = calls.closed.cancelled() => return,
            received = queue.recv_many(&mut batch, MAX_BATCH) => received,
        };
        if received == 0 {
            return;
        }
        let pending = calls.mark_sent(batch.iter().map(|request| request.call_id));
        let requests = batch.iter().zip(pending).filter(|(_, pending)| *pending);
        let parts =
            requests.flat_map(|(request, _)| [&request.head, &request.message, &request.block]);
        let mut slices: Vec<_> =
            handshake.iter().chain(parts).map(|part| IoSlice::new(part)).collect();
        let bytes = slices.iter().map(|slice| slice.len() as u64).sum();
        let written = tokio::select! {
            () = calls.closed.cancelled() => return,
            written = write_all(&mut socket, &mut slices) => written,
        };
        drop(slices);
        metrics.count(|counts| counts.sent.add(bytes));
        handshake = None;
        batch.clear();
        if let Err(error) = written {
            let _ = timeout(ERROR_GRACE, calls.closed.cancelled()).await;
            calls.disconnected(&error.into());
            return;
        }
    }
}

async fn write_all(
    socket: &mut (impl AsyncWrite + Unpin),
    mut slices: &mut [IoSlice<'_>],
) -> std::io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let written = socket.write_vectored(slices).await?;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut slices, written);
    }
    // A layered stream (TLS, SASL) may buffer.
    socket.flush().await
}

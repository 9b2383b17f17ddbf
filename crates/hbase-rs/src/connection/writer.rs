//! The writing half of a connection.

use std::{io::IoSlice, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::timeout,
};

use super::{calls::Calls, error::DisconnectReason};
use crate::metrics::PeerMetrics;

/// Most requests in one write.
const BATCH: usize = 64;

/// After a failed write the server may still have said why: so long its words are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A request on its way.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) call_id: u32,
    /// Frame up to the cell block,
    pub(super) head: Bytes,
    /// but for this much of it,
    pub(super) message: Bytes,
    /// and the cell block.
    pub(super) block: Bytes,
}

/// Writes requests until the connection ends. The handshake leaves with the first of them.
pub(super) async fn run(
    mut socket: impl AsyncWrite + Unpin,
    handshake: Bytes,
    mut queue: mpsc::Receiver<Outgoing>,
    calls: Arc<Calls>,
    metrics: PeerMetrics,
) {
    let mut first = Some(handshake);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let received = tokio::select! {
            biased;
            () = calls.closed.cancelled() => return,
            received = queue.recv_many(&mut batch, BATCH) => received,
        };
        if received == 0 {
            return;
        }
        let wanted = calls.sending(batch.iter().map(|outgoing| outgoing.call_id));
        let requests = batch.iter().zip(wanted).filter(|(_, wanted)| *wanted);
        let parts =
            requests.flat_map(|(outgoing, _)| [&outgoing.head, &outgoing.message, &outgoing.block]);
        let mut slices: Vec<_> = first.iter().chain(parts).map(|part| IoSlice::new(part)).collect();
        let bytes = slices.iter().map(|slice| slice.len() as u64).sum();
        let written = tokio::select! {
            () = calls.closed.cancelled() => return,
            written = write_all(&mut socket, &mut slices) => written,
        };
        drop(slices);
        metrics.count(|counts| counts.sent.add(bytes));
        first = None;
        batch.clear();
        if let Err(error) = written {
            let _ = timeout(LAST_WORDS, calls.closed.cancelled()).await;
            calls.lost(&DisconnectReason::Socket(Arc::new(error)));
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
    // A stream in between may hold bytes back.
    socket.flush().await
}

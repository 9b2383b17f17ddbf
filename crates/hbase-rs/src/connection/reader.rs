//! The reading half of a connection.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::timeout,
};

use super::{calls::Calls, error::DisconnectReason};
use crate::{
    frame::{FrameReader, Response},
    metrics::PeerMetrics,
};

/// Room that is made for a read,
const READ_SIZE: usize = 64 << 10;

/// when there is less than this.
const MIN_READ: usize = 8 << 10;

/// Reads answers until the connection ends.
pub(super) async fn run(
    mut socket: impl AsyncRead + Unpin,
    max_frame: usize,
    idle: Duration,
    calls: Arc<Calls>,
    metrics: &PeerMetrics,
) {
    let frames = FrameReader::new(max_frame);
    let mut buffer = BytesMut::with_capacity(READ_SIZE);
    loop {
        if buffer.capacity() - buffer.len() < MIN_READ {
            buffer.reserve(READ_SIZE);
        }
        let read = tokio::select! {
            biased;
            () = calls.closed.cancelled() => return,
            read = timeout(idle, socket.read_buf(&mut buffer)) => read,
        };
        match read {
            Ok(Ok(0)) => return calls.lost(&DisconnectReason::ClosedByServer),
            Ok(Ok(count)) => {
                metrics.count(|counts| counts.received.add(count as u64));
                calls.heard();
            }
            Ok(Err(error)) => return calls.lost(&DisconnectReason::Socket(Arc::new(error))),
            // Calls have timers of their own.
            Err(_) => calls.close_if_idle(),
        }
        loop {
            match frames.next(&mut buffer) {
                Ok(Some(frame)) => match Response::decode(frame) {
                    Ok(response) => calls.answered(response),
                    // Framing is intact; the call it was for runs out of time.
                    Err(error) => tracing::warn!(%error, "frame with an unreadable header"),
                },
                Ok(None) => break,
                Err(error) => return calls.lost(&DisconnectReason::Frame(Arc::new(error))),
            }
        }
    }
}

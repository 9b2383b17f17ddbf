//! Read half of a connection: decodes response frames and completes the pending calls.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    task::coop::consume_budget,
    time::timeout,
};

use super::{error::DisconnectReason, pending_calls::PendingCalls, sasl_failure::FirstBytes};
use crate::{
    frame::{FrameReader, Response},
    metrics::PeerMetrics,
};

/// Buffer capacity reserved for a read.
const READ_SIZE: usize = 64 << 10;

/// Free capacity below which more is reserved.
const MIN_READ: usize = 8 << 10;

/// Reads responses until the connection ends.
pub(super) async fn run(
    mut socket: impl AsyncRead + Unpin,
    max_frame: usize,
    idle: Duration,
    calls: Arc<PendingCalls>,
    metrics: &PeerMetrics,
) {
    let frames = FrameReader::new(max_frame);
    let mut is_authenticated = false;
    let mut buffer = BytesMut::with_capacity(READ_SIZE);
    // Headers that cannot be decoded, of which the first, second, fourth and so on are logged.
    let mut bad_headers = 1_u64;
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
            Ok(Ok(0)) => return calls.disconnected(&DisconnectReason::ClosedByServer),
            Ok(Ok(count)) => {
                metrics.count(|counts| counts.received.add(count as u64));
                calls.data_received();
            }
            Ok(Err(error)) => {
                return calls.disconnected(&error.into());
            }
            // Pending calls have timers of their own.
            Err(_) => calls.close_if_idle(),
        }
        if !is_authenticated {
            match FirstBytes::read(&buffer) {
                FirstBytes::Incomplete => continue,
                FirstBytes::Frame => is_authenticated = true,
                FirstBytes::Failure(failure) => {
                    let reason = DisconnectReason::AuthenticationFailed(Arc::new(failure));
                    return calls.disconnected(&reason);
                }
            }
        }
        loop {
            match frames.next(&mut buffer) {
                Ok(Some(frame)) => match Response::decode(frame) {
                    Ok(response) => calls.complete(response),
                    // Framing is intact; the call of the frame times out.
                    Err(error) => {
                        if bad_headers.is_power_of_two() {
                            tracing::warn!(%error, bad_headers, "undecodable response header");
                        }
                        bad_headers += 1;
                    }
                },
                Ok(None) => break,
                Err(error) => return calls.disconnected(&DisconnectReason::Frame(Arc::new(error))),
            }
            // Many responses may have come with one read.
            consume_budget().await;
        }
    }
}

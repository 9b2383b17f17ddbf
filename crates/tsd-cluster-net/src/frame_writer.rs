//! Writes the responses of a connection.
//!
//! Joins small frames that arrived during the last write into one write. Responses are small and many, and a write of
//! ten costs the same as a write of one.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::{io::AsyncWriteExt, sync::mpsc, time::timeout};

use crate::{metrics::NetMetrics, tls::WriteSide};

/// Maximum number of frames in one write.
const FRAMES: usize = 16;
/// Maximum bytes of joined frames; larger frames are written alone.
const JOINED_BYTES: usize = 64 << 10;

/// Why the writer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// All senders are gone, or the connection has ended.
    Closed,
    /// The other side does not read frames in time.
    SlowReader,
}

/// Writes frames as they come, until their senders or the connection end.
pub(crate) async fn write_frames(
    write: &mut WriteSide,
    mut waiting: mpsc::Receiver<Bytes>,
    limit: Duration,
) -> WriteOutcome {
    let metrics = NetMetrics::of_process();
    let mut frames = Vec::with_capacity(FRAMES);
    while waiting.recv_many(&mut frames, FRAMES).await > 0 {
        for buffer in join_small(&mut frames) {
            let written = async {
                write.write_all(&buffer).await?;
                write.flush().await
            };
            match timeout(limit, written).await {
                Ok(Ok(())) => metrics.sent_bytes.increment(buffer.len() as u64),
                Ok(Err(_)) => return WriteOutcome::Closed,
                Err(_) => {
                    metrics.slow_readers.increment(1);
                    return WriteOutcome::SlowReader;
                }
            }
        }
    }
    WriteOutcome::Closed
}

/// Joins consecutive small frames. Returns the buffers to write.
fn join_small(frames: &mut Vec<Bytes>) -> Vec<Bytes> {
    if frames.len() == 1 {
        return std::mem::take(frames);
    }
    let mut buffers = Vec::new();
    let mut open = BytesMut::new();
    for frame in frames.drain(..) {
        if open.len() + frame.len() > JOINED_BYTES && !open.is_empty() {
            buffers.push(open.split().freeze());
        }
        if frame.len() > JOINED_BYTES {
            buffers.push(frame);
        } else {
            open.extend_from_slice(&frame);
        }
    }
    if !open.is_empty() {
        buffers.push(open.freeze());
    }
    buffers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sizes: &[usize], expected: &[usize]) {
        let frame = |(at, size): (usize, &usize)| Bytes::from(vec![at as u8; *size]);
        let mut frames: Vec<Bytes> = sizes.iter().enumerate().map(frame).collect();
        let all = frames.concat();
        let buffers = join_small(&mut frames);
        assert_eq!(buffers.iter().map(Bytes::len).collect::<Vec<_>>(), expected);
        assert_eq!(buffers.concat(), all);
        assert!(frames.is_empty());
    }

    #[test]
    fn small_frames_are_joined_and_large_ones_are_not() {
        check(&[7], &[7]);
        check(&[7, 1, 2], &[10]);
        check(&[7, JOINED_BYTES + 1, 2, 3], &[7, JOINED_BYTES + 1, 5]);
        check(&[JOINED_BYTES - 1, 1, 1], &[JOINED_BYTES, 1]);
        check(&[JOINED_BYTES + 9], &[JOINED_BYTES + 9]);
    }
}

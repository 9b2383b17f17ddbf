//! Writes the answers of a connection.
//!
//! Small frames that came while the last write ran are written at once: answers are small and many, and a write costs
//! the same for one and for ten of them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::{io::AsyncWriteExt, sync::mpsc, time::timeout};

use crate::{metrics::NetMetrics, tls::WriteSide};

/// Frames of a write.
const FRAMES: usize = 16;
/// Bytes of several frames of a write; larger ones are written alone.
const JOINED_BYTES: usize = 64 << 10;

/// Why no more frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteEnd {
    /// There are no more, or the connection has ended.
    Closed,
    /// The other side does not read them in time.
    SlowReader,
}

/// Writes frames as they come, until their senders or the connection end.
pub(crate) async fn write_frames(
    mut write: WriteSide,
    mut waiting: mpsc::Receiver<Bytes>,
    limit: Duration,
) -> WriteEnd {
    let metrics = NetMetrics::of_process();
    let mut frames = Vec::with_capacity(FRAMES);
    while waiting.recv_many(&mut frames, FRAMES).await > 0 {
        for part in join_small(&mut frames) {
            let written = async {
                write.write_all(&part).await?;
                write.flush().await
            };
            match timeout(limit, written).await {
                Ok(Ok(())) => metrics.sent_bytes.increment(part.len() as u64),
                Ok(Err(_)) => return WriteEnd::Closed,
                Err(_) => {
                    metrics.slow_readers.increment(1);
                    return WriteEnd::SlowReader;
                }
            }
        }
    }
    WriteEnd::Closed
}

/// Takes frames; small ones behind each other become one part.
fn join_small(frames: &mut Vec<Bytes>) -> Vec<Bytes> {
    if frames.len() == 1 {
        return std::mem::take(frames);
    }
    let mut parts = Vec::new();
    let mut open = BytesMut::new();
    for frame in frames.drain(..) {
        if open.len() + frame.len() > JOINED_BYTES && !open.is_empty() {
            parts.push(open.split().freeze());
        }
        if frame.len() > JOINED_BYTES {
            parts.push(frame);
        } else {
            open.extend_from_slice(&frame);
        }
    }
    if !open.is_empty() {
        parts.push(open.freeze());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sizes: &[usize], expected: &[usize]) {
        let frame = |(at, size): (usize, &usize)| Bytes::from(vec![at as u8; *size]);
        let mut frames: Vec<Bytes> = sizes.iter().enumerate().map(frame).collect();
        let all = frames.concat();
        let parts = join_small(&mut frames);
        assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), expected);
        assert_eq!(parts.concat(), all);
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

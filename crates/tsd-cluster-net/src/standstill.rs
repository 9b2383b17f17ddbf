//! Closes connections that were open while this node stood still. Their input may be from before the standstill, when
//! other nodes already went on without this one.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};

use crate::{
    metrics::NetMetrics,
    tls::{ReadSide, WriteSide},
};

/// How long the input of such a connection is discarded.
const DISCARD_FOR: Duration = Duration::from_secs(1);
/// Bytes of one discarding read.
const DISCARD_BYTES: usize = 4 << 10;

/// Ends the sending side of a connection, and discards its input for a short time.
pub(crate) async fn discard(
    frames: FramedRead<ReadSide, LengthDelimitedCodec>,
    write: &mut WriteSide,
) {
    let discarded = &NetMetrics::of_process().discarded_bytes;
    discarded.increment(frames.read_buffer().len() as u64);
    let mut read = frames.into_inner();
    let closed = async {
        let _ = write.shutdown().await;
        let mut buffer = [0; DISCARD_BYTES];
        while let Ok(bytes @ 1..) = read.read(&mut buffer).await {
            discarded.increment(bytes as u64);
        }
    };
    // Afterwards the connection is closed anyway.
    let _ = timeout(DISCARD_FOR, closed).await;
}

//! Closes a connection so that its client receives what was written last.
//!
//! If a socket with unread input is closed, the system resets the connection, and the client may lose a
//! reply that it has not read yet.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// Bytes of one discarding read.
const DISCARD_BYTES: usize = 4 << 10;
/// Maximum bytes to discard, so that a client that keeps sending does not delay the close.
const MOST_DISCARDED: usize = 64 << 20;

/// Ends the output of a connection, then discards its input until the client closes, for at most `limit`. Returns the
/// number of discarded bytes.
pub(crate) async fn close_gently<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut S,
    limit: Duration,
) -> usize {
    let mut discarded = 0;
    let closed = async {
        io.shutdown().await?;
        let mut buffer = [0; DISCARD_BYTES];
        while discarded < MOST_DISCARDED {
            match io.read(&mut buffer).await? {
                0 => break,
                read => discarded += read,
            }
        }
        Ok::<_, io::Error>(())
    };
    // Afterwards the connection is closed anyway.
    let _ = timeout(limit, closed).await;
    discarded
}

//! Tells a client why its connection is refused, if it speaks first.
//!
//! The protocol is known by the first byte of the client. A refused connection waits a moment for
//! it; few do so at once, since each is an open file.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Refused connections that wait at once; others are closed without a reason.
const MOST_WAITING: usize = 8;
/// How long a refused connection waits for the client.
const PATIENCE: Duration = Duration::from_millis(250);

/// Refused connections that wait for their first byte.
#[derive(Clone, Debug)]
pub(crate) struct RefusedConnections(Arc<Semaphore>);

impl Default for RefusedConnections {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_WAITING)))
    }
}

impl RefusedConnections {
    /// Closes a connection, with the reason if the client speaks soon.
    pub(crate) fn refuse(&self, stream: TcpStream, reason: String) {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else { return };
        tokio::spawn(async move {
            // Either way the connection ends.
            let _ = timeout(PATIENCE, tell(stream, &reason, &permit)).await;
        });
    }
}

async fn tell(
    mut stream: TcpStream,
    reason: &str,
    _permit: &OwnedSemaphorePermit,
) -> std::io::Result<()> {
    let mut first = [0; 1024];
    let read = stream.read(&mut first).await?;
    let reply = match first.get(..read).and_then(<[u8]>::first) {
        None => return Ok(()),
        Some(b'A'..=b'Z') => {
            let body = format!(r#"{{"error":{{"code":503,"message":"{reason}"}}}}"#);
            format!(
                "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; \
                 charset=UTF-8\r\nContent-Length: {}\r\nRetry-After: 1\r\nConnection: \
                 close\r\n\r\n{body}",
                body.len()
            )
        }
        Some(_) => format!("error: {reason}\n"),
    };
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await?;
    // Unread bytes would reset the connection before the client has read the reason.
    while stream.read(&mut first).await? > 0 {}
    Ok(())
}

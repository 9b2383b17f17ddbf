//! Tells a client why its connection is refused, if the client speaks first.
//!
//! The first byte of the client selects the protocol of the answer. A refused connection waits briefly
//! for this byte. Only a few wait at once, since each is an open file.

use std::{fmt::Display, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};
use tsd_protocol::ApiError;

use crate::{
    client_stream::TLS_HANDSHAKE, gentle_close::close_gently, http::render_raw_error,
    port_tls::REQUIRED_KEY,
};

/// Least and greatest limit of waiting refused connections. Further connections get the reason only if the client
/// has already spoken.
const MOST_WAITING: std::ops::RangeInclusive<usize> = 8..=128;
/// How long a refused connection waits for the client to speak, and then for the client to close.
const PATIENCE: Duration = Duration::from_millis(250);

/// Refused connections that wait for their first byte.
#[derive(Clone, Debug)]
pub(crate) struct RefusedConnections(Arc<Semaphore>);

impl RefusedConnections {
    /// Derives the limit from the limit of connections, since a waiting connection is an open file, too.
    pub(crate) fn new(max_connections: usize) -> Self {
        let most = (max_connections / 16).clamp(*MOST_WAITING.start(), *MOST_WAITING.end());
        Self(Arc::new(Semaphore::new(most)))
    }

    /// Closes a connection, with the reason if the client speaks soon.
    pub(crate) fn refuse(&self, stream: TcpStream, reason: impl Display + Send + 'static) {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            tell_now(&stream, &reason);
            return;
        };
        tokio::spawn(async move {
            let mut stream = stream;
            let mut first = [0; 1];
            let peeked = timeout(PATIENCE, stream.peek(&mut first)).await;
            if matches!(peeked, Ok(Ok(1..))) {
                let [first] = first;
                tell(&mut stream, &refusal(first, &reason)).await;
            }
            drop(permit);
        });
    }
}

/// A fatal alert of TLS, in the form that all versions read. A client cannot be told more before the handshake.
pub(crate) const fn fatal_alert(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description]
}

/// The alert `internal_error`.
const INTERNAL_ERROR: u8 = 80;

/// Returns the answer to a client that begins with this byte.
pub(crate) fn refusal(first: u8, reason: &dyn Display) -> Vec<u8> {
    if first == TLS_HANDSHAKE {
        fatal_alert(INTERNAL_ERROR).to_vec()
    } else if first.is_ascii_uppercase() {
        render_raw_error(&ApiError::new(503, reason.to_string()))
    } else {
        format!("error: {reason}\n").into_bytes()
    }
}

/// Returns the answer to a client without TLS that begins with this byte.
pub(crate) fn tls_required(first: u8) -> Vec<u8> {
    let reason = format!("this port requires TLS ({REQUIRED_KEY})");
    if first.is_ascii_uppercase() {
        let details = "Use a URL that begins with https://";
        render_raw_error(&ApiError::new(403, reason).with_details(details))
    } else {
        format!("error: {reason}: connect with TLS\n").into_bytes()
    }
}

/// Sends the answer and closes the connection, even if the client does not read the answer.
pub(crate) async fn tell<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, answer: &[u8]) {
    let written = async {
        stream.write_all(answer).await?;
        stream.flush().await
    };
    if matches!(timeout(PATIENCE, written).await, Ok(Ok(()))) {
        close_gently(stream, PATIENCE).await;
    }
}

/// Sends the answer to a client that has already spoken, without a wait.
fn tell_now(stream: &TcpStream, reason: &dyn Display) {
    let mut input = [0; 4 << 10];
    // Reads the input, since unread input would reset the connection.
    let Ok(1..) = stream.try_read(&mut input) else { return };
    let [first, ..] = input;
    // The client may be gone.
    let _ = stream.try_write(&refusal(first, reason));
}

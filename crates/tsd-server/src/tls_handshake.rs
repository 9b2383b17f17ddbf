//! TLS handshakes of clients: their time limit, and what becomes of failed ones.
//!
//! A handshake counts as a half-read request: the connection is not evicted for another one meanwhile, and it ends
//! with the daemon.

use std::{net::SocketAddr, time::Duration};

use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};
use tokio_rustls::{rustls::ProtocolVersion, server::TlsStream};
use tracing::warn;

use crate::{
    client_stream::ClientStream,
    connection_memory::TLS_BYTES,
    gentle_close::close_gently,
    open_connections::OpenConnection,
    port_tls::{CERTIFICATE_KEY, PortTls},
    refused_connection::fatal_alert,
    server_state::ServerState,
    tls_failure::TlsFailure,
};

/// Maximum unsent plaintext and ciphertext of a connection, each, bytes.
const BUFFER_BYTES: usize = 16 << 10;
/// How long to discard the input of a failed handshake, so that the client receives the alert.
const DISCARD_FOR: Duration = Duration::from_millis(250);
/// How long a closed connection may take to send its last records.
const CLOSE_FOR: Duration = Duration::from_millis(500);
/// The alert `handshake_failure`.
const HANDSHAKE_FAILURE: u8 = 40;

/// Negotiates TLS with a client that has begun a handshake. `None` if it failed, or the connection must close; both
/// are done with then.
pub(crate) async fn shake_hands<'s>(
    state: &ServerState,
    stream: &'s mut TcpStream,
    peer: SocketAddr,
    connection: &OpenConnection,
) -> Option<ClientStream<'s>> {
    let Some(tls) = &state.config.tls else {
        let _ = stream.write_all(&fatal_alert(HANDSHAKE_FAILURE)).await;
        close_gently(stream, DISCARD_FOR).await;
        let reason = format!("this port has no TLS; set {CERTIFICATE_KEY} and tsd.tls.key");
        fail(state, peer, TlsFailure::Off, &reason);
        return None;
    };
    connection.tracker.set_half_read(true);
    let shaken = tokio::select! {
        shaken = accept(state, tls, stream) => shaken,
        () = connection.closing.cancelled() => None,
    };
    connection.tracker.set_half_read(false);
    match shaken? {
        Ok(stream) => {
            let (_, session) = stream.get_ref();
            let handshakes = match session.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => &state.metrics.tls_12,
                _ => &state.metrics.tls_13,
            };
            handshakes.increment(1);
            if let Some([certificate, ..]) = session.peer_certificates() {
                connection.set_certificate_name(tsd_tls::client_name(certificate));
            }
            Some(ClientStream::Tls(Box::new(stream)))
        }
        Err((failure, reason)) => {
            fail(state, peer, failure, &reason);
            None
        }
    }
}

async fn accept<'s>(
    state: &ServerState,
    tls: &PortTls,
    stream: &'s mut TcpStream,
) -> Option<Result<TlsStream<&'s mut TcpStream>, (TlsFailure, String)>> {
    let limit = state.config.limits.tls_handshake_timeout;
    let accept = tls.acceptor().accept_with(stream, |session| {
        session.set_buffer_limit(Some(BUFFER_BYTES));
    });
    Some(match timeout(limit, accept.into_fallible()).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err((error, stream))) => {
            close_gently(stream, DISCARD_FOR).await;
            Err((TlsFailure::of(&error), error.to_string()))
        }
        Err(_) => Err((TlsFailure::Timeout, format!("the handshake took longer than {limit:?}"))),
    })
}

/// Counts and logs a failed handshake.
fn fail(state: &ServerState, peer: SocketAddr, failure: TlsFailure, reason: &str) {
    state.metrics.tls_failed(failure).increment(1);
    if let Some(suppressed) = state.tls_log.admit() {
        warn!(%peer, reason, suppressed, "a TLS handshake failed");
    }
}

/// Reserves the memory of TLS; false if there is not enough.
pub(crate) fn reserve_memory(state: &ServerState, connection: &OpenConnection) -> bool {
    connection.set_base(TLS_BYTES);
    state.connections.reserve_memory(connection, 0)
}

/// Tells the client that the stream ends here and was not cut.
pub(crate) async fn close(stream: &mut ClientStream<'_>) {
    if matches!(stream, ClientStream::Tls(_)) {
        // The client may be gone.
        let _ = timeout(CLOSE_FOR, stream.shutdown()).await;
    }
}

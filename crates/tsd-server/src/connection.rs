//! Serves one connection: selects the protocol by the first byte. Ends it after a standstill of the process.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::TcpStream,
    time::{Instant, sleep_until},
};
use tsd_engine::{Epoch, stood_still_since};

use crate::{
    client_stream::{ClientStream, TLS_HANDSHAKE},
    connection_epoch::{ConnectionEpoch, EpochIo},
    connection_memory::{HTTP_IDLE_BYTES, TELNET_BYTES},
    gentle_close::close_gently,
    http,
    open_connections::{NoRoom, OpenConnection},
    refused_connection::{self, refusal},
    server_state::ServerState,
    telnet,
    timeout_io::{IoTimeouts, TimeoutIo},
    tls_handshake,
};

/// How long the input of a connection is discarded after a standstill.
const DISCARD_FOR: Duration = Duration::from_secs(1);

/// Protocols on the shared port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    /// One of the others, encrypted.
    Tls,
    Telnet,
}

impl Protocol {
    const fn from_first_byte(byte: u8) -> Self {
        match byte {
            b'A'..=b'Z' => Self::Http,
            TLS_HANDSHAKE => Self::Tls,
            _ => Self::Telnet,
        }
    }
}

/// Serves a connection of an epoch until the connection ends, or the process has stood still.
pub(crate) async fn serve(
    state: Arc<ServerState>,
    mut stream: TcpStream,
    peer: SocketAddr,
    connection: Arc<OpenConnection>,
    epoch: Option<Epoch>,
) {
    let metrics = &state.metrics;
    let epoch = epoch.map(ConnectionEpoch::new).map(Arc::new);
    let serving = serve_protocol(&state, &mut stream, peer, (connection, epoch.clone()));
    let ended = tokio::select! {
        biased;
        () = stood_still_since(epoch.as_deref().map(ConnectionEpoch::epoch)) => {
            metrics.stood_still.increment(1);
            None
        }
        served = serving => Some(served),
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => metrics.connection_failed(&error),
        None => {
            let discarded = close_gently(&mut stream, DISCARD_FOR).await;
            metrics.discarded_bytes.increment(discarded as u64);
        }
    }
}

async fn serve_protocol(
    state: &Arc<ServerState>,
    stream: &mut TcpStream,
    peer: SocketAddr,
    (connection, epoch): (Arc<OpenConnection>, Option<Arc<ConnectionEpoch>>),
) -> io::Result<()> {
    let own = state.config.tls.as_ref().and_then(|_| stream.local_addr().ok());
    let mut stream = ClientStream::Plain(stream);
    let Some(mut first) = first_byte(state, &mut stream, &connection).await? else { return Ok(()) };
    // Marks the connection as active, so that it is not closed to make room for itself.
    connection.tracker.record_activity();
    match stream {
        ClientStream::Plain(socket) if first == TLS_HANDSHAKE => {
            if !tls_handshake::reserve_memory(state, &connection) {
                state.metrics.connections_rejected.add(1);
                refused_connection::tell(socket, &refusal(first, &NoRoom::Memory)).await;
                return Ok(());
            }
            let shaken = tls_handshake::shake_hands(state, socket, peer, &connection).await;
            let Some(encrypted) = shaken else { return Ok(()) };
            stream = encrypted;
            let Some(byte) = first_byte(state, &mut stream, &connection).await? else {
                tls_handshake::close(&mut stream).await;
                return Ok(());
            };
            first = byte;
            connection.tracker.record_activity();
        }
        plain => {
            stream = plain;
            if state.config.tls.as_ref().is_some_and(|tls| tls.refuses_plain(peer, own)) {
                state.log_plain(peer);
                let answer = refused_connection::tls_required(first);
                refused_connection::tell(&mut stream, &answer).await;
                return Ok(());
            }
        }
    }
    let served = serve_stream(state, &mut stream, peer, (connection, epoch), first).await;
    tls_handshake::close(&mut stream).await;
    served
}

/// Serves the protocol that begins with `first`.
async fn serve_stream(
    state: &Arc<ServerState>,
    stream: &mut ClientStream<'_>,
    peer: SocketAddr,
    (connection, epoch): (Arc<OpenConnection>, Option<Arc<ConnectionEpoch>>),
    first: u8,
) -> io::Result<()> {
    let limits = &state.config.limits;
    let protocol = Protocol::from_first_byte(first);
    let is_http = protocol == Protocol::Http;
    let bytes = if is_http { HTTP_IDLE_BYTES } else { TELNET_BYTES };
    if !state.connections.reserve_memory(&connection, bytes) {
        state.metrics.connections_rejected.add(1);
        let answer = refusal(first, &NoRoom::Memory);
        refused_connection::tell(stream, &answer).await;
        return Ok(());
    }
    let timeouts = IoTimeouts {
        idle: limits.idle_timeout,
        header: is_http.then_some(limits.header_timeout),
        write: is_http.then_some(limits.write_timeout),
        response_stall: is_http.then_some(limits.response_stall),
        half_close: limits.half_close_grace,
    };
    let tracker = Arc::clone(&connection.tracker);
    let io = EpochIo::new(stream, epoch.clone(), state.metrics.discarded_bytes.clone());
    let io = TimeoutIo::new(io, timeouts, Arc::clone(&tracker));
    let io = io.with_pressure(Arc::clone(state) as _);
    let (state, connection) = (Arc::clone(state), (connection, epoch));
    let result = match protocol {
        Protocol::Http => http::serve(state, io, connection, peer).await,
        Protocol::Telnet => telnet::serve(state, io, connection, peer).await,
        // TLS inside TLS.
        Protocol::Tls => Err(io::ErrorKind::Unsupported.into()),
    };
    // hyper does not report an error for a broken idle connection.
    if tracker.timed_out() { Err(io::ErrorKind::TimedOut.into()) } else { result }
}

/// Waits for the first byte and leaves it in the stream; `None` at the end of input, or if the connection must close.
async fn first_byte(
    state: &ServerState,
    stream: &mut ClientStream<'_>,
    connection: &OpenConnection,
) -> io::Result<Option<u8>> {
    tokio::select! {
        biased;
        peeked = stream.peek() => peeked,
        () = connection.closing.cancelled() => Ok(None),
        () = idle_timeout(state) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Completes after the idle timeout, if it is set.
fn idle_timeout(state: &ServerState) -> impl Future<Output = ()> + use<> {
    let deadline = state.config.limits.idle_timeout.map(|idle| Instant::now() + idle);
    async move {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capital_letters_are_http_and_other_bytes_telnet() {
        for byte in u8::MIN..=u8::MAX {
            let expected = match byte {
                0x41..=0x5A => Protocol::Http,
                0x16 => Protocol::Tls,
                _ => Protocol::Telnet,
            };
            assert_eq!(Protocol::from_first_byte(byte), expected, "{byte:#x}");
        }
    }
}

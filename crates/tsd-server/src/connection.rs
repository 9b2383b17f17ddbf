//! Serves one connection: selects the protocol by the first byte.

use std::{future::Future, io, net::SocketAddr, sync::Arc};

use tokio::{
    net::TcpStream,
    time::{Instant, sleep_until},
};

use crate::{
    connection_memory::{HTTP_IDLE_BYTES, TELNET_BYTES},
    http,
    open_connections::{NoRoom, OpenConnection},
    refused_connection::{self, refusal},
    server_state::ServerState,
    telnet,
    timeout_io::{IoTimeouts, TimeoutIo},
};

/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Protocols on the shared port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    /// Not supported. The connection is closed, so that the handshake is not parsed as telnet lines.
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

/// Serves a connection until it ends.
pub(crate) async fn serve(
    state: Arc<ServerState>,
    stream: TcpStream,
    peer: SocketAddr,
    connection: Arc<OpenConnection>,
) {
    let limits = &state.config.limits;
    let first = match first_byte(&state, &stream, &connection).await {
        Ok(Some(byte)) => byte,
        Ok(None) => return,
        Err(error) => {
            state.metrics.connection_failed(&error);
            return;
        }
    };
    let protocol = Protocol::from_first_byte(first);
    let is_http = protocol == Protocol::Http;
    // Marks the connection as active, so that it is not closed to make room for itself.
    connection.tracker.record_activity();
    let bytes = if is_http { HTTP_IDLE_BYTES } else { TELNET_BYTES };
    if !state.connections.reserve_memory(&connection, bytes) {
        state.metrics.connections_rejected.add(1);
        let answer = refusal(first, &NoRoom::Memory);
        refused_connection::tell(stream, &answer).await;
        return;
    }
    let timeouts = IoTimeouts {
        idle: limits.idle_timeout,
        header: is_http.then_some(limits.header_timeout),
        write: is_http.then_some(limits.write_timeout),
        response_stall: is_http.then_some(limits.response_stall),
        half_close: limits.half_close_grace,
    };
    let tracker = Arc::clone(&connection.tracker);
    let io = TimeoutIo::new(stream, timeouts, Arc::clone(&tracker));
    let io = io.with_pressure(Arc::clone(&state) as _);
    let result = match protocol {
        Protocol::Http => http::serve(Arc::clone(&state), io, connection, peer).await,
        Protocol::Telnet => telnet::serve(Arc::clone(&state), io, connection, peer).await,
        Protocol::Tls => Err(io::ErrorKind::Unsupported.into()),
    };
    // hyper does not report an error for a broken idle connection.
    if tracker.timed_out() {
        state.metrics.connection_failed(&io::ErrorKind::TimedOut.into());
    } else if let Err(error) = result {
        state.metrics.connection_failed(&error);
    }
}

/// Waits for the first byte and leaves it in the socket; `None` at the end of input, or if the connection must close.
async fn first_byte(
    state: &ServerState,
    stream: &TcpStream,
    connection: &OpenConnection,
) -> io::Result<Option<u8>> {
    let mut byte = [0];
    tokio::select! {
        biased;
        peeked = stream.peek(&mut byte) => Ok((peeked? > 0).then_some(byte[0])),
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

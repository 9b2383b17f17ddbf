//! One connection: which protocol it speaks, told by its first byte.

use std::{future::Future, io, net::SocketAddr, sync::Arc};

use tokio::{
    net::TcpStream,
    time::{Instant, sleep_until},
};

use crate::{
    guarded_io::{GuardedIo, Patience},
    http,
    shared::Shared,
    telnet,
};

/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Protocols that share the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    Http,
    /// Not served: the connection is closed, as a handshake must not be taken for a telnet line.
    Tls,
    Telnet,
}

impl Spoken {
    const fn by_first_byte(byte: u8) -> Self {
        match byte {
            b'A'..=b'Z' => Self::Http,
            TLS_HANDSHAKE => Self::Tls,
            _ => Self::Telnet,
        }
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    let limits = &shared.config.limits;
    let first = match first_byte(&shared, &stream).await {
        Ok(Some(byte)) => byte,
        Ok(None) => return,
        Err(error) => {
            shared.counters.connection_failed(&error);
            return;
        }
    };
    let mut patience = Patience {
        idle: limits.idle_timeout,
        header: None,
        write: None,
        half_close: limits.half_close_grace,
    };
    let spoken = Spoken::by_first_byte(first);
    if spoken == Spoken::Http {
        patience.header = Some(limits.header_timeout);
        patience.write = Some(limits.write_timeout);
    }
    let (io, pulse) = GuardedIo::new(stream, patience);
    let ended = match spoken {
        Spoken::Http => http::serve(Arc::clone(&shared), io, Arc::clone(&pulse), peer).await,
        Spoken::Telnet => telnet::serve(Arc::clone(&shared), io, Arc::clone(&pulse)).await,
        Spoken::Tls => Err(io::ErrorKind::Unsupported.into()),
    };
    // hyper does not call it an error if an idle connection breaks.
    if pulse.timed_out() {
        shared.counters.connection_failed(&io::ErrorKind::TimedOut.into());
    } else if let Err(error) = ended {
        shared.counters.connection_failed(&error);
    }
}

/// Waits for the first byte and leaves it in the socket; `None` if there will be none.
async fn first_byte(shared: &Shared, stream: &TcpStream) -> io::Result<Option<u8>> {
    let mut byte = [0];
    tokio::select! {
        biased;
        peeked = stream.peek(&mut byte) => Ok((peeked? > 0).then_some(byte[0])),
        () = shared.stopping.cancelled() => Ok(None),
        () = silence(shared) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Ends after the idle timeout, if there is one.
fn silence(shared: &Shared) -> impl Future<Output = ()> + use<> {
    let deadline = shared.config.limits.idle_timeout.map(|idle| Instant::now() + idle);
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
    fn capital_letters_are_http_and_nearly_all_else_is_telnet() {
        for byte in u8::MIN..=u8::MAX {
            let expected = match byte {
                0x41..=0x5A => Spoken::Http,
                0x16 => Spoken::Tls,
                _ => Spoken::Telnet,
            };
            assert_eq!(Spoken::by_first_byte(byte), expected, "{byte:#x}");
        }
    }
}
